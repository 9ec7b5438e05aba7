# SPDX-License-Identifier: Apache-2.0
"""Runs the rules over sequences that are cut over the ranks of a process group."""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from .._errors import InvalidArgument
from . import rule
from .exchange import Exchange
from .fragments import Fragment, Fragments
from .halo import halo_rows


class ContextParallel:
    """Sequences cut over the ranks of `process_group` (None: all ranks) as `fragments` says.

    Every rank passes its own rows [1,T,..], fragment after fragment, and gets its own rows back; the
    result is that of one rank to rounding. With split="length" pieces are cut at multiples of
    split_value tokens of their sequence (a multiple of 64, at which fragments must end too), and the
    bits depend neither on the number of ranks nor on the fragments.

    Every rank makes the same calls in the same order. Before ranks exchange anything for the first
    time they compare tables, sizes and options (check="first"; "always": before every exchange, which
    waits for a GPU), so that a mismatch or a rank that fails is an error on all of them.

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
        self.exchange = Exchange(process_group, check)
        self.rank, self.ranks = self.exchange.rank, self.exchange.ranks
        if len(fragments.ranks) != self.ranks:
            raise InvalidArgument(
                f"ContextParallel: fragments of {len(fragments.ranks)} ranks, expected {self.ranks} (those of "
                "the process group)"
            )
        self.fixed_leaves = split == "length"
        self.fragments = fragments.cut(split_value) if self.fixed_leaves else fragments
        self.history = history

    @classmethod
    def from_fla(cls, context: Any) -> "ContextParallel":
        """Of fla's cp_context (`group`, `cu_seqlens` of the rank's rows, `pre_num_ranks`): rows are cut
        into equal slices in the order of ranks. Made once and kept with the context."""
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
        made = cls(context.group, _fragments_of_fla(context))
        context._sluice = made
        return made

    @property
    def sent_bytes(self) -> int:
        """Bytes that this rank has handed to all-gathers."""
        return self.exchange.sent_bytes

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
        tensors = (q, k, v, gate, beta, A_log, dt_bias, initial_state)
        made = (output_final_state, state_layout, tuple(sorted(options.items())))
        found = _ContextRule.apply(self, made, *tensors)
        return found if output_final_state else (found, None)

    def halo(self, x: Any, width: int) -> Any:
        """The width - 1 rows before each of the rank's fragments, zeros before a sequence: [pieces,
        width - 1, D] of x [1,T,D], differentiable. One all-gather of as many rows a piece. WHY not with
        the maps: the first keys of a piece, and so its map, depend on it."""
        self.exchange.agree(
            {"fragments": self.fragments.checksum(), "halo width": width, "channels": x.shape[-1]}, x.device
        )
        return halo_rows(self.exchange, self.fragments, self.rank, x, width)

    def causal_conv1d(self, x: Any, weight: Any, bias: Any = None, activation: str | None = None) -> Any:
        """The short causal convolution of x [1,T,D] with weight [D,W] over all ranks, by torch's own
        operators, differentiable."""
        width = weight.shape[1]
        before = self.halo(x, width)
        offsets = self.fragments.offsets(self.rank)
        parts = []
        for at, (begin, end) in enumerate(zip(offsets, offsets[1:])):
            rows = torch.cat([before[at], x[0, begin:end]])
            parts.append(sum(rows[w : w + end - begin] * weight[:, w] for w in range(width)))
        # A rank without rows takes part in the exchange of gradients too.
        out = torch.cat(parts)[None] if parts else x * weight[:, 0] + before.sum()
        out = out if bias is None else out + bias
        return torch.nn.functional.silu(out) if activation in ("silu", "swish") else out

    def _call(self, tensors: dict[str, Any], made: tuple[Any, ...]) -> rule.Call:
        output_final_state, state_layout, options = made
        return rule.make_call(
            self.fragments,
            self.rank,
            tensors,
            history=self.history,
            fixed_leaves=self.fixed_leaves,
            output_final_state=output_final_state,
            state_layout=state_layout,
            **dict(options),
        )

    def _numbers(self, call: rule.Call, reverse: bool) -> dict[str, int]:
        """What ranks must agree on before an exchange."""
        names = ("H", "HV", "K", "V")
        numbers = {"fragments": self.fragments.checksum(), **dict(zip(names, call.sizes))}
        numbers["gradients"] = int(reverse)
        numbers["output_final_state"] = int(call.output_final_state)
        numbers["initial states"] = int(call.tensors["initial_state"] is not None)
        numbers["options"] = rule.checksum(call)
        return numbers

    def _gathered(self, call: rule.Call | None, reverse: bool, begin: Any) -> Any:
        """What every rank sends, [ranks slots, numbers]; an error on all ranks where one fails."""
        error, part, numbers = None, None, dict.fromkeys(_NUMBERS, -1)
        device = torch.device("cpu")
        try:
            made, part = begin()
            numbers, device = self._numbers(made, reverse), made.tensors["k"].device
            call = made
        except Exception as failure:  # told to all ranks, then raised
            error, device = failure, self._device()
        self.exchange.agree(numbers, device, error)
        gathered = None if part is None else self.exchange.gather(part).flatten(0, 1)
        return call, gathered

    def _device(self) -> torch.device:
        gloo = torch.distributed.get_backend(self.exchange.group) == "gloo"
        return torch.device("cpu") if gloo else torch.device("cuda", torch.cuda.current_device())


_NUMBERS = (
    *("fragments", "H", "HV", "K", "V"),
    *("gradients", "output_final_state", "initial states", "options"),
)


class _ContextRule(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, context: ContextParallel, made: tuple[Any, ...], *given: Any) -> Any:
        def begin() -> tuple[rule.Call, Any]:
            call = context._call(dict(zip(rule.TENSORS, given)), made)
            return call, rule.begin(call)

        call, gathered = context._gathered(None, False, begin)
        o, final = rule.finish(call, gathered)
        ctx.context, ctx.call = context, rule.like(call, {})
        ctx.save_for_backward(*given)
        ctx.set_materialize_grads(False)
        return (o, final) if call.output_final_state else o

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_o: Any, d_final: Any = None) -> Any:
        context, tensors = ctx.context, dict(zip(rule.TENSORS, ctx.saved_tensors))
        call = rule.like(ctx.call, tensors)
        d_o = torch.zeros_like(tensors["v"]) if d_o is None else d_o.contiguous()
        _, gathered = context._gathered(call, True, lambda: (call, rule.begin_backward(call, d_o)))
        if call.output_final_state:
            shape = call.state_shape(len(call.fragments.lengths))
            own = d_o.new_zeros(shape, dtype=torch.float32) if d_final is None else d_final
            d_final = context.exchange.gather(own.float()).sum(0)
        needed = dict(zip(rule.TENSORS, ctx.needs_input_grad[2:]))
        found = rule.finish_backward(call, gathered, d_o, d_final, needed)
        return None, None, *(found.get(name) for name in rule.TENSORS)


def _fragments_of_fla(context: Any) -> Fragments:
    """The table of all ranks. A rank's first sequence goes on with the one before where pre_num_ranks
    says so."""
    offsets = [int(x) for x in context.cu_seqlens.tolist()]
    own = (offsets, int(getattr(context, "pre_num_ranks", 0) or 0) > 0)
    ranks = torch.distributed.get_world_size(context.group)
    every: list[Any] = [None] * ranks
    torch.distributed.all_gather_object(every, own, group=context.group)
    lengths: list[int] = []
    table: list[list[Fragment]] = []
    for cu, goes_on in every:
        fragments = []
        for at, (begin, end) in enumerate(zip(cu, cu[1:])):
            if at > 0 or not goes_on or not lengths:
                lengths.append(0)
            start = lengths[-1]
            lengths[-1] += end - begin
            fragments.append(Fragment(len(lengths) - 1, start, lengths[-1]))
        table.append(fragments)
    return Fragments(lengths, table)
