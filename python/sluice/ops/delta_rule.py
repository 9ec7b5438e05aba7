# SPDX-License-Identifier: Apache-2.0
"""The delta rule: prefill and steps."""

from typing import Any

from .. import _kinds
from .._types import T, Tensor


def chunk_forward(
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
    initial_state: Tensor | None = None,
    final_state: T | None = None,
    state_layout: str = "kv",
    read_slots: Tensor | None = None,
    write_slots: Tensor | None = None,
    has_initial_state: Tensor | None = None,
    pad_below: int = 0,
    checkpoints: Tensor | None = None,
    checkpoint_slots: Tensor | None = None,
    checkpoint_every: int = 0,
    scale: float | None = None,
    l2norm_eps: float = 1e-6,
    gate_space: str = "log",
    beta_space: str = "value",
    eigenvalues: str = "positive",
    qk_norm: str = "none",
    head_map: str = "block",
    rule: str = "gated_delta",
    split: str = "auto",
    split_value: int = 0,
    history: str = "auto",
    max_tokens: int = 0,
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> T:
    """Outputs and final states of whole sequences, by chunks (prefill).

    Per sequence and value head, for t = 1..T:
      S_t = alpha_t S_{t-1} + k_t (beta_t (v_t - alpha_t S_{t-1}^T k_t))^T,  o_t = scale S_t^T q_t

    Args:
      q, k: [B,T,H,K], inner stride 1.
      v: [B,T,HV,V], inner stride 1; HV a multiple of H.
      gate: [B,T,HV]; what it holds is `gate_space`: "log" (g = ln alpha <= 0), "linear" (alpha)
        or "raw" (a: g = -exp(A_log) softplus(a + dt_bias)). None = no decay. Of rank 4, [B,T,HV,K]
        with inner stride 1, it is key-wise (KDA, GLA): one decay for each row of the state, "log" or
        "linear".
      beta: [B,T,HV]; "value" or "logit" (sigmoid inside) by `beta_space`. None = 1.
      o: output [B,T,HV,V], dtype free; allocated as v if None.
      A_log, dt_bias: [HV], with gate_space "raw".
      cu_seqlens: int32/int64 [N+1], packed batches.
      initial_state, final_state: pools [slots,HV,K,V] or their "vk" form, slot stride free, dtypes
        free. None: start from zeros / do not write. One tensor for both: updated in place.
      read_slots, write_slots: int32/int64 [N] slots of the pools; default: n, and read_slots.
      has_initial_state: bool/uint8 [N]; false starts from zeros whatever the slot holds.
      pad_below: a slot index below it is padding: zero outputs, no state touched.
      checkpoints, checkpoint_slots, checkpoint_every: pool, int32/int64 [N,M] slots, and tokens
        between stored states (a multiple of 64).
      scale: None = K^-0.5; 0.0 is zero.
      eigenvalues: "negative" doubles beta. qk_norm: "l2" normalises q and k inside.
      head_map: "block" (value head h reads key head h // r) or "cyclic" (h mod H, ggml).
      rule: "gated_delta" or "linear_attention" (simple GLA: S_t = alpha_t S_{t-1} + k_t v_t^T).
      split, split_value: how a GPU spreads a sequence: "auto", "never", "columns", "segments"
        (split_value of them) or "length" (segments of split_value tokens); CPUs ignore it.
      history: whether segments may begin from zero where a head has forgotten what came before:
        "auto", "strict" (they may not) or "forget" (see sluice_history in sluice.h).
      max_tokens: with cu_seqlens: a bound on one sequence's tokens that the host knows; 0: none. It
        steers how a GPU spreads the work and nothing else.
      implementation: "auto", "cpu", "cuda", "reference", "reference-chunked".
      stream: see the module. workspace: scratch memory of the device (any 1-D tensor), None =
        allocated for the call.

    Returns: o.
    Source: Yang, Kautz, Hatamizadeh, Gated Delta Networks, arXiv:2412.06464.
    """
    if o is None:
        o = _kinds.empty_like(v)
    _kinds.entry("chunk_forward", q)(
        q,
        k,
        v,
        gate,
        beta,
        o,
        A_log,
        dt_bias,
        cu_seqlens,
        scale,
        l2norm_eps,
        gate_space,
        beta_space,
        eigenvalues,
        qk_norm,
        head_map,
        rule,
        implementation,
        initial_state,
        final_state,
        state_layout,
        read_slots,
        write_slots,
        has_initial_state,
        pad_below,
        checkpoints,
        checkpoint_slots,
        checkpoint_every,
        split,
        split_value,
        history,
        max_tokens,
        stream,
        workspace,
    )
    return o


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
    max_tokens: int = 0,
    num_accepted: Tensor | None = None,
    initial_state: Tensor | None = None,
    final_state: T | None = None,
    state_layout: str = "kv",
    read_slots: Tensor | None = None,
    write_slots: Tensor | None = None,
    has_initial_state: Tensor | None = None,
    pad_below: int = 0,
    scale: float | None = None,
    l2norm_eps: float = 1e-6,
    gate_space: str = "log",
    beta_space: str = "value",
    eigenvalues: str = "positive",
    qk_norm: str = "none",
    head_map: str = "block",
    rule: str = "gated_delta",
    state_writes: str = "last",
    replay_k: Tensor | None = None,
    replay_delta: Tensor | None = None,
    replay_decay: Tensor | None = None,
    replay_position: Tensor | None = None,
    replay_checkpoint: Tensor | None = None,
    replay_next_checkpoint: Tensor | None = None,
    replay_fold: str = "auto",
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> T:
    """1 to 16 tokens per sequence, one pass over each state (decode, speculative verification).

    The recurrence and the arguments of `chunk_forward`, and:
      initial_state: required unless state_writes is "none"; updated IN PLACE unless final_state
        is given.
      max_tokens: with cu_seqlens: the host's bound (1..16) on one sequence's tokens.
      read_slots, write_slots: [N] or [N,W].
      num_accepted: int32/int64 [N]: start from column max(num_accepted[n], 1) - 1 of read_slots.
      state_writes: "last" (the state after the last token), "per_token" (the state after token t
        to column t of write_slots [N, >= T]) or "none" (outputs only).
      replay_k [slots,L,H,K], replay_delta [slots,L,HV,V], replay_decay float32 [slots,L,HV]: the
        entries of a replay ring (`sluice_replay_ring` in sluice.h), updated IN PLACE; states are
        written rarely. replay_position, replay_checkpoint: int32/int64 [N], tokens that a sequence
        has accepted and those that its state holds. replay_next_checkpoint: optional output, what
        to pass as replay_checkpoint next. replay_fold: "auto", or "always": in this call.

    Returns: o.
    """
    if o is None:
        o = _kinds.empty_like(v)
    _kinds.entry("recurrent_step", q)(
        q,
        k,
        v,
        gate,
        beta,
        o,
        A_log,
        dt_bias,
        cu_seqlens,
        scale,
        l2norm_eps,
        gate_space,
        beta_space,
        eigenvalues,
        qk_norm,
        head_map,
        rule,
        implementation,
        initial_state,
        final_state,
        state_layout,
        read_slots,
        write_slots,
        has_initial_state,
        pad_below,
        num_accepted,
        max_tokens,
        state_writes,
        replay_k,
        replay_delta,
        replay_decay,
        replay_position,
        replay_checkpoint,
        replay_next_checkpoint,
        replay_fold,
        stream,
        workspace,
    )
    return o
