# SPDX-License-Identifier: Apache-2.0
"""Computes a context-parallel call around its exchange: maps of the own pieces before, rows that need no map
during it, the fold and all other rows after. No communication here, so that ranks can be simulated."""

import zlib
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import _core
from .._calls import CALLS
from .._errors import InvalidArgument
from .._operators import new_like
from .fragments import Fragments
from .route import Route

OPTIONS = (
    *("scale", "l2norm_eps", "gate_lower_bound", "gate_space", "beta_space", "eigenvalues"),
    *("qk_norm", "head_map", "rule", "implementation"),
)  # of every operator used here
TENSORS = ("q", "k", "v", "gate", "beta", "A_log", "dt_bias", "initial_state")
SHARED = ("A_log", "dt_bias", "initial_state")  # the same on every rank; all others are rows


@dataclass(frozen=True)
class Settings:
    """What all calls of a context have in common."""

    fragments: Fragments
    rank: int
    history: str = "auto"
    fixed_leaves: bool = False
    overlap: bool = True
    transitions: int | None = None  # matrices that a piece sends; None: those of all heads
    counts: dict[str, Any] = field(default_factory=dict, compare=False)  # what calls have counted on the device


@dataclass
class Call:
    """One call of one rank: its rows, and what the parts leave for each other."""

    settings: Settings
    tensors: dict[str, Any]  # by TENSORS; rows are [1,T,..]
    options: dict[str, Any]
    state_layout: str = "kv"
    output_final_state: bool = False
    entering: Any = None
    transition: Any = None
    forgotten: Any = None
    o: Any = None
    gradients: Any = None

    @property
    def fragments(self) -> Fragments:
        return self.settings.fragments

    @property
    def rank(self) -> int:
        return self.settings.rank

    @property
    def pieces(self) -> int:
        return len(self.fragments.ranks[self.rank])

    def route(self, reverse: bool) -> Route:
        given = self.tensors["initial_state"] is not None
        key = (self.rank, reverse, given, self.output_final_state)
        known = self.fragments.known
        if key not in known:
            known[key] = Route(self.fragments, *key)
        return known[key]  # type: ignore[no-any-return]

    def independent(self, reverse: bool) -> tuple[int, int]:
        """Pieces that are run during the exchange."""
        return self.route(reverse).independent if self.settings.overlap else (0, 0)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """H, HV, K, V."""
        k, v = self.tensors["k"].shape, self.tensors["v"].shape
        return k[2], v[2], k[3], v[3]

    @property
    def sent_transitions(self) -> int:
        """Matrices that a piece sends."""
        HV = self.sizes[1]
        return HV if self.settings.transitions is None else min(self.settings.transitions, HV)

    @property
    def longest(self) -> int:
        return max(map(len, self.fragments.ranks[self.rank]), default=0)

    def given(self, begin: int, end: int) -> dict[str, Any]:
        """The inputs of pieces begin .. end - 1 and the options, as every operator is given them."""
        rows = self.rows(begin, end)
        found = {
            name: x if x is None or name in SHARED else x[:, rows]
            for name, x in self.tensors.items()
            if name != "initial_state"
        }
        offsets = self.fragments.offsets_on(self.tensors["k"].device, self.rank, begin, end)
        return {**found, **self.options, "cu_seqlens": offsets}

    def rows(self, begin: int, end: int) -> slice:
        offsets = self.fragments.offsets(self.rank)
        return slice(offsets[begin], offsets[end])

    def others(self, run: tuple[int, int]) -> list[tuple[int, int]]:
        """The runs of pieces that are not in `run`, which is at one end."""
        return [part for part in ((0, run[0]), (run[1], self.pieces)) if part[0] < part[1]]

    def state_shape(self, count: int) -> tuple[int, ...]:
        _, HV, K, V = self.sizes
        return (count, HV, K, V) if self.state_layout == "kv" else (count, HV, V, K)


