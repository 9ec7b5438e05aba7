# SPDX-License-Identifier: Apache-2.0
"""Stands in for the causal-conv1d package: its three functions, signatures as of causal-conv1d
1.7.0.

Channel-first activations; states [.., D, >= W-1] of raw inputs, oldest first. Nothing is copied and
no alignment of strides is asked for. Differences: seq_idx is refused, and a gradient of an update is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import ops
from .pool_conv import activation_name
from .refusal import invalid, only_absent

if TYPE_CHECKING:
    import torch


def causal_conv1d_fn(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    seq_idx: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    return_final_states: bool = False,
    final_states_out: torch.Tensor | None = None,
    activation: str | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """x [B,D,L], weight [D,W], bias [D], initial_states [B,D,W-1]; activation None, "silu" or
    "swish". Returns o [B,D,L], or (o, final states [B,D,W-1]) with return_final_states; the states
    go to final_states_out if given."""
    op = "causal_conv1d.causal_conv1d_fn"
    only_absent(
        op, "packed rows are passed with cu_seqlens to sluice.causal_conv1d", seq_idx=seq_idx
    )
    if final_states_out is not None and not return_final_states:
        invalid(op, "final_states_out", final_states_out, "None", "without return_final_states")
    final = final_states_out
    if return_final_states and final is None:
        final = x.new_empty((x.shape[0], x.shape[1], weight.shape[1] - 1))
    out = ops.causal_conv1d(
        x.transpose(1, 2),
        weight,
        bias,
        initial_state=initial_states,
        final_state=final,
        activation=activation_name(op, activation),
    ).transpose(1, 2)
    return (out, final) if return_final_states else out


def causal_conv1d_update(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    cache_seqlens: torch.Tensor | None = None,
    conv_state_indices: torch.Tensor | None = None,
) -> torch.Tensor:
    """x [B,D] or [B,D,T]; conv_state [slots,D,>= W-1], updated IN PLACE: shifted, or with
    cache_seqlens int32 [B] a ring written at cache_seqlens mod its length. conv_state_indices
    int32 [B]: a negative slot gives zero outputs and leaves its state. Returns the shape of x."""
    single = len(x.shape) == 2
    rows = ops.causal_conv1d(
        x.unsqueeze(1) if single else x.transpose(1, 2),
        weight,
        bias,
        initial_state=conv_state,
        final_state=conv_state,
        read_slots=conv_state_indices,
        ring_position=cache_seqlens,
        conv_state_form="shift" if cache_seqlens is None else "ring",
        activation=activation_name("causal_conv1d.causal_conv1d_update", activation),
    )
    return rows.squeeze(1) if single else rows.transpose(1, 2)


def causal_conv1d_varlen_states(
    x: torch.Tensor, cu_seqlens: torch.Tensor, state_len: int
) -> torch.Tensor:
    """The last state_len inputs of every packed sequence: x [tokens, D], cu_seqlens [N+1]. Returns
    [N, D, state_len] in x's dtype, zeros before a sequence's first token. Data movement only."""
    import torch

    starts, ends = cu_seqlens[:-1].to(torch.int64), cu_seqlens[1:].to(torch.int64)
    back = torch.arange(-state_len, 0, device=x.device)
    rows = ends[:, None] + back[None, :]
    inside = (rows >= starts[:, None])[..., None]
    states = torch.where(
        inside, x[rows.clamp(min=0)], torch.zeros((), dtype=x.dtype, device=x.device)
    )
    return states.transpose(1, 2)
