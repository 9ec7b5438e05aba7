# SPDX-License-Identifier: Apache-2.0
"""The parts of a context-parallel call between which ranks exchange: maps of the own pieces before, the
fold and the own rows after. No communication here, so that ranks can be simulated."""

import zlib
from dataclasses import dataclass, replace
from typing import Any

import torch

from .. import _core
from .._calls import CALLS
from .._errors import InvalidArgument
from .fragments import Fragments
from .route import Route

_SUMMARY = (
    *("scale", "l2norm_eps", "gate_lower_bound", "gate_space", "beta_space", "eigenvalues"),
    *("qk_norm", "head_map", "rule", "implementation"),
)  # options of every operator used here
_TENSORS = ("q", "k", "v", "gate", "beta", "A_log", "dt_bias", "initial_state")


@dataclass
class Call:
    """One call of one rank: its rows, and what the parts leave for each other."""

    fragments: Fragments
    rank: int
    tensors: dict[str, Any]  # by _TENSORS; rows are [1,T,..]
    options: dict[str, Any]
    history: str = "auto"
    state_layout: str = "kv"
    output_final_state: bool = False
    fixed_leaves: bool = False
    entering: Any = None
    transition: Any = None

    def route(self, reverse: bool) -> Route:
        given = self.tensors["initial_state"] is not None
        key = (self.rank, reverse, given, self.output_final_state)
        known = self.fragments.known
        if key not in known:
            known[key] = Route(self.fragments, *key)
        found: Route = known[key]
        return found

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """H, HV, K, V."""
        k, v = self.tensors["k"].shape, self.tensors["v"].shape
        return k[2], v[2], k[3], v[3]

    @property
    def offsets(self) -> Any:
        device, known = self.tensors["k"].device, self.fragments.known
        if (self.rank, device) not in known:
            offsets = self.fragments.offsets(self.rank)
            known[self.rank, device] = torch.tensor(offsets, dtype=torch.int32, device=device)
        return known[self.rank, device]

    @property
    def longest(self) -> int:
        return max(map(len, self.fragments.ranks[self.rank]), default=0)

    def shared(self) -> dict[str, Any]:
        """What every operator is given."""
        given = {name: self.tensors[name] for name in ("gate", "beta", "A_log", "dt_bias")}
        return {**given, **self.options, "cu_seqlens": self.offsets}

    def state_shape(self, count: int) -> tuple[int, ...]:
        _, HV, K, V = self.sizes
        return (count, HV, K, V) if self.state_layout == "kv" else (count, HV, V, K)


def make_call(fragments: Fragments, rank: int, tensors: dict[str, Any], **more: Any) -> Call:
    """A checked call: rows that are the rank's, and one initial state a sequence."""
    q, initial = tensors["q"], tensors["initial_state"]
    rows = fragments.tokens(rank)
    if q.dim() != 4 or q.shape[0] != 1 or q.shape[1] != rows:
        raise InvalidArgument(
            f"ContextParallel: q.shape = {tuple(q.shape)}, expected [1, {rows}, H, K] (the rows of rank "
            f"{rank}'s fragments)"
        )
    if initial is not None and initial.shape[0] != len(fragments.lengths):
        raise InvalidArgument(
            f"ContextParallel: initial_state.shape[0] = {initial.shape[0]}, expected "
            f"{len(fragments.lengths)} (one a sequence, on every rank)"
        )
    options = {name: more.pop(name) for name in _SUMMARY if name in more}
    return Call(fragments, rank, tensors, options, **more)


def begin(call: Call) -> Any:
    """The maps that this rank sends, float32 [slots, numbers]; None where nothing is exchanged."""
    route = call.route(False)
    if route.slots == 0:
        return None
    _, HV, K, V = call.sizes
    k, count = call.tensors["k"], len(call.fragments.ranks[call.rank])
    addend = k.new_empty((count, HV, K, V), dtype=torch.float32)
    transition = k.new_empty((count, HV, K, K), dtype=torch.float32) if route.has_transitions else None
    # WHY a flag of the table: ranks at the ends of a sequence may have nothing to say.
    summary = CALLS["chunk_summary"] if route.any_wanted else _nothing
    summary(
        k=k,
        v=call.tensors["v"],
        **call.shared(),
        wanted=route.tensors(k.device)["wanted"],
        addend=addend,
        transition=transition,
        history=call.history,
    )
    call.transition = transition
    return _packed(route, addend, transition)


def _nothing(**_: Any) -> None:
    pass


def _packed(route: Route, addend: Any, transition: Any) -> Any:
    """The maps of the pieces that are sent, M before N, padded to what every rank sends."""
    places = route.tensors(addend.device)["sent"]
    parts = [x.index_select(0, places).flatten(1) for x in (transition, addend) if x is not None]
    width = sum(x[0].numel() if len(x) else x.shape[1] for x in parts)
    out = addend.new_zeros((route.slots, width))
    at = 0
    for part in parts:
        out[: len(places), at : at + part.shape[1]] = part
        at += part.shape[1]
    return out


