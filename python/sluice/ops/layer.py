# SPDX-License-Identifier: Apache-2.0
"""Offers `layer_prefill`, `layer_decode`. Made by ops/generate.py from ops/manifest.json."""

from typing import Any

from .. import _kinds
from .._types import T, Tensor


def layer_prefill(
    qkv: T,
    z: Tensor | None = None,
    b: Tensor | None = None,
    a: Tensor | None = None,
    *,
    conv_weight: Tensor,
    conv_bias: Tensor | None = None,
    A_log: Tensor,
    dt_bias: Tensor,
    norm_weight: Tensor,
    out: T | None = None,
    core_out: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    conv_initial: Tensor | None = None,
    conv_final: Tensor | None = None,
    ring_position: Tensor | None = None,
    initial_state: Tensor | None = None,
    final_state: T | None = None,
    state_layout: str = "kv",
    read_slots: Tensor | None = None,
    write_slots: Tensor | None = None,
    has_initial_state: Tensor | None = None,
    pad_below: int = 0,
    num_k_heads: int,
    num_v_heads: int,
    head_k_dim: int,
    head_v_dim: int,
    max_tokens: int = 0,
    scale: float | None = None,
    l2norm_eps: float = 1e-06,
    norm_eps: float = 1e-06,
    packing: str = "flat",
    conv_state_form: str = "shift",
    eigenvalues: str = "positive",
    head_map: str = "block",
    gate_activation: str = "silu",
    rounding: str = "once",
    implementation: str = "auto",
    k: Tensor | None = None,
    v: Tensor | None = None,
    k_conv_weight: Tensor | None = None,
    v_conv_weight: Tensor | None = None,
    k_conv_bias: Tensor | None = None,
    v_conv_bias: Tensor | None = None,
    k_conv_initial: Tensor | None = None,
    v_conv_initial: Tensor | None = None,
    k_conv_final: Tensor | None = None,
    v_conv_final: Tensor | None = None,
    gate_lower_bound: float = 0.0,
    stream: Any = None,
    workspace: Tensor | None = None,
) -> T:
    """All of the layer between its projections and out_proj, by chunks.

    Convolution and SiLU on [q|k|v], gates from a and b, l2 norm of q and k, delta rule, gated norm. Packing flat:
    qkv [B,T,2HK+HVV], z [B,T,HVV], b [B,T,HV], a [B,T,HV]. Packing interleaved: qkv [B,T,2HK+2HVV], b [B,T,2HV], per
    key head; z and a are absent. Packing separate: qkv, conv_weight, .. are q's, k, k_conv_weight, .. and v, ..
    those of k and v. With a [B,T,HV,K] gates are key-wise (KDA).

    Args:
      qkv: [B,T,D] or [B,T,2HK+2HVV] or [B,T,HK]: projections: [q heads | k heads | v heads], or
        interleaved; row strides are free.
      z: [B,T,HVV]: gates of the norm; flat packing only.
      b: [B,T,HV] or [B,T,2HV]: beta logits; interleaved: [r b | r a] per key head.
      a: [B,T,HV] or [B,T,HV,K]: raw gates; not with packing interleaved.
      conv_weight: [D,W]: channels [q | k | v], inner stride 1.
      conv_bias: [D]: added to the convolution.
      A_log: [HV]: of raw gates; absent in bounded ones = 0.
      dt_bias: [HV] or [HV,K]: of raw gates; absent in bounded and key-wise ones = 0.
      norm_weight: [V]: of the gated norm.
      out: [B,T,HV,V]: outputs after the norm, inner stride 1.
      core_out: [B,T,HV,V]: the delta rule's output, before the norm.
      cu_seqlens: int32/int64 [N+1]: offsets of packed sequences, B = 1.
      conv_initial: [slots,D,L]: convolution states to start from; slots as those of the states;
        absent = zeros.
      conv_final: [slots,D,L]: where convolution states are written; absent = not written.
      ring_position: int32/int64 [N]: absolute position of the first input, with conv_state_form
        ring.
      initial_state: [slots,HV,K,V]: states to start from, slot stride free; absent = zeros.
      final_state: [slots,HV,K,V]: where states are written; may be the memory of initial_state;
        absent = not written.
      state_layout: order of a state's inner dimensions: "kv" ([..,K,V]), "vk" ([..,V,K]).
      read_slots: int32/int64 [N] or [N,W]: slot that a sequence reads; absent = n.
      write_slots: int32/int64 [N] or [N,W]: slot that a sequence writes; absent = read_slots.
      has_initial_state: bool/uint8 [N]: false = start from zeros, whatever the slot holds.
      pad_below: a slot index below it is padding: zero outputs, no state touched.
      num_k_heads: H.
      num_v_heads: HV.
      head_k_dim: K.
      head_v_dim: V.
      max_tokens: with cu_seqlens: a bound on one sequence's tokens; layer_decode: 1..16.
      scale: factor of o; absent = K^-0.5; 0.0 is zero.
      l2norm_eps: epsilon of the l2 norm of q and k.
      norm_eps: epsilon of the gated norm.
      packing: packing of a layer's projections: "flat" (Qwen3.5: qkv = [q | k | v], z, b, a),
        "interleaved" (Qwen3-Next: per key head [q | k | r v | r z] and [r b | r a]), "separate"
        (Kimi Linear: q, k and v of three projections, each convolved by itself).
      conv_state_form: form of a convolution state of L columns: "shift" (oldest column first),
        "ring" (the input at position p is in column p mod L).
      eigenvalues: range of the transition's eigenvalues along k: "positive" (beta as given),
        "negative" (2 beta).
      head_map: which key head value head h reads: "block" (h // r), "cyclic" (h mod H (ggml)).
      gate_activation: of z: silu or sigmoid: "none" (x), "silu" (x sigmoid(x)), "sigmoid"
        (sigmoid(x)).
      rounding: where gated RMSNorm rounds: "once" (float32 to the end, one rounding (FLA)), "hf"
        (normalised x rounded to its dtype first; layers: core output first), "input" (layers: core
        output rounded to out's dtype first (vLLM)).
      implementation: which implementation runs: "auto" (by the views' device, or by SLUICE_IMPL),
        "reference" (float64, token by token), "reference-chunked" (float64, chunk form), "cpu" (CPU
        kernels), "cuda" (CUDA kernels).
      k: [B,T,HK]: packing separate only, as the next nine: what qkv and conv_* are to q.
      v: [B,T,HVV]: likewise.
      k_conv_weight: [HK,W]: likewise.
      v_conv_weight: [HVV,W]: likewise.
      k_conv_bias: [HK]: likewise.
      v_conv_bias: [HVV]: likewise.
      k_conv_initial: [slots,HK,L]: likewise.
      v_conv_initial: [slots,HVV,L]: likewise.
      k_conv_final: [slots,HK,L]: likewise.
      v_conv_final: [slots,HVV,L]: likewise.
      gate_lower_bound: of bounded gates, < 0: what their logarithms stay above.
      stream, workspace: see the module; a workspace is any 1-D tensor of the device.

    Returns: out.
    """
    if out is None:
        out = _kinds.empty(qkv, (qkv.shape[0], qkv.shape[1], num_v_heads, head_v_dim),
            zeros=cu_seqlens is not None)
    _kinds.entry("layer_prefill", qkv)(
        qkv, z, b, a, conv_weight, conv_bias, A_log, dt_bias, norm_weight, out, core_out,
        cu_seqlens, conv_initial, conv_final, ring_position, initial_state, final_state,
        state_layout, read_slots, write_slots, has_initial_state, pad_below, num_k_heads,
        num_v_heads, head_k_dim, head_v_dim, max_tokens, scale, l2norm_eps, norm_eps, packing,
        conv_state_form, eigenvalues, head_map, gate_activation, rounding, implementation, stream,
        workspace, k, v, k_conv_weight, v_conv_weight, k_conv_bias, v_conv_bias, k_conv_initial,
        v_conv_initial, k_conv_final, v_conv_final, gate_lower_bound
    )
    return out


