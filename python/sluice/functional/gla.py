# SPDX-License-Identifier: Apache-2.0
"""Offers gated linear attention with fla's signatures: simple, of a gate for each head, and with one for each key
channel."""

from typing import Any

from .. import ops
from .._errors import Unsupported
from .._types import T, Tensor
from ._arguments import check_key_gate, check_states, new_state, over_ranks, run_recurrent


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
    call = dict(
        q=q,
        k=k,
        v=v,
        gate=g,
        o=out,
        cu_seqlens=cu_seqlens,
        initial_state=initial_state,
        final_state=final_state,
        scale=scale,
        rule="linear_attention",
        implementation=implementation,
        stream=stream,
        workspace=workspace,
    )
    return run_recurrent(op, call, output_final_state, state_v_first, max_tokens, allow_chunks)


def chunk_gla(
    q: T,
    k: T,
    v: T,
    g: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Any = None,
    *,
    out: T | None = None,
    final_state: T | None = None,
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> tuple[T, T | None]:
    """Gated linear attention over whole sequences, by chunks: S_t = diag(alpha_t) S_{t-1} + k_t v_t^T.

    g: [B,T,HV,K] log gates <= 0. cu_seqlens_cpu: accepted, not needed. The rest as in
    `chunk_simple_gla`.

    Returns: (o, final state or None).
    Source: Yang et al., Gated Linear Attention Transformers, arXiv:2312.06635.

    Example:
      >>> x, g = np.ones((1, 100, 2, 16), np.float32), np.full((1, 100, 2, 16), -0.1, np.float32)
      >>> sluice.chunk_gla(x, x, x, g)[0].shape
      (1, 100, 2, 16)
    """
    check_key_gate("chunk_gla", "g", g, "chunk_simple_gla")
    given = dict(locals())
    del given["cu_seqlens_cpu"]
    return chunk_simple_gla(**given)


def fused_recurrent_gla(
    q: T,
    k: T,
    v: T,
    gk: Tensor | None = None,
    gv: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
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
    """Gated linear attention token by token: S_t = diag(alpha_t) S_{t-1} + k_t v_t^T.

    gk: [B,T,HV,K] log gates <= 0; None = no decay. gv and reverse are refused (Unsupported). The
    rest as in `fused_recurrent_simple_gla`.

    Returns: (o, final state or None).
    Source: Yang et al., Gated Linear Attention Transformers, arXiv:2312.06635.

    Example:
      >>> x, gk = np.ones((3, 1, 2, 16), np.float32), np.full((3, 1, 2, 16), -0.1, np.float32)
      >>> o, state = sluice.fused_recurrent_gla(x, x, x, gk, output_final_state=True)
      >>> state.shape
      (3, 2, 16, 16)
    """
    op, given = "fused_recurrent_gla", dict(locals())
    if gv is not None:
        raise Unsupported(f"{op}: gv = given, expected None (gates are per head or key-wise)")
    check_key_gate(op, "gk", gk, "fused_recurrent_simple_gla")
    if reverse:
        raise Unsupported(f"{op}: reverse = True, expected False (pass flipped rows)")
    del given["gv"], given["reverse"]
    return fused_recurrent_simple_gla(g=given.pop("gk"), **given)
