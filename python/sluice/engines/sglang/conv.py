# SPDX-License-Identifier: Apache-2.0
"""Stands in for the convolutions of SGLang: sglang.srt.layers.attention.mamba.causal_conv1d.causal_conv1d_fn
and sglang.kernels.ops.mamba.causal_conv1d_triton.causal_conv1d_update."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..pool_conv import pad_rule, prefill, update
from ..refusal import only_absent

if TYPE_CHECKING:
    import torch


def causal_conv1d_fn(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    query_start_loc: torch.Tensor | None = None,
    cache_indices: torch.Tensor | None = None,
    has_initial_state: torch.Tensor | None = None,
    conv_states: torch.Tensor | None = None,
    activation: str = "silu",
    pad_slot_id: int = -1,
    seq_lens_cpu: Any = None,
    block_table: Any = None,
    validate_data: bool = False,
) -> torch.Tensor:
    """x [D, tokens] packed, or [B,D,T]; conv_states [slots,D,>= W-1] updated IN PLACE.

    seq_lens_cpu repeats query_start_loc and is not needed; block_table is refused; validate_data
    asks for checks that are always made. Returns a new tensor of x's shape (one of SGLang's
    variants overwrites x; every call in SGLang uses the returned tensor)."""
    op = "sglang.causal_conv1d_fn"
    only_absent(op, "one state slot a sequence", block_table=block_table)
    return prefill(op, locals(), pad_rule(op, pad_slot_id))


def causal_conv1d_update(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    cache_seqlens: torch.Tensor | None = None,
    conv_state_indices: torch.Tensor | None = None,
    num_accept_tokens: torch.Tensor | None = None,
    intermediate_conv_window: torch.Tensor | None = None,
    intermediate_state_indices: torch.Tensor | None = None,
    retrieve_next_token: Any = None,
    retrieve_next_sibling: Any = None,
    retrieve_parent_token: Any = None,
    pad_slot_id: int = -1,
    metadata: Any = None,
    validate_data: bool = False,
) -> torch.Tensor:
    """x [B,D] or [B,D,T]; conv_state updated IN PLACE, as a ring with cache_seqlens. The windows
    and trees of speculative verification are refused; metadata is not needed. Returns a new
    tensor."""
    op = "sglang.causal_conv1d_update"
    only_absent(
        op,
        "no windows or trees of verification",
        intermediate_conv_window=intermediate_conv_window,
        intermediate_state_indices=intermediate_state_indices,
        retrieve_next_token=retrieve_next_token,
        retrieve_next_sibling=retrieve_next_sibling,
        retrieve_parent_token=retrieve_parent_token,
    )
    return update(
        op,
        x,
        conv_state,
        weight,
        bias,
        activation=activation,
        conv_state_indices=conv_state_indices,
        num_accepted=num_accept_tokens,
        ring_position=cache_seqlens,
        pad_below=pad_rule(op, pad_slot_id),
    )
