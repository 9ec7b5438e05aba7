# SPDX-License-Identifier: Apache-2.0
"""Decides whether a call goes to the extension directly or by torch's dispatcher: asks whether
torch is there, which only somebody else imports."""

import sys
from collections.abc import Callable
from typing import Any

from ._arrays import empty, zeros_like
from ._calls import CALLS
from ._types import T, Tensor

__all__ = ["empty", "empty_like", "entry", "zeros_like"]


def entry(op: str, tensor: Tensor) -> Callable[..., None]:
    """The function that runs operator `op` for tensors like `tensor`: it takes the operator's
    arguments in the order of `_core.fields(op)`, or by keyword.

    PERF: positions, because CPython packs more than 15 keywords into a dict first. Up to 30 values
    it does not pack into a tuple: a step has as many up to its workspace, rare ones follow. Once
    torch is there, `sluice._torch.entry` stands here.
    """
    torch = _meet_torch()
    return CALLS[op] if torch is None else torch.entry(op, tensor)


def empty_like(tensor: T) -> T:
    """A new compact tensor of the same kind, shape, dtype and device. Once torch is there,
    `sluice._torch.empty_like` stands here."""
    torch = _meet_torch()
    if torch is not None:
        return torch.empty_like(tensor)
    return empty(tensor, getattr(tensor, "shape", ()))


def _meet_torch() -> Any:
    """Registers the torch operators as soon as torch has been imported by somebody; returns the
    module `sluice._torch`, or None before."""
    if "torch" not in sys.modules:
        return None
    from . import _torch

    # PERF: from here on, calls do not ask first whether torch is there.
    globals().update(entry=_torch.entry, empty_like=_torch.empty_like, empty=_torch.empty)
    return _torch
