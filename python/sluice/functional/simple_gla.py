# SPDX-License-Identifier: Apache-2.0
"""Offers simple gated linear attention with fla's signatures."""

from typing import Any

from .. import ops
from .._errors import Unsupported
from .._types import T, Tensor
from ._arguments import MAX_STEP_TOKENS, check_states, new_state, over_ranks, run_by_chunks


def chunk_simple_gla(
    q: T,
    k: T,
    v: T,
    g: Tensor | None = None,
    g_gamma: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    cp_context: Any = None,
    out: T | None = None,
    final_state: T | None = None,
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> tuple[T, T | None]:
    """Simple GLA (scalar-gated linear attention) by chunks:
      S_t = alpha_t S_{t-1} + k_t v_t^T,  o_t = scale S_t^T q_t.

    Arguments as in `chunk_gated_delta_rule`; g [B,T,HV] is the log gate; g_gamma is refused.
    Returns: (o, final state or None).

    Example:
      >>> x, g = np.ones((1, 100, 2, 16), np.float32), np.full((1, 100, 2), -0.1, np.float32)
      >>> sluice.chunk_simple_gla(x, x, x, g)[0].shape
      (1, 100, 2, 16)
    """
    if g_gamma is not None:
        raise Unsupported("chunk_simple_gla: g_gamma = given, expected None (pass g)")
    if cp_context is not None:
        foreign = ("out", "final_state", "stream", "workspace")
        found: tuple[T, T | None] = over_ranks(
            "chunk_simple_gla", locals(), foreign, rule="linear_attention"
        )
        return found
    if initial_state is not None:
        check_states("chunk_simple_gla", initial_state, q, cu_seqlens)
    if output_final_state and final_state is None:
        final_state = new_state(q, v, cu_seqlens, state_v_first)
    o = ops.chunk_forward(
        q,
        k,
        v,
        g,
        o=out,
        cu_seqlens=cu_seqlens,
        initial_state=initial_state,
        final_state=final_state,
        state_layout="vk" if state_v_first else "kv",
        scale=scale,
        rule="linear_attention",
        implementation=implementation,
        stream=stream,
        workspace=workspace,
    )
    return o, final_state


def fused_recurrent_simple_gla(
    q: T,
    k: T,
    v: T,
    g: Tensor | None = None,
    g_gamma: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    out: T | None = None,
    final_state: T | None = None,
    max_tokens: int | None = None,
    allow_chunks: bool = False,
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> tuple[T, T | None]:
    """`chunk_simple_gla` token by token, for up to 16 tokens per sequence in one pass; longer rows
    run by chunks in float32, or as allow_chunks says: see `fused_recurrent_gated_delta_rule`.

    Returns: (o, final state or None).

    Example:
      >>> x = np.ones((3, 1, 2, 16), np.float32)
      >>> o, state = sluice.fused_recurrent_simple_gla(x, x, x, output_final_state=True)
      >>> state.shape
      (3, 2, 16, 16)
    """
    op = "fused_recurrent_simple_gla"
    if g_gamma is not None:
        raise Unsupported(f"{op}: g_gamma = given, expected None (pass g)")
    if initial_state is not None:
        check_states(op, initial_state, q, cu_seqlens)
    steps = cu_seqlens is None and q.shape[1] <= MAX_STEP_TOKENS or max_tokens is not None
    if output_final_state and final_state is None:
        zeros = steps and initial_state is None
        final_state = new_state(q, v, cu_seqlens, state_v_first, zeros)
    shared = dict(
        cu_seqlens=cu_seqlens,
        initial_state=initial_state,
        final_state=final_state,
        state_layout="vk" if state_v_first else "kv",
        scale=scale,
        rule="linear_attention",
        implementation=implementation,
        stream=stream,
        workspace=workspace,
    )
    if steps:
        if initial_state is None:
            shared["initial_state"] = final_state
        shared["state_writes"] = "none" if final_state is None else "last"
        o = ops.recurrent_step(q, k, v, g, o=out, max_tokens=max_tokens or 0, **shared)
        return o, final_state
    return run_by_chunks(op, (q, k, v), out, allow_chunks, dict(shared, gate=g)), final_state
