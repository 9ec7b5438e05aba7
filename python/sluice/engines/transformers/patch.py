# SPDX-License-Identifier: Apache-2.0
"""Swaps the GDN and KDA functions and layers of a model of transformers, reversibly.

Two styles exist: from about transformers 5.16 a layer looks its functions up in its modeling module
(so they are swapped for every model of that module in the process), before that a layer carries
them as attributes. The layer's forward and the gated norm's are swapped on the instances of the
model.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import causal_conv1d as conv_package
from .. import fla
from ..swap import Swaps, Tally, hook
from . import kda_layer, ops
from . import layer as whole_layer

if TYPE_CHECKING:
    import torch

_logger = logging.getLogger("sluice.engines")

# Names in a modeling module (transformers >= 5.16).
_MODULE_FUNCTIONS = {
    "torch_chunk_gated_delta_rule": ops.chunk_gated_delta_rule,
    "torch_recurrent_gated_delta_rule": ops.fused_recurrent_gated_delta_rule,
    # Their gates g have a channel axis, [B,T,HV,K].
    "chunk_kimi_delta_attention": ops.chunk_gated_delta_rule,
    "recurrent_kimi_delta_attention": ops.fused_recurrent_gated_delta_rule,
    "causal_conv1d_fn": ops.causal_conv1d_fn,
    "causal_conv1d_update": ops.causal_conv1d_update,
}

# Attributes of a layer (transformers < 5.16), with the packages' own parameter names.
_LAYER_FUNCTIONS = {
    "chunk_gated_delta_rule": fla.chunk_gated_delta_rule,
    "recurrent_gated_delta_rule": fla.fused_recurrent_gated_delta_rule,
    "causal_conv1d_fn": conv_package.causal_conv1d_fn,
    "causal_conv1d_update": conv_package.causal_conv1d_update,
}

# Modeling modules whose functions are swapped: module -> [patches that want it, its Swaps, Tally].
_modules: dict[Any, list[Any]] = {}


def _unfit_tensors(*args: Any, **kwargs: Any) -> str | None:
    """Why a call of these is left to the model's own function, or None."""
    for tensor in (*args, *kwargs.values()):
        if hasattr(tensor, "requires_grad") and tensor.device.type not in ("cpu", "cuda"):
            return f"device {tensor.device.type}, Sluice has cpu and cuda"
    return None


def _function_hook(name: str, ours: Any, original: Any, tally: Any) -> Callable[..., Any]:
    """`ours` with the keywords it names, as transformers itself passes them; else `original`."""
    known = tuple(inspect.signature(ours).parameters)

    def run(*args: Any, **kwargs: Any) -> Any:
        return ours(*args, **{k: v for k, v in kwargs.items() if k in known})

    return hook(name, run, original, tally, _unfit_tensors)


def _norm_hook(norm: Any, original: Any, tally: Any, rounding: str) -> Callable[..., Any]:
    def run(hidden_states: torch.Tensor, gate: torch.Tensor) -> Any:
        return ops.gated_rms_norm(
            hidden_states, gate, norm.weight, norm.variance_epsilon, norm.activation, rounding
        )

    def unfit(hidden_states: torch.Tensor, gate: torch.Tensor) -> str | None:
        return _unfit_tensors(hidden_states, gate, norm.weight)

    return hook("gated norm", run, original, tally, unfit)