def make_call(settings: Settings, tensors: dict[str, Any], options: dict[str, Any], **more: Any) -> Call:
    """A checked call: rows that are the rank's, and one initial state a sequence."""
    q, initial = tensors["q"], tensors["initial_state"]
    fragments = settings.fragments
    rows = fragments.tokens(settings.rank)
    if q.dim() != 4 or q.shape[0] != 1 or q.shape[1] != rows:
        raise InvalidArgument(
            f"ContextParallel: q.shape = {tuple(q.shape)}, expected [1, {rows}, H, K] (the rows of rank "
            f"{settings.rank}'s fragments)"
        )
    if initial is not None and initial.shape[0] != len(fragments.lengths):
        raise InvalidArgument(
            f"ContextParallel: initial_state.shape[0] = {initial.shape[0]}, expected "
            f"{len(fragments.lengths)} (one a sequence, on every rank)"
        )
    return Call(settings, tensors, options, **more)


# --------------------------------------------------------------------------- exchange ----


def begin(call: Call, d_o: Any = None) -> Any:
    """The maps that this rank sends, float32 [slots, numbers]; None where nothing is exchanged. With d_o those of
    gradients."""
    route = call.route(d_o is not None)
    if route.slots == 0:
        return None
    _, HV, K, V = call.sizes
    k, count = call.tensors["k"], call.pieces
    addend = k.new_empty((count, HV, K, V), dtype=torch.float32)
    if route.has_transitions and d_o is None:
        call.transition = k.new_empty((count, HV, K, K), dtype=torch.float32)
        if call.settings.transitions is not None:
            call.forgotten = k.new_ones((count, HV), dtype=torch.bool)
    # WHY a flag of the table: ranks at the ends of a sequence may have nothing to say.
    if route.any_wanted:
        given = call.given(0, count)
        if d_o is None:
            del given["q"]
            given.update(transition=call.transition, forgotten=call.forgotten)
        else:
            given.update(d_o=d_o, direction="reverse")
        wanted = route.tensors(k.device)["wanted"]
        CALLS["chunk_summary"](**given, wanted=wanted, addend=addend, history=call.settings.history)
    return _packed(call, route, addend)


def _packed(call: Call, route: Route, addend: Any) -> Any:
    """The maps of the pieces that are sent, padded to what every rank sends: which heads remember (where not all
    matrices are sent), their matrices, addends."""
    table = route.tensors(addend.device)
    places = table["sent"]
    parts = []
    if route.has_transitions:
        _, HV, K, _ = call.sizes
        if call.forgotten is None:
            parts.append(call.transition.index_select(0, places))
        else:
            remembers = ~call.forgotten & table["turned"].unsqueeze(1)
            remembers = remembers.index_select(0, places)
            heads = torch.argsort(remembers.byte(), dim=1, descending=True, stable=True)
            rows = places.unsqueeze(1) * HV + heads[:, : call.sent_transitions]
            matrices = call.transition.view(-1, K * K).index_select(0, rows.flatten())
            parts += [remembers, matrices.view(*rows.shape, K * K)]
    parts.append(addend.index_select(0, places))
    out = addend.new_zeros((route.slots, _width(call, route)))
    at = 0
    for part in parts:
        part = part.flatten(1)
        out[: len(places), at : at + part.shape[1]] = part
        at += part.shape[1]
    return out


def _width(call: Call, route: Route) -> int:
    """Numbers of a piece."""
    _, HV, K, V = call.sizes
    flags = HV if route.has_transitions and call.settings.transitions is not None else 0
    return flags + (call.sent_transitions * K * K if route.has_transitions else 0) + HV * K * V


