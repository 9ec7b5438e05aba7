# SPDX-License-Identifier: Apache-2.0
"""Offers `recurrent_step`. Made by ops/generate.py from ops/manifest.json."""

from typing import Any

from .. import _kinds
from .._types import T, Tensor


def recurrent_step(
    q: T,
    k: T,
    v: T,
    gate: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    o: T | None = None,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    num_accepted: Tensor | None = None,
    initial_state: Tensor | None = None,
    final_state: T | None = None,
    state_layout: str = "kv",
    read_slots: Tensor | None = None,
    write_slots: Tensor | None = None,
    has_initial_state: Tensor | None = None,
    pad_below: int = 0,
    max_tokens: int = 0,
    scale: float | None = None,
    l2norm_eps: float = 1e-06,
    gate_space: str = "log",
    beta_space: str = "value",
    eigenvalues: str = "positive",
    qk_norm: str = "none",
    head_map: str = "block",
    rule: str = "gated_delta",
    state_writes: str = "last",
    implementation: str = "auto",
    gate_lower_bound: float = 0.0,
    replay_k: Tensor | None = None,
    replay_delta: Tensor | None = None,
    replay_decay: Tensor | None = None,
    replay_position: Tensor | None = None,
    replay_checkpoint: Tensor | None = None,
    replay_next_checkpoint: Tensor | None = None,
    replay_fold: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> T:
    """1 to 16 tokens per sequence, states updated in place; speculative verification.

    The recurrence of chunk_forward, one pass over each state. initial_state is required unless state_writes is none,
    and is updated IN PLACE unless final_state is given.

    Args:
      q: [B,T,H,K]: queries, inner stride 1.
      k: [B,T,H,K]: keys, inner stride 1.
      v: [B,T,HV,V]: values, inner stride 1.
      gate: [B,T,HV] or [B,T,HV,K]: what it holds is gate_space; absent = no decay. Of rank 4 it is
        key-wise (KDA, GLA): one decay for each row of the state, inner stride 1.
      beta: [B,T,HV]: write strengths; what they hold is beta_space; absent = 1.
      o: [B,T,HV,V]: outputs, inner stride 1.
      A_log: [HV]: of raw gates; absent in bounded ones = 0.
      dt_bias: [HV] or [HV,K]: of raw gates; absent in bounded and key-wise ones = 0.
      cu_seqlens: int32/int64 [N+1]: offsets of packed sequences, B = 1.
      num_accepted: int32/int64 [N]: start from column max(num_accepted[n], 1) - 1 of read_slots
        [N,W] (speculation).
      initial_state: [slots,HV,K,V]: states to start from, slot stride free; absent = zeros.
      final_state: [slots,HV,K,V]: where states are written; may be the memory of initial_state;
        absent = not written.
      state_layout: order of a state's inner dimensions: "kv" ([..,K,V]), "vk" ([..,V,K]).
      read_slots: int32/int64 [N] or [N,W]: slot that a sequence reads; absent = n.
      write_slots: int32/int64 [N] or [N,W]: slot that a sequence writes; absent = read_slots.
      has_initial_state: bool/uint8 [N]: false = start from zeros, whatever the slot holds.
      pad_below: a slot index below it is padding: zero outputs, no state touched.
      max_tokens: with cu_seqlens: the host's bound (1..16) on one sequence's tokens.
      scale: factor of o; absent = K^-0.5; 0.0 is zero.
      l2norm_eps: epsilon of the l2 norm of q and k.
      gate_space: what `gate` holds: "log" (g = ln(alpha), g <= 0), "linear" (alpha = exp(g), 0 <=
        alpha <= 1), "raw" (a: g = -exp(A_log) softplus(a + dt_bias)), "raw_bounded" (a: g =
        gate_lower_bound sigmoid(exp(A_log) (a + dt_bias))).
      beta_space: what `beta` holds: "value" (the write strength itself), "logit" (b: beta =
        sigmoid(b)).
      eigenvalues: range of the transition's eigenvalues along k: "positive" (beta as given),
        "negative" (2 beta).
      qk_norm: normalisation of q and k inside: "none" (none), "l2" (x rsqrt(sum(x^2) +
        l2norm_eps)).
      head_map: which key head value head h reads: "block" (h // r), "cyclic" (h mod H (ggml)).
      rule: the recurrence: "gated_delta" (S <- alpha S + k (beta (v - (alpha S)^T k))^T),
        "linear_attention" (S <- alpha S + k v^T (simple GLA); beta must be absent).
      state_writes: which states steps write: "last" (the state after the last token), "per_token"
        (the state after token t, to column t of write_slots [N, >= T]), "none" (none: outputs
        only).
      implementation: which implementation runs: "auto" (by the views' device, or by SLUICE_IMPL),
        "reference" (float64, token by token), "reference-chunked" (float64, chunk form), "cpu" (CPU
        kernels), "cuda" (CUDA kernels).
      gate_lower_bound: of bounded gates, < 0: what their logarithms stay above.
      replay_k: [slots,L,H,K]: normalised keys of the replay ring, updated in place: states are
        written rarely (sluice_replay_ring).
      replay_delta: [slots,L,HV,V]: what recent tokens wrote, likewise.
      replay_decay: [slots,L,HV]: their decays, float32, likewise.
      replay_position: int32/int64 [N]: tokens that a sequence has accepted.
      replay_checkpoint: int32/int64 [N]: tokens that its state holds.
      replay_next_checkpoint: int32/int64 [N]: what to pass as replay_checkpoint next.
      replay_fold: when a step folds entries of the replay ring into the state: "auto" (where the
        next call's tokens would not fit), "always" (in this call).
      stream, workspace: see the module; a workspace is any 1-D tensor of the device.

    Returns: o.
    """
    if o is None:
        o = _kinds.empty_like(v) if cu_seqlens is None else _kinds.zeros_like(v)
    _kinds.entry("recurrent_step", q)(
        q, k, v, gate, beta, o, A_log, dt_bias, cu_seqlens, num_accepted, initial_state,
        final_state, state_layout, read_slots, write_slots, has_initial_state, pad_below,
        max_tokens, scale, l2norm_eps, gate_space, beta_space, eigenvalues, qk_norm, head_map, rule,
        state_writes, implementation, stream, workspace, gate_lower_bound, replay_k, replay_delta,
        replay_decay, replay_position, replay_checkpoint, replay_next_checkpoint, replay_fold
    )
    return o
