# SPDX-License-Identifier: Apache-2.0
"""Offers `chunk_stage`. Made by ops/generate.py from ops/manifest.json."""

from typing import Any

from .. import _kinds
from .._types import Tensor


def chunk_stage(
    stage: str,
    *,
    q: Tensor | None = None,
    k: Tensor | None = None,
    v: Tensor | None = None,
    gate: Tensor | None = None,
    beta: Tensor | None = None,
    g_cumsum: Tensor | None = None,
    A: Tensor | None = None,
    A_inverse: Tensor | None = None,
    w: Tensor | None = None,
    u: Tensor | None = None,
    v_new: Tensor | None = None,
    h: Tensor | None = None,
    o: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    initial_state: Tensor | None = None,
    final_state: Tensor | None = None,
    state_layout: str = "kv",
    read_slots: Tensor | None = None,
    write_slots: Tensor | None = None,
    has_initial_state: Tensor | None = None,
    pad_below: int = 0,
    scale: float | None = None,
    chunk_size: int = 0,
    rule: str = "gated_delta",
    head_map: str = "block",
    direction: str = "forward",
    triangle: str = "lower",
    matrices: str = "chunks",
    implementation: str = "auto",
    gate_space: str = "log",
    gate_lower_bound: float = 0.0,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    stream: Any = None,
    workspace: Tensor | None = None,
) -> None:
    """One stage of a prefill: chunk_cumsum, scaled_dot_kkt, solve_tril, wy_fast, chunk_h, chunk_o;
    the pairs cumsum_kkt and solve_wy; simple GLA as one call.

    The tensors between stages are the caller's, all given; a tensor that the stage does not name is not looked at.
    Without gate and g_cumsum there is no decay. With rule linear_attention, chunk_h and chunk_o read v in place of
    u and v_new. docs/stages.md; exact contract: sluice_chunk_stage_args in sluice.h.

    Args:
      stage: a stage of the chunk form: "chunk_cumsum" (gate -> g_cumsum: sums G of the log gates
        inside each chunk), "scaled_dot_kkt" (k, beta, G -> A: beta_i exp(G_i - G_j) (k_i . k_j), i
        > j), "solve_tril" (A -> A_inverse: (I + A)^-1 of the strict `triangle`), "wy_fast" (k, v,
        beta, G, A_inverse -> u = A_inverse diag(beta) v, w = A_inverse diag(beta exp G) k),
        "chunk_h" (k, u, w, G, initial_state -> h = S (the state that enters each chunk), v_new = u
        - w S, final_state), "chunk_o" (q, k, v_new, G, h -> o = scale (diag(exp G) q h + (exp(G_i -
        G_j) q k^T, i >= j) v_new); without h it makes the states itself), "cumsum_kkt" (gate, k,
        beta -> g_cumsum, A: the first two in one), "solve_wy" (k, v, beta, G, A -> u, w: the next
        two in one; A_inverse is written only where it is given).
      q: [B,T,H,K]: queries, inner stride 1.
      k: [B,T,H,K]: keys, inner stride 1.
      v: [B,T,HV,V]: values, inner stride 1.
      gate: [B,T,HV] or [B,T,HV,K]: log gates, for chunk_cumsum those of gate_space; key-wise ones
        [B,T,HV,K] have a G for each channel; G is g_cumsum where that is given, else their sums.
      beta: [B,T,HV]: write strengths; what they hold is beta_space; absent = 1.
      g_cumsum: [B,T,HV] or [B,T,HV,K]: sums G of the log gates inside each chunk.
      A: [B,T,HV,C]: rows of the chunks' matrices.
      A_inverse: [B,T,HV,C]: their inverses.
      w: [B,T,HV,K]: inner stride 1.
      u: [B,T,HV,V]: inner stride 1.
      v_new: [B,T,HV,V]: inner stride 1.
      h: [B,chunks,HV,K,V]: states that enter the chunks.
      o: [B,T,HV,V]: outputs, inner stride 1.
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
      chunk_size: tokens of a chunk: 16, 32, 64 or 128; 0 = 64.
      rule: the recurrence: "gated_delta" (S <- alpha S + k (beta (v - (alpha S)^T k))^T),
        "linear_attention" (S <- alpha S + k v^T (simple GLA); beta must be absent).
      head_map: which key head value head h reads: "block" (h // r), "cyclic" (h mod H (ggml)).
      direction: which way chunk_cumsum sums, chunk_summary and state_fold carry: "forward" (tokens
        up to and with i; states), "reverse" (tokens from i on; gradients of states).
      triangle: which strict triangle of A solve_tril reads: "lower" (A_ij, i > j), "upper" (A_ij, i
        < j).
      matrices: how the matrices of solve_tril lie: "chunks" ([B,T,HV,C]), "batched" ([..,n,n]).
      implementation: which implementation runs: "auto" (by the views' device, or by SLUICE_IMPL),
        "reference" (float64, token by token), "reference-chunked" (float64, chunk form), "cpu" (CPU
        kernels), "cuda" (CUDA kernels).
      gate_space: of chunk_cumsum; other stages take logarithms: "log" (g = ln(alpha), g <= 0),
        "linear" (alpha = exp(g), 0 <= alpha <= 1), "raw" (a: g = -exp(A_log) softplus(a +
        dt_bias)), "raw_bounded" (a: g = gate_lower_bound sigmoid(exp(A_log) (a + dt_bias))).
      gate_lower_bound: of bounded gates, < 0: what their logarithms stay above.
      A_log: [HV]: of raw gates; absent in bounded ones = 0.
      dt_bias: [HV] or [HV,K]: of raw gates; absent in bounded and key-wise ones = 0.
      stream, workspace: see the module; a workspace is any 1-D tensor of the device.

    Returns nothing.
    """
    some: Any = next((t for t in (k, gate, A, q, v) if t is not None), None)
    _kinds.entry("chunk_stage", some)(
        stage, q, k, v, gate, beta, g_cumsum, A, A_inverse, w, u, v_new, h, o, cu_seqlens,
        initial_state, final_state, state_layout, read_slots, write_slots, has_initial_state,
        pad_below, scale, chunk_size, rule, head_map, direction, triangle, matrices, implementation,
        stream, workspace, gate_space, gate_lower_bound, A_log, dt_bias
    )
