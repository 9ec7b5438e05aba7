# SPDX-License-Identifier: Apache-2.0
"""vllm.model_executor.layers.mamba.ops.causal_conv1d: states [slots, D, L] in either memory order
([slot][channel][column], or [slot][column][channel] passed transposed)."""

from ..pool_conv import pad_rule, prefill, update


def causal_conv1d_fn(
    x,
    weight,
    bias,
    conv_states,
    query_start_loc,
    cache_indices=None,
    has_initial_state=None,
    activation="silu",
    pad_slot_id=-1,
    null_block_id=0,
    metadata=None,
    validate_data=False,
):
    """x [D, tokens], weight [D,W]; conv_states updated IN PLACE. metadata is vLLM's launch plan and
    is not needed; validate_data asks for checks that are always made. Returns [D, tokens]."""
    op = "vllm.causal_conv1d_fn"
    return prefill(
        op,
        x,
        weight,
        bias,
        conv_states=conv_states,
        query_start_loc=query_start_loc,
        cache_indices=cache_indices,
        has_initial_state=has_initial_state,
        activation=activation,
        pad_below=pad_rule(op, pad_slot_id, null_block_id),
    )


def causal_conv1d_update(
    x,
    conv_state,
    weight,
    bias=None,
    activation=None,
    conv_state_indices=None,
    num_accepted_tokens=None,
    query_start_loc=None,
    max_query_len=-1,
    null_block_id=0,
    validate_data=False,
    out=None,
):
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