def _unpacked(call: Call, route: Route, gathered: Any) -> tuple[Any, Any, Any]:
    """Matrices, addends and flags "has forgotten" of all gathered pieces."""
    _, HV, K, V = call.sizes
    pieces = gathered.shape[0]
    addend = gathered[:, gathered.shape[1] - HV * K * V :].view(pieces, HV, K, V)
    unused = route.tensors(gathered.device)["unused"].view(pieces, 1).expand(pieces, HV)
    if not route.has_transitions:
        return gathered.new_empty((pieces, HV, K, K)), addend, unused
    if call.settings.transitions is None:
        return gathered[:, : HV * K * K].view(pieces, HV, K, K), addend, unused
    sent = call.sent_transitions
    remembers = gathered[:, :HV] > 0
    place = remembers.cumsum(1) - 1
    _check_promise(call, remembers)
    place = place.clamp(0, max(sent - 1, 0)) + sent * torch.arange(pieces, device=gathered.device).unsqueeze(1)
    if sent == 0:
        return gathered.new_empty((pieces, HV, K, K)), addend, ~remembers
    matrices = gathered[:, HV : HV + sent * K * K].reshape(pieces * sent, K * K)
    return matrices.index_select(0, place.flatten()).view(pieces, HV, K, K), addend, ~remembers


def _check_promise(call: Call, remembers: Any) -> None:
    """Refuses more heads that remember than matrices were sent. Every rank sees the same flags; on a GPU, where
    the host does not wait for them, it is the device that stops."""
    most = remembers.sum(1).max() if len(remembers) else remembers.new_zeros((), dtype=torch.int64)
    what, rule = "ContextParallel: transitions", "heads of a piece that remember what came before it"
    if most.is_cuda:
        text = f"{what} = {call.sent_transitions}, expected more ({rule})"
        torch._assert_async(most <= call.sent_transitions, text)
    elif int(most) > call.sent_transitions:
        raise InvalidArgument(f"{what} = {call.sent_transitions}, expected {int(most)} at least ({rule})")
    counts = call.settings.counts
    if "remembered" not in counts:
        with torch.inference_mode(False):  # whose tensors could not be written later
            counts["remembered"] = torch.zeros_like(most)
    torch.maximum(counts["remembered"], most, out=counts["remembered"])


def fold(call: Call, reverse: bool, gathered: Any, initial: Any, final: Any) -> Any:
    """The states (reverse: gradients) that enter the rank's pieces, float32."""
    route = call.route(reverse)
    device = call.tensors["k"].device
    if gathered is None:
        gathered = torch.empty((0, _width(call, route)), dtype=torch.float32, device=device)
    transition, addend, forgotten = _unpacked(call, route, gathered)
    table = route.tensors(device)
    entering = torch.empty(call.state_shape(call.pieces), dtype=torch.float32, device=device)
    CALLS["state_fold"](
        transition=transition,
        addend=addend,
        cu_chains=table["cu_chains"],
        route_pieces=table["route_pieces"],
        route_states=table["route_states"],
        forgotten=forgotten,
        initial=initial,
        entering=entering,
        final=final,
        direction="reverse" if reverse else "forward",
        state_layout=call.state_layout,
        implementation=call.options.get("implementation", "auto"),
    )
    return entering


# ------------------------------------------------------------------------------- rows ----


def early(call: Call) -> None:
    """Runs the rows that need no map of another piece."""
    v = call.tensors["v"]
    call.o = new_like(v)
    run = call.independent(False)
    if run[0] < run[1]:
        main(call, run, _own_states(call, False, run))


def _own_states(call: Call, reverse: bool, run: tuple[int, int]) -> Any:
    """The states (reverse: gradients) that enter pieces which begin their sequences: initial ones, or zeros."""
    initial = call.tensors["initial_state"]
    if reverse or initial is None:
        return call.tensors["v"].new_zeros(call.state_shape(run[1] - run[0]), dtype=torch.float32)
    return initial.index_select(0, call.route(False).tensors(initial.device)["sequences"][run[0] : run[1]])


