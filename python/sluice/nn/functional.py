# SPDX-License-Identifier: Apache-2.0
"""Offers the operators of a layer as functional operators of torch, which torch.compile(fullgraph=True), torch.export
and activation checkpointing see through: torch.ops.sluice.train_*. They write nothing that they are given, know their
results' shapes, and their gradients are operators likewise."""

from typing import Any

import torch
from torch import Tensor

from .. import _core
from .._operators import as_rows, define_with_gradients, new_like
from ._layer import INPUTS, train_layer

Values = dict[str, Any]


def _conv(given: Values) -> Tensor:
    out = new_like(given["x"], given["cu_seqlens"] is not None)
    _core.causal_conv1d(out=out, **given)
    return out


def _conv_gradients(given: Values, d_out: Tensor, places: Values) -> None:
    _core.causal_conv1d_backward(d_out=d_out, **given, **places)


def _norm_rows(given: Values) -> Values:
    return {**given, "x": as_rows(given["x"]), "z": as_rows(given["z"])}


def _norm(given: Values) -> Tensor:
    out = new_like(given["x"])
    _core.gated_rms_norm(out=out, **_norm_rows(given))
    return out


def _norm_gradients(given: Values, d_out: Tensor, places: Values) -> None:
    _core.gated_rms_norm_backward(d_out=as_rows(d_out), **_norm_rows(given), **places)


def _rule(given: Values) -> Tensor:
    o = new_like(given["v"], given["cu_seqlens"] is not None)
    _core.chunk_forward(o=o, **given)
    return o


def _rule_gradients(given: Values, d_o: Tensor, places: Values) -> None:
    if given["cu_seqlens"] is not None:  # rows past the last sequence are not written
        for gradient in places.values():
            gradient.zero_()
    _core.chunk_backward(d_o=as_rows(d_o), **given, **places)


_train_conv = define_with_gradients(
    "train_causal_conv1d", "Tensor x, Tensor weight, Tensor? bias, Tensor? cu_seqlens", "str activation", _conv,
    _conv_gradients,
)  # fmt: skip
_train_norm = define_with_gradients(
    "train_gated_rms_norm", "Tensor x, Tensor z, Tensor weight", "float eps, str activation, str rounding", _norm,
    _norm_gradients,
)  # fmt: skip
_train_rule = define_with_gradients(
    "train_gated_delta_rule",
    "Tensor q, Tensor k, Tensor v, Tensor? gate, Tensor? beta, Tensor? A_log, Tensor? dt_bias, Tensor? cu_seqlens",
    "str gate_space, str beta_space, str eigenvalues, str qk_norm, float? scale",
    _rule,
    _rule_gradients,
)


def causal_conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    activation: str = "silu",
) -> Tensor:
    """sluice.causal_conv1d of [B,T,D] without states."""
    found: Tensor = _train_conv(x, weight, bias, cu_seqlens, activation)
    return found


def gated_rms_norm(
    x: Tensor, z: Tensor, weight: Tensor, eps: float = 1e-6, activation: str = "silu", rounding: str = "once"
) -> Tensor:
    """sluice.gated_rms_norm."""
    found: Tensor = _train_norm(x, z, weight, eps, activation, rounding)
    return found


def gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gate: Tensor | None = None,
    beta: Tensor | None = None,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    *,
    gate_space: str = "log",
    beta_space: str = "value",
    eigenvalues: str = "positive",
    qk_norm: str = "l2",
    scale: float | None = None,
) -> Tensor:
    """sluice.ops.chunk_forward from zero states, outputs alone."""
    found: Tensor = _train_rule(
        q, k, v, gate, beta, A_log, dt_bias, cu_seqlens, gate_space, beta_space, eigenvalues, qk_norm, scale
    )
    return found


_CONVOLUTION = tuple(f"{part}conv_{name}" for part in ("", "k_", "v_") for name in ("weight", "bias"))


def gated_delta_net(
    qkv: Tensor,
    z: Tensor | None,
    b: Tensor,
    a: Tensor | None,
    *,
    conv_weight: Tensor,
    norm_weight: Tensor,
    num_k_heads: int,
    num_v_heads: int,
    head_k_dim: int,
    head_v_dim: int,
    norm_eps: float = 1e-6,
    packing: str = "flat",
    eigenvalues: str = "positive",
    gate_activation: str = "silu",
    rounding: str = "once",
    gate_lower_bound: float = 0.0,
    cu_seqlens: Tensor | None = None,
    save_core: bool = False,
    conv_columns: int = 0,
    output_final_state: bool = False,
    **tensors: Tensor | None,
) -> tuple[Tensor, tuple[Tensor, ...], Tensor | None]:
    """All of a layer between its input projections and its output projection, which is in it with out_weight
    [hidden, HVV]: `sluice.ops.layer_prefill` with gradients. tensors: what that takes by the same names (A_log,
    dt_bias, conv_bias, conv_initial, initial_state, k, v, k_conv_weight, ..), all of them differentiable. Under
    autocast the convolution's weights and biases are converted to the type of its rows, as torch does with its own.

    save_core: keep the delta rule's output for the backward pass (2 HVV bytes a token in 16 bits), which else
    computes it again. conv_columns: columns of the convolution states that are returned, at least W - 1; 0 = none.

    Returns: ([B,T,HV,V], or [B,T,hidden] with out_weight; the convolution states [N,D,columns], three with packing
    "separate"; the final state float32 or None).
    """
    tensors.update(qkv=qkv, z=z, b=b, a=a, conv_weight=conv_weight, norm_weight=norm_weight)
    unknown = set(tensors) - set(INPUTS)
    if unknown:
        raise TypeError(f"gated_delta_net: {min(unknown)} = given, expected one of {', '.join(INPUTS)}")
    if torch.is_autocast_enabled(qkv.device.type):
        # As autocast has it of torch's convolutions. PERF: the fast ones have weights of the rows' type.
        for name in _CONVOLUTION:
            tensor = tensors.get(name)
            if tensor is not None:
                tensors[name] = tensor.to(qkv.dtype)
    out, _, *states, final = train_layer(
        *map(tensors.get, INPUTS), cu_seqlens, num_k_heads, num_v_heads, head_k_dim, head_v_dim, norm_eps, packing,
        eigenvalues, gate_activation, rounding, gate_lower_bound, save_core, conv_columns, output_final_state,
    )  # fmt: skip
    count = 0 if conv_columns == 0 else 3 if packing == "separate" else 1
    return out, tuple(states[:count]), final if output_final_state else None
