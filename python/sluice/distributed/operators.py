# SPDX-License-Identifier: Apache-2.0
"""Registers what a context does as functional operators of torch, torch.ops.sluice.context_*, which
torch.compile(fullgraph=True) sees through; their gradients are operators likewise. They name their context by a string.

What `context_halo_send` and the gradient of `context_halo_receive` return is still being exchanged: torch runs what
lies between the two meanwhile, in both directions, and the other of the pair waits for it."""

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _core
from .._errors import InvalidArgument
from .._operators import define, define_with_gradients, differentiate, new_like
from . import halo, rule

_contexts: "weakref.WeakValueDictionary[str, Any]" = weakref.WeakValueDictionary()
_numbers = itertools.count()
_TENSORS = len(rule.TENSORS)


def name_of(context: Any) -> str:
    """A new context's name."""
    name = f"context {next(_numbers)}"
    _contexts[name] = context
    return name


def _context(name: str) -> Any:
    context = _contexts.get(name)
    if context is None:
        raise InvalidArgument(f"ContextParallel: {name} = deleted, expected to live as long as its calls")
    return context


# ------------------------------------------------------------------------------- rule ----

_KINDS = {"double": "float?", "scale": "float?", "choice": "str?"}
_OPTIONS = ", ".join(
    f"{_KINDS[kind]} {name}"
    for option in rule.OPTIONS
    for name, kind, _, _ in _core.fields("chunk_summary")
    if name == option
)
_INPUTS = (
    "Tensor q, Tensor k, Tensor v, Tensor? gate, Tensor? beta, Tensor? A_log, Tensor? dt_bias, Tensor? initial_state"
)
_CALL = f"str context, bool output_final_state, str state_layout, {_OPTIONS}"
_KEPT = ("entering", "transition", "forgotten")  # of a call, for its backward pass


def _call(values: Sequence[Any], kept: Sequence[Tensor] = ()) -> rule.Call:
    """The call of an operator's values, behind the tensors: context, output_final_state, state_layout, options."""
    given = {name: x for name, x in zip(rule.OPTIONS, values[_TENSORS + 3 :]) if x is not None}
    tensors = dict(zip(rule.TENSORS, values))
    more = {name: x if x.numel() else None for name, x in zip(_KEPT, kept)}
    return rule.make_call(
        _context(values[_TENSORS]).settings,
        tensors,
        given,
        output_final_state=values[_TENSORS + 1],
        state_layout=values[_TENSORS + 2],
        **more,
    )


def _rule(*values: Any) -> tuple[Tensor, ...]:
    v = values[2]
    call, o, final = _context(values[_TENSORS]).run(lambda: _call(values))
    nothing = v.new_empty(0)
    kept = (getattr(call, name) for name in _KEPT)
    return o, nothing if final is None else final, *(v.new_empty(0) if x is None else x for x in kept)


def _rule_shapes(*values: Any) -> tuple[Tensor, ...]:
    call = _call(values)
    route, v = call.route(False), call.tensors["v"]
    _, HV, K, _ = call.sizes
    final = call.state_shape(len(call.fragments.lengths)) if call.output_final_state else (0,)
    count = call.pieces if route.has_transitions else 0
    maps = (count, HV, K, K) if count else (0,)
    flags = (count, HV) if count and call.settings.transitions is not None else (0,)
    return (
        new_like(v),
        v.new_empty(final, dtype=torch.float32 if call.output_final_state else v.dtype),
        v.new_empty(call.state_shape(call.pieces), dtype=torch.float32),
        v.new_empty(maps, dtype=torch.float32 if count else v.dtype),
        v.new_empty(flags, dtype=torch.bool if len(flags) > 1 else v.dtype),
    )


def _rule_gradients(d_o: Any, d_final: Any, *values: Any) -> list[Tensor]:
    kept, needed, values = values[: len(_KEPT)], values[len(_KEPT)], values[len(_KEPT) + 1 :]
    d_o = torch.zeros_like(values[2]) if d_o is None else d_o.contiguous()
    asked = dict(zip(rule.TENSORS, needed))
    found = _context(values[_TENSORS]).run_backward(lambda: _call(values, kept), d_o, d_final, asked)
    return [found[name] if name in found else d_o.new_empty(0) for name in rule.TENSORS]


