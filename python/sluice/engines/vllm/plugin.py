# SPDX-License-Identifier: Apache-2.0
"""Enters vLLM by its vllm.general_plugins entry point: vLLM's GDN operators are replaced where they
are looked up.

Opt-in: set SLUICE_VLLM=1. A call that Sluice does not take goes to vLLM's own operator; the log says
which ran and why not.
"""

import importlib
import inspect
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

from .. import flashinfer
from ..imports import Imports
from ..swap import Swaps, Tally, hook, same_parameters, share_log
from . import conv, cpu, kimi, norm, ops, v0_26

_logger = logging.getLogger("sluice.engines")
_swaps = Swaps()
_imports = Imports()
tally = Tally()

_FLA = "vllm.third_party.flash_linear_attention.ops"
_KIMI = "vllm.models.kimi_k3.nvidia.ops.third_party.kda"
_CONV = "vllm.model_executor.layers.mamba.ops.causal_conv1d"

# vLLM's function, and ours; where vLLM 0.26.0 to 0.33.0 define them. On Hopper vLLM's default prefill is
# FlashInfer's, which it imports at every call.
kTargets = (
    (_FLA, ops.chunk_gated_delta_rule),
    (_FLA, ops.fused_recurrent_gated_delta_rule),
    (_FLA, ops.fused_recurrent_gated_delta_rule_packed_decode),
    (_FLA, ops.fused_sigmoid_gating_delta_rule_update),
    ("vllm._custom_ops", ops.fused_gdn_decode_post_conv_mtp),
    (_CONV, conv.causal_conv1d_fn),
    (_CONV, conv.causal_conv1d_update),
    (f"{_FLA}.kda", ops.chunk_kda),
    (f"{_FLA}.kda", ops.chunk_kda_with_fused_gate),
    (f"{_FLA}.kda", ops.fused_recurrent_kda),
    (_KIMI, kimi.chunk_kda_with_fused_gate),
    (_KIMI, kimi.fused_recurrent_kda),
    (_KIMI, kimi.fused_recurrent_kda_packed_decode),
    (f"{_FLA}.kda", norm.rms_norm_gated),
    (f"{_FLA}.layernorm_guard", norm.layer_norm_fwd),
    (f"{_FLA}.layernorm_guard", norm.rmsnorm_fn),
    ("flashinfer.gdn_prefill", flashinfer.chunk_gated_delta_rule),
)
# Where a release has other parameters.
kEarlier = {
    (_CONV, "causal_conv1d_fn"): v0_26.causal_conv1d_fn,
    (_CONV, "causal_conv1d_update"): v0_26.causal_conv1d_update,
    (f"{_FLA}.kda", "chunk_kda_with_fused_gate"): v0_26.chunk_kda_with_fused_gate,
}
# What vLLM's attention core for CPUs calls. Its convolutions, whose weights are packed, stay.
kCpuTargets = (
    ("vllm._custom_ops", cpu.chunk_gated_delta_rule_cpu),
    ("vllm._custom_ops", cpu.fused_sigmoid_gating_delta_rule_update_cpu),
)


def _has_null_block() -> bool:
    """Whether slot 0 is the null slot in this vLLM, as the shims assume."""
    module = importlib.import_module("vllm.model_executor.layers.mamba.ops.causal_conv1d")
    return "null_block_id" in inspect.signature(module.causal_conv1d_update).parameters


def _replace(module_name: str, ours: Any) -> list[str]:
    """Replaces one function of a loaded module in every loaded module of its package; returns the places."""
    target = f"{module_name}.{ours.__name__}"
    theirs = getattr(sys.modules[module_name], ours.__name__, None)
    if theirs is None:
        _logger.info("%s is not in this vLLM", target)
        return []
    forms = (ours, kEarlier.get((module_name, ours.__name__), ours))
    ours = next((form for form in forms if same_parameters(form, theirs)), None)
    if ours is None:
        _logger.warning("%s not replaced: its signature is not vllm 0.33.0's or 0.26.0's", target)
        return []
    package = module_name.partition(".")[0]
    ours = hook(f"{package}.{ours.__name__}", ours, theirs, tally)
    return _swaps.put_everywhere(theirs, ours, (f"{package}.",))


def _say(places: list[str]) -> None:
    _logger.info("vLLM operators replaced: %s", ", ".join(places) or "none so far")


def register() -> list[str]:
    """Replaces the operators of the modules that are loaded, and those of others when vLLM imports them: its API
    server never does. Idempotent (vLLM may load plug-ins more than once in a process); `unregister()` undoes it.
    Returns the places that were replaced."""
    share_log("vllm")
    if os.environ.get("SLUICE_VLLM", "0") != "1":
        _logger.info("vLLM operators not replaced: SLUICE_VLLM is not 1")
        return []
    if _swaps.active() or _imports.waits():
        return []
    targets: tuple[tuple[str, Callable[..., Any]], ...] = kCpuTargets
    if _has_null_block():
        targets = kTargets + kCpuTargets
    else:
        _logger.warning(
            "vLLM's GPU operators not replaced: no null block (a CPU build, or too old)"
        )

    def replace(module_name: str) -> list[str]:
        functions = [ours for name, ours in targets if name == module_name]
        return [place for ours in functions for place in _replace(module_name, ours)]

    places = _imports.each(dict.fromkeys(name for name, _ in targets), replace, _say)
    _say(places)
    return places


def unregister() -> None:
    """Puts vLLM's own operators back."""
    _imports.forget()
    _swaps.restore()
