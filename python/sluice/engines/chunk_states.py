# SPDX-License-Identifier: Apache-2.0
"""Computes the states at the start of every 64-token chunk, which two engines expect as a third
return value (their prefix caches copy rows of it). All indices are computed on the tensors' device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# Tokens of a chunk in the engines that ask for these states.
kChunk = 64


def _known_to_host(counts: Any) -> bool:
    """Whether values can be read without waiting for a GPU."""
    return bool(counts.device.type == "cpu")


def _row_bound(q: torch.Tensor, counts: Any, cu_seqlens: torch.Tensor) -> Any:
    """How many chunks there are: exact where no GPU has to be waited for, else an upper bound."""
    if cu_seqlens is None:
        return q.shape[0] * ((q.shape[1] + kChunk - 1) // kChunk)
    if _known_to_host(counts):
        return int(counts.sum())
    return q.shape[1] // kChunk + len(cu_seqlens) - 1


def chunk_start_states(
    q: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens: torch.Tensor,
    initial_state: torch.Tensor,
    read_slots: torch.Tensor,
    state_layout: str,
    dtype: torch.dtype | None = None,
) -> Any:
    """Allocates the states and says how `ops.chunk_forward` fills all but the first of a sequence.

    Returns (h, arguments): h [B, rows, HV, ..] in `dtype`, by default q's, row of chunk c of sequence n =
    chunks of sequences before n + c, the first row of each sequence already filled from
    `initial_state`; arguments: the checkpoint arguments of `ops.chunk_forward`.
    """
    import torch  # not at import: the shims must be importable without it

    K, (HV, V) = q.shape[3], v.shape[2:]
    if cu_seqlens is None:
        lengths = torch.full((q.shape[0],), q.shape[1], dtype=torch.int64, device=q.device)
    else:
        lengths = (cu_seqlens[1:] - cu_seqlens[:-1]).to(torch.int64)
    counts = (lengths + (kChunk - 1)) // kChunk
    rows = _row_bound(q, counts, cu_seqlens)
    inner = (HV, K, V) if state_layout == "kv" else (HV, V, K)
    # One row more, where sequences without tokens put their start state.
    h = torch.zeros((rows + 1, *inner), dtype=dtype or q.dtype, device=q.device)
    first = torch.cumsum(counts, 0) - counts
    if initial_state is not None and len(counts) > 0:
        starts = initial_state
        if read_slots is not None:
            slots = read_slots.to(torch.int64)
            live = (slots >= 0)[:, None, None, None]
            starts = torch.where(live, initial_state[slots.clamp(min=0)], 0)
        h[torch.where(counts > 0, first, rows)] = starts[: len(counts)].to(h.dtype)
    most = max(q.shape[1] - 1, 0) // kChunk
    found = h[:rows].view(q.shape[0], rows // q.shape[0], *inner)
    if most == 0:
        return found, {}
    chunk = torch.arange(1, most + 1, device=q.device)
    inside = chunk[None, :] * kChunk < lengths[:, None]
    slots = torch.where(inside, first[:, None] + chunk[None, :], -1)
    return found, {
        "checkpoints": h,
        "checkpoint_slots": slots,
        "checkpoint_every": kChunk,
    }
