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
from . import halo, rule

_contexts: "weakref.WeakValueDictionary[str, Any]" = weakref.WeakValueDictionary()
_numbers = itertools.count()
_library = torch.library.Library("sluice", "FRAGMENT")
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


def _define(name: str, schema: str, run: Callable[..., Any], shapes: Callable[..., Any]) -> Any:
    _library.define(f"context_{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
    for key in ("CPU", "CUDA"):
        _library.impl(f"context_{name}", run, key)
    torch.library.register_fake(f"sluice::context_{name}", shapes, lib=_library)
    return getattr(torch.ops.sluice, f"context_{name}").default


def _differentiable(name: str, setup: Callable[..., None], gradients: Callable[..., Any]) -> None:
    torch.library.register_autograd(f"sluice::context_{name}", gradients, setup_context=setup, lib=_library)


def _empty_like(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


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
        _empty_like(v),
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
        _empty_like(x) if asks and x is not None else values[0].new_empty(0, dtype=tensors[2].dtype)
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


context_rule = _define(
    "rule",
    f"({_INPUTS}, {_CALL}) -> (Tensor o, Tensor final, Tensor entering, Tensor transition, Tensor forgotten)",
    _rule,
    _rule_shapes,
)
context_rule_backward = _define(
    "rule_backward",
    f"(Tensor? d_o, Tensor? d_final, {', '.join(f'Tensor {name}' for name in _KEPT)}, bool[] needed, "
    f"{_INPUTS}, {_CALL}) -> Tensor[]",
    _rule_gradients,
    _rule_gradient_shapes,
)
_differentiable("rule", _keep_rule, _differentiate_rule)


# ------------------------------------------------------------------------ convolution ----


def _halo_send(x: Tensor, context: str, width: int) -> Tensor:
    return halo.send(_context(context), x, width)  # type: ignore[no-any-return]


def _halo_send_shapes(x: Tensor, context: str, width: int) -> Tensor:
    return x.new_empty(halo.sent_shape(_context(context).fragments, x, width))


def _halo_send_gradients(d_gathered: Tensor, context: str, width: int) -> Tensor:
    return halo.gradient(_context(context), d_gathered, width)  # type: ignore[no-any-return]


def _halo_send_gradient_shapes(d_gathered: Tensor, context: str, width: int) -> Tensor:
    settings = _context(context).settings
    return d_gathered.new_empty(1, settings.fragments.tokens(settings.rank), d_gathered.shape[-1])


def _halo_receive(gathered: Tensor, context: str, width: int) -> Tensor:
    return halo.receive(_context(context), gathered, width)  # type: ignore[no-any-return]


def _halo_receive_shapes(gathered: Tensor, context: str, width: int) -> Tensor:
    settings = _context(context).settings
    return gathered.new_empty(len(settings.fragments.ranks[settings.rank]), width - 1, gathered.shape[-1])


def _halo_receive_gradients(d_rows: Tensor, context: str, width: int) -> Tensor:
    return halo.send_gradient(_context(context), d_rows, width)  # type: ignore[no-any-return]


def _halo_receive_gradient_shapes(d_rows: Tensor, context: str, width: int) -> Tensor:
    return d_rows.new_empty(halo.sent_shape(_context(context).fragments, d_rows, width))


def _keep_names(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.values = inputs[1:]


context_halo_send = _define(
    "halo_send", "(Tensor x, str context, int width) -> Tensor", _halo_send, _halo_send_shapes
)
context_halo_send_backward = _define(
    "halo_send_backward",
    "(Tensor d_gathered, str context, int width) -> Tensor",
    _halo_send_gradients,
    _halo_send_gradient_shapes,
)
context_halo_receive = _define(
    "halo_receive", "(Tensor gathered, str context, int width) -> Tensor", _halo_receive, _halo_receive_shapes
)
context_halo_receive_backward = _define(
    "halo_receive_backward",
    "(Tensor d_rows, str context, int width) -> Tensor",
    _halo_receive_gradients,
    _halo_receive_gradient_shapes,
)
_differentiable("halo_send", _keep_names, lambda ctx, d: (context_halo_send_backward(d, *ctx.values), None, None))
_differentiable(
    "halo_receive", _keep_names, lambda ctx, d: (context_halo_receive_backward(d, *ctx.values), None, None)
)


def _offsets(x: Tensor, context: str) -> Tensor:
    settings = _context(context).settings
    return settings.fragments.offsets_on(x.device, settings.rank)  # type: ignore[no-any-return]


def _conv(x: Tensor, before: Tensor, weight: Tensor, bias: Any, context: str, activation: str) -> Tensor:
    out = _empty_like(x)
    _core.causal_conv1d(
        x=x, weight=weight, bias=bias, out=out, initial_state=before.transpose(1, 2),
        cu_seqlens=_offsets(x, context), activation=activation,
    )  # fmt: skip
    return out


def _conv_gradients(
    d_out: Tensor, x: Tensor, before: Tensor, weight: Tensor, bias: Any, context: str, activation: str
) -> list[Tensor]:
    dx, d_before, dweight = map(_empty_like, (x, before, weight))
    dbias = None if bias is None else _empty_like(bias)
    _core.causal_conv1d_backward(
        x=x, weight=weight, bias=bias, initial_state=before.transpose(1, 2), d_out=d_out, dx=dx, dweight=dweight,
        dbias=dbias, d_initial_state=d_before.transpose(1, 2), cu_seqlens=_offsets(x, context),
        activation=activation,
    )  # fmt: skip
    return [dx, d_before, dweight, weight.new_empty(0) if dbias is None else dbias]


def _conv_gradient_shapes(
    d_out: Tensor, x: Tensor, before: Tensor, weight: Tensor, bias: Any, context: str, activation: str
) -> list[Tensor]:
    return [*map(_empty_like, (x, before, weight)), weight.new_empty(0) if bias is None else _empty_like(bias)]


def _keep_conv(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:4])
    ctx.values = inputs[4:]


def _differentiate_conv(ctx: Any, d_out: Tensor) -> tuple[Any, ...]:
    dx, d_before, dweight, dbias = context_conv_backward(d_out, *ctx.saved_tensors, *ctx.values)
    return dx, d_before, dweight, None if ctx.saved_tensors[3] is None else dbias, None, None


_CONV = "Tensor x, Tensor before, Tensor weight, Tensor? bias, str context, str activation"
context_conv = _define("conv", f"({_CONV}) -> Tensor", _conv, lambda x, *_: _empty_like(x))
context_conv_backward = _define(
    "conv_backward", f"(Tensor d_out, {_CONV}) -> Tensor[]", _conv_gradients, _conv_gradient_shapes
)
_differentiable("conv", _keep_conv, _differentiate_conv)
