# SPDX-License-Identifier: Apache-2.0
"""Offers `chunk_forward`, `chunk_backward`. Made by ops/generate.py from ops/manifest.json."""

from typing import Any, NamedTuple

from .. import _kinds
from .._types import T, Tensor


class Gradients(NamedTuple):
    """None where there is no such input."""

    q: Any
    k: Any
    v: Any
    gate: Any
    beta: Any
    A_log: Any
    dt_bias: Any
    initial_state: Any


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
    scale: float | None = None,
    l2norm_eps: float = 1e-06,
    gate_space: str = "log",
    beta_space: str = "value",
    eigenvalues: str = "positive",
    qk_norm: str = "none",
    head_map: str = "block",
    rule: str = "gated_delta",
    implementation: str = "auto",
    checkpoints: Tensor | None = None,
    checkpoint_slots: Tensor | None = None,
    checkpoint_every: int = 0,
    gate_lower_bound: float = 0.0,
    split: str = "auto",
    split_value: int = 0,
    history: str = "auto",
    max_tokens: int = 0,
    stream: Any = None,
    workspace: Tensor | None = None,
) -> T:
    """Outputs and final states of whole sequences, by chunks.

    Per sequence and value head, for t = 1..T:
      S_t = alpha_t S_{t-1} + k_t (beta_t (v_t - alpha_t S_{t-1}^T k_t))^T,  o_t = scale S_t^T q_t
    Source: Yang, Kautz, Hatamizadeh, Gated Delta Networks, arXiv:2412.06464.

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
      initial_state: [slots,HV,K,V]: states to start from, slot stride free; absent = zeros.
      final_state: [slots,HV,K,V]: where states are written; may be the memory of initial_state;
        absent = not written.
      state_layout: order of a state's inner dimensions: "kv" ([..,K,V]), "vk" ([..,V,K]).
      read_slots: int32/int64 [N] or [N,W]: slot that a sequence reads; absent = n.
      write_slots: int32/int64 [N] or [N,W]: slot that a sequence writes; absent = read_slots.
      has_initial_state: bool/uint8 [N]: false = start from zeros, whatever the slot holds.
      pad_below: a slot index below it is padding: zero outputs, no state touched.
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
      implementation: which implementation runs: "auto" (by the views' device, or by SLUICE_IMPL),
        "reference" (float64, token by token), "reference-chunked" (float64, chunk form), "cpu" (CPU
        kernels), "cuda" (CUDA kernels).
      checkpoints: [slots,HV,K,V]: pool for the states every checkpoint_every tokens.
      checkpoint_slots: int32/int64 [N,M]: slot of the state after (j+1) checkpoint_every tokens.
      checkpoint_every: tokens between stored states, a multiple of 64.
      gate_lower_bound: of bounded gates, < 0: what their logarithms stay above.
      split: how a GPU spreads a sequence; CPUs ignore it: "auto" (the library's choice), "never"
        (one CTA per value head and 128 columns of V), "columns" (one CTA per value head and 64
        columns of V), "segments" (split_value segments a sequence), "length" (segments of
        split_value tokens).
      split_value: of split segments (their number) and length (their tokens).
      history: may segments begin from zero where a head has forgotten what came before: "auto"
        (where that is sure to hold), "strict" (they may not), "forget" (they may: the caller says
        that it holds).
      max_tokens: with cu_seqlens: a bound on one sequence's tokens that the host knows; it steers
        how a GPU spreads the work and nothing else; 0 = unknown.
      stream, workspace: see the module; a workspace is any 1-D tensor of the device.

    Returns: o.
    """
    if o is None:
        o = _kinds.empty_like(v) if cu_seqlens is None else _kinds.zeros_like(v)
    _kinds.entry("chunk_forward", q)(
        q, k, v, gate, beta, o, A_log, dt_bias, cu_seqlens, initial_state, final_state,
        state_layout, read_slots, write_slots, has_initial_state, pad_below, scale, l2norm_eps,
        gate_space, beta_space, eigenvalues, qk_norm, head_map, rule, implementation, stream,
        workspace, checkpoints, checkpoint_slots, checkpoint_every, gate_lower_bound, split,
        split_value, history, max_tokens
    )
    return o


