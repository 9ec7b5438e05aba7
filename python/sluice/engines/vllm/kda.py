# SPDX-License-Identifier: Apache-2.0
"""Stands in for vLLM's KDA: vllm.third_party.flash_linear_attention.ops.kda."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import ops
from ...functional._arguments import new_state
from ...functional.kda import gate_arguments
from .. import sequences
from ..refusal import check_scale, invalid, unsupported
from .ops import _state_arguments

if TYPE_CHECKING:
    import torch


def prefill(
    op: str,
    rows: tuple[Any, Any, Any, Any, Any],
    scale: float | None,
    initial_state: Any,
    output_final_state: bool,
    cu_seqlens: Any,
    **arguments: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """chunk_forward of q, k, v, gates and betas; a final state is a new float32 tensor."""
    q, _, v, _, beta = rows
    if len(beta.shape) != 3:
        invalid(op, "beta", beta, "[B,T,HV]", "one write strength a value head")
    final = new_state(q, v, cu_seqlens, True) if output_final_state else None
    o = ops.chunk_forward(
        *rows,
        cu_seqlens=cu_seqlens,
        initial_state=initial_state,
        final_state=final,
        state_layout="vk",
        scale=check_scale(op, scale),
        **arguments,
    )
    return o, final


def chunk_kda(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Prefill: log gates g [B,T,HV,K], beta [B,T,HV], state [N,HV,V,K] in, a new float32 one out.
    Returns (o, state or None)."""
    return prefill(
        "vllm.chunk_kda",
        (q, k, v, g, beta),
        scale,
        initial_state,
        output_final_state,
        cu_seqlens,
        qk_norm=sequences.qk_norm(use_qk_l2norm_in_kernel),
    )


def chunk_kda_with_fused_gate(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    raw_g: torch.Tensor,
    beta: torch.Tensor,
    A_log: torch.Tensor,
    g_bias: torch.Tensor | None,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    lower_bound: float | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """chunk_kda from raw gates: raw_g [B,T,HV,K], A_log of HV numbers, g_bias [HV K], [HV,K] or
    None."""
    op = "vllm.chunk_kda_with_fused_gate"
    return prefill(
        op,
        (q, k, v, raw_g, beta),
        scale,
        initial_state,
        output_final_state,
        cu_seqlens,
        qk_norm=sequences.qk_norm(use_qk_l2norm_in_kernel),
        **gate_arguments(op, raw_g, True, A_log, g_bias, lower_bound),
    )


def fused_recurrent_kda(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor | None = None,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    inplace_final_state: bool = True,
    use_qk_l2norm_in_kernel: bool = True,
    cu_seqlens: torch.Tensor | None = None,
    ssm_state_indices: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Decode with log gates [B,T,HV,K]: the pool [slots,HV,V,K] is updated IN PLACE at
    ssm_state_indices. Returns (o, pool)."""
    op = "vllm.fused_recurrent_kda"
    if beta is not None and len(beta.shape) == 4:
        unsupported(op, "beta", beta, "[B,T,HV]", "one write strength a value head")
    final, states = _state_arguments(
        op, q, initial_state, inplace_final_state, cu_seqlens, ssm_state_indices, None
    )
    o = sequences.decode(
        op,
        q,
        k,
        v,
        g,
        beta,
        scale=check_scale(op, scale),
        qk_norm=sequences.qk_norm(use_qk_l2norm_in_kernel),
        **states,
    )
    return o, final
