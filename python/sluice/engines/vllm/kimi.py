# SPDX-License-Identifier: Apache-2.0
"""Stands in for KDA as Kimi's layers of vllm 0.33.0 call it, from raw gates and raw betas:
vllm.models.kimi_k3.nvidia.ops.third_party.kda."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...functional.kda import gate_arguments
from .. import sequences
from ..refusal import check_scale
from .ops import decode, kPadBelow, prefill

if TYPE_CHECKING:
    import torch


def chunk_kda_with_fused_gate(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    raw_g: torch.Tensor,
    raw_beta: torch.Tensor,
    A_log: torch.Tensor,
    g_bias: torch.Tensor | None,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    lower_bound: float | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Prefill: raw_g [B,T,HV,K], raw_beta [B,T,HV], state [N,HV,V,K] in, a new float32 one out. Returns (o, state
    or None)."""
    op = "vllm.chunk_kda_with_fused_gate"
    scale = check_scale(op, scale)
    call = sequences.arguments(q, k, v, raw_g, raw_beta, cu_seqlens, scale, use_qk_l2norm_in_kernel)
    call.update(gate_arguments(op, raw_g, True, A_log, g_bias, lower_bound), beta_space="logit", o=out)
    return prefill(op, call, initial_state, output_final_state)


def fused_recurrent_kda(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    raw_g: torch.Tensor,
    raw_beta: torch.Tensor,
    A_log: torch.Tensor,
    dt_bias: torch.Tensor | None,
    lower_bound: float | None,
    initial_state: torch.Tensor,
    cu_seqlens: torch.Tensor,
    ssm_state_indices: torch.Tensor,
    num_accepted_tokens: Any = None,
    out: torch.Tensor | None = None,
    fuse_gate: bool | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Decode and drafts: the pool [slots,HV,V,K] is updated IN PLACE at ssm_state_indices [N] or [N,W]. fuse_gate
    chooses nothing. Returns (o, pool)."""
    op = "vllm.fused_recurrent_kda"
    call = sequences.arguments(q, k, v, raw_g, raw_beta, cu_seqlens, None, True)
    call.update(gate_arguments(op, raw_g, True, A_log, dt_bias, lower_bound), beta_space="logit", o=out)
    return decode(op, call, initial_state, ssm_state_indices, num_accepted_tokens)


def fused_recurrent_kda_packed_decode(
    mixed_qkv: torch.Tensor,
    raw_g: torch.Tensor,
    raw_beta: torch.Tensor,
    A_log: torch.Tensor,
    dt_bias: torch.Tensor,
    lower_bound: float | None,
    initial_state: torch.Tensor,
    state_indices: torch.Tensor,
    scale: float | None = None,
    out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One token a row: mixed_qkv [B, 2HK+HVV], raw_g [1,B,HV,K], raw_beta [1,B,HV], the pool updated IN PLACE at
    state_indices [B]. Returns (o [1,B,HV,V], pool)."""
    op = "vllm.fused_recurrent_kda_packed_decode"
    HV, V = initial_state.shape[1:3]
    if out is None:
        out = mixed_qkv.new_empty((1, mixed_qkv.shape[0], HV, V))
    sequences.packed_decode(
        op,
        mixed_qkv,
        (raw_g[0], raw_beta[0]),
        out.transpose(0, 1),
        initial_state,
        state_indices,
        scale=check_scale(op, scale),
        qk_norm="l2",
        pad_below=kPadBelow,
        **gate_arguments(op, raw_g[0], True, A_log, dt_bias, lower_bound),
    )
    return out, initial_state
