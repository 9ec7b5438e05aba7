# SPDX-License-Identifier: Apache-2.0
"""Connects chunk_forward to torch's autograd: an eager call on tensors that require a gradient is
recorded, and its backward pass is chunk_backward. Imported by sluice._torch."""

from collections.abc import Iterable
from operator import itemgetter
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from . import _core
from ._errors import Unsupported

_NAMES = tuple(name for name, _, _, _ in _core.fields("chunk_forward"))
# What gradients are by, in the order of chunk_backward's outputs.
DIFFERENTIABLE = ("q", "k", "v", "gate", "beta", "A_log", "dt_bias", "initial_state")
# What chunk_backward does not know.
_FOREIGN = (
    "read_slots",
    "write_slots",
    "has_initial_state",
    "checkpoints",
    "checkpoint_slots",
    "stream",
)
# PERF: values by position, and what every call needs looked up once.
_differentiable = itemgetter(*map(_NAMES.index, DIFFERENTIABLE))
_foreign = itemgetter(*map(_NAMES.index, _FOREIGN))
_O, _FINAL, _INITIAL, _CU = map(
    _NAMES.index, ("o", "final_state", "initial_state", "cu_seqlens")
)
# Many calls lack the three inputs behind these.
_FEW = len(DIFFERENTIABLE) - 3
# Of chunk_backward, behind its tensors: as in the forward pass. Its workspace is, as the stream, not given.
_OPTIONS = [name for name, kind, _, _ in _core.fields("chunk_backward") if kind not in ("input", "output")]
_options = itemgetter(*(_NAMES.index("stream" if name == "workspace" else name) for name in _OPTIONS))
_forward, _backward = _core.chunk_forward, _core.chunk_gradients
_Tensor, _zeros_like = torch.Tensor, torch.zeros_like
_is_grad_enabled = torch.is_grad_enabled


def count_each(written: Iterable[Any]) -> None:
    """Gives tensors that a call has written their next version, by which autograd finds out that
    one that it has saved was changed. Those of inference mode have none, nor do arrays."""
    for tensor in written:
        if isinstance(tensor, _Tensor) and not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)


# PERF: torch's own function takes all of them at half the price, but not what has no version.
count_writes = getattr(torch._C, "_increment_version", count_each)


def record(*values: Any, **arguments: Any) -> None:
    """chunk_forward of plain tensors one of which asks for a gradient, as an operation of autograd.
    Takes the operator's values in the order of its fields, or by keyword."""
    if arguments or len(values) != len(_NAMES):
        arguments.update(zip(_NAMES, values))
        values = tuple(map(arguments.get, _NAMES))
    _refuse(values)
    given = _differentiable(values)
    o, final = values[_O], values[_FINAL]
    # Of a view autograd is told that it changes, since its base then does too. PERF: what is no view
    # is like a new tensor, for which it has less to do; nor are inputs passed that are absent.
    if o._is_view() or (final is not None and final._is_view()):
        _InPlace.apply(values, o, final, *given)
    elif _transforms_active():
        _ChunkForward.apply(values, *given)
    elif given[-3] is given[-2] is given[-1] is None:
        _apply(values, *given[:_FEW])
    else:
        _apply(values, *given)


def _refuse(values: tuple[Any, ...]) -> None:
    a, b, c, d, e, f = _foreign(values)
    if not (a is b is c is d is e is f is None):
        for name, value in zip(_FOREIGN, _foreign(values)):
            if value is not None:
                raise Unsupported(
                    f"chunk_forward: {name} = given, expected None where an input requires a gradient "
                    "(chunk_backward has no pools, checkpoints and streams of its own)"
                )
    o, final = values[_O], values[_FINAL]
    if final is not None and final is values[_INITIAL]:
        raise Unsupported(
            "chunk_forward: final_state = initial_state, expected another tensor where an input "
            "requires a gradient (the backward pass reads the initial state)"
        )
    if type(o) is not _Tensor or o.requires_grad or o.is_inference():
        refuse_output("chunk_forward", "o", o)
    if final is not None and (type(final) is not _Tensor or final.requires_grad or final.is_inference()):
        refuse_output("chunk_forward", "final_state", final)


def refuse_output(op: str, name: str, tensor: Any) -> None:
    """Refuses what autograd cannot take for a result."""
    if not isinstance(tensor, _Tensor):
        found, expected = f" = {type(tensor).__name__}", "a torch tensor where an input requires a gradient"
    elif tensor.requires_grad:
        found, expected = ".requires_grad = True", "an output without history"
    elif tensor.is_inference():
        found, expected = ".is_inference() = True", "False where an input requires a gradient"
    else:
        return
    raise Unsupported(f"{op}: {name}{found}, expected {expected}")


class _ChunkForward(torch.autograd.Function):
    """Writes o and final_state of `values`, which become its results as if they were new."""

    @staticmethod
    def forward(ctx: Any, values: tuple[Any, ...], *given: Any) -> Any:
        _forward(*values)
        ctx.save_for_backward(*given, values[_CU])
        ctx.options = _options(values)
        o, final = values[_O], values[_FINAL]
        if final is None:
            count_writes((o,))
            return o
        count_writes((o, final))
        ctx.set_materialize_grads(False)
        return o, final

    @staticmethod
    def backward(ctx: Any, d_o: Any, d_final: Any = None) -> Any:
        # PERF: what once_differentiable does takes longer than asking whether it is needed.
        return (_guarded_gradients if _is_grad_enabled() else _gradients)(ctx, d_o, d_final)


class _InPlace(torch.autograd.Function):
    """Likewise, but as an operation in place on o and final."""

    @staticmethod
    def forward(ctx: Any, values: tuple[Any, ...], o: Any, final: Any, *given: Any) -> Any:
        _forward(*values)
        ctx.save_for_backward(*given, values[_CU])
        ctx.options = _options(values)
        ctx.set_materialize_grads(False)
        written = (o,) if final is None else (o, final)
        ctx.mark_dirty(*written)
        return o if final is None else written

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_o: Any, d_final: Any = None) -> Any:
        return _gradients(ctx, d_o, d_final)


def _gradients(ctx: Any, d_o: Any, d_final: Any) -> tuple[Any, ...]:
    """What autograd is to have by the operation's arguments, from gradients of o and final_state."""
    saved = ctx.saved_tensors
    if d_o is None:
        d_o = _zeros_like(saved[2])
    elif d_o.stride(-1) != 1:
        d_o = d_o.contiguous()
    if d_final is not None:
        d_final = d_final.contiguous()
    # PERF: one call into C for the gradients' memory and chunk_backward.
    return _backward(saved, ctx.needs_input_grad, ctx.options, d_o, d_final)


_core.gradient_makers(torch.empty_like, _zeros_like, {"memory_format": torch.contiguous_format})
_guarded_gradients = once_differentiable(_gradients)
# PERF: what Function.apply calls in its turn where torch.func does not transform the call.
_apply = super(torch.autograd.Function, _ChunkForward).apply
_transforms_active = torch._C._are_functorch_transforms_active
# PERF: what torch calls asks each time which of two functions the class has.
_ChunkForward._backward_cls.apply = _ChunkForward.backward
