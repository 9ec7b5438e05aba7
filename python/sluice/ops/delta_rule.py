# SPDX-License-Identifier: Apache-2.0
"""The delta rule: prefill and steps."""

from .. import _kinds


def chunk_forward(
    q,
    k,
    v,
    gate=None,
    beta=None,
    *,
    o=None,
    A_log=None,
    dt_bias=None,
    cu_seqlens=None,
    initial_state=None,
    final_state=None,
    state_layout="kv",
    read_slots=None,
    write_slots=None,
    has_initial_state=None,
    pad_below=0,
    checkpoints=None,
    checkpoint_slots=None,
    checkpoint_every=0,
    scale=None,
    l2norm_eps=1e-6,
    gate_space="log",
    beta_space="value",
    eigenvalues="positive",
    qk_norm="none",
    head_map="block",
    rule="gated_delta",
    implementation="auto",
    stream=None,
    workspace=None,
):
    """Outputs and final states of whole sequences, by chunks (prefill).

    Per sequence and value head, for t = 1..T:
      S_t = alpha_t S_{t-1} + k_t (beta_t (v_t - alpha_t S_{t-1}^T k_t))^T,  o_t = scale S_t^T q_t

    Args:
      q, k: [B,T,H,K], inner stride 1.
      v: [B,T,HV,V], inner stride 1; HV a multiple of H.
      gate: [B,T,HV]; what it holds is `gate_space`: "log" (g = ln alpha <= 0), "linear" (alpha)
        or "raw" (a: g = -exp(A_log) softplus(a + dt_bias)). None = no decay.
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
        stream,
        workspace,
    )
    return o


def recurrent_step(
    q,
    k,
    v,
    gate=None,
    beta=None,
    *,
    o=None,
    A_log=None,
    dt_bias=None,
    cu_seqlens=None,
    max_tokens=0,
    num_accepted=None,
    initial_state=None,
    final_state=None,
    state_layout="kv",
    read_slots=None,
    write_slots=None,
    has_initial_state=None,
    pad_below=0,
    scale=None,
    l2norm_eps=1e-6,
    gate_space="log",
    beta_space="value",
    eigenvalues="positive",
    qk_norm="none",
    head_map="block",
    rule="gated_delta",
    state_writes="last",
    implementation="auto",
    stream=None,
    workspace=None,
):
    """1 to 16 tokens per sequence, one pass over each state (decode, speculative verification).

    The recurrence and the arguments of `chunk_forward`, and:
      initial_state: required unless state_writes is "none"; updated IN PLACE unless final_state
        is given.
      max_tokens: with cu_seqlens: the host's bound (1..16) on one sequence's tokens.
      read_slots, write_slots: [N] or [N,W].
      num_accepted: int32/int64 [N]: start from column max(num_accepted[n], 1) - 1 of read_slots.
      state_writes: "last" (the state after the last token), "per_token" (the state after token t
        to column t of write_slots [N, >= T]) or "none" (outputs only).

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
        stream,
        workspace,
    )
    return o
