# SPDX-License-Identifier: Apache-2.0
"""Runs the rules over sequences that are cut over the ranks of a process group."""

from collections.abc import Callable
from typing import Any

import torch

from .._errors import InvalidArgument
from . import operators, rule
from .exchange import Exchange
from .fragments import Fragments, fragments_of


class ContextParallel:
    """Sequences cut over the ranks of `process_group` (None: all ranks) as `fragments` says.

    Every rank passes its own rows [1,T,..], fragment after fragment, and gets its own rows back; the
    result is that of one rank to rounding. With split="length" pieces are cut at multiples of
    split_value tokens of their sequence (a multiple of 64, at which fragments must end too), and the
    bits depend neither on the number of ranks nor on the fragments.

    Every rank makes the same calls in the same order. Before ranks exchange anything for the first
    time they compare tables, sizes and options (check="first"; "always": before every exchange, which
    waits for a GPU), so that a mismatch or a rank that fails is an error on all of them.

    Rows that need nothing of other ranks are run while these send (overlap=False: behind it, as all others).
    transitions=n: a piece sends the matrices of n heads at most, those that remember what came before it, and
    the addends of all; more such heads are an error on all ranks.

    initial_state [N,HV,K,V], parameters and the final states are shared by all ranks: each rank's
    gradient by them is its part, and the sum over ranks is the gradient.
    """

    def __init__(
        self,
        process_group: Any = None,
        fragments: Fragments | None = None,
        *,
        split: str = "auto",
        split_value: int = 0,
        history: str = "auto",
        overlap: bool = True,
        transitions: int | None = None,
        check: str = "first",
    ) -> None:
        if split not in ("auto", "length") or (split == "length") != (split_value > 0) or split_value % 64:
            raise InvalidArgument(
                f'ContextParallel: split, split_value = "{split}", {split_value}, expected "auto" and 0, or '
                '"length" and a positive multiple of 64'
            )
        if check not in ("first", "always"):
            raise InvalidArgument(f'ContextParallel: check = "{check}", expected "first" or "always"')
        if fragments is None:
            raise InvalidArgument("ContextParallel: fragments = None, expected a table")
        if transitions is not None and transitions < 0:
            raise InvalidArgument(f"ContextParallel: transitions = {transitions}, expected None, 0 or more heads")
        self.exchange = Exchange(process_group, check)
        self.rank, self.ranks = self.exchange.rank, self.exchange.ranks
        if len(fragments.ranks) != self.ranks:
            raise InvalidArgument(
                f"ContextParallel: fragments of {len(fragments.ranks)} ranks, expected {self.ranks} (those of "
                "the process group)"
            )
        fixed = split == "length"
        self.fragments = fragments.cut(split_value) if fixed else fragments
        self.settings = rule.Settings(self.fragments, self.rank, history, fixed, overlap, transitions)
        self._name = operators.name_of(self)

    @classmethod
    def from_fla(cls, context: Any) -> "ContextParallel":
        """Of fla's cp_context, as its build_cp_context makes it. Made once and kept with the context."""
        if isinstance(context, cls):
            return context
        known = getattr(context, "_sluice", None)
        if known is not None:
            return known  # type: ignore[no-any-return]
        for name in ("group", "cu_seqlens"):
            if getattr(context, name, None) is None:
                raise InvalidArgument(
                    f"ContextParallel: cp_context.{name} = absent, expected what fla's build_cp_context makes"
                )
        made = cls(context.group, fragments_of(context))
        context._sluice = made
        return made

    @property
    def sent_bytes(self) -> int:
        """Bytes that this rank has handed to exchanges."""
        return self.exchange.sent_bytes

    @property
    def remembered(self) -> int:
        """The most heads of a piece of any rank that remembered what came before it, in calls so far that ask
        (`transitions` is a number). The host waits for the device."""
        found = self.settings.counts.get("remembered")
        return 0 if found is None else int(found)

    def chunk_forward(
        self,
        q: Any,
        k: Any,
        v: Any,
        gate: Any = None,
        beta: Any = None,
        A_log: Any = None,
        dt_bias: Any = None,
        initial_state: Any = None,
        *,
        output_final_state: bool = False,
        state_layout: str = "kv",
        **options: Any,
    ) -> tuple[Any, Any]:
        """`sluice.ops.chunk_forward` over all ranks, differentiable; options are its own. Returns o and
        the final states of all sequences (float32, on every rank) or None."""
        for name in options:
            if name not in rule.OPTIONS:
                raise InvalidArgument(f"ContextParallel: {name} = given, expected one of {', '.join(rule.OPTIONS)}")
        found = operators.context_rule(
            q, k, v, gate, beta, A_log, dt_bias, initial_state, self._name, output_final_state, state_layout,
            *(options.get(name) for name in rule.OPTIONS),
        )  # fmt: skip
        return found[0], found[1] if output_final_state else None

    def send_halo(self, x: Any, width: int) -> Any:
        """Starts to send the last width - 1 rows of each of the rank's fragments of x [1,T,D]: what receive_halo()
        takes, and nobody reads before. Work between the two runs during the exchange, and what is between their
        gradients likewise."""
        return operators.context_halo_send(x, self._name, width)

    def receive_halo(self, sent: Any, width: int) -> Any:
        """The width - 1 rows before each of the rank's fragments, zeros before a sequence: [pieces, width - 1, D],
        differentiable."""
        return operators.context_halo_receive(sent, self._name, width)

    def halo(self, x: Any, width: int) -> Any:
        """send_halo() and receive_halo() at once."""
        return self.receive_halo(self.send_halo(x, width), width)

    def causal_conv1d(
        self, x: Any, weight: Any, bias: Any = None, activation: str | None = None, before: Any = None
    ) -> Any:
        """The short causal convolution of x [1,T,D] with weight [D,W] over all ranks, differentiable. before: the
        rows before each fragment [pieces, W - 1, D], as receive_halo() gives them; absent: they are exchanged."""
        if before is None:
            before = self.halo(x, weight.shape[1])
        activation = {None: "none", "swish": "silu"}.get(activation, activation)
        return operators.context_conv(x, before, weight, bias, self._name, activation)

    def run(self, make: Callable[[], rule.Call]) -> tuple[rule.Call, Any, Any]:
        """The call that `make` makes, its o and final states."""
        call, started = self._started(make, False, rule.begin)
        rule.early(call)
        self.exchange.join(call.tensors["k"].device)
        self.exchange.keep(call.transition, call.forgotten)
        return call, *rule.finish(call, self._received(started))

    def run_backward(
        self, make: Callable[[], rule.Call], d_o: Any, d_final: Any, needed: dict[str, bool]
    ) -> dict[str, Any]:
        """Gradients by name of the call that `make` makes."""
        call, started = self._started(make, True, lambda call: rule.begin(call, d_o))
        if call.output_final_state:
            shape = call.state_shape(len(call.fragments.lengths))
            own = d_o.new_zeros(shape, dtype=torch.float32) if d_final is None else d_final.float()
            d_final = self.exchange.start(own)
        rule.early_backward(call, d_o, needed)
        self.exchange.join(d_o.device)
        if d_final is not None:
            d_final = self.exchange.wait(d_final).unflatten(0, (self.ranks, len(self.fragments.lengths))).sum(0)
        return rule.finish_backward(call, self._received(started), d_o, d_final, needed)

    def _started(self, make: Callable[[], rule.Call], reverse: bool, begin: Callable[[rule.Call], Any]) -> Any:
        """A call, and what every rank sends, still being exchanged; an error on all ranks where one fails."""
        try:
            call = make()
        except Exception:
            self.exchange.tell_failure(self._device())
            raise
        device = call.tensors["k"].device
        with self.exchange.beside(device):
            try:
                part = begin(call)
            except Exception:
                self.exchange.tell_failure(device)
                raise
            self.exchange.agree(rule.numbers(call, reverse), device)
            started = None if part is None else self.exchange.start(part)
        return call, started

    def _received(self, started: Any) -> Any:
        """[ranks slots, numbers] of what has been started."""
        if started is None:
            return None
        self.exchange.keep(started)
        return self.exchange.wait(started)

    def _device(self) -> torch.device:
        gloo = torch.distributed.get_backend(self.exchange.group) == "gloo"
        return torch.device("cpu") if gloo else torch.device("cuda", torch.cuda.current_device())
