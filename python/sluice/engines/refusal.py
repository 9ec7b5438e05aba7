# SPDX-License-Identifier: Apache-2.0
"""Raises the refusals of the shims, in the core's message grammar:
"op: argument = found, expected ... (rule)"."""

from typing import Any, NoReturn

from .._errors import InvalidArgument, Unsupported


def describe(value: Any) -> str:
    """A value in a message: tensors by type and shape, everything else by repr."""
    shape = getattr(value, "shape", None)
    return f"tensor{list(shape)}" if shape is not None else repr(value)


def unsupported(op: str, name: str, found: Any, expected: Any, rule: str) -> NoReturn:
    """Raises Unsupported: a legal call of the engine that Sluice does not do."""
    raise Unsupported(f"{op}: {name} = {describe(found)}, expected {expected} ({rule})")


def invalid(op: str, name: str, found: Any, expected: Any, rule: str) -> NoReturn:
    """Raises InvalidArgument: the caller's mistake."""
    raise InvalidArgument(f"{op}: {name} = {describe(found)}, expected {expected} ({rule})")


def only_absent(op: str, rule: str, **arguments: Any) -> None:
    """Refuses every argument that is neither None nor False."""
    for name, value in arguments.items():
        if value is not None and value is not False:
            unsupported(op, name, value, "None or False", rule)


def only_value(op: str, name: str, value: Any, expected: Any, rule: str) -> None:
    """Refuses a number other than the one value that the operators compute with."""
    if value != expected:
        unsupported(op, name, value, expected, rule)


def check_scale(op: str, scale: float | None) -> float | None:
    """The engines' rule `scale > 0`; returns scale."""
    if scale is not None and not scale > 0:
        invalid(op, "scale", scale, "None or > 0", "the engine's rule")
    return scale
