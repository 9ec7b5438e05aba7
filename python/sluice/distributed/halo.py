# SPDX-License-Identifier: Apache-2.0
"""Fetches the rows of other ranks that a short convolution reads: the last ones before each piece."""

import zlib
from typing import Any

import torch

from .._errors import InvalidArgument
from .fragments import Fragments


def sent_shape(fragments: Fragments, x: Any, width: int) -> tuple[int, int]:
    """Of what all ranks send of x [..,D]: as many rows a piece and rank."""
    slots = max(map(len, fragments.ranks))
    return len(fragments.ranks) * slots * (width - 1), x.shape[-1]


def sent_like(context: Any, x: Any, width: int) -> Any:
    """Memory for what all ranks send."""
    return x.new_empty(sent_shape(context.fragments, x, width))


def received_like(context: Any, gathered: Any, width: int) -> Any:
    """Memory for the rows before each piece."""
    return gathered.new_empty(len(context.fragments.ranks[context.rank]), width - 1, gathered.shape[-1])


def rows_like(context: Any, sent: Any, width: int) -> Any:
    """Memory for this rank's rows."""
    return sent.new_empty(1, context.fragments.tokens(context.rank), sent.shape[-1])


def send(context: Any, x: Any, width: int) -> Any:
    """Starts to send the last width - 1 rows of each piece of x [1,T,D] to all ranks; what all have sent."""
    fragments, exchange = context.fragments, context.exchange
    rows = fragments.tokens(context.rank)
    if x.dim() != 3 or x.shape[0] != 1 or x.shape[1] != rows or width < 2:
        exchange.tell_failure(x.device)
        raise InvalidArgument(
            f"ContextParallel: x.shape, width = {tuple(x.shape)}, {width}, expected [1, {rows}, D] and 2 or more (the "
            f"rows of rank {context.rank}'s fragments)"
        )
    numbers = {"fragments": fragments.checksum(), "halo width": width, "channels": x.shape[-1]}
    exchange.agree({**numbers, "type of rows": zlib.crc32(str(x.dtype).encode())}, x.device)
    table = _table(fragments, context.rank, width, x.device)
    ranks = len(fragments.ranks)
    shape = sent_shape(fragments, x, width)
    part = x.new_zeros(shape[0] // ranks, shape[1])
    part.index_copy_(0, table["slots"], x[0].index_select(0, table["rows"]))
    return exchange.start(part)


def receive(context: Any, gathered: Any, width: int) -> Any:
    """The width - 1 rows before each piece [pieces, width - 1, D], zeros before a sequence."""
    table = _table(context.fragments, context.rank, width, gathered.device)
    gathered = context.exchange.wait(gathered)
    count = len(context.fragments.ranks[context.rank])
    found = gathered.new_zeros(count * (width - 1), gathered.shape[-1])
    found.index_copy_(0, table["read_to"], gathered.index_select(0, table["read"]))
    return found.view(count, width - 1, gathered.shape[1])


def send_gradient(context: Any, d_rows: Any, width: int) -> Any:
    """Starts to send every rank its part of gradients by what receive() gave; what all have sent this one."""
    table = _table(context.fragments, context.rank, width, d_rows.device)
    shape = sent_shape(context.fragments, d_rows, width)
    # Of pieces shorter than the halo a row is read more than once.
    parts = d_rows.new_zeros(shape, dtype=torch.float32)
    parts.index_add_(0, table["read"], d_rows.flatten(0, 1).index_select(0, table["read_to"]).float())
    return context.exchange.start_parts(parts.to(d_rows.dtype))


def gradient(context: Any, d_sent: Any, width: int) -> Any:
    """The gradient by x of send(); the ranks' parts are summed in their order."""
    table = _table(context.fragments, context.rank, width, d_sent.device)
    every = context.exchange.wait(d_sent).unflatten(0, (context.ranks, d_sent.shape[0] // context.ranks))
    mine = every.float().sum(0).to(d_sent.dtype)
    d_x = d_sent.new_zeros(1, context.fragments.tokens(context.rank), d_sent.shape[-1])
    d_x[0].index_copy_(0, table["rows"], mine.index_select(0, table["slots"]))
    return d_x


def _table(fragments: Fragments, rank: int, width: int, device: Any) -> dict[str, Any]:
    """`rows` of the rank that it sends, to `slots`; which of all gathered rows it reads (`read`), to which rows of its
    halo (`read_to`). What is in neither is zeros."""
    key = ("halo", rank, width, device)
    if key not in fragments.known:
        made = {**_sent_rows(fragments, rank, width - 1), **_read_rows(fragments, rank, width - 1)}
        fragments.known[key] = {name: torch.tensor(x, dtype=torch.int64, device=device) for name, x in made.items()}
    return fragments.known[key]  # type: ignore[no-any-return]


def _sent_rows(fragments: Fragments, rank: int, count: int) -> dict[str, list[int]]:
    offsets = fragments.offsets(rank)
    rows: list[int] = []
    slots: list[int] = []
    for place, (begin, end) in enumerate(zip(offsets, offsets[1:])):
        last = range(max(begin, end - count), end)
        rows += last
        slots += range((place + 1) * count - len(last), (place + 1) * count)
    return {"rows": rows, "slots": slots}


def _read_rows(fragments: Fragments, rank: int, count: int) -> dict[str, list[int]]:
    slots = max(map(len, fragments.ranks))
    read: list[int] = []
    read_to: list[int] = []
    for n in range(len(fragments.lengths)):
        before: list[int] = []  # gathered rows of the sequence so far
        for owner, place, fragment in fragments.chain(n):
            if owner == rank:
                last = before[max(len(before) - count, 0) :]
                read += last
                read_to += range((place + 1) * count - len(last), (place + 1) * count)
            end = (owner * slots + place + 1) * count
            before += range(end - min(len(fragment), count), end)
    return {"read": read, "read_to": read_to}
