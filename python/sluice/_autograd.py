# SPDX-License-Identifier: Apache-2.0
"""Connects chunk_forward to torch's autograd: an eager call on tensors that require a gradient is
recorded, and its backward pass is chunk_backward. Imported by sluice._torch."""

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from . import _core
from ._errors import Unsupported

_NAMES = tuple(name for name, _, _, _ in _core.fields("chunk_forward"))
# What gradients are by, in the order of chunk_backward's outputs.
_DIFFERENTIABLE = ("q", "k", "v", "gate", "beta", "A_log", "dt_bias", "initial_state")
_GRADIENTS = ("dq", "dk", "dv", "dgate", "dbeta", "dA_log", "ddt_bias", "d_initial_state")
_OPTIONS = tuple(
    name for name, kind, _, _ in _core.fields("chunk_backward") if kind in ("choice", "double", "scale")
)
# What chunk_backward does not know.
_FOREIGN = (
    "read_slots",
    "write_slots",
    "has_initial_state",
    "checkpoints",
    "checkpoint_slots",
    "stream",
)
_PLACES = tuple(_NAMES.index(name) for name in _DIFFERENTIABLE)

_grad_enabled = torch.is_grad_enabled


def differentiable(recorded: Callable[..., None], call: Callable[..., None]) -> Callable[..., None]:
    """chunk_forward for plain tensors where gradients are enabled: `recorded` where no tensor asks
    for one, else `call` inside an operation of autograd."""

    def run(*values: Any, **arguments: Any) -> None:
        if values and len(values) > _PLACES[-1] and not arguments:
            given: Any = [values[place] for place in _PLACES]
        else:
            arguments.update(zip(_NAMES, values))
            values = ()
            given = [arguments.get(name) for name in _DIFFERENTIABLE]
        if not any(getattr(tensor, "requires_grad", False) for tensor in given):
            return recorded(*values, **arguments)
        arguments.update(zip(_NAMES, values))
        _refuse(arguments)
        _ChunkForward.apply(call, arguments, arguments["o"], arguments.get("final_state"), *given)

    return run


def _refuse(arguments: dict[str, Any]) -> None:
    for name in _FOREIGN:
        if arguments.get(name) is not None:
            raise Unsupported(
                f"chunk_forward: {name} = given, expected None where an input requires a gradient "
                "(chunk_backward has no pools, checkpoints and streams of its own)"
            )
    if getattr(arguments.get("gate"), "ndim", 0) == 4:
        raise Unsupported(
            "chunk_forward: gate.ndim = 4, expected 3 where an input requires a gradient "
            "(chunk_backward has no key-wise gates)"
        )
    initial, final = arguments.get("initial_state"), arguments.get("final_state")
    if final is not None and final is initial:
        raise Unsupported(
            "chunk_forward: final_state = initial_state, expected another tensor where an input "
            "requires a gradient (the backward pass reads the initial state)"
        )
    for name in ("o", "final_state"):
        if getattr(arguments.get(name), "requires_grad", False):
            raise Unsupported(
                f"chunk_forward: {name}.requires_grad = True, expected an output without history"
            )


class _ChunkForward(torch.autograd.Function):
    """Writes o and final_state, which are the caller's, as an operation in place on them."""

    @staticmethod
    def forward(
        ctx: Any, call: Any, arguments: dict[str, Any], o: Any, final: Any, *given: Any
    ) -> Any:
        call(**arguments)
        ctx.save_for_backward(*given, arguments.get("cu_seqlens"))
        ctx.options = {name: arguments[name] for name in _OPTIONS if name in arguments}
        ctx.has_final = final is not None
        ctx.set_materialize_grads(False)
        if final is None:
            ctx.mark_dirty(o)
            return o
        ctx.mark_dirty(o, final)
        return o, final

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_o: Any, d_final: Any = None) -> Any:
        *given, cu_seqlens = ctx.saved_tensors
        inputs = dict(zip(_DIFFERENTIABLE, given))
        wanted = ctx.needs_input_grad[4:]
        found = {
            gradient: torch.empty_like(inputs[name], memory_format=torch.contiguous_format)
            for gradient, name, needed in zip(_GRADIENTS, _DIFFERENTIABLE, wanted)
            if needed
        }
        if cu_seqlens is not None:  # rows past the last sequence have no gradient and are not written
            for gradient in found.values():
                gradient.zero_()
        if d_o is None:
            d_o = torch.zeros_like(inputs["v"])
        if d_o.stride(-1) != 1:
            d_o = d_o.contiguous()
        if d_final is not None:
            d_final = d_final.contiguous()
        initial = inputs["initial_state"]
        if initial is not None:
            inputs["initial_state"] = initial.contiguous()
        _core.chunk_backward(
            **inputs, cu_seqlens=cu_seqlens, d_o=d_o, d_final_state=d_final, **found, **ctx.options
        )
        return (None, None, None, None, *(found.get(gradient) for gradient in _GRADIENTS))