def chunk_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gate: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    initial_state: Tensor | None = None,
    d_o: Tensor,
    d_final_state: Tensor | None = None,
    dq: Tensor | None = None,
    dk: Tensor | None = None,
    dv: Tensor | None = None,
    dgate: Tensor | None = None,
    dbeta: Tensor | None = None,
    dA_log: Tensor | None = None,
    ddt_bias: Tensor | None = None,
    d_initial_state: Tensor | None = None,
    scale: float | None = None,
    l2norm_eps: float = 1e-06,
    gate_space: str = "log",
    beta_space: str = "value",
    eigenvalues: str = "positive",
    qk_norm: str = "none",
    head_map: str = "block",
    rule: str = "gated_delta",
    state_layout: str = "kv",
    implementation: str = "auto",
    gate_lower_bound: float = 0.0,
    split: str = "auto",
    split_value: int = 0,
    stream: Any = None,
    workspace: Tensor | None = None,
) -> Gradients:
    """Gradients of chunk_forward by every input, from those of its outputs, for training.

    Gradients are by raw q and k with qk_norm l2, by what the gate holds, by logits; zero for gates that the clamp
    at -128 holds. What is not given is allocated where its input is given. Torch tensors that require a gradient
    need no call of this: chunk_forward and the functions built on it are differentiable. Source: docs/math.md
    section 8.

    Args:
      q: [B,T,H,K]: queries, inner stride 1.
      k: [B,T,H,K]: keys, inner stride 1.
      v: [B,T,HV,V]: values, inner stride 1.
      gate: [B,T,HV]: what it holds is gate_space; absent = no decay. Of rank 4 it is key-wise (KDA,
        GLA): one decay for each row of the state, inner stride 1.
      beta: [B,T,HV]: write strengths; what they hold is beta_space; absent = 1.
      A_log: [HV]: of raw gates; absent in bounded ones = 0.
      dt_bias: [HV]: of raw gates; absent in bounded and key-wise ones = 0.
      cu_seqlens: int32/int64 [N+1]: offsets of packed sequences, B = 1.
      initial_state: [N,HV,K,V]: states at the start, one a sequence: no pools here.
      d_o: [B,T,HV,V]: gradient of o, inner stride 1.
      d_final_state: [N,HV,K,V]: gradient of the final state; absent = zeros.
      dq: [B,T,H,K]: gradient by q.
      dk: [B,T,H,K]: gradient by k.
      dv: [B,T,HV,V]: gradient by v.
      dgate: [B,T,HV]: gradient by what gate holds.
      dbeta: [B,T,HV]: gradient by what beta holds.
      dA_log: [HV]: gradient by A_log.
      ddt_bias: [HV]: gradient by dt_bias.
      d_initial_state: [N,HV,K,V]: gradient by initial_state.
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
      state_layout: order of a state's inner dimensions: "kv" ([..,K,V]), "vk" ([..,V,K]).
      implementation: which implementation runs: "auto" (by the views' device, or by SLUICE_IMPL),
        "reference" (float64, token by token), "reference-chunked" (float64, chunk form), "cpu" (CPU
        kernels), "cuda" (CUDA kernels).
      gate_lower_bound: of bounded gates, < 0: what their logarithms stay above.
      split: how a GPU spreads a sequence; CPUs ignore it: "auto" (the library's choice), "never"
        (one CTA per value head and 128 columns of V), "columns" (one CTA per value head and 64
        columns of V), "segments" (split_value segments a sequence), "length" (segments of
        split_value tokens).
      split_value: of split segments (their number) and length (their tokens).
      stream, workspace: see the module; a workspace is any 1-D tensor of the device.

    Returns: Gradients.
    """
    if dq is None:
        dq = _kinds.empty_like(q) if cu_seqlens is None else _kinds.zeros_like(q)
    if dk is None:
        dk = _kinds.empty_like(k) if cu_seqlens is None else _kinds.zeros_like(k)
    if dv is None:
        dv = _kinds.empty_like(v) if cu_seqlens is None else _kinds.zeros_like(v)
    if dgate is None and gate is not None:
        dgate = _kinds.empty_like(gate) if cu_seqlens is None else _kinds.zeros_like(gate)
    if dbeta is None and beta is not None:
        dbeta = _kinds.empty_like(beta) if cu_seqlens is None else _kinds.zeros_like(beta)
    if dA_log is None and A_log is not None:
        dA_log = _kinds.empty_like(A_log)
    if ddt_bias is None and dt_bias is not None:
        ddt_bias = _kinds.empty_like(dt_bias)
    if d_initial_state is None and initial_state is not None:
        d_initial_state = _kinds.empty_like(initial_state)
    _kinds.entry("chunk_backward", q)(
        q, k, v, gate, beta, A_log, dt_bias, cu_seqlens, initial_state, d_o, d_final_state, dq, dk,
        dv, dgate, dbeta, dA_log, ddt_bias, d_initial_state, scale, l2norm_eps, gate_space,
        beta_space, eigenvalues, qk_norm, head_map, rule, state_layout, implementation, stream,
        workspace, gate_lower_bound, split, split_value
    )
    return Gradients(dq, dk, dv, dgate, dbeta, dA_log, ddt_bias, d_initial_state)
