# SPDX-License-Identifier: Apache-2.0
"""Replaces attributes reversibly, and makes hooks that hand a call back to the engine's function.

A hook runs Sluice's function where that can take the call and the engine's own otherwise; it counts
both, and logs the first of each reason.
"""

import functools
import inspect
import logging
import re
import sys
import types
from collections.abc import Callable
from typing import Any

from .._errors import InvalidArgument, Unsupported

_logger = logging.getLogger("sluice.engines")
_MISSING = object()


def share_log(engine: str) -> None:
    """Sends the lines of `sluice.engines` where the engine's own logger sends its, unless somebody listens already.

    WHY: vLLM sets up the logger of its own name alone, so INFO lines of another name would reach nobody.
    """
    theirs = logging.getLogger(engine)
    if _logger.hasHandlers() or not theirs.handlers:
        return
    for handler in theirs.handlers:
        _logger.addHandler(handler)
    _logger.setLevel(theirs.getEffectiveLevel())
    _logger.propagate = False


class Swaps:
    """Attributes that were replaced, and what they were."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Sets owner.name = value and remembers what owner itself had under that name."""
        old = vars(owner).get(name, _MISSING)
        setattr(owner, name, value)
        self._undo.append((owner, name, old))

    def put_everywhere(self, old: Any, new: Any, inside: Any) -> list[str]:
        """Replaces `old` by `new` in every loaded module whose name starts with a prefix of
        `inside`: `from x import f` leaves copies of f behind. Returns the places, sorted."""
        places = []
        for module_name, module in sorted(sys.modules.items()):
            if not isinstance(module, types.ModuleType) or not module_name.startswith(inside):
                continue
            for name, value in list(vars(module).items()):
                if value is old:
                    self.put(module, name, new)
                    places.append(f"{module_name}.{name}")
        return places

    def active(self) -> bool:
        """Whether anything is replaced now."""
        return bool(self._undo)

    def restore(self) -> None:
        """Puts everything back, last first. A second call does nothing."""
        while self._undo:
            owner, name, old = self._undo.pop()
            if old is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, old)


class Tally:
    """How often each hook ran Sluice and how often the engine's function, by reason."""

    def __init__(self) -> None:
        self.ran: dict[str, int] = {}
        self.handed_back: dict[tuple[str, str], int] = {}
        self._unheard: list[str] = []

    def say(self, line: str) -> None:
        """Logs a line: now, or before the first call's where nobody listens yet.

        WHY: SGLang loads plug-ins in its scheduler before it sets up the log there.
        """
        self._unheard.append(line)
        if _logger.isEnabledFor(logging.INFO):
            for waiting in self._unheard:
                _logger.info("%s", waiting)
            self._unheard.clear()

    def count_run(self, hook: str) -> None:
        if hook not in self.ran:
            self.say(f"{hook} runs on Sluice")
        self.ran[hook] = self.ran.get(hook, 0) + 1

    def count_back(self, hook: str, reason: str) -> None:
        # Sizes differ from call to call: without them the reasons are few.
        key = (hook, re.sub(r"\d+", "#", reason))
        if key not in self.handed_back:
            self.say(f"{hook} handed back to the engine: {reason}")
        self.handed_back[key] = self.handed_back.get(key, 0) + 1


def same_parameters(ours: Any, theirs: Any) -> bool:
    """Whether every parameter the engine's function names exists in ours, in the same order."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(theirs).parameters.values()
    names = [p.name for p in parameters if p.kind not in kinds]
    return list(inspect.signature(ours).parameters)[: len(names)] == names


def needs_gradient(*tensors: Any) -> bool:
    """Whether autograd would record an operation on these tensors."""
    import torch

    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def run_or_hand_back(
    name: str, ours: Any, original: Any, tally: Any, args: Any, kwargs: Any, unfit: Any = None
) -> Any:
    """`ours`, or `original` where `unfit` gives a reason or `ours` refuses, which it does before
    anything is written. A caller's mistake goes to `original` too: it may be none there."""
    reason = unfit(*args, **kwargs) if unfit else None
    if reason is None:
        try:
            result = ours(*args, **kwargs)
        except (Unsupported, InvalidArgument) as error:
            reason = str(error)
        else:
            tally.count_run(name)
            return result
    tally.count_back(name, reason)
    return original(*args, **kwargs)


def hook(name: str, ours: Any, original: Any, tally: Any, unfit: Any = None) -> Callable[..., Any]:
    """A replacement for `original` that calls run_or_hand_back."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return run_or_hand_back(name, ours, original, tally, args, kwargs, unfit)

    return call
