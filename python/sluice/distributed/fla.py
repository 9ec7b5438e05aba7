# SPDX-License-Identifier: Apache-2.0
"""Reads the table of fragments of fla's cp_context."""

from typing import Any

import torch

from .fragments import Fragment, Fragments

Part = tuple[list[int], bool]  # tokens of its sequences; whether the first goes on with the part before


def fragments_of(context: Any) -> Fragments:
    """The table of all ranks. Each has one slice of all rows, in the order of ranks, or with layout "zigzag" two:
    slices r and 2 ranks - 1 - r. Ranks tell each other their own."""
    group = context.group
    every: list[list[Part]] = [[] for _ in range(torch.distributed.get_world_size(group))]
    torch.distributed.all_gather_object(every, _parts(context), group=group)
    lengths: list[int] = []
    table: list[list[list[Fragment]]] = [[[] for _ in parts] for parts in every]
    slices = [(rank, 0) for rank in range(len(every))]
    slices += [(rank, 1) for rank in reversed(range(len(every))) if len(every[rank]) > 1]
    for rank, at in slices:
        tokens, goes_on = every[rank][at]
        for number, count in enumerate(tokens):
            if number > 0 or not goes_on or not lengths:
                lengths.append(0)
            lengths[-1] += count
            table[rank][at].append(Fragment(len(lengths) - 1, lengths[-1] - count, lengths[-1]))
    return Fragments(lengths, [[fragment for part in parts for fragment in part] for parts in table])


def _parts(context: Any) -> list[Part]:
    """What this rank holds: the offsets that the context has on the host, or else those on the device."""
    on_host = getattr(context, "cu_seqlens_cpu", None)
    offsets = (context.cu_seqlens if on_host is None else on_host).tolist()
    tokens = [end - begin for begin, end in zip(offsets, offsets[1:])]
    if getattr(context, "layout", "contiguous") != "zigzag":
        return [(tokens, (getattr(context, "pre_num_ranks", None) or 0) > 0)]
    front, before = context.front_num_seqs, context.pre_num_ranks_by_part
    return [(tokens[:front], before[0] > 0), (tokens[front:], before[1] > 0)]