class Patch:
    """What `patch` did. A context manager: leaving it restores the model."""

    def __init__(self, level: str) -> None:
        self.level = level
        self.layers = 0
        self.tally = Tally()
        self._swaps = Swaps()
        self._modules: list[Any] = []

    def _take_module(self, module: Any) -> None:
        record = _modules.setdefault(module, [0, Swaps(), Tally()])
        if record[0] == 0:
            for name, ours in _MODULE_FUNCTIONS.items():
                original = getattr(module, name, None)
                if original is not None:
                    record[1].put(module, name, _function_hook(name, ours, original, record[2]))
        record[0] += 1
        self._modules.append(module)

    def _take_layer(self, layer: Any) -> None:
        module = sys.modules[type(layer).__module__]
        if _has_functions(module) and not hasattr(layer, "chunk_gated_delta_rule"):
            if module not in self._modules:
                self._take_module(module)
        else:
            for name, ours in _LAYER_FUNCTIONS.items():
                original = getattr(layer, name, None)
                if original is not None:
                    self._swaps.put(layer, name, _function_hook(name, ours, original, self.tally))
        packing = whole_layer.packing_of(layer)
        if self.level == "layer" and packing is not None:
            run, unfit = partial(whole_layer.forward, layer, packing), partial(whole_layer.unfit, layer)
            self._swaps.put(layer, "forward", hook("layer", run, layer.forward, self.tally, unfit))
        self.layers += 1

    def report(self) -> dict[str, Any]:
        """{"ran": {hook: calls}, "handed back": {(hook, reason): calls}}; the functions of a
        modeling module are counted for all of its patched models together."""
        tallies = [self.tally] + [_modules[m][2] for m in self._modules if m in _modules]
        ran: Counter[str] = Counter()
        back: Counter[tuple[str, str]] = Counter()
        for tally in tallies:
            ran.update(tally.ran)
            back.update(tally.handed_back)
        return {"ran": dict(ran), "handed back": dict(back)}

    def restore(self) -> None:
        """Puts the model back as it was. A second call does nothing."""
        self._swaps.restore()
        while self._modules:
            module = self._modules.pop()
            _modules[module][0] -= 1
            if _modules[module][0] == 0:
                _modules.pop(module)[1].restore()

    def __enter__(self) -> Patch:
        return self

    def __exit__(self, *_: Any) -> None:
        self.restore()


def _has_functions(module: Any) -> bool:
    """A modeling module whose layers look the delta rule up in it."""
    return hasattr(module, "torch_chunk_gated_delta_rule") or _has_kda(module)


def _has_kda(module: Any) -> bool:
    return hasattr(module, "chunk_kimi_delta_attention")


def _is_gdn_layer(module: Any) -> bool:
    """A layer that calls the gated delta rule or KDA, whatever model it is of."""
    home = sys.modules.get(type(module).__module__)
    if kda_layer.is_kda(module):
        return _has_kda(home)
    if not type(module).__name__.endswith("GatedDeltaNet"):
        return False
    return hasattr(home, "torch_chunk_gated_delta_rule") or hasattr(
        module, "chunk_gated_delta_rule"
    )


def _is_gated_norm(module: Any) -> bool:
    name = type(module).__name__
    return name.endswith("RMSNormGated") and hasattr(module, "variance_epsilon")


def patch(model: Any, level: str = "layer") -> Patch:
    """Swaps Sluice into every gated delta rule layer of `model` (a torch module of transformers).

    level: "ops" swaps the functions (delta rule, convolution) and the gated norm; "layer" swaps the
    whole layer between its projections as well, where its shape is known. Both train. Calls that Sluice
    does not take (devices, dtypes, options) run the model's own code; `report()` counts them.
    Returns a Patch. ValueError if the model has no gated delta rule layer or is patched already.
    """
    if level not in ("ops", "layer"):
        raise ValueError(f"patch: level = {level!r}, expected 'ops' or 'layer'")
    if getattr(model, "_sluice_patched", False):
        raise ValueError("patch: the model is patched already, restore() it first")
    layers = [m for m in model.modules() if _is_gdn_layer(m)]
    if not layers:
        raise ValueError(f"patch: {type(model).__name__} has no gated delta rule layer")
    handle = Patch(level)
    handle._swaps.put(model, "_sluice_patched", True)
    for layer in layers:
        handle._take_layer(layer)
        for norm in layer.modules():
            if _is_gated_norm(norm):
                # KDA's norms round once, at the end.
                rounding = "once" if kda_layer.is_kda(layer) else "hf"
                handle._swaps.put(norm, "forward", _norm_hook(norm, norm.forward, handle.tally, rounding))
    _logger.info("%d gated delta rule layers of %s patched", handle.layers, type(model).__name__)
    return handle


def patched(model: Any, level: str = "layer") -> Patch:
    """`with patched(model): ...`: patch now, restore at the end of the block."""
    return patch(model, level)
