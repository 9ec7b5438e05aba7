# SPDX-License-Identifier: Apache-2.0
"""The operators for torch's dispatcher: torch.ops.sluice.*, made from the extension's own table of
arguments. Imported when the first torch tensor arrives, so `import sluice` needs no torch.

Eager calls on plain tensors do not come through the dispatcher: they go to the extension directly.
torch.compile, torch.export, fake tensors and other subclasses do.

Each operator writes into tensors that it is given and returns nothing, which is what functionalization
and CUDA graphs understand best. It exists in two forms: NAME reads its initial states and writes
final ones; NAME_ updates initial states in place (the schema must say so, and says only so)."""

import torch

from . import _core
from ._errors import Unsupported
from ._kinds import _CALLS

_PAIRS = (("initial_state", "final_state"), ("conv_initial", "conv_final"))
_TYPES = {"input": "Tensor?", "double": "float", "scale": "float?", "int": "SymInt", "choice": "str"}
_DEFAULTS = {"input": "None", "double": "0.0", "scale": "None", "int": "0"}

_library = torch.library.Library("sluice", "DEF")


def entry(op, tensor):
    """The function that runs operator `op` here and now."""
    kind = type(tensor)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        if torch.compiler.is_compiling():
            return _DISPATCHED[op]
        return _CHECKED[op] if torch.is_grad_enabled() else _CALLS[op]
    return _DISPATCHED[op] if isinstance(tensor, torch.Tensor) else _CALLS[op]


def _refuse_gradient(op, arguments):
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor) and value.requires_grad:
            raise Unsupported(
                f"{op}: {name}.requires_grad = True, expected tensors without gradient, or "
                "torch.no_grad() or torch.inference_mode() (Sluice has no backward pass yet)"
            )


def _fields(op, in_place):
    """(name, kind) of the arguments of one form: an updated pool is an output of the NAME_ form and
    an input of the other."""
    states = [initial for initial, _ in _PAIRS]
    for name, kind, _, _ in _core.fields(op):
        if name in states:
            kind = "output" if in_place else "input"
        yield name, kind


def _schema(op, in_place):
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


def _pairs(op):
    names = {name for name, _, _, _ in _core.fields(op)}
    return [pair for pair in _PAIRS if pair[0] in names]


def _register(op, in_place):
    """Defines one form and its kernels; returns the callable."""
    name = f"{op}{'_' if in_place else ''}"
    exact = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)
    _library.define(_schema(op, in_place), tags=(torch.Tag.pt2_compliant_tag, exact))
    overload = getattr(torch.ops.sluice, name).default
    call = _CALLS[op]
    pairs = _pairs(op) if in_place else []

    def kernel(**arguments):
        for initial, final in pairs:
            if arguments.pop(f"{final}_is_initial", False):
                arguments[final] = arguments[initial]
        call(**arguments)

    def below_autograd(**arguments):
        if torch.is_grad_enabled():
            _refuse_gradient(op, arguments)
        with torch._C._AutoDispatchBelowAutograd():
            overload(**arguments)

    for key in ("CPU", "CUDA"):
        _library.impl(name, kernel, key)
    _library.impl(name, below_autograd, "Autograd")
    torch.library.register_fake(f"sluice::{name}", lambda **arguments: None, lib=_library)
    return overload


def _dispatched(op):
    out_of_place = _register(op, False)
    pairs = _pairs(op)
    if not pairs:

        def run(stream=None, workspace=None, **arguments):
            _refuse_for_eager(op, stream, workspace)
            out_of_place(**arguments)

        return run
    in_place = _register(op, True)
    # The step operators update a pool for which no other place is given.
    updates = {name for name, kind, _, _ in _core.fields(op) if kind == "update"}

    def run_with_states(stream=None, workspace=None, **arguments):
        _refuse_for_eager(op, stream, workspace)
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

    return run_with_states


def _refuse_for_eager(op, stream, workspace):
    if stream is not None or workspace is not None:
        raise Unsupported(
            f"{op}: stream or workspace = given, expected None (torch's dispatcher uses the current "
            "stream)"
        )


_CHECKED = {op: getattr(_core, f"{op}_no_gradient") for op in _CALLS}
_DISPATCHED = {op: _dispatched(op) for op in _CALLS}
