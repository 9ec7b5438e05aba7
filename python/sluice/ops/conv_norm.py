# SPDX-License-Identifier: Apache-2.0
"""Offers `causal_conv1d`, `gated_rms_norm`. Made by ops/generate.py from ops/manifest.json."""

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
    """Short causal depthwise convolution, prefill and update.

    out[t,d] = act(bias[d] + sum_{w=0}^{W-1} weight[d,w] x[t-W+1+w, d]), W in {2,3,4}. States are L >= W-1 columns of
    raw inputs, free strides.

    Args:
      x: [B,T,D]: inputs, any strides: a channel-first tensor is passed transposed, without a copy.
      weight: [D,W]: weights, inner stride 1.
      bias: [D]: added to the sums.
      out: [B,T,D]: outputs, any strides; must not overlap x.
      cu_seqlens: int32/int64 [N+1]: offsets of packed sequences, B = 1.
      initial_state: [slots,D,L]: states to start from, slot stride free; absent = zeros.
      final_state: [slots,D,L]: where states are written; may be the memory of initial_state; absent
        = not written.
      read_slots: int32/int64 [N]: slot that a sequence reads; absent = n.
      write_slots: int32/int64 [N]: slot that a sequence writes; absent = read_slots.
      has_initial_state: bool/uint8 [N]: false = start from zeros, whatever the slot holds.
      num_accepted: int32/int64 [N]: start from column max(num_accepted[n], 1) - 1 of read_slots
        [N,W] (speculation).
      ring_position: int32/int64 [N]: absolute position of the first input; ring form only.
      pad_below: a slot index below it is padding: zero outputs, no state touched.
      conv_state_form: form of a convolution state of L columns: "shift" (oldest column first),
        "ring" (the input at position p is in column p mod L).
      activation: silu or none: "none" (x), "silu" (x sigmoid(x)), "sigmoid" (sigmoid(x)).
      implementation: which implementation runs: "auto" (by the views' device, or by SLUICE_IMPL),
        "reference" (float64, token by token), "reference-chunked" (float64, chunk form), "cpu" (CPU
        kernels), "cuda" (CUDA kernels).
      stream, workspace: see the module; a workspace is any 1-D tensor of the device.

    Returns: out.
    """
    if out is None:
        out = _kinds.empty_like(x) if cu_seqlens is None else _kinds.zeros_like(x)
    _kinds.entry("causal_conv1d", x)(
        x, weight, bias, out, cu_seqlens, initial_state, final_state, read_slots, write_slots,
        has_initial_state, num_accepted, ring_position, pad_below, conv_state_form, activation,
        implementation, stream, workspace
    )
    return out


def gated_rms_norm(
    x: T,
    z: Tensor,
    weight: Tensor,
    *,
    out: T | None = None,
    eps: float = 1e-06,
    activation: str = "silu",
    rounding: str = "once",
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> T:
    """RMSNorm times the activated gate.

    Norm before gate: out = x rsqrt(mean(x^2) + eps) * weight * act(z).

    Args:
      x: [..,V]: inputs of rank 2 to 4, inner stride 1.
      z: [..,V]: gates of the norm, inner stride 1.
      weight: [V]: weights, inner stride 1.
      out: [..,V]: inner stride 1; may be x.
      eps: epsilon of the norm, > 0.
      activation: silu or sigmoid: "none" (x), "silu" (x sigmoid(x)), "sigmoid" (sigmoid(x)).
      rounding: where gated RMSNorm rounds: "once" (float32 to the end, one rounding (FLA)), "hf"
        (normalised x rounded to its dtype first; layers: core output first), "input" (layers: core
        output rounded to out's dtype first (vLLM)).
      implementation: which implementation runs: "auto" (by the views' device, or by SLUICE_IMPL),
        "reference" (float64, token by token), "reference-chunked" (float64, chunk form), "cpu" (CPU
        kernels), "cuda" (CUDA kernels).
      stream, workspace: see the module; a workspace is any 1-D tensor of the device.

    Returns: out.
    """
    if out is None:
        out = _kinds.empty_like(x)
    _kinds.entry("gated_rms_norm", x)(
        x, z, weight, out, eps, activation, rounding, implementation, stream, workspace
    )
    return out