def _rule_gradient_shapes(d_o: Any, d_final: Any, *values: Any) -> list[Tensor]:
    needed, tensors = values[len(_KEPT)], values[len(_KEPT) + 1 :][:_TENSORS]
    return [
        new_like(x) if asks and x is not None else values[0].new_empty(0, dtype=tensors[2].dtype)
        for x, asks in zip(tensors, needed)
    ]


def _keep_rule(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:_TENSORS], *output[2:])
    ctx.values = inputs[_TENSORS:]
    ctx.set_materialize_grads(False)


def _differentiate_rule(ctx: Any, d_o: Any, d_final: Any, *_: Any) -> tuple[Any, ...]:
    tensors, kept = ctx.saved_tensors[:_TENSORS], ctx.saved_tensors[_TENSORS:]
    needed = [bool(x) for x in ctx.needs_input_grad[:_TENSORS]]
    if not ctx.values[1]:
        d_final = None
    found = context_rule_backward(d_o, d_final, *kept, needed, *tensors, *ctx.values)
    return *(g if asks else None for g, asks in zip(found, needed)), *([None] * len(ctx.values))


context_rule = define(
    "context_rule",
    f"({_INPUTS}, {_CALL}) -> (Tensor o, Tensor final, Tensor entering, Tensor transition, Tensor forgotten)",
    _rule,
    _rule_shapes,
)
context_rule_backward = define(
    "context_rule_backward",
    f"(Tensor? d_o, Tensor? d_final, {', '.join(f'Tensor {name}' for name in _KEPT)}, bool[] needed, "
    f"{_INPUTS}, {_CALL}) -> Tensor[]",
    _rule_gradients,
    _rule_gradient_shapes,
)
differentiate("context_rule", _keep_rule, _differentiate_rule)


# ------------------------------------------------------------------------ convolution ----


def _halo(name: str, tensor: str, run: Callable[..., Tensor], shape: Callable[..., Tensor]) -> Any:
    """Defines an operator of a function of a context, a tensor and a width."""

    def of_named(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda x, context, width: function(_context(context), x, width)

    schema = f"(Tensor {tensor}, str context, int width) -> Tensor"
    return define(f"context_halo_{name}", schema, of_named(run), of_named(shape))


def _keep_names(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.values = inputs[1:]


context_halo_send = _halo("send", "x", halo.send, halo.sent_like)
context_halo_send_backward = _halo("send_backward", "d_gathered", halo.gradient, halo.rows_like)
context_halo_receive = _halo("receive", "gathered", halo.receive, halo.received_like)
context_halo_receive_backward = _halo("receive_backward", "d_rows", halo.send_gradient, halo.sent_like)
differentiate("context_halo_send", _keep_names, lambda ctx, d: (context_halo_send_backward(d, *ctx.values), None, None))
differentiate(
    "context_halo_receive", _keep_names, lambda ctx, d: (context_halo_receive_backward(d, *ctx.values), None, None)
)


def _conv_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """What the operators are told of a convolution over ranks."""
    settings = _context(given.pop("context")).settings
    given["initial_state"] = given.pop("before").transpose(1, 2)
    given["cu_seqlens"] = settings.fragments.offsets_on(given["x"].device, settings.rank)
    return given


def _conv(given: dict[str, Any]) -> Tensor:
    out = new_like(given["x"])
    _core.causal_conv1d(out=out, **_conv_arguments(given))
    return out


def _conv_gradients(given: dict[str, Any], d_out: Tensor, places: dict[str, Tensor]) -> None:
    places["d_initial_state"] = places.pop("dbefore").transpose(1, 2)
    _core.causal_conv1d_backward(d_out=d_out, **_conv_arguments(given), **places)


context_conv = define_with_gradients(
    "context_conv",
    "Tensor x, Tensor before, Tensor weight, Tensor? bias",
    "str context, str activation",
    _conv,
    _conv_gradients,
)
