# SPDX-License-Identifier: Apache-2.0
"""Enters SGLang by its sglang.srt.plugins entry point: hooks around SGLang's GDN operators.

Opt-in, because nothing here has run inside a serving engine yet: set SLUICE_SGLANG=1. A call that
Sluice does not take goes to SGLang's own operator; the log says which ran and why not.
"""

import functools
import importlib
import logging
import os
from typing import Any

from ..swap import Tally, run_or_hand_back, same_parameters
from . import conv, dispatcher, kda, ops

_logger = logging.getLogger("sluice.engines")
tally = Tally()

# SGLang's function, and ours; where SGLang 0.5.23 defines them.
kTargets = (
    ("sglang.kernels.ops.attention.fla.chunk", ops.chunk_gated_delta_rule),
    (
        "sglang.kernels.ops.attention.fla.fused_recurrent",
        ops.fused_recurrent_gated_delta_rule_packed_decode,
    ),
    (
        "sglang.kernels.ops.attention.linear.fused_sigmoid_gating_recurrent",
        ops.fused_sigmoid_gating_delta_rule_update,
    ),
    ("sglang.kernels.ops.attention.fla.kda", kda.chunk_kda),
    (
        "sglang.kernels.ops.attention.fla.fused_recurrent",
        kda.fused_recurrent_kda_packed_decode,
    ),
    ("sglang.srt.layers.attention.mamba.causal_conv1d", conv.causal_conv1d_fn),
    ("sglang.kernels.ops.mamba.causal_conv1d_triton", conv.causal_conv1d_update),
)
# Where 0.5.17, the last release on torch 2.11, has a function that moved since.
kEarlierHomes = {
    "sglang.kernels.ops.attention.linear.fused_sigmoid_gating_recurrent":
        "sglang.kernels.ops.attention.fla.fused_sigmoid_gating_recurrent",
}

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
        def theirs(*args: Any, **kwargs: Any) -> Any:
            return original(chosen, *args, **kwargs)

        if ours is dispatcher.packed_decode and not chosen.supports_packed_decode:
            return theirs(*args, **kwargs)
        return run_or_hand_back(name, ours, theirs, tally, args, kwargs)

    return call


def _hook_methods(registry: Any) -> list[str]:
    """Hooks the dispatcher's methods; returns their names."""
    hooked = []
    try:
        owner = importlib.import_module(kDispatcher).GDNKernelDispatcher
    except (ImportError, AttributeError) as error:
        _logger.warning("%s.GDNKernelDispatcher not hooked: %s", kDispatcher, error)
        return []
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


def _find(module_name: str, name: str) -> tuple[str, Any]:
    """SGLang's function and the module that has it; (module_name, None) where none has."""
    for home in filter(None, (module_name, kEarlierHomes.get(module_name))):
        try:
            return home, getattr(importlib.import_module(home), name)
        except (ImportError, AttributeError) as error:
            _logger.info("%s.%s: %s", home, name, error)
    return module_name, None


def register() -> list[str]:
    """Registers the hooks (SGLang applies them). Returns the names that were hooked."""
    if os.environ.get("SLUICE_SGLANG", "0") != "1":
        _logger.info("SGLang hooks not registered: SLUICE_SGLANG is not 1")
        return []
    registry = importlib.import_module("sglang.srt.plugins.hook_registry")
    hooked = _hook_methods(registry)
    for module_name, ours in kTargets:
        home, theirs = _find(module_name, ours.__name__)
        target = f"{home}.{ours.__name__}"
        if theirs is None or not same_parameters(ours, theirs):
            what = "not found" if theirs is None else "its signature is not sglang 0.5.23's"
            _logger.warning("%s not hooked: %s", target, what)
            continue
        hook = _around(f"sglang.{ours.__name__}", ours)
        registry.HookRegistry.register(target, hook, registry.HookType.AROUND)
        hooked.append(target)
    _logger.info("SGLang hooks registered: %s", ", ".join(hooked) or "none")
    return hooked
