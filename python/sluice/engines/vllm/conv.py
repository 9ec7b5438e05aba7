# SPDX-License-Identifier: Apache-2.0
"""Stands in for vllm.model_executor.layers.mamba.ops.causal_conv1d: states [slots, D, L] in either memory order
([slot][channel][column], or [slot][column][channel] passed transposed)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..pool_conv import pad_rule, prefill, update

if TYPE_CHECKING:
    import torch


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
    metadata: Any = None,
    validate_data: bool = False,
) -> torch.Tensor:
    """x [D, tokens], weight [D,W]; conv_states updated IN PLACE. metadata is vLLM's launch plan and
    is not needed; validate_data asks for checks that are always made. Returns [D, tokens]."""
    op = "vllm.causal_conv1d_fn"
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
    validate_data: bool = False,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """x [B,D], [B,D,T], or [tokens,D] with query_start_loc; conv_state updated IN PLACE, with
    num_accepted_tokens as a sliding window of W-1 + T-1 columns. max_query_len is not needed.
    Returns a new tensor of x's shape, or `out`; vLLM overwrites x where out is None, and every call
    in vLLM uses the returned tensor."""
    op = "vllm.causal_conv1d_update"
    return update(
        op,
        x,
        conv_state,
        weight,
        bias,
        activation=activation,
        conv_state_indices=conv_state_indices,
        num_accepted=num_accepted_tokens,
        query_start_loc=query_start_loc,
        # Without slots, row b is slot b: slot 0 is then a live state.
        pad_below=0 if conv_state_indices is None else pad_rule(op, None, null_block_id),
        out=out,
    )
