# SPDX-License-Identifier: Apache-2.0
"""The stages of a prefill, one by one."""

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
    stream: Any = None,
    workspace: Tensor | None = None,
) -> None:
    """One stage of the chunk form; the tensors between stages are the caller's, all given.

    Per chunk of C tokens and value head, G the sums of the log gates, S the entering state:
      "chunk_cumsum": gate -> g_cumsum, float32 [B,T,HV]; direction "reverse" sums from the end.
      "scaled_dot_kkt": k, beta, G -> A [B,T,HV,C]: beta_i exp(G_i - G_j) (k_i . k_j), i > j.
      "solve_tril": A -> A_inverse [B,T,HV,C], (I + A)^-1 of the strict `triangle`; with matrices
        "batched" both are [..,n,n].
      "wy_fast": k, v, beta, G, A_inverse -> u [B,T,HV,V] = A_inverse diag(beta) v,
        w [B,T,HV,K] = A_inverse diag(beta exp G) k.
      "chunk_h": k, u, w, G, initial_state -> h [B,chunks,HV,K,V] = S, v_new = u - w S,
        final_state.
      "chunk_o": q, k, v_new, G, h -> o = scale (diag(exp G) q h + (exp(G_i - G_j) q k^T, i >= j)
        v_new); without h it makes the states itself, from initial_state.
      "cumsum_kkt": gate, k, beta -> g_cumsum, A: the first two in one.
      "solve_wy": k, v, beta, G, A -> u, w: the next two in one; the inverse stays on chip, and is
        written to A_inverse only where that is given.

    G is g_cumsum, else the sums of gate; without both there is no decay. "chunk_cumsum" and
    "chunk_h" take key-wise gates (KDA, GLA): gate and g_cumsum [B,T,HV,K]. beta None = 1. rule
    "linear_attention" (simple GLA): chunk_h and chunk_o read v in place of u and v_new. A tensor
    that the stage does not name is not looked at. chunk_size: 16, 32, 64 (0) or 128. States,
    slots and head_map as in `chunk_forward`. docs/stages.md; exact contract:
    sluice_chunk_stage_args in sluice.h.
    """
    some: Any = next((t for t in (k, gate, A, q, v) if t is not None), None)
    _kinds.entry("chunk_stage", some)(
        stage,
        q,
        k,
        v,
        gate,
        beta,
        g_cumsum,
        A,
        A_inverse,
        w,
        u,
        v_new,
        h,
        o,
        cu_seqlens,
        initial_state,
        final_state,
        state_layout,
        read_slots,
        write_slots,
        has_initial_state,
        pad_below,
        scale,
        chunk_size,
        rule,
        head_map,
        direction,
        triangle,
        matrices,
        implementation,
        stream,
        workspace,
    )