def fold(call: Call, reverse: bool, gathered: Any, initial: Any, final: Any) -> Any:
    """The states (reverse: gradients) that enter the rank's pieces, float32 or of the initial state."""
    route = call.route(reverse)
    _, HV, K, V = call.sizes
    device = call.tensors["k"].device
    table = route.tensors(device)
    entering = torch.empty(call.state_shape(len(call.fragments.ranks[call.rank])), dtype=torch.float32, device=device)
    if gathered is None:
        gathered = torch.empty((0, HV * K * (K + V)), dtype=torch.float32, device=device)
    pieces = gathered.shape[0]
    size = HV * K * K if route.has_transitions else 0
    if size:
        transition = gathered[:, :size].view(pieces, HV, K, K)
    else:
        transition = gathered.new_empty((pieces, HV, K, K))
    addend = gathered[:, size : size + HV * K * V].view(pieces, HV, K, V)
    CALLS["state_fold"](
        transition=transition,
        addend=addend,
        cu_chains=table["cu_chains"],
        route_pieces=table["route_pieces"],
        route_states=table["route_states"],
        forgotten=table["unturned"].view(pieces, 1).expand(pieces, HV),
        initial=initial,
        entering=entering,
        final=final,
        direction="reverse" if reverse else "forward",
        state_layout=call.state_layout,
        implementation=call.options.get("implementation", "auto"),
    )
    return entering


def finish(call: Call, gathered: Any) -> tuple[Any, Any]:
    """o and, where asked for, the final states of all sequences, from what every rank has sent."""
    v = call.tensors["v"]
    final = None
    if call.output_final_state:
        final = v.new_empty(call.state_shape(len(call.fragments.lengths)), dtype=torch.float32)
    initial = call.tensors["initial_state"]
    call.entering = fold(call, False, gathered, None if initial is None else initial.contiguous(), final)
    return main(call), final


def main(call: Call) -> Any:
    """o of the rank's pieces from the states that enter them."""
    v = call.tensors["v"]
    o = torch.empty_like(v, memory_format=torch.contiguous_format)
    CALLS["chunk_forward"](
        q=call.tensors["q"],
        k=call.tensors["k"],
        v=v,
        **call.shared(),
        o=o,
        initial_state=call.entering,
        state_layout=call.state_layout,
        max_tokens=call.longest,
        history=call.history,
        split="never" if call.fixed_leaves else "auto",
    )
    return o


def begin_backward(call: Call, d_o: Any) -> Any:
    """As begin(), of gradients."""
    route = call.route(True)
    if route.slots == 0:
        return None
    _, HV, K, V = call.sizes
    k = call.tensors["k"]
    addend = k.new_empty((len(call.fragments.ranks[call.rank]), HV, K, V), dtype=torch.float32)
    summary = CALLS["chunk_summary"] if route.any_wanted else _nothing
    summary(
        q=call.tensors["q"],
        k=k,
        v=call.tensors["v"],
        d_o=d_o,
        **call.shared(),
        wanted=route.tensors(k.device)["wanted"],
        addend=addend,
        direction="reverse",
        history=call.history,
    )
    return _packed(route, addend, call.transition if route.has_transitions else None)


def finish_backward(call: Call, gathered: Any, d_o: Any, d_final: Any, needed: Any) -> dict[str, Any]:
    """Gradients by the rank's rows, and its part of those by what all ranks share. d_final: the sum
    over ranks, or None."""
    initial = call.tensors["initial_state"]
    count = len(call.fragments.lengths)
    d_initial = None
    if initial is not None:
        d_initial = torch.empty(call.state_shape(count), dtype=torch.float32, device=d_o.device)
    leaving = fold(call, True, gathered, d_final, d_initial)
    found = {
        name: torch.empty_like(x, memory_format=torch.contiguous_format)
        for name, x in call.tensors.items()
        if x is not None and name != "initial_state" and needed[name]
    }
    CALLS["chunk_backward"](
        q=call.tensors["q"],
        k=call.tensors["k"],
        v=call.tensors["v"],
        **call.shared(),
        d_o=d_o,
        initial_state=call.entering,
        d_final_state=leaving,
        state_layout=call.state_layout,
        **{f"d{name}": x for name, x in found.items()},
    )
    if d_initial is not None and needed["initial_state"]:
        # Whoever holds a sequence's first tokens has its gradient, all others zeros.
        mine = call.route(True).tensors(d_o.device)["owns_end"].view(-1, 1, 1, 1)
        found["initial_state"] = torch.where(mine, d_initial, 0.0).to(initial.dtype)
    return found


def checksum(call: Call) -> int:
    """A number of the options, of the rows' types and of how pieces are cut."""
    kinds = [None if x is None else (x.dtype, x.dim()) for x in call.tensors.values()]
    more = (call.history, call.state_layout, call.fixed_leaves)
    return zlib.crc32(repr((sorted(call.options.items()), kinds, more)).encode())


def like(call: Call, tensors: dict[str, Any]) -> Call:
    """The same call with tensors that autograd has kept."""
    return replace(call, tensors=tensors)


TENSORS = _TENSORS
assert set(_SUMMARY) <= {name for name, _, _, _ in _core.fields("chunk_summary")}
