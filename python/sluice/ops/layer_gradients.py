# SPDX-License-Identifier: Apache-2.0
"""Offers `layer_backward`. Made by ops/generate.py from ops/manifest.json."""

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
    k: Any
    v: Any
    k_conv_weight: Any
    v_conv_weight: Any
    k_conv_bias: Any
    v_conv_bias: Any
    k_conv_initial: Any
    v_conv_initial: Any


def layer_backward(
    qkv: Tensor,
    z: Tensor | None = None,
    b: Tensor | None = None,
    a: Tensor | None = None,
    *,
    conv_weight: Tensor,
    conv_bias: Tensor | None = None,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
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
    k: Tensor | None = None,
    v: Tensor | None = None,
    k_conv_weight: Tensor | None = None,
    v_conv_weight: Tensor | None = None,
    k_conv_bias: Tensor | None = None,
    v_conv_bias: Tensor | None = None,
    k_conv_initial: Tensor | None = None,
    v_conv_initial: Tensor | None = None,
    d_k_conv_final: Tensor | None = None,
    d_v_conv_final: Tensor | None = None,
    dk: Tensor | None = None,
    dv: Tensor | None = None,
    dk_conv_weight: Tensor | None = None,
    dv_conv_weight: Tensor | None = None,
    dk_conv_bias: Tensor | None = None,
    dv_conv_bias: Tensor | None = None,
    dk_conv_initial: Tensor | None = None,
    dv_conv_initial: Tensor | None = None,
    gate_lower_bound: float = 0.0,
    stream: Any = None,
    workspace: Tensor | None = None,
) -> Gradients:
    """Gradients of layer_prefill by every input, for training.

    gated_rms_norm_backward, chunk_backward and causal_conv1d_backward one after the other, on what the layer computes
    on its way, which is computed again: no call needs more of the forward one than its inputs. Any packing,
    scalar and key-wise gates. What is not given is allocated where its input is given.

    Args:
      qkv: [B,T,D] or [B,T,2HK+2HVV] or [B,T,HK]: projections: [q heads | k heads | v heads], or
        interleaved; row strides are free.
      z: [B,T,HVV]: gates of the norm; not with packing interleaved.
      b: [B,T,HV] or [B,T,2HV]: beta logits; interleaved: [r b | r a] per key head.
      a: [B,T,HV] or [B,T,HV,K]: raw gates; not with packing interleaved.
      conv_weight: [D,W]: channels [q | k | v], inner stride 1.
      conv_bias: [D]: added to the convolution.
      A_log: [HV]: of raw gates; absent in bounded ones = 0.
      dt_bias: [HV] or [HV,K]: of raw gates; absent in bounded and key-wise ones = 0.
      norm_weight: [V]: of the gated norm.
      cu_seqlens: int32/int64 [N+1]: offsets of packed sequences, B = 1.
      conv_initial: [N,D,L]: convolution states at the start, one a sequence; absent = zeros.
      initial_state: [N,HV,K,V]: states at the start, one a sequence: no pools here.
      core_out: [B,T,HV,V]: what layer_prefill wrote there, inner stride 1; absent = computed again.
      d_out: [B,T,HV,V]: gradient of out, inner stride 1.
      d_final_state: [N,HV,K,V]: gradient of the final state; absent = zeros.
      d_conv_final: [N,D,L]: gradient of the final convolution states; absent = zeros.
      dqkv: [B,T,D] or [B,T,2HK+2HVV] or [B,T,HK]: gradient by qkv, inner stride 1; interleaved: z's
        too.
      dz: [B,T,HVV]: gradient by z, inner stride 1.
      db: [B,T,HV] or [B,T,2HV]: gradient by b.
      da: [B,T,HV] or [B,T,HV,K]: gradient by a.
      dconv_weight: [D,W]: gradient by conv_weight.
      dconv_bias: [D]: gradient by conv_bias.
      dA_log: [HV]: gradient by A_log.
      ddt_bias: [HV] or [HV,K]: gradient by dt_bias.
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
      k: [B,T,HK]: packing separate only, as the next seventeen: what qkv and conv_* are to q.
      v: [B,T,HVV]: likewise.
      k_conv_weight: [HK,W]: likewise.
      v_conv_weight: [HVV,W]: likewise.
      k_conv_bias: [HK]: likewise.
      v_conv_bias: [HVV]: likewise.
      k_conv_initial: [N,HK,L]: likewise.
      v_conv_initial: [N,HVV,L]: likewise.
      d_k_conv_final: [N,HK,L]: likewise.
      d_v_conv_final: [N,HVV,L]: likewise.
      dk: [B,T,HK]: likewise.
      dv: [B,T,HVV]: likewise.
      dk_conv_weight: [HK,W]: likewise.
      dv_conv_weight: [HVV,W]: likewise.
      dk_conv_bias: [HK]: likewise.
      dv_conv_bias: [HVV]: likewise.
      dk_conv_initial: [N,HK,L]: likewise.
      dv_conv_initial: [N,HVV,L]: likewise.
      gate_lower_bound: of bounded gates, < 0: what their logarithms stay above.
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
    if dA_log is None and A_log is not None:
        dA_log = _kinds.empty_like(A_log)
    if ddt_bias is None and dt_bias is not None:
        ddt_bias = _kinds.empty_like(dt_bias)
    if dnorm_weight is None:
        dnorm_weight = _kinds.empty_like(norm_weight)
    if d_initial_state is None and initial_state is not None:
        d_initial_state = _kinds.empty_like(initial_state)
    if dconv_initial is None and conv_initial is not None:
        dconv_initial = _kinds.empty_like(conv_initial)
    if dk is None and k is not None:
        dk = _kinds.empty_like(k) if cu_seqlens is None else _kinds.zeros_like(k)
    if dv is None and v is not None:
        dv = _kinds.empty_like(v) if cu_seqlens is None else _kinds.zeros_like(v)
    if dk_conv_weight is None and k_conv_weight is not None:
        dk_conv_weight = _kinds.empty_like(k_conv_weight)
    if dv_conv_weight is None and v_conv_weight is not None:
        dv_conv_weight = _kinds.empty_like(v_conv_weight)
    if dk_conv_bias is None and k_conv_bias is not None:
        dk_conv_bias = _kinds.empty_like(k_conv_bias)
    if dv_conv_bias is None and v_conv_bias is not None:
        dv_conv_bias = _kinds.empty_like(v_conv_bias)
    if dk_conv_initial is None and k_conv_initial is not None:
        dk_conv_initial = _kinds.empty_like(k_conv_initial)
    if dv_conv_initial is None and v_conv_initial is not None:
        dv_conv_initial = _kinds.empty_like(v_conv_initial)
    _kinds.entry("layer_backward", qkv)(
        qkv, z, b, a, conv_weight, conv_bias, A_log, dt_bias, norm_weight, cu_seqlens, conv_initial,
        initial_state, core_out, d_out, d_final_state, d_conv_final, dqkv, dz, db, da, dconv_weight,
        dconv_bias, dA_log, ddt_bias, dnorm_weight, d_initial_state, dconv_initial, num_k_heads,
        num_v_heads, head_k_dim, head_v_dim, scale, l2norm_eps, norm_eps, packing, eigenvalues,
        head_map, gate_activation, rounding, state_layout, implementation, stream, workspace, k, v,
        k_conv_weight, v_conv_weight, k_conv_bias, v_conv_bias, k_conv_initial, v_conv_initial,
        d_k_conv_final, d_v_conv_final, dk, dv, dk_conv_weight, dv_conv_weight, dk_conv_bias,
        dv_conv_bias, dk_conv_initial, dv_conv_initial, gate_lower_bound
    )
    return Gradients(dqkv, dz, db, da, dconv_weight, dconv_bias, dA_log, ddt_bias, dnorm_weight,
        d_initial_state, dconv_initial, dk, dv, dk_conv_weight, dv_conv_weight, dk_conv_bias,
        dv_conv_bias, dk_conv_initial, dv_conv_initial)
