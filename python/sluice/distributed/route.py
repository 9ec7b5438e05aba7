# SPDX-License-Identifier: Apache-2.0
"""Makes the tables of an exchange from a table of fragments: which pieces are summarised, where their
maps lie in what is gathered, and in which order a rank folds them. Host data, made once."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from .fragments import Fragments

ADDEND, TRANSITION = 1, 2  # bits of `wanted`
_WORTH = 8  # rows that need no exchange are run during it where they are this part of all


@dataclass(frozen=True)
class Route:
    """One direction of one rank. `initial`: sequences start from states; `final`: the states at their
    ends are asked for on every rank (reverse: gradients of these)."""

    fragments: Fragments
    rank: int
    reverse: bool
    initial: bool
    final: bool
    _tensors: dict = field(default_factory=dict, compare=False, repr=False)  # type: ignore[type-arg]

    def wants(self, at: int, count: int) -> int:
        """What is wanted of piece `at` of a chain of `count`. WHY the same matrices both ways: one is
        used where there is a state before the piece and somebody behind it."""
        before, behind = at > 0 or self.initial, at + 1 < count or self.final
        addend = before if self.reverse else behind
        return (ADDEND if addend else 0) | (TRANSITION if before and behind else 0)

    @cached_property
    def _chains(self) -> list[list[tuple[int, int, int]]]:
        """(rank, place, wanted) of every piece, sequence by sequence."""
        chains = [self.fragments.chain(n) for n in range(len(self.fragments.lengths))]
        return [
            [(rank, place, self.wants(at, len(chain))) for at, (rank, place, _) in enumerate(chain)] for chain in chains
        ]

    @cached_property
    def sent(self) -> list[list[int]]:
        """Places of the pieces whose maps each rank sends, in their order."""
        sent: list[list[int]] = [[] for _ in self.fragments.ranks]
        for chain in self._chains:
            for rank, place, wanted in chain:
                if wanted & ADDEND:
                    sent[rank].append(place)
        return [sorted(places) for places in sent]

    @cached_property
    def slots(self) -> int:
        """Maps that every rank sends, some of them in vain: a gather has one size."""
        return max(map(len, self.sent))

    @cached_property
    def has_transitions(self) -> bool:
        """Whether any rank sends a matrix that is used."""
        return any(wanted & TRANSITION for chain in self._chains for _, _, wanted in chain)

    @cached_property
    def any_wanted(self) -> bool:
        """Whether any of the rank's own pieces is summarised."""
        return any(wanted for chain in self._chains for rank, _, wanted in chain if rank == self.rank)

    @cached_property
    def owns_end(self) -> list[bool]:
        """By sequence: whether the rank holds the piece at which its fold ends."""
        end = 0 if self.reverse else -1
        return [bool(chain) and chain[end][0] == self.rank for chain in self._chains]

    @cached_property
    def independent(self) -> tuple[int, int]:
        """Pieces begin .. end - 1 of the rank whose states need no map of another piece: the more rows of the two
        runs of such at the ends of its list. Nothing where these are too few to be worth a call of their own."""
        own = self.fragments.ranks[self.rank]
        free = [False] * len(own)
        for chain in self._chains:
            at = len(chain) - 1 if self.reverse else 0
            if chain and chain[at][0] == self.rank:
                free[chain[at][1]] = not (self.reverse and self.final)
        head = next((at for at, is_free in enumerate(free) if not is_free), len(free))
        tail = len(free) - next((at for at, is_free in enumerate(reversed(free)) if not is_free), len(free))
        runs = [(0, head), (tail, len(free))]
        rows = [sum(map(len, own[begin:end])) for begin, end in runs]
        best = rows[1] > rows[0]
        return runs[best] if rows[best] * _WORTH >= self.fragments.tokens(self.rank) else (0, 0)

    def _steps(self, chain: list[tuple[int, int, int]], whole: bool) -> list[tuple[int, int]]:
        """(gathered piece, local place) of a chain, without what no local piece depends on."""
        steps = []
        for rank, place, wanted in chain:
            piece = -1
            if wanted & ADDEND:
                piece = rank * self.slots + self.sent[rank].index(place)
            steps.append((piece, place if rank == self.rank else -1))
        if whole:
            return steps
        mine = [at for at, (_, place) in enumerate(steps) if place >= 0]
        if not mine:
            return []
        return steps[mine[0] :] if self.reverse else steps[: mine[-1] + 1]

    def tensors(self, device: torch.device) -> dict[str, torch.Tensor]:
        """The tables on a device: cu_chains, route_pieces, route_states; of local pieces: wanted, turned (whose matrix
        is used), sequences; sent (places of pieces), unused (gathered pieces whose matrix nobody uses), owns_end."""
        if device not in self._tensors:
            kinds = {"turned": torch.bool, "unused": torch.bool, "owns_end": torch.bool}
            kinds |= {"sent": torch.int64, "sequences": torch.int64}
            self._tensors[device] = {
                name: torch.tensor(values, dtype=kinds.get(name, torch.int32), device=device)
                for name, values in {**self._fold_table(), **self._piece_tables()}.items()
            }
        found: dict[str, torch.Tensor] = self._tensors[device]
        return found

    def _fold_table(self) -> dict[str, list[int]]:
        offsets, pieces, states = [0], [], []
        for n, chain in enumerate(self._chains):
            needs_end = self.final if not self.reverse else self.initial and self.owns_end[n]
            for piece, place in self._steps(chain, needs_end):
                pieces.append(piece)
                states.append(place)
            offsets.append(len(pieces))
        return {"cu_chains": offsets, "route_pieces": pieces, "route_states": states}

    def _piece_tables(self) -> dict[str, list[Any]]:
        own = self.fragments.ranks[self.rank]
        wanted = [0] * len(own)
        unused = [True] * (len(self.fragments.ranks) * self.slots)
        for chain in self._chains:
            for rank, place, bits in chain:
                if rank == self.rank:
                    wanted[place] = bits
                if bits & TRANSITION:
                    unused[rank * self.slots + self.sent[rank].index(place)] = False
        return {
            "wanted": wanted,
            "turned": [bool(bits & TRANSITION) for bits in wanted],
            "sequences": [fragment.sequence for fragment in own],
            "sent": self.sent[self.rank],
            "unused": unused,
            "owns_end": self.owns_end,
        }
