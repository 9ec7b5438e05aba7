# SPDX-License-Identifier: Apache-2.0
"""Rows of other ranks that a short convolution reads: the last ones before each piece."""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from .fragments import Fragments


def halo_rows(exchange: Any, fragments: Fragments, rank: int, x: Any, width: int) -> Any:
    """[pieces, width - 1, D]: see ContextParallel.halo."""
    table = _table(fragments, rank, width, x.device)
    return _Halo.apply(exchange, table, width - 1, x)


def _table(fragments: Fragments, rank: int, width: int, device: Any) -> dict[str, Any]:
    """`last`: the rank's rows that it sends, by slot; `read`: what each row of the halo is among all
    that are gathered. One past the end: zeros."""
    key = ("halo", rank, width, device)
    if key not in fragments.known:
        rows = width - 1
        slots = max(map(len, fragments.ranks))
        zeros = len(fragments.ranks) * slots * rows
        offsets = fragments.offsets(rank)
        total = offsets[-1]
        last = []
        for begin, end in zip(offsets, offsets[1:]):
            last += [row if row >= begin else total for row in range(end - rows, end)]
        last += [total] * (slots * rows - len(last))
        read = [zeros] * (len(fragments.ranks[rank]) * rows)
        for n in range(len(fragments.lengths)):
            before: list[int] = []  # gathered rows of the sequence so far, the last ones
            for owner, place, fragment in fragments.chain(n):
                if owner == rank:
                    kept = before[-rows:] if rows else []
                    read[(place + 1) * rows - len(kept) : (place + 1) * rows] = kept
                first = (owner * slots + place) * rows
                held = min(len(fragment), rows)
                before += range(first + rows - held, first + rows)
        fragments.known[key] = {
            "last": torch.tensor(last, dtype=torch.int64, device=device),
            "read": torch.tensor(read, dtype=torch.int64, device=device),
        }
    return fragments.known[key]  # type: ignore[no-any-return]


def _with_zeros(rows: Any) -> Any:
    return torch.cat([rows, rows.new_zeros((1, rows.shape[1]))])


class _Halo(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, exchange: Any, table: dict[str, Any], rows: int, x: Any) -> Any:
        ctx.exchange, ctx.table, ctx.shape = exchange, table, x.shape
        sent = _with_zeros(x[0]).index_select(0, table["last"])
        gathered = exchange.gather(sent).flatten(0, 1)
        return _with_zeros(gathered).index_select(0, table["read"]).view(-1, rows, x.shape[2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_halo: Any) -> Any:
        exchange, table = ctx.exchange, ctx.table
        D = ctx.shape[2]
        count = exchange.ranks * len(table["last"])
        by_row = d_halo.new_zeros((count + 1, D), dtype=torch.float32)
        by_row.index_add_(0, table["read"], d_halo.reshape(-1, D).float())
        # Every rank's part of every rank's rows; the own ones are summed in the order of ranks.
        every = exchange.gather(by_row[:count].view(exchange.ranks, -1, D))
        mine = every[:, exchange.rank].sum(0)
        d_x = d_halo.new_zeros((ctx.shape[1] + 1, D), dtype=torch.float32)
        d_x.index_add_(0, table["last"], mine)
        return None, None, None, d_x[:-1].to(d_halo.dtype)[None]