def finish(call: Call, gathered: Any) -> tuple[Any, Any]:
    """o and, where asked for, the final states of all sequences, from what every rank has sent."""
    final = None
    if call.output_final_state:
        shape = call.state_shape(len(call.fragments.lengths))
        final = call.tensors["v"].new_empty(shape, dtype=torch.float32)
    initial = call.tensors["initial_state"]
    call.entering = fold(call, False, gathered, None if initial is None else initial.contiguous(), final)
    for run in call.others(call.independent(False)):
        main(call, run, call.entering[run[0] : run[1]])
    return call.o, final


def main(call: Call, run: tuple[int, int], states: Any) -> None:
    """o of pieces from the states that enter them."""
    CALLS["chunk_forward"](
        **call.given(*run),
        o=call.o[:, call.rows(*run)],
        initial_state=states,
        state_layout=call.state_layout,
        max_tokens=call.longest,
        history=call.settings.history,
        split="never" if call.settings.fixed_leaves else "auto",
    )


def early_backward(call: Call, d_o: Any, needed: Any) -> None:
    """Gradients by the rows that need none of another piece. needed: by name, which are asked for."""
    call.gradients = {
        name: new_like(x, name in SHARED)
        for name, x in call.tensors.items()
        if x is not None and name != "initial_state" and needed[name]
    }
    run = call.independent(True)
    if run[0] < run[1]:
        _main_backward(call, run, d_o, _own_states(call, True, run))


def _main_backward(call: Call, run: tuple[int, int], d_o: Any, leaving: Any) -> None:
    """Gradients by the rows of pieces, and the pieces' part of those by parameters."""
    rows = call.rows(*run)
    found = {
        name: torch.empty_like(x) if name in SHARED else x[:, rows] for name, x in call.gradients.items()
    }
    CALLS["chunk_backward"](
        **call.given(*run),
        d_o=d_o[:, rows],
        initial_state=call.entering[run[0] : run[1]],
        d_final_state=leaving,
        state_layout=call.state_layout,
        split="never" if call.settings.fixed_leaves else "auto",
        **{f"d{name}": x for name, x in found.items()},
    )
    for name, part in found.items():
        if name in SHARED:
            call.gradients[name] += part


def finish_backward(call: Call, gathered: Any, d_o: Any, d_final: Any, needed: Any) -> dict[str, Any]:
    """Gradients by the rank's rows, and its part of those by what all ranks share. d_final: the sum
    over ranks, or None."""
    initial = call.tensors["initial_state"]
    d_initial = None
    if initial is not None:
        shape = call.state_shape(len(call.fragments.lengths))
        d_initial = torch.empty(shape, dtype=torch.float32, device=d_o.device)
    leaving = fold(call, True, gathered, d_final, d_initial)
    for run in call.others(call.independent(True)):
        _main_backward(call, run, d_o, leaving[run[0] : run[1]])
    found: dict[str, Any] = dict(call.gradients)
    if d_initial is not None and needed["initial_state"]:
        # Whoever holds a sequence's first tokens has its gradient, all others zeros.
        mine = call.route(True).tensors(d_o.device)["owns_end"].view(-1, 1, 1, 1)
        found["initial_state"] = torch.where(mine, d_initial, 0.0).to(initial.dtype)
    return found


def numbers(call: Call, reverse: bool) -> dict[str, int]:
    """What ranks must agree on before an exchange, by the names of a message."""
    kinds = [None if x is None else (x.dtype, x.dim()) for x in call.tensors.values()]
    settings = call.settings
    more = (settings.history, call.state_layout, settings.fixed_leaves)
    return {
        "fragments": call.fragments.checksum(),
        **dict(zip(("H", "HV", "K", "V"), call.sizes)),
        "gradients": int(reverse),
        "output_final_state": int(call.output_final_state),
        "initial states": int(call.tensors["initial_state"] is not None),
        "transitions": -1 if settings.transitions is None else settings.transitions,
        "options": zlib.crc32(repr((sorted(call.options.items()), kinds, more)).encode()),
    }


assert set(OPTIONS) <= {name for name, _, _, _ in _core.fields("chunk_summary")}
