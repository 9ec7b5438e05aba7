# SPDX-License-Identifier: Apache-2.0
"""Offers `causal_conv1d_backward`, `gated_rms_norm_backward`. Made by ops/generate.py from ops/manifest.json."""

from typing import Any

from .. import _kinds
from .._types import Tensor


def causal_conv1d_backward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    cu_seqlens: Tensor | None = None,
    initial_state: Tensor | None = None,
    d_out: Tensor,
    d_final_state: Tensor | None = None,
    dx: Tensor | None = None,
    dweight: Tensor | None = None,
    dbias: Tensor | None = None,
    d_initial_state: Tensor | None = None,
    activation: str = "none",
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> None:
    """Gradients of causal_conv1d by every input.

    dx[t,d] = sum_w weight[d,w] dpre[t+W-1-w, d], dweight[d,w] = sum_t dpre[t,d] x[t-W+1+w, d], dbias[d] = sum_t
    dpre[t,d] with dpre = d_out act'(pre), pre recomputed. Equal calls give equal bits. What is not given is
    not computed.

    Args:
      x: [B,T,D]: inputs, any strides.
      weight: [D,W]: weights, inner stride 1.
      bias: [D]: added to the sums.
      cu_seqlens: int32/int64 [N+1]: offsets of packed sequences, B = 1.
      initial_state: [N,D,L]: states that sequences start from, any strides; absent = zeros.
      d_out: [B,T,D]: gradient of out, any strides.
      d_final_state: [N,D,L]: gradient of the final state; absent = zeros.
      dx: [B,T,D]: gradient by x, any strides; zeros past the last packed sequence.
      dweight: [D,W]: gradient by weight.
      dbias: [D]: gradient by bias.
      d_initial_state: [N,D,L]: gradient by initial_state.
      activation: silu or none: "none" (x), "silu" (x sigmoid(x)), "sigmoid" (sigmoid(x)).
      implementation: which implementation runs: "auto" (by the views' device, or by SLUICE_IMPL),
        "reference" (float64, token by token), "reference-chunked" (float64, chunk form), "cpu" (CPU
        kernels), "cuda" (CUDA kernels).
      stream, workspace: see the module; a workspace is any 1-D tensor of the device.

    Returns nothing.
    """
    _kinds.entry("causal_conv1d_backward", x)(
        x, weight, bias, cu_seqlens, initial_state, d_out, d_final_state, dx, dweight, dbias,
        d_initial_state, activation, implementation, stream, workspace
    )


def gated_rms_norm_backward(
    x: Tensor,
    z: Tensor,
    weight: Tensor,
    *,
    d_out: Tensor,
    dx: Tensor | None = None,
    dz: Tensor | None = None,
    dweight: Tensor | None = None,
    eps: float = 1e-06,
    activation: str = "silu",
    rounding: str = "once",
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> None:
    """Gradients of gated_rms_norm by every input.

    With n = x rstd and s = d_out act(z) weight: dx = rstd (s - n mean(s n)), dz = d_out n weight act'(z), dweight =
    sum of d_out n act(z). Equal calls give equal bits. What is not given is not computed.

    Args:
      x: [..,V]: inputs of rank 2 to 4, inner stride 1.
      z: [..,V]: gates of the norm, inner stride 1.
      weight: [V]: weights, inner stride 1.
      d_out: [..,V]: gradient of out, inner stride 1.
      dx: [..,V]: gradient by x, inner stride 1.
      dz: [..,V]: gradient by z, inner stride 1.
      dweight: [V]: gradient by weight.
      eps: epsilon of the norm, > 0.
      activation: silu or sigmoid: "none" (x), "silu" (x sigmoid(x)), "sigmoid" (sigmoid(x)).
      rounding: where gated RMSNorm rounds: "once" (float32 to the end, one rounding (FLA)), "hf"
        (normalised x rounded to its dtype first; layers: core output first), "input" (layers: core
        output rounded to out's dtype first (vLLM)).
      implementation: which implementation runs: "auto" (by the views' device, or by SLUICE_IMPL),
        "reference" (float64, token by token), "reference-chunked" (float64, chunk form), "cpu" (CPU
        kernels), "cuda" (CUDA kernels).
      stream, workspace: see the module; a workspace is any 1-D tensor of the device.

    Returns nothing.
    """
    _kinds.entry("gated_rms_norm_backward", x)(
        x, z, weight, d_out, dx, dz, dweight, eps, activation, rounding, implementation, stream,
        workspace
    )
