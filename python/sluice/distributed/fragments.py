# SPDX-License-Identifier: Apache-2.0
"""Says which rank holds which tokens of which sequence, as asked for or as fla's cp_context has it, and cuts tensors
accordingly."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .._errors import InvalidArgument

Part = tuple[list[int], bool]  # of fla: tokens of its sequences; whether the first goes on with the part before


@dataclass(frozen=True)
class Fragment:
    """Tokens begin .. end - 1 of a sequence."""

    sequence: int
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin


class Fragments:
    """The table of a group: `ranks[r]` lists what rank r holds, in the order of its rows.

    `lengths` are the sequences' tokens (the documents of a packed batch). Every token belongs to
    exactly one fragment; ranks may hold any number of them, of any length, in any order.
    """

    def __init__(self, lengths: Sequence[int], ranks: Sequence[Sequence[Fragment]]) -> None:
        self.lengths = tuple(int(length) for length in lengths)
        self.ranks = tuple(tuple(Fragment(*map(int, (f.sequence, f.begin, f.end))) for f in own) for own in ranks)
        self.known: dict[Any, Any] = {}  # what calls have made of the table: routes, offsets
        self._check()

    def _check(self) -> None:
        if not self.ranks:
            raise InvalidArgument("Fragments: ranks = 0, expected one at least")
        for n, length in enumerate(self.lengths):
            at = 0
            for rank, _, fragment in self.chain(n):
                if fragment.begin != at or fragment.end < fragment.begin:
                    raise InvalidArgument(
                        f"Fragments: rank {rank} holds tokens {fragment.begin} to {fragment.end} of "
                        f"sequence {n}, expected to begin at {at} (every token exactly once)"
                    )
                at = fragment.end
            if at != length:
                raise InvalidArgument(f"Fragments: {at} tokens of sequence {n} are held, expected {length}")
        for rank, own in enumerate(self.ranks):
            for fragment in own:
                if not 0 <= fragment.sequence < len(self.lengths):
                    raise InvalidArgument(
                        f"Fragments: rank {rank} holds sequence {fragment.sequence}, expected 0 to "
                        f"{len(self.lengths) - 1}"
                    )

    def chain(self, sequence: int) -> list[tuple[int, int, Fragment]]:
        """(rank, place in the rank's list, fragment) of a sequence, in the order of its tokens."""
        found = [
            (rank, place, fragment)
            for rank, own in enumerate(self.ranks)
            for place, fragment in enumerate(own)
            if fragment.sequence == sequence
        ]
        return sorted(found, key=lambda entry: (entry[2].begin, entry[2].end))

    @classmethod
    def contiguous(cls, lengths: Sequence[int], ranks: int, multiple: int = 1) -> "Fragments":
        """The rows of all sequences, one after the other, in equal slices: rank 0 has the first.
        Slices begin at multiples of `multiple` rows."""
        return cls(lengths, _slices(lengths, [[r] for r in range(ranks)], multiple))

    @classmethod
    def zigzag(cls, lengths: Sequence[int], ranks: int, multiple: int = 1) -> "Fragments":
        """Twice as many slices as ranks; rank r has slices r and 2 ranks - 1 - r, as causal
        attention wants it for an even load."""
        own = [[r, 2 * ranks - 1 - r] for r in range(ranks)]
        return cls(lengths, _slices(lengths, own, multiple))

    @classmethod
    def balanced(cls, lengths: Sequence[int], ranks: int, multiple: int = 64) -> "Fragments":
        """Whole sequences to ranks while they fit, the longest first, and cuts only of what does not
        fit: fewer pieces cross a boundary than in `contiguous`. Cuts are at multiples of `multiple`
        tokens of a sequence."""
        room = [_share(sum(lengths), ranks, r) for r in range(ranks)]
        own: list[list[Fragment]] = [[] for _ in range(ranks)]
        for n in sorted(range(len(lengths)), key=lambda n: (-lengths[n], n)):
            begin, length = 0, int(lengths[n])
            while begin < length or length == 0:
                rank = max(range(ranks), key=lambda r: (room[r], -r))
                end = length
                if room[rank] < length - begin:
                    end = begin + max(room[rank] // multiple, 1) * multiple
                end = min(end, length)
                own[rank].append(Fragment(n, begin, end))
                room[rank] -= end - begin
                begin = end
                if length == 0:
                    break
        return cls(lengths, own)

    def cut(self, multiple: int) -> "Fragments":
        """The same with every fragment cut at multiples of `multiple` tokens of its sequence: leaves
        that depend on no rank, wherever fragments end at such multiples too."""
        for own in self.ranks:
            for f in own:
                if f.begin % multiple != 0 or (f.end % multiple != 0 and f.end != self.lengths[f.sequence]):
                    raise InvalidArgument(
                        f"Fragments: tokens {f.begin} to {f.end} of sequence {f.sequence}, expected ends at "
                        f"multiples of {multiple} (split_value)"
                    )
        return Fragments(self.lengths, [[leaf for f in own for leaf in _leaves(f, multiple)] for own in self.ranks])

    def tokens(self, rank: int) -> int:
        """Rows of a rank."""
        return sum(map(len, self.ranks[rank]))

    def offsets(self, rank: int) -> list[int]:
        """Offsets of a rank's fragments in its rows."""
        offsets = [0]
        for fragment in self.ranks[rank]:
            offsets.append(offsets[-1] + len(fragment))
        return offsets

    def offsets_on(self, device: Any, rank: int, begin: int = 0, end: int | None = None) -> Any:
        """Of a rank's fragments begin .. end - 1 (None: all) among their rows, int32 on a device."""
        key = ("offsets", rank, begin, end, device)
        if key not in self.known:
            offsets = self.offsets(rank)[begin : None if end is None else end + 1]
            self.known[key] = torch.tensor([x - offsets[0] for x in offsets], dtype=torch.int32, device=device)
        return self.known[key]

    def rows(self, rank: int) -> list[slice]:
        """Where a rank's fragments lie in the rows of all sequences, one after the other."""
        starts = [0]
        for length in self.lengths:
            starts.append(starts[-1] + length)
        return [slice(starts[f.sequence] + f.begin, starts[f.sequence] + f.end) for f in self.ranks[rank]]

    def take(self, tensor: Any, rank: int) -> Any:
        """A rank's rows of a tensor [1,T,..] of all sequences."""
        parts = [tensor[:, rows] for rows in self.rows(rank)]
        return torch.cat(parts, 1) if parts else tensor[:, :0]

    def put(self, parts: Sequence[Any]) -> Any:
        """All sequences' rows [1,T,..] of the ranks' rows."""
        whole = parts[0].new_empty(1, sum(self.lengths), *parts[0].shape[2:])
        for rank, part in enumerate(parts):
            offsets = self.offsets(rank)
            for rows, begin, end in zip(self.rows(rank), offsets, offsets[1:]):
                whole[:, rows] = part[:, begin:end]
        assert isinstance(whole, torch.Tensor)
        return whole

    def checksum(self) -> int:
        """A number that ranks compare before they exchange anything."""
        return zlib.crc32(repr((self.lengths, self.ranks)).encode())


def _share(total: int, count: int, at: int) -> int:
    return total * (at + 1) // count - total * at // count


def _slices(lengths: Sequence[int], own: list[list[int]], multiple: int) -> list[list[Fragment]]:
    """Fragments of ranks that have the numbered slices of all rows."""
    count, total = sum(map(len, own)), sum(lengths)
    edges = [min(total * i // count // multiple * multiple, total) for i in range(count)] + [total]
    return [[f for i in mine for f in _between(lengths, edges[i], edges[i + 1])] for mine in own]


def _between(lengths: Sequence[int], begin: int, end: int) -> Iterator[Fragment]:
    """The fragments of rows begin .. end - 1. An empty sequence belongs to the slice that begins at
    or before it."""
    start = 0
    for n, length in enumerate(lengths):
        first, last = max(begin, start), min(end, start + length)
        if first < last or (length == 0 and (begin <= start < end or (start == end == sum(lengths)))):
            yield Fragment(n, first - start if length else 0, last - start if length else 0)
        start += length


def _leaves(fragment: Fragment, multiple: int) -> Iterator[Fragment]:
    if len(fragment) == 0:
        yield fragment
    for begin in range(fragment.begin, fragment.end, multiple):
        yield Fragment(fragment.sequence, begin, min(begin + multiple, fragment.end))


def fragments_of(context: Any) -> Fragments:
    """The table of all ranks of fla's cp_context. Each has one slice of all rows, in the order of ranks, or with
    layout "zigzag" two: slices r and 2 ranks - 1 - r. Ranks tell each other their own."""
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
