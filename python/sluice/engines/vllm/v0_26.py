# SPDX-License-Identifier: Apache-2.0
"""Stands in for the same operators of vllm 0.26.0, the last release on torch 2.11: what differs from 0.33.0
are the convolutions, which know blocks of a prefix cache, and KDA from raw gates, which has no bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..pool_conv import pad_rule, prefill
from ..refusal import only_absent
from . import conv, ops
from .norm import layer_norm_fwd, rms_norm_gated, rmsnorm_fn  # noqa: F401
from .ops import (  # noqa: F401
    chunk_gated_delta_rule,
    chunk_kda,
    fused_recurrent_gated_delta_rule,
    fused_recurrent_gated_delta_rule_packed_decode,
    fused_recurrent_kda,
    fused_sigmoid_gating_delta_rule_update,
)

if TYPE_CHECKING:
    import torch

_BLOCKS = "states of every block of a prefix cache"


def causal_conv1d_fn(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    conv_states: torch.Tensor,
    query_start_loc: torch.Tensor,
    cache_indices: torch.Tensor | None = None,
    has_initial_state: torch.Tensor | None = None,
    activation: str = "silu",
    pad_slot_id: int = -1,
    null_block_id: int = 0,
    block_idx_first_scheduled_token: torch.Tensor | None = None,
    block_idx_last_scheduled_token: torch.Tensor | None = None,
    initial_state_idx: torch.Tensor | None = None,
    num_computed_tokens: torch.Tensor | None = None,
    block_size_to_align: int = 0,
    metadata: Any = None,
    validate_data: bool = False,
) -> torch.Tensor:
    """As `conv.causal_conv1d_fn`; calls with blocks of a prefix cache are refused. Its size alone
    (block_size_to_align) says nothing."""
    op = "vllm.causal_conv1d_fn"
    only_absent(
        op,
        _BLOCKS,
        block_idx_first_scheduled_token=block_idx_first_scheduled_token,
        block_idx_last_scheduled_token=block_idx_last_scheduled_token,
        initial_state_idx=initial_state_idx,
        num_computed_tokens=num_computed_tokens,
    )
    return prefill(op, locals(), pad_rule(op, pad_slot_id, null_block_id))


def causal_conv1d_update(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    conv_state_indices: torch.Tensor | None = None,
    num_accepted_tokens: torch.Tensor | None = None,
    query_start_loc: torch.Tensor | None = None,
    max_query_len: int = -1,
    null_block_id: int = 0,
    block_idx_last_scheduled_token: torch.Tensor | None = None,
    initial_state_idx: torch.Tensor | None = None,
    validate_data: bool = False,
) -> torch.Tensor:
    """As `conv.causal_conv1d_update`; calls with blocks of a prefix cache are refused."""
    only_absent(
        "vllm.causal_conv1d_update",
        _BLOCKS,
        block_idx_last_scheduled_token=block_idx_last_scheduled_token,
        initial_state_idx=initial_state_idx,
    )
    return conv.causal_conv1d_update(
        x,
        conv_state,
        weight,
        bias,
        activation,
        conv_state_indices,
        num_accepted_tokens,
        query_start_loc,
        max_query_len,
        null_block_id,
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
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """As `ops.chunk_kda_with_fused_gate`, without a bound."""
    return ops.chunk_kda_with_fused_gate(**locals())
