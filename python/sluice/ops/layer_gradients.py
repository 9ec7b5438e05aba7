# SPDX-License-Identifier: Apache-2.0
"""`layer_backward`. Made by ops/generate.py from ops/manifest.json."""

from typing import Any, NamedTuple

from .. import _kinds
from .._types import Tensor


class Gradients(NamedTuple):
    """None where there is no such input."""

    qkv: Any
    z: Any
    b: Any
    a: Any
    conv_weight: Any
    conv_bias: Any
    A_log: Any
    dt_bias: Any
    norm_weight: Any
    initial_state: Any
    conv_initial: Any


def layer_backward(
    qkv: Tensor,
    z: Tensor | None = None,
    b: Tensor | None = None,
    a: Tensor | None = None,
    *,
    conv_weight: Tensor,
    conv_bias: Tensor | None = None,
    A_log: Tensor,
    dt_bias: Tensor,
    norm_weight: Tensor,
    cu_seqlens: Tensor | None = None,
    conv_initial: Tensor | None = None,
    initial_state: Tensor | None = None,
    core_out: Tensor | None = None,
    d_out: Tensor,
    d_final_state: Tensor | None = None,
    d_conv_final: Tensor | None = None,
    dqkv: Tensor | None = None,
    dz: Tensor | None = None,
    db: Tensor | None = None,
    da: Tensor | None = None,
    dconv_weight: Tensor | None = None,
    dconv_bias: Tensor | None = None,
    dA_log: Tensor | None = None,
    ddt_bias: Tensor | None = None,
    dnorm_weight: Tensor | None = None,
    d_initial_state: Tensor | None = None,
    dconv_initial: Tensor | None = None,
    num_k_heads: int,
    num_v_heads: int,
    head_k_dim: int,
    head_v_dim: int,
    scale: float | None = None,
    l2norm_eps: float = 1e-06,
    norm_eps: float = 1e-06,
    packing: str = "flat",
    eigenvalues: str = "positive",
    head_map: str = "block",
    gate_activation: str = "silu",
    rounding: str = "once",
    state_layout: str = "kv",
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> Gradients:
    """Gradients of layer_prefill by every input, for training.

    gated_rms_norm_backward, chunk_backward and causal_conv1d_backward one after the other, on what the layer computes
    on its way, which is computed again: no call needs more of the forward one than its inputs. Packings flat and
    interleaved, scalar gates. What is not given is allocated where its input is given.

    Args:
      qkv: [B,T,D] or [B,T,2HK+2HVV]: projections: [q heads | k heads | v heads], or interleaved;
        row strides are free.
      z: [B,T,HVV]: gates of the norm; flat packing only.
      b: [B,T,HV] or [B,T,2HV]: beta logits; interleaved: [r b | r a] per key head.
      a: [B,T,HV]: raw gates; flat packing only.
      conv_weight: [D,W]: channels [q | k | v], inner stride 1.
      conv_bias: [D]: added to the convolution.
      A_log: [HV]: of raw gates; absent in bounded ones = 0.
      dt_bias: [HV]: of raw gates; absent in bounded and key-wise ones = 0.
      norm_weight: [V]: of the gated norm.
      cu_seqlens: int32/int64 [N+1]: offsets of packed sequences, B = 1.
      conv_initial: [N,D,L]: convolution states at the start, one a sequence; absent = zeros.
      initial_state: [N,HV,K,V]: states at the start, one a sequence: no pools here.
      core_out: [B,T,HV,V]: what layer_prefill wrote there, inner stride 1; absent = computed again.
      d_out: [B,T,HV,V]: gradient of out, inner stride 1.
      d_final_state: [N,HV,K,V]: gradient of the final state; absent = zeros.
      d_conv_final: [N,D,L]: gradient of the final convolution states; absent = zeros.
      dqkv: [B,T,D] or [B,T,2HK+2HVV]: gradient by qkv, inner stride 1; interleaved: z's too.
      dz: [B,T,HVV]: gradient by z, inner stride 1.
      db: [B,T,HV] or [B,T,2HV]: gradient by b.
      da: [B,T,HV]: gradient by a.
      dconv_weight: [D,W]: gradient by conv_weight.
      dconv_bias: [D]: gradient by conv_bias.
      dA_log: [HV]: gradient by A_log.
      ddt_bias: [HV]: gradient by dt_bias.
      dnorm_weight: [V]: gradient by norm_weight.
      d_initial_state: [N,HV,K,V]: gradient by initial_state.
      dconv_initial: [N,D,L]: gradient by conv_initial.
      num_k_heads: H.
      num_v_heads: HV.
      head_k_dim: K.
      head_v_dim: V.
      scale: factor of o; absent = K^-0.5; 0.0 is zero.
      l2norm_eps: epsilon of the l2 norm of q and k.
      norm_eps: epsilon of the gated norm.
      packing: packing of a layer's projections: "flat" (Qwen3.5: qkv = [q | k | v], z, b, a),
        "interleaved" (Qwen3-Next: per key head [q | k | r v | r z] and [r b | r a]), "separate"
        (Kimi Linear: q, k and v of three projections, each convolved by itself).
      eigenvalues: range of the transition's eigenvalues along k: "positive" (beta as given),
        "negative" (2 beta).
      head_map: which key head value head h reads: "block" (h // r), "cyclic" (h mod H (ggml)).
      gate_activation: of z: silu or sigmoid: "none" (x), "silu" (x sigmoid(x)), "sigmoid"
        (sigmoid(x)).
      rounding: where gated RMSNorm rounds: "once" (float32 to the end, one rounding (FLA)), "hf"
        (normalised x rounded to its dtype first; layers: core output first), "input" (layers: core
        output rounded to out's dtype first (vLLM)).
      state_layout: order of a state's inner dimensions: "kv" ([..,K,V]), "vk" ([..,V,K]).
      implementation: which implementation runs: "auto" (by the views' device, or by SLUICE_IMPL),
        "reference" (float64, token by token), "reference-chunked" (float64, chunk form), "cpu" (CPU
        kernels), "cuda" (CUDA kernels).
      stream, workspace: see the module; a workspace is any 1-D tensor of the device.

    Returns: Gradients.
    """
    if dqkv is None:
        dqkv = _kinds.empty_like(qkv) if cu_seqlens is None else _kinds.zeros_like(qkv)
    if dz is None and z is not None:
        dz = _kinds.empty_like(z) if cu_seqlens is None else _kinds.zeros_like(z)
    if db is None and b is not None:
        db = _kinds.empty_like(b) if cu_seqlens is None else _kinds.zeros_like(b)
    if da is None and a is not None:
        da = _kinds.empty_like(a) if cu_seqlens is None else _kinds.zeros_like(a)
    if dconv_weight is None:
        dconv_weight = _kinds.empty_like(conv_weight)
    if dconv_bias is None and conv_bias is not None:
        dconv_bias = _kinds.empty_like(conv_bias)
    if dA_log is None:
        dA_log = _kinds.empty_like(A_log)
    if ddt_bias is None:
        ddt_bias = _kinds.empty_like(dt_bias)
    if dnorm_weight is None:
        dnorm_weight = _kinds.empty_like(norm_weight)
    if d_initial_state is None and initial_state is not None:
        d_initial_state = _kinds.empty_like(initial_state)
    if dconv_initial is None and conv_initial is not None:
        dconv_initial = _kinds.empty_like(conv_initial)
    _kinds.entry("layer_backward", qkv)(
        qkv, z, b, a, conv_weight, conv_bias, A_log, dt_bias, norm_weight, cu_seqlens, conv_initial,
        initial_state, core_out, d_out, d_final_state, d_conv_final, dqkv, dz, db, da, dconv_weight,
        dconv_bias, dA_log, ddt_bias, dnorm_weight, d_initial_state, dconv_initial, num_k_heads,
        num_v_heads, head_k_dim, head_v_dim, scale, l2norm_eps, norm_eps, packing, eigenvalues,
        head_map, gate_activation, rounding, state_layout, implementation, stream, workspace
    )
    return Gradients(dqkv, dz, db, da, dconv_weight, dconv_bias, dA_log, ddt_bias, dnorm_weight,
        d_initial_state, dconv_initial)
