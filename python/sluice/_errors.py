# SPDX-License-Identifier: Apache-2.0
"""Defines the exceptions: one class per status code of the C interface, each also the built-in
exception that a caller would expect. The message is the core's: "op: argument property = found, expected ..."."""

import re
import sys
from typing import Any


class Error(Exception):
    """Base of every refusal that comes from the library."""


class InvalidArgument(Error, ValueError):
    """The caller's mistake; the message names the argument, what it was and what is allowed."""


class Unsupported(Error, NotImplementedError):
    """A legal call that no kernel of this build and device does; the message says what is."""


class WorkspaceTooSmall(Error, ValueError):
    """A given workspace is too small; the message has the bytes needed."""


class DeviceError(Error, RuntimeError):
    """A CUDA call failed; the message has its name."""


class InternalError(Error, RuntimeError):
    """A bug in Sluice."""


# What the operators call the arguments of fla's functions.
_NAMES = {
    "gate": "g",
    "o": "out",
    "state.initial": "initial_state",
    "state.final": "final_state",
    "state.read_slots": "read_slots",
    "state.write_slots": "write_slots",
    "state.has_initial_state": "has_initial_state",
    "state.pad_below": "pad_below",
    "state.num_accepted": "num_accepted",
    "state.ring_position": "ring_position",
}
_ARGUMENT = re.compile(r"^\w+: (state\.\w+|\w+)")
_FRAMES = 3  # between the extension and the function: torch's operators add one


def _is_functional(frame: Any) -> bool:
    return frame is not None and frame.f_globals.get("__name__", "").startswith("sluice.functional.")


def refusal(kind: type["Error"], message: str) -> "Error":
    """The exception of a refused call. Where one of `sluice.functional` made the call, the message has
    its name and its names of arguments in place of the operator's."""
    frame: Any = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame is not None and not _is_functional(frame):
            frame = frame.f_back
    found = _ARGUMENT.match(message)
    if not _is_functional(frame) or found is None:
        return kind(message)
    while _is_functional(frame.f_back):  # a function may have helpers
        frame = frame.f_back
    name = found[1]
    known = _NAMES.get(name, name)
    if name == "gate" and frame.f_locals.get("gk") is not None:
        known = "gk"
    return kind(f"{frame.f_code.co_name}: {known}{message[found.end():]}")


# By status code of sluice.h, in its order; the extension reads this tuple.
BY_CODE = (Error, InvalidArgument, Unsupported, WorkspaceTooSmall, DeviceError, InternalError)
for _class in BY_CODE:
    _class.__module__ = "sluice"
