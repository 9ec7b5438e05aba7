# SPDX-License-Identifier: Apache-2.0
"""Offers the short causal convolution and the gated RMSNorm with fla's signatures."""

from typing import Any

from .. import _kinds
from .._types import T, Tensor
from ._arguments import activation_name, check_states, refuse_pool


def causal_conv1d(
    x: T,
    weight: Tensor,
    bias: Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    activation: str | None = None,
    cu_seqlens: Tensor | None = None,
    *,
    out: T | None = None,
    final_state: T | None = None,
    read_slots: Tensor | None = None,
    write_slots: Tensor | None = None,
    has_initial_state: Tensor | None = None,
    pad_below: int = 0,
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> tuple[T, T | None]:
    """Short causal depthwise convolution over whole sequences:
      out[t,d] = act(bias[d] + sum_{w=0}^{W-1} weight[d,w] x[t-W+1+w, d]).

    Args:
      x: [B,T,D], any strides. weight: [D,W], W in {2,3,4}. bias: [D] or None.
      initial_state: [N,D,L], L >= W-1 columns of raw inputs, oldest first; None = zeros.
      output_final_state: also return the last max(L of initial_state, W-1) inputs, in x's dtype.
      activation: None, "silu" or "swish".
      final_state: tensor or pool to write; may be initial_state itself. It is what is returned.

    Returns: (out [B,T,D], final state or None).

    Example:
      >>> x, weight = np.ones((1, 10, 24), np.float32), np.ones((24, 4), np.float32)
      >>> out, state = sluice.causal_conv1d(x, weight, output_final_state=True)
      >>> out[0, :5, 0].tolist(), state.shape
      ([1.0, 2.0, 3.0, 4.0, 4.0], (1, 24, 3))
    """
    if initial_state is not None and read_slots is None:
        check_states("causal_conv1d", initial_state, x, cu_seqlens)
    if output_final_state and final_state is None:
        refuse_pool("causal_conv1d", read_slots, write_slots)
        n = x.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
        columns = weight.shape[1] - 1 if initial_state is None else initial_state.shape[2]
        final_state = _kinds.empty(x, (n, x.shape[2], columns))
    if out is None:
        out = _kinds.empty_like(x) if cu_seqlens is None else _kinds.zeros_like(x)
    activation = activation_name(activation, "causal_conv1d")
    _kinds.entry("causal_conv1d", x)(  # values of causal_conv1d
        x, weight, bias, out, cu_seqlens, initial_state, final_state, read_slots, write_slots,
        has_initial_state, None, None, pad_below, "shift", activation, implementation, stream,
        workspace
    )
    return out, final_state


def causal_conv1d_update(
    x: T,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    cu_seqlens: Tensor | None = None,
    *,
    out: T | None = None,
    slots: Tensor | None = None,
    num_accepted: Tensor | None = None,
    ring_position: Tensor | None = None,
    pad_below: int = 0,
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> T:
    """The next token, or the next few, of each sequence; conv_state is updated IN PLACE.

    Args:
      x: [B,D] (one token) or [B,T,D].
      conv_state: [slots,D,L] with free strides, L >= W-1 columns of raw inputs, oldest first, or a
        ring where ring_position [N] (absolute position of the first input) is given.
      slots: int32/int64 [N] slots of conv_state, default n; below pad_below is padding.
      num_accepted: int32/int64 [N], speculation (`sluice_conv_state_io` in sluice.h).
      weight, bias, activation: as in `causal_conv1d`.

    Returns: out, the shape of x (a new tensor unless given).

    Example:
      >>> state, weight = np.zeros((1, 24, 3), np.float32), np.ones((24, 4), np.float32)
      >>> for _ in range(3):
      ...     out = sluice.causal_conv1d_update(np.ones((1, 24), np.float32), state, weight)
      >>> out[0, :2].tolist()
      [3.0, 3.0]
    """
    if out is None:
        out = _kinds.empty_like(x) if cu_seqlens is None else _kinds.zeros_like(x)
    result: Any = out
    if len(x.shape) == 2:
        rows: Any = x
        x, out = rows[:, None], result[:, None]
    initial_state = conv_state
    final_state = conv_state
    read_slots = slots
    conv_state_form = "shift" if ring_position is None else "ring"
    activation = activation_name(activation, "causal_conv1d_update")
    _kinds.entry("causal_conv1d", x)(  # values of causal_conv1d
        x, weight, bias, out, cu_seqlens, initial_state, final_state, read_slots, None, None,
        num_accepted, ring_position, pad_below, conv_state_form, activation, implementation, stream,
        workspace
    )
    return result


def gated_rms_norm(
    x: T,
    z: Tensor,
    weight: Tensor,
    eps: float = 1e-6,
    activation: str = "silu",
    rounding: str = "once",
    *,
    out: T | None = None,
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> T:
    """Gated RMSNorm, norm before gate: out = x rsqrt(mean(x^2) + eps) * weight * act(z).

    x, z: [.., V] of rank 2 to 4, inner stride 1. weight: [V]. activation: "silu", "swish" or
    "sigmoid". rounding: "once" (fla) or "hf" (transformers). out: may be x.

    Returns: out.

    Example:
      >>> x = np.full((2, 5, 64), 3, np.float32)
      >>> out = sluice.gated_rms_norm(x, x, np.ones(64, np.float32), activation="sigmoid")
      >>> round(float(out[0, 0, 0]), 4)                             # 1 * sigmoid(3)
      0.9526
    """
    if out is None:
        out = _kinds.empty_like(x)
    activation = activation_name(activation, "gated_rms_norm", "sigmoid")
    _kinds.entry("gated_rms_norm", x)(  # values of gated_rms_norm
        x, z, weight, out, eps, activation, rounding, implementation, stream, workspace
    )
    return out
