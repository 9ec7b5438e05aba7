# SPDX-License-Identifier: Apache-2.0
"""Runs the convolutions of vLLM and SGLang: states in a pool of slots, channel-first activations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import ops
from .refusal import describe, unsupported

if TYPE_CHECKING:
    import torch


def activation_name(op: str, activation: bool | str | None) -> str:
    """The operators' name of an engine's activation: None, a bool, "silu" or "swish"."""
    if activation is None or activation is False:
        return "none"
    if activation is True or activation in ("silu", "swish"):
        return "silu"
    unsupported(op, "activation", activation, "None, 'silu' or 'swish'", "convolution")


def pad_rule(op: str, pad_slot_id: int | None, null_block_id: int | None = None) -> int:
    """pad_below for an engine's padding ids: -1 marks padding, and 0 too where block 0 is null."""
    if pad_slot_id not in (None, -1):
        unsupported(op, "pad_slot_id", pad_slot_id, "-1 or None", "negative slots are padding")
    if null_block_id not in (None, 0):
        unsupported(op, "null_block_id", null_block_id, "0 or None", "slot 0 is the null slot")
    return 0 if null_block_id is None else 1


def check_slots(op: str, name: str, slots: torch.Tensor | None) -> None:
    """Slots of one per sequence: tables of blocks (prefix caching of states) are refused."""
    if slots is not None and len(slots.shape) != 1:
        unsupported(op, name, slots, "[N]", f"one state slot a sequence, not {describe(slots)}")


def prefill(op: str, given: dict[str, Any], pad_below: int) -> torch.Tensor:
    """A call of x [D, tokens] packed, or [B, D, T], whose arguments by the engines' names are among `given`. Returns
    the shape of x; conv_states [slots, D, >= W-1] is updated in place in its first W-1 columns. Without
    has_initial_state every sequence starts from zeros, as in both engines."""
    x, weight, states = given["x"], given["weight"], given["conv_states"]
    slots, has_initial_state = given["cache_indices"], given["has_initial_state"]
    check_slots(op, "cache_indices", slots)
    packed = len(x.shape) == 2
    if states is not None:
        states = states[..., : weight.shape[1] - 1]
    out = ops.causal_conv1d(
        x.t().unsqueeze(0) if packed else x.transpose(1, 2),
        weight,
        given["bias"],
        cu_seqlens=given["query_start_loc"],
        initial_state=None if has_initial_state is None else states,
        final_state=states,
        read_slots=slots,
        has_initial_state=has_initial_state,
        pad_below=pad_below,
        activation=activation_name(op, given["activation"]),
    )
    return out.squeeze(0).t() if packed else out.transpose(1, 2)


def update(
    op: str,
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    *,
    activation: bool | str | None,
    conv_state_indices: torch.Tensor,
    num_accepted: torch.Tensor | None = None,
    query_start_loc: torch.Tensor | None = None,
    ring_position: torch.Tensor | None = None,
    pad_below: int = 0,
    out: torch.Tensor | None = None,
) -> Any:
    """x [B, D], [B, D, T], or [tokens, D] with query_start_loc. Returns the shape of x, a new
    tensor unless `out` is given. Without speculation the state is the first W-1 columns."""
    check_slots(op, "conv_state_indices", conv_state_indices)
    if query_start_loc is not None:
        to_rows, from_rows = (lambda t: t.unsqueeze(0)), (lambda t: t.squeeze(0))
    elif len(x.shape) == 2:
        to_rows, from_rows = (lambda t: t.unsqueeze(1)), (lambda t: t.squeeze(1))
    else:
        to_rows = from_rows = lambda t: t.transpose(1, 2)
    states = conv_state
    if num_accepted is None and ring_position is None:
        states = conv_state[..., : weight.shape[1] - 1]
    rows = ops.causal_conv1d(
        to_rows(x),
        weight,
        bias,
        out=None if out is None else to_rows(out),
        cu_seqlens=query_start_loc,
        initial_state=states,
        final_state=states,
        read_slots=conv_state_indices,
        num_accepted=num_accepted,
        ring_position=ring_position,
        conv_state_form="shift" if ring_position is None else "ring",
        pad_below=pad_below,
        activation=activation_name(op, activation),
    )
    return from_rows(rows) if out is None else out
