# SPDX-License-Identifier: Apache-2.0
"""Registers the operators with torch's dispatcher: torch.ops.sluice.*, made from the extension's
own table of arguments. Imported when the first torch tensor arrives, so `import sluice` needs no
torch.

Eager calls on plain tensors do not come through the dispatcher: they go to the extension directly,
which hands operators whose inputs ask for gradients to sluice._autograd and sluice._autograd_parts.
torch.compile, torch.export, fake tensors and other subclasses do.

Each operator writes into tensors that it is given and returns nothing, which is what
functionalization and CUDA graphs understand best. It exists in two forms: NAME reads its initial
states and writes final ones; NAME_ updates initial states in place (the schema must say so, and
says only so)."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import _core
from ._arrays import empty as empty_of
from ._autograd import DIFFERENTIABLE, count_each, count_writes, record
from ._autograd_parts import PARTS, recorder
from ._calls import CALLS
from ._errors import Unsupported
from ._types import T, Tensor

_PAIRS = (
    ("initial_state", "final_state"),
    ("conv_initial", "conv_final"),
    ("k_conv_initial", "k_conv_final"),
    ("v_conv_initial", "v_conv_final"),
)
_TYPES = {
    "input": "Tensor?",
    "double": "float",
    "scale": "float?",
    "int": "SymInt",
    "choice": "str",
}
_DEFAULTS = {"input": "None", "double": "0.0", "scale": "None", "int": "0"}

_library = torch.library.Library("sluice", "DEF")

# PERF: looked up once, not at every call.
_Tensor, _Parameter, _float32 = torch.Tensor, torch.nn.Parameter, torch.float32
_empty_like, _contiguous = torch.empty_like, torch.contiguous_format
_is_compiling, _is_grad_enabled = torch.compiler.is_dynamo_compiling, torch.is_grad_enabled


def entry(op: str, tensor: Any) -> Callable[..., None]:
    """The function that runs operator `op` here and now (`sluice._kinds.entry`)."""
    kind = type(tensor)
    if kind is _Tensor or kind is _Parameter:
        if _is_compiling():
            return _DISPATCHED[op]
        if not _is_grad_enabled():
            return CALLS[op]
        # PERF: the extension asks all inputs, but q is what asks in training.
        return record if op == "chunk_forward" and tensor.requires_grad else _CHECKED[op]
    return _DISPATCHED[op] if isinstance(tensor, _Tensor) else CALLS[op]


def empty_like(tensor: T) -> T:
    """`sluice._kinds.empty_like`."""
    if isinstance(tensor, _Tensor):
        return _empty_like(tensor, memory_format=_contiguous)
    return empty_of(tensor, getattr(tensor, "shape", ()))


def empty(like: T, shape: Any, dtype: Any = None, zeros: bool = False) -> T:
    """`sluice._kinds.empty`. PERF: torch reads sizes faster one by one than as a tuple."""
    if not isinstance(like, _Tensor):
        return empty_of(like, shape, dtype, zeros)
    make = like.new_zeros if zeros else like.new_empty
    return make(*shape) if dtype is None else make(*shape, dtype=_float32)


def _refuse_gradient(op: str, arguments: Any) -> None:
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor) and value.requires_grad:
            raise Unsupported(
                f"{op}: {name}.requires_grad = True, expected tensors without gradient, or "
                "torch.no_grad() or torch.inference_mode() (no backward pass under torch.compile and "
                "in torch.ops)"
            )


def _fields(op: str, in_place: bool) -> Iterator[tuple[str, str]]:
    """(name, kind) of the arguments of one form: an updated pool is an output of the NAME_ form and
    an input of the other."""
    states = [initial for initial, _ in _PAIRS]
    for name, kind, _, _ in _core.fields(op):
        if name in states:
            kind = "output" if in_place else "input"
        if kind not in ("stream", "workspace"):
            yield name, kind


def _schema(op: str, in_place: bool) -> str:
    parts = []
    choices = {name: first for name, kind, first, _ in _core.fields(op) if kind == "choice"}
    for position, (name, kind) in enumerate(_fields(op, in_place)):
        if kind == "output":
            parts.append(f"Tensor(a{position}!)? {name}=None")
        else:
            default = f'"{choices[name]}"' if kind == "choice" else _DEFAULTS[kind]
            parts.append(f"{_TYPES[kind]} {name}={default}")
    if in_place:
        parts += [f"bool {final}_is_initial=False" for _, final in _pairs(op)]
    return f"{op}{'_' if in_place else ''}(*, {', '.join(parts)}) -> ()"


def _pairs(op: str) -> list[tuple[str, str]]:
    names = {name for name, _, _, _ in _core.fields(op)}
    return [pair for pair in _PAIRS if pair[0] in names]


def _register(op: str, in_place: bool) -> Callable[..., None]:
    """Defines one form and its kernels; returns the callable."""
    name = f"{op}{'_' if in_place else ''}"
    exact = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)
    _library.define(_schema(op, in_place), tags=(torch.Tag.pt2_compliant_tag, exact))
    overload = getattr(torch.ops.sluice, name).default
    call = CALLS[op]
    pairs = _pairs(op) if in_place else []
    written = [name for name, kind in _fields(op, in_place) if kind == "output"]

    def kernel(**arguments: Any) -> None:
        for initial, final in pairs:
            if arguments.pop(f"{final}_is_initial", False):
                arguments[final] = arguments[initial]
        call(**arguments)

    def below_autograd(**arguments: Any) -> None:
        if torch.is_grad_enabled():
            _refuse_gradient(op, arguments)
        with torch._C._AutoDispatchBelowAutograd():
            overload(**arguments)
        count_each([arguments[name] for name in written if arguments.get(name) is not None])

    for key in ("CPU", "CUDA"):
        _library.impl(name, kernel, key)
    _library.impl(name, below_autograd, "Autograd")
    torch.library.register_fake(f"sluice::{name}", lambda **arguments: None, lib=_library)
    return overload


def _dispatched(op: str) -> Callable[..., None]:
    """The operator's call by torch's dispatcher, for the arguments of `entry`."""
    order = tuple(name for name, _, _, _ in _core.fields(op))
    out_of_place = _register(op, False)
    pairs = _pairs(op)
    in_place = _register(op, True) if pairs else out_of_place
    # The step operators update a pool for which no other place is given.
    updates = {name for name, kind, _, _ in _core.fields(op) if kind == "update"}

    def run(*values: Any, **arguments: Any) -> None:
        arguments.update(zip(order, values))
        _refuse_for_eager(op, arguments.pop("stream", None), arguments.pop("workspace", None))
        if torch.is_grad_enabled():
            _refuse_gradient(op, arguments)
        writes = arguments.get("state_writes") != "none"
        same = {}
        update = False
        for initial, final in pairs:
            if arguments.get(initial) is None:
                continue
            if arguments.get(final) is arguments[initial]:
                arguments[final] = None
                same[f"{final}_is_initial"] = True
            elif initial in updates and writes and arguments.get(final) is None:
                update = True
        if same or update:
            in_place(**arguments, **same)
        else:
            out_of_place(**arguments)

    return run


def _refuse_for_eager(op: str, stream: Any, workspace: Tensor | None) -> None:
    if stream is not None or workspace is not None:
        raise Unsupported(
            f"{op}: stream or workspace = given, expected None (torch's dispatcher uses the "
            "current stream)"
        )


_core.count_writes(count_writes, count_each)
_CHECKED = {op: getattr(_core, f"{op}_recorded") for op in CALLS}
_core.record_gradients("chunk_forward", DIFFERENTIABLE, record)
for _part in PARTS:
    _core.record_gradients(_part.op, _part.inputs, recorder(_part))
_DISPATCHED = {op: _dispatched(op) for op in CALLS}
