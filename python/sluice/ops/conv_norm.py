# SPDX-License-Identifier: Apache-2.0
"""The short causal convolution and the gated RMSNorm."""

from typing import Any

from .. import _kinds
from .._types import T, Tensor


def causal_conv1d(
    x: T,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    out: T | None = None,
    cu_seqlens: Tensor | None = None,
    initial_state: Tensor | None = None,
    final_state: T | None = None,
    read_slots: Tensor | None = None,
    write_slots: Tensor | None = None,
    has_initial_state: Tensor | None = None,
    num_accepted: Tensor | None = None,
    ring_position: Tensor | None = None,
    pad_below: int = 0,
    conv_state_form: str = "shift",
    activation: str = "none",
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> T:
    """Short causal depthwise convolution, prefill and update alike:
      out[t,d] = act(bias[d] + sum_{w=0}^{W-1} weight[d,w] x[t-W+1+w, d]).

    Args:
      x: [B,T,D], any strides: a channel-first tensor is passed transposed, without a copy.
      weight: [D,W], W in {2,3,4}, inner stride 1. bias: [D] or None.
      out: [B,T,D], any strides; must not overlap x. Allocated as x if None.
      initial_state, final_state: pools [slots,D,L] with free strides, L >= W-1 columns of raw
        inputs, oldest first. None: zeros / not written. One tensor for both: in place.
      read_slots, write_slots, has_initial_state, pad_below: as in `chunk_forward`.
      num_accepted: int32/int64 [N], the speculative window of the "shift" form.
      ring_position: int32/int64 [N], absolute position of the first input; "ring" form only.
      activation: "none" or "silu".

    Returns: out.
    """
    if out is None:
        out = _kinds.empty_like(x)
    _kinds.entry("causal_conv1d", x)(
        x,
        weight,
        bias,
        out,
        cu_seqlens,
        initial_state,
        final_state,
        read_slots,
        write_slots,
        has_initial_state,
        pad_below,
        num_accepted,
        ring_position,
        conv_state_form,
        activation,
        implementation,
        stream,
        workspace,
    )
    return out


def gated_rms_norm(
    x: T,
    z: Tensor,
    weight: Tensor,
    *,
    out: T | None = None,
    eps: float = 1e-6,
    activation: str = "silu",
    rounding: str = "once",
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> T:
    """Gated RMSNorm, norm before gate: out = x rsqrt(mean(x^2) + eps) * weight * act(z).

    Args:
      x, z: [.., V] of rank 2 to 4, inner stride 1. weight: [V].
      out: shape of x, inner stride 1; may be x. Allocated as x if None.
      eps: > 0. activation: "silu" or "sigmoid".
      rounding: "once" (float32 to the end, FLA) or "hf" (normalised x rounded to its dtype first).

    Returns: out.
    """
    if out is None:
        out = _kinds.empty_like(x)
    _kinds.entry("gated_rms_norm", x)(
        x=x,
        z=z,
        weight=weight,
        out=out,
        eps=eps,
        activation=activation,
        rounding=rounding,
        implementation=implementation,
        stream=stream,
        workspace=workspace,
    )
    return out
