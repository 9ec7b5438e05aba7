# SPDX-License-Identifier: Apache-2.0
"""Offers gated linear attention with a gate for each key channel, with fla's signatures."""

from typing import Any

from .._errors import Unsupported
from .._types import T, Tensor
from ._arguments import check_key_gate
from .simple_gla import chunk_simple_gla, fused_recurrent_simple_gla


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
