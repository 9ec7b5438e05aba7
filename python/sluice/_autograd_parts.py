# SPDX-License-Identifier: Apache-2.0
"""Connects causal_conv1d and gated_rms_norm to torch's autograd: an eager call on tensors that require a gradient is
recorded, and its backward pass is the operator of their gradients. Imported by sluice._torch."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from . import _core
from ._autograd import count_writes, refuse_output
from ._errors import Unsupported

_Tensor = torch.Tensor
Values = dict[str, Any]


class Part(NamedTuple):
    """An operator that is recorded."""

    op: str
    inputs: tuple[str, ...]  # what gradients are by
    outputs: tuple[str, ...]
    foreign: tuple[str, ...]  # what its gradients do not know
    kept: tuple[str, ...]  # also saved for the backward pass
    options: tuple[str, ...]
    rows: bool  # its gradients read d_out by rows


def recorder(part: Part) -> Callable[..., None]:
    """The function that runs the operator as an operation of autograd. Takes its values in the order of its fields,
    or by keyword."""
    names = tuple(name for name, _, _, _ in _core.fields(part.op))

    def record(*values: Any, **arguments: Any) -> None:
        arguments.update(zip(names, values))
        _refuse(part, arguments)
        written = [arguments[name] for name in part.outputs if arguments.get(name) is not None]
        given = [arguments.get(name) for name in part.inputs]
        # Of a view autograd is told that it changes, since its base then does too.
        if any(output._is_view() for output in written):
            _InPlace.apply(part, arguments, len(written), *written, *given)
        else:
            _New.apply(part, arguments, written, *given)

    return record


def _refuse(part: Part, values: Values) -> None:
    for name in part.foreign:
        if values.get(name) is not None:
            raise Unsupported(
                f"{part.op}: {name} = given, expected None where an input requires a gradient "
                f"({part.op}_backward has no pools, slots, rings and streams of its own)"
            )
    for name in part.outputs:
        output = values.get(name)
        if output is None:
            continue
        for other in (*part.inputs, *part.kept):
            if output is values.get(other):
                raise Unsupported(
                    f"{part.op}: {name} = {other}, expected another tensor where an input requires a gradient "
                    f"(the backward pass reads {other})"
                )
        refuse_output(part.op, name, output)


def _save(ctx: Any, part: Part, values: Values, given: tuple[Any, ...]) -> None:
    getattr(_core, part.op)(**values)
    ctx.save_for_backward(*given, *(values.get(name) for name in part.kept))
    ctx.part = part
    ctx.options = {name: values[name] for name in part.options if name in values}
    ctx.set_materialize_grads(False)


class _New(torch.autograd.Function):
    """Writes outputs, which become its results as if they were new."""

    @staticmethod
    def forward(ctx: Any, part: Part, values: Values, written: list[Any], *given: Any) -> Any:
        _save(ctx, part, values, given)
        count_writes(tuple(written))
        return written[0] if len(written) == 1 else tuple(written)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, None, None, *_gradients(ctx, ctx.needs_input_grad[3:], *grads)


class _InPlace(torch.autograd.Function):
    """Likewise, but as an operation in place on the outputs."""

    @staticmethod
    def forward(ctx: Any, part: Part, values: Values, count: int, *tensors: Any) -> Any:
        written, given = tensors[:count], tensors[count:]
        _save(ctx, part, values, given)
        ctx.count = count
        ctx.mark_dirty(*written)
        return written[0] if count == 1 else written

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        none = (None,) * (3 + ctx.count)
        needed = ctx.needs_input_grad[3 + ctx.count :]
        return *none, *_gradients(ctx, needed, *grads)


def _gradients(ctx: Any, needed: tuple[bool, ...], d_out: Any, d_final: Any = None) -> tuple[Any, ...]:
    """Those by the inputs that ask for one."""
    part: Part = ctx.part
    tensors = dict(zip((*part.inputs, *part.kept), ctx.saved_tensors))
    found: Values = {}
    places: Values = {"d_final_state": d_final} if d_final is not None else {}
    for name, asks in zip(part.inputs, needed):
        if asks and tensors[name] is not None:
            found[name] = torch.empty_like(tensors[name], memory_format=torch.contiguous_format)
            places["d_initial_state" if name == "initial_state" else f"d{name}"] = found[name]
    if d_out is None:
        d_out = torch.zeros_like(tensors["x"])
    elif part.rows and d_out.stride(-1) != 1:
        d_out = d_out.contiguous()
    getattr(_core, f"{part.op}_backward")(d_out=d_out, **tensors, **places, **ctx.options)
    return tuple(map(found.get, part.inputs))


PARTS = (
    Part(
        "causal_conv1d",
        ("x", "weight", "bias", "initial_state"),
        ("out", "final_state"),
        ("read_slots", "write_slots", "has_initial_state", "num_accepted", "ring_position", "stream"),
        ("cu_seqlens",),
        ("activation", "implementation"),
        False,
    ),
    Part(
        "gated_rms_norm",
        ("x", "z", "weight"),
        ("out",),
        ("stream",),
        (),
        ("eps", "activation", "rounding", "implementation"),
        True,
    ),
)
