# SPDX-License-Identifier: Apache-2.0
"""Stands in for vLLM's gated RMS norms: vllm.third_party.flash_linear_attention.ops.layernorm_guard (GDN
layers, through the custom operator of RMSNormGated and directly) and .kda (KDA layers).

float32 to the end and one rounding, as vLLM's kernels. Rows of one group, gated after the norm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import ops
from ..refusal import only_absent, only_value, unsupported

if TYPE_CHECKING:
    import torch

_AFTER = "the gate multiplies normalised rows"


def _activation(op: str, name: str) -> str:
    if name not in ("swish", "silu", "sigmoid"):
        unsupported(op, "activation", name, "'swish', 'silu' or 'sigmoid'", "gated norm")
    return "sigmoid" if name == "sigmoid" else "silu"


def _one_group(op: str, x: torch.Tensor, group_size: int | None) -> None:
    if group_size not in (None, x.shape[-1]):
        unsupported(op, "group_size", group_size, f"None or {x.shape[-1]}", "one group a row")


def layer_norm_fwd(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    eps: float,
    z: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    group_size: int | None = None,
    norm_before_gate: bool = True,
    is_rms_norm: bool = False,
    activation: str = "swish",
) -> tuple[torch.Tensor, None, None]:
    """Rows [M,N] into out, which may be x. Returns (out, None, None): means and deviations, which vLLM
    returns beside, are read by none of its callers."""
    op = "vllm.layer_norm_fwd"
    only_absent(op, "RMS norm without bias", bias=bias)
    only_value(op, "is_rms_norm", is_rms_norm, True, "no mean is subtracted")
    only_value(op, "norm_before_gate", norm_before_gate, True, _AFTER)
    _one_group(op, x, group_size)
    if z is None:
        unsupported(op, "z", z, "gates", "gated norm")
    how = _activation(op, activation)
    return ops.gated_rms_norm(x, z, weight, out=out, eps=eps, activation=how), None, None


def rmsnorm_fn(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    z: torch.Tensor | None = None,
    eps: float = 1e-6,
    group_size: int | None = None,
    norm_before_gate: bool = True,
    activation: str = "swish",
) -> torch.Tensor:
    """What RMSNormGated computes on a GPU: x, z [.., V], weight [V]; a new tensor."""
    op = "vllm.rmsnorm_fn"
    only_absent(op, "RMS norm without bias", bias=bias)
    only_value(op, "norm_before_gate", norm_before_gate, True, _AFTER)
    _one_group(op, x, group_size)
    if z is None:
        unsupported(op, "z", z, "gates", "gated norm")
    return ops.gated_rms_norm(x, z, weight, eps=eps, activation=_activation(op, activation))


def rms_norm_gated(
    x: torch.Tensor,
    g: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    activation: str = "swish",
    residual: torch.Tensor | None = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    eps: float = 1e-6,
) -> torch.Tensor:
    """What FusedRMSNormGated of KDA layers computes on a GPU: x [.., V], as many gates; a new tensor."""
    op = "vllm.rms_norm_gated"
    only_absent(op, "RMS norm without bias or residual", bias=bias, residual=residual,
                prenorm=prenorm)
    if weight is None:
        unsupported(op, "weight", weight, "[V]", "gated norm")
    how = _activation(op, activation)
    return ops.gated_rms_norm(x, g.view(x.shape), weight, eps=eps, activation=how)
