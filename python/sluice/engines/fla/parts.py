# SPDX-License-Identifier: Apache-2.0
"""Runs the other parts of fla's layers on Sluice: fla.modules' short convolution and gated RMSNorm, with fla's
parameters. Both have gradients; states are written out of place, as fla does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import functional
from ..refusal import only_absent, unsupported

if TYPE_CHECKING:
    import torch


def causal_conv1d(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool | None = False,
    activation: str | None = None,
    backend: str | None = "triton",
    cu_seqlens: torch.Tensor | None = None,
    cu_seqlens_cpu: Any = None,
    chunk_indices: Any = None,
    cp_context: Any = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """x [B,T,D], weight [D,W], states [N,D,W]: as many columns as taps. backend, cu_seqlens_cpu and chunk_indices
    choose nothing. Returns (out, final state in x's dtype or None)."""
    op = "fla.causal_conv1d"
    only_absent(op, "not supported", residual=residual, cp_context=cp_context, seq_idx=kwargs.get("seq_idx"))
    if weight is None or len(x.shape) != 3:
        unsupported(op, "x", x, "[B,T,D] with a weight", "short convolution")
    final = None
    if output_final_state:
        n = x.shape[0] if cu_seqlens is None else len(cu_seqlens) - 1
        final = x.new_empty((n, *weight.shape))
    return functional.causal_conv1d(
        x, weight, bias, initial_state, activation=activation, cu_seqlens=cu_seqlens, final_state=final
    )


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
    """x, g [.., V] of any rank, weight [V]; rounded once, at the end."""
    op = "fla.rms_norm_gated"
    only_absent(op, "not supported", bias=bias, residual=residual, prenorm=prenorm)
    if weight is None:
        unsupported(op, "weight", weight, "a tensor [V]", "gated norm")
    rows, z = (t if t.dim() in (2, 3, 4) else t.reshape(-1, t.shape[-1]) for t in (x, g))
    return functional.gated_rms_norm(rows, z, weight, eps=eps, activation=activation).view(x.shape)
