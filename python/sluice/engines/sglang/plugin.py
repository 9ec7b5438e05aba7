# SPDX-License-Identifier: Apache-2.0
"""Enters SGLang by its sglang.srt.plugins entry point: hooks around SGLang's GDN operators.

Opt-in: set SLUICE_SGLANG=1. A call that Sluice does not take goes to SGLang's own operator; the log says
which ran and why not.
"""

import functools
import importlib
import logging
import os
import sys
from typing import Any

from ..imports import Imports
from ..swap import Tally, run_or_hand_back, same_parameters
from . import conv, dispatcher, ops

_logger = logging.getLogger("sluice.engines")
_imports = Imports()
tally = Tally()

_FLA = "sglang.kernels.ops.attention.fla"
_UPDATE = "sglang.kernels.ops.attention.linear.fused_sigmoid_gating_recurrent"

# SGLang's function, and ours; where SGLang 0.5.23 defines them.
kTargets = (
    (f"{_FLA}.chunk", ops.chunk_gated_delta_rule),
    (f"{_FLA}.fused_recurrent", ops.fused_recurrent_gated_delta_rule_packed_decode),
    (_UPDATE, ops.fused_sigmoid_gating_delta_rule_update),
    (f"{_FLA}.kda", ops.chunk_kda),
    (f"{_FLA}.fused_recurrent", ops.fused_recurrent_kda_packed_decode),
    ("sglang.srt.layers.attention.mamba.causal_conv1d", conv.causal_conv1d_fn),
    ("sglang.kernels.ops.mamba.causal_conv1d_triton", conv.causal_conv1d_update),
)
# Where 0.5.17, the last release on torch 2.11, has a function that moved since.
kEarlierHomes = {_UPDATE: f"{_FLA}.fused_sigmoid_gating_recurrent"}

# Methods of the class that sends a layer's calls to the backend's kernels, whichever was chosen.
kDispatcher = "sglang.srt.layers.attention.linear.gdn_backend"
kMethods = (
    dispatcher.decode,
    dispatcher.packed_decode,
    dispatcher.extend,
    dispatcher.target_verify,
)


def _around_method(name: str, ours: Any) -> Any:
    """The same for a method: fn(original, self, *args, **kwargs)."""

    def call(original: Any, chosen: Any, *args: Any, **kwargs: Any) -> Any:
        theirs = functools.partial(original, chosen)
        if ours is dispatcher.packed_decode and not chosen.supports_packed_decode:
            return theirs(*args, **kwargs)
        return run_or_hand_back(name, ours, theirs, tally, args, kwargs)

    return call


def _hook_methods(registry: Any) -> list[str]:
    """Hooks the dispatcher's methods; returns their names."""
    hooked: list[str] = []
    owner = getattr(sys.modules[kDispatcher], "GDNKernelDispatcher", None)
    for ours in kMethods:
        target = f"{kDispatcher}.GDNKernelDispatcher.{ours.__name__}"
        theirs = getattr(owner, ours.__name__, None)
        if theirs is None or not same_parameters(ours, functools.partial(theirs, None)):
            _logger.warning("%s not hooked: its signature is not sglang 0.5.23's", target)
            continue
        hook = _around_method(f"sglang.{ours.__name__}", ours)
        registry.HookRegistry.register(target, hook, registry.HookType.AROUND)
        hooked.append(target)
    return hooked


def _around(name: str, ours: Any) -> Any:
    """SGLang's AROUND hook: fn(original, *args, **kwargs)."""

    def call(original: Any, *args: Any, **kwargs: Any) -> Any:
        return run_or_hand_back(name, ours, original, tally, args, kwargs)

    return call


def _hook_function(registry: Any, home: str, ours: Any) -> list[str]:
    """Hooks one function of a loaded module; returns its name."""
    target = f"{home}.{ours.__name__}"
    theirs = getattr(sys.modules[home], ours.__name__, None)
    if theirs is None and home in (*kEarlierHomes, *kEarlierHomes.values()):
        return []
    if theirs is None or not same_parameters(ours, theirs):
        what = "not found" if theirs is None else "its signature is not sglang 0.5.23's"
        _logger.warning("%s not hooked: %s", target, what)
        return []
    hook = _around(f"sglang.{ours.__name__}", ours)
    registry.HookRegistry.register(target, hook, registry.HookType.AROUND)
    return [target]


def _hook(registry: Any, home: str) -> list[str]:
    """Registers the hooks of one loaded module; returns the names that were hooked."""
    if home == kDispatcher:
        return _hook_methods(registry)
    functions = [ours for name, ours in kTargets if home in (name, kEarlierHomes.get(name))]
    return [target for ours in functions for target in _hook_function(registry, home, ours)]


def _say(hooked: list[str]) -> None:
    tally.say(f"SGLang hooks registered: {', '.join(hooked) or 'none so far'}")


def register() -> list[str]:
    """Registers the hooks of the modules that are loaded (SGLang applies them), and those of others when SGLang
    imports them: its launcher never does. Returns the names that were hooked."""
    if os.environ.get("SLUICE_SGLANG", "0") != "1":
        _logger.info("SGLang hooks not registered: SLUICE_SGLANG is not 1")
        return []
    registry = importlib.import_module("sglang.srt.plugins.hook_registry")

    def apply(hooked: list[str]) -> None:
        registry.HookRegistry.apply_hooks()
        _say(hooked)

    homes = dict.fromkeys((*(name for name, _ in kTargets), *kEarlierHomes.values(), kDispatcher))
    hooked = _imports.each(homes, functools.partial(_hook, registry), apply)
    _say(hooked)
    return hooked