def layer_decode(
    qkv: T,
    z: Tensor | None = None,
    b: Tensor | None = None,
    a: Tensor | None = None,
    *,
    conv_weight: Tensor,
    conv_bias: Tensor | None = None,
    A_log: Tensor,
    dt_bias: Tensor,
    norm_weight: Tensor,
    out: T | None = None,
    core_out: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    conv_initial: Tensor | None = None,
    conv_final: Tensor | None = None,
    ring_position: Tensor | None = None,
    num_accepted: Tensor | None = None,
    initial_state: Tensor | None = None,
    final_state: T | None = None,
    state_layout: str = "kv",
    read_slots: Tensor | None = None,
    write_slots: Tensor | None = None,
    has_initial_state: Tensor | None = None,
    pad_below: int = 0,
    num_k_heads: int,
    num_v_heads: int,
    head_k_dim: int,
    head_v_dim: int,
    max_tokens: int = 0,
    scale: float | None = None,
    l2norm_eps: float = 1e-06,
    norm_eps: float = 1e-06,
    packing: str = "flat",
    conv_state_form: str = "shift",
    eigenvalues: str = "positive",
    head_map: str = "block",
    gate_activation: str = "silu",
    rounding: str = "once",
    state_writes: str = "last",
    implementation: str = "auto",
    replay_k: Tensor | None = None,
    replay_delta: Tensor | None = None,
    replay_decay: Tensor | None = None,
    replay_position: Tensor | None = None,
    replay_checkpoint: Tensor | None = None,
    replay_next_checkpoint: Tensor | None = None,
    replay_fold: str = "auto",
    k: Tensor | None = None,
    v: Tensor | None = None,
    k_conv_weight: Tensor | None = None,
    v_conv_weight: Tensor | None = None,
    k_conv_bias: Tensor | None = None,
    v_conv_bias: Tensor | None = None,
    k_conv_initial: Tensor | None = None,
    v_conv_initial: Tensor | None = None,
    k_conv_final: Tensor | None = None,
    v_conv_final: Tensor | None = None,
    gate_lower_bound: float = 0.0,
    stream: Any = None,
    workspace: Tensor | None = None,
) -> T:
    """The same for 1 to 16 tokens per sequence, pools updated in place.

    layer_prefill for few tokens; both kinds of state are updated IN PLACE unless conv_final and final_state are given.
    With a replay ring, convolution states are rolled back by ring_position (conv_state_form ring, the same tensor as
    replay_position, L >= W-1+T) or by num_accepted (shift), which then holds for them alone.

    Args:
      qkv: [B,T,D] or [B,T,2HK+2HVV] or [B,T,HK]: projections: [q heads | k heads | v heads], or
        interleaved; row strides are free.
      z: [B,T,HVV]: gates of the norm; flat packing only.
      b: [B,T,HV] or [B,T,2HV]: beta logits; interleaved: [r b | r a] per key head.
      a: [B,T,HV] or [B,T,HV,K]: raw gates; not with packing interleaved.
      conv_weight: [D,W]: channels [q | k | v], inner stride 1.
      conv_bias: [D]: added to the convolution.
      A_log: [HV]: of raw gates; absent in bounded ones = 0.
      dt_bias: [HV] or [HV,K]: of raw gates; absent in bounded and key-wise ones = 0.
      norm_weight: [V]: of the gated norm.
      out: [B,T,HV,V]: outputs after the norm, inner stride 1.
      core_out: [B,T,HV,V]: the delta rule's output, before the norm.
      cu_seqlens: int32/int64 [N+1]: offsets of packed sequences, B = 1.
      conv_initial: [slots,D,L]: convolution states to start from; slots as those of the states;
        absent = zeros.
      conv_final: [slots,D,L]: where convolution states are written; absent = not written.
      ring_position: int32/int64 [N]: absolute position of the first input, with conv_state_form
        ring.
      num_accepted: int32/int64 [N]: tokens of the last call that were accepted, for both kinds of
        state (speculation).
      initial_state: [slots,HV,K,V]: states to start from, slot stride free; absent = zeros.
      final_state: [slots,HV,K,V]: where states are written; may be the memory of initial_state;
        absent = not written.
      state_layout: order of a state's inner dimensions: "kv" ([..,K,V]), "vk" ([..,V,K]).
      read_slots: int32/int64 [N] or [N,W]: slot that a sequence reads; absent = n.
      write_slots: int32/int64 [N] or [N,W]: slot that a sequence writes; absent = read_slots.
      has_initial_state: bool/uint8 [N]: false = start from zeros, whatever the slot holds.
      pad_below: a slot index below it is padding: zero outputs, no state touched.
      num_k_heads: H.
      num_v_heads: HV.
      head_k_dim: K.
      head_v_dim: V.
      max_tokens: with cu_seqlens: a bound on one sequence's tokens; layer_decode: 1..16.
      scale: factor of o; absent = K^-0.5; 0.0 is zero.
      l2norm_eps: epsilon of the l2 norm of q and k.
      norm_eps: epsilon of the gated norm.
      packing: packing of a layer's projections: "flat" (Qwen3.5: qkv = [q | k | v], z, b, a),
        "interleaved" (Qwen3-Next: per key head [q | k | r v | r z] and [r b | r a]), "separate"
        (Kimi Linear: q, k and v of three projections, each convolved by itself).
      conv_state_form: form of a convolution state of L columns: "shift" (oldest column first),
        "ring" (the input at position p is in column p mod L).
      eigenvalues: range of the transition's eigenvalues along k: "positive" (beta as given),
        "negative" (2 beta).
      head_map: which key head value head h reads: "block" (h // r), "cyclic" (h mod H (ggml)).
      gate_activation: of z: silu or sigmoid: "none" (x), "silu" (x sigmoid(x)), "sigmoid"
        (sigmoid(x)).
      rounding: where gated RMSNorm rounds: "once" (float32 to the end, one rounding (FLA)), "hf"
        (normalised x rounded to its dtype first; layers: core output first), "input" (layers: core
        output rounded to out's dtype first (vLLM)).
      state_writes: which states steps write: "last" (the state after the last token), "per_token"
        (the state after token t, to column t of write_slots [N, >= T]), "none" (none: outputs
        only).
      implementation: which implementation runs: "auto" (by the views' device, or by SLUICE_IMPL),
        "reference" (float64, token by token), "reference-chunked" (float64, chunk form), "cpu" (CPU
        kernels), "cuda" (CUDA kernels).
      replay_k: [slots,L,H,K]: normalised keys of the replay ring, updated in place: states are
        written rarely (sluice_replay_ring).
      replay_delta: [slots,L,HV,V]: what recent tokens wrote, likewise.
      replay_decay: [slots,L,HV]: their decays, float32, likewise.
      replay_position: int32/int64 [N]: tokens that a sequence has accepted.
      replay_checkpoint: int32/int64 [N]: tokens that its state holds.
      replay_next_checkpoint: int32/int64 [N]: what to pass as replay_checkpoint next.
      replay_fold: when a step folds entries of the replay ring into the state: "auto" (where the
        next call's tokens would not fit), "always" (in this call).
      k: [B,T,HK]: packing separate only, as the next nine: what qkv and conv_* are to q.
      v: [B,T,HVV]: likewise.
      k_conv_weight: [HK,W]: likewise.
      v_conv_weight: [HVV,W]: likewise.
      k_conv_bias: [HK]: likewise.
      v_conv_bias: [HVV]: likewise.
      k_conv_initial: [slots,HK,L]: likewise.
      v_conv_initial: [slots,HVV,L]: likewise.
      k_conv_final: [slots,HK,L]: likewise.
      v_conv_final: [slots,HVV,L]: likewise.
      gate_lower_bound: of bounded gates, < 0: what their logarithms stay above.
      stream, workspace: see the module; a workspace is any 1-D tensor of the device.

    Returns: out.
    """
    if out is None:
        out = _kinds.empty(qkv, (qkv.shape[0], qkv.shape[1], num_v_heads, head_v_dim),
            zeros=cu_seqlens is not None)
    _kinds.entry("layer_decode", qkv)(
        qkv, z, b, a, conv_weight, conv_bias, A_log, dt_bias, norm_weight, out, core_out,
        cu_seqlens, conv_initial, conv_final, ring_position, num_accepted, initial_state,
        final_state, state_layout, read_slots, write_slots, has_initial_state, pad_below,
        num_k_heads, num_v_heads, head_k_dim, head_v_dim, max_tokens, scale, l2norm_eps, norm_eps,
        packing, conv_state_form, eigenvalues, head_map, gate_activation, rounding, state_writes,
        implementation, replay_k, replay_delta, replay_decay, replay_position, replay_checkpoint,
        replay_next_checkpoint, replay_fold, stream, workspace, k, v, k_conv_weight, v_conv_weight,
        k_conv_bias, v_conv_bias, k_conv_initial, v_conv_initial, k_conv_final, v_conv_final,
        gate_lower_bound
    )
    return out
