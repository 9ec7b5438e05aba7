# SPDX-License-Identifier: Apache-2.0
"""Registers Sluice as a backend of fla's dispatch (fla >= 0.5): the rules by chunks through fla's registry;
decode, convolution and gated norm, which fla does not dispatch, by re-assigning fla's names.

fla's own switches hold: FLA_SLUICE=0 turns the backend off at any time (per call, so after
registration too), FLA_DISABLE_BACKEND_DISPATCH=1 bypasses every backend. fla logs at INFO which
backend ran and why one was rejected.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import os
from typing import TYPE_CHECKING, Any

from ... import InvalidArgument, supported
from ...functional.kda import gate_arguments
from ..swap import Swaps, Tally, hook, needs_gradient
from . import ops, parts

if TYPE_CHECKING:
    import torch

_logger = logging.getLogger("sluice.engines")
_swaps = Swaps()
_registry: list[Any] = []
tally = Tally()


def enabled() -> bool:
    """False if FLA_SLUICE=0."""
    return os.environ.get("FLA_SLUICE", "1") != "0"


def _unfit_device(x: torch.Tensor) -> str | None:
    return None if x.device.type in ("cpu", "cuda") else f"device {x.device.type}, Sluice has cpu and cuda"


def _unfit_views(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> str | None:
    """Why tensors cannot be passed to Sluice, or None. Reads no values."""
    if reason := _unfit_device(q):
        return reason
    if not q.dtype == k.dtype == v.dtype:
        return f"q, k, v of one dtype expected, got {q.dtype}, {k.dtype}, {v.dtype}"
    if any(t.stride(-1) != 1 for t in (q, k, v)):
        return "q, k, v contiguous in the last dimension expected"
    return None


def _unfit_rows(x: dict[str, Any], **gates: Any) -> str | None:
    """Why chunk_forward of a call's arguments by name and what it is told of gates is left to fla, or None."""
    q, k, v, initial_state = x["q"], x["k"], x["v"], x.get("initial_state")
    cp_context = x.get("cp_context")
    if getattr(cp_context, "group", cp_context) is not None:
        if not ops.readable(cp_context):
            return "a cp_context without group and cu_seqlens"
        if initial_state is not None:
            return "an initial state, of which fla has none with cp_context"
    reason = _unfit_views(q, k, v)
    if reason is not None:
        return reason
    arguments = dict(q=q, k=k, v=v, gate=x["g"], beta=x["beta"], initial_state=initial_state, **gates)
    arguments["cu_seqlens"] = x.get("cu_seqlens")
    arguments["state_layout"] = "vk" if x.get("state_v_first") or x.get("transpose_state_layout") else "kv"
    o = v.new_empty(v.shape)
    calls: dict[str, Any] = {"chunk_forward": {"o": o}}
    if needs_gradient(q, k, v, x["g"], x["beta"], initial_state, x.get("A_log"), x.get("dt_bias")):
        calls["chunk_backward"] = {"d_o": v, "dv": o}
    for op, more in calls.items():
        kernel, refusal = supported(op, **more, **arguments)
        if refusal is not None:
            return str(refusal)
        if q.device.type == "cuda" and str(kernel).endswith(_SLOW):
            return f"{kernel} would run, which is right but not fast"
    return None


# Kernels without tensor cores.
_SLOW = (".generic", ".plain", ".key_wise")


def _unfit_chunk(x: dict[str, Any]) -> str | None:
    """Why a chunk_gated_delta_rule call is left to fla, or None."""
    A_log, dt_bias = x.get("A_log"), x.get("dt_bias")
    if not x.get("use_gate_in_kernel") or A_log is None:
        return _unfit_rows(x, gate_space="log")
    return _unfit_rows(x, gate_space="raw", A_log=A_log, dt_bias=A_log if dt_bias is None else dt_bias)


def _unfit_kda(x: dict[str, Any]) -> str | None:
    """Why a chunk_kda call is left to fla, or None."""
    names = ("use_gate_in_kernel", "A_log", "dt_bias", "lower_bound", "safe_gate")
    given: Any = {name: x.get(name) for name in names}
    try:
        gates = gate_arguments("fla.chunk_kda", x["g"], **given)
    except InvalidArgument as refusal:
        return str(refusal)
    return _unfit_rows(x, **gates)


def _unfit_recurrent(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor | None = None,
    gk: torch.Tensor | None = None,
    gv: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
    **kwargs: Any,
) -> str | None:
    """Why a fused_recurrent_gated_delta_rule call is left to fla, or None."""
    if not enabled():
        return "FLA_SLUICE=0"
    if gk is not None or gv is not None:
        return "a decay per channel is not supported"
    return _unfit_views(q, k, v)


def _unfit_recurrent_kda(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    *args: Any,
    **kwargs: Any,
) -> str | None:
    """Why a fused_recurrent_kda call is left to fla, or None."""
    if not enabled():
        return "FLA_SLUICE=0"
    if len(beta.shape) != 3:
        return "a write strength per channel is not supported"
    return _unfit_views(q, k, v)


def _unfit_part(x: torch.Tensor, *args: Any, **kwargs: Any) -> str | None:
    """Why a call of another part is left to fla, or None."""
    return _unfit_device(x) if enabled() else "FLA_SLUICE=0"


def _backend_class(base: Any, name: str, unfit: Any, run: Any) -> type:
    """The backend of fla's function `name`, derived from the installed fla's own base class."""
    names = tuple(inspect.signature(run).parameters)

    def verify(self: Any, *args: Any, **kwargs: Any) -> tuple[bool, str | None]:
        reason = unfit({**dict(zip(names, args)), **kwargs})
        if reason is not None:
            tally.count_back(f"fla.{name}", reason)
        return reason is None, reason

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        tally.count_run(f"fla.{name}")
        return run(*args, **kwargs)

    members = {
        "backend_type": "sluice",
        "package_name": "sluice",
        "env_var": "FLA_SLUICE",
        "default_enable": True,
        # WHY 2: before FlashQLA and FlashKDA (3), which take fewer of fla's flags; after Ascend's
        # Triton (0).
        "priority": 2,
        f"{name}_verifier": verify,
        name: call,
    }
    return type("SluiceBackend", (base,), members)


def _find_registries() -> list[tuple[str, Any, Any]]:
    """(function, base class, registry) of the installed fla, 0.6's or 0.5's: the gated delta rule's,
    and that of chunk_kda where it has one."""
    rule = importlib.import_module("fla.ops.gated_delta_rule.backends")
    if hasattr(rule, "gdr_registry"):
        base = importlib.import_module("fla.ops.backends").BaseBackend
        registry = rule.gdr_registry
    else:
        backends = importlib.import_module("fla.backends")
        base, registry = backends.BaseBackend, backends._get_operation_registry("gated_delta_rule")
    found = [("chunk_gated_delta_rule", base, registry)]
    try:
        kda_ops = importlib.import_module("fla.ops.kda")
        if hasattr(rule, "gdr_registry"):
            registry = importlib.import_module("fla.ops.kda.backends").kda_registry
        else:
            registry = backends._function_registries[inspect.unwrap(kda_ops.chunk_kda)]
    except (ImportError, AttributeError, KeyError):
        return found
    return [*found, ("chunk_kda", base, registry)]


# What is left to fla, and what runs in its place.
_PREFILLS: dict[str, tuple[Any, Any]] = {
    "chunk_gated_delta_rule": (_unfit_chunk, ops.chunk_gated_delta_rule),
    "chunk_kda": (_unfit_kda, ops.chunk_kda),
}


def register(decode: bool = True, layers: bool = True) -> bool:
    """Makes Sluice a backend of the installed fla; with `decode`, its recurrent functions too, and with
    `layers` the convolution and the gated norm of its layers.

    Needs fla >= 0.5 (ImportError without a backend registry). With FLA_SLUICE=0 nothing is done.
    Idempotent; `unregister()` undoes it. Returns whether Sluice is registered.
    """
    if not enabled():
        _logger.info("fla backend not registered: FLA_SLUICE=0")
        return False
    if not _registry:
        for name, base, registry in _find_registries():
            registry.register(_backend_class(base, name, *_PREFILLS[name])())
            _registry.append(registry)
            _logger.info("fla backend registered: %s, priority 2", name)
    if not _swaps.active():
        _reassign([*(_DECODE if decode else ()), *(_LAYERS if layers else ())])
    return True


# Functions that fla does not dispatch: module, ours, what is left to fla.
_DECODE = (
    ("fla.ops.gated_delta_rule", ops.fused_recurrent_gated_delta_rule, _unfit_recurrent),
    ("fla.ops.kda", ops.fused_recurrent_kda, _unfit_recurrent_kda),
)
_LAYERS = (
    ("fla.modules.convolution", parts.causal_conv1d, _unfit_part),
    ("fla.modules.fused_norm_gate", parts.rms_norm_gated, _unfit_part),
)


def _reassign(functions: Any) -> None:
    """Puts ours in the place of fla's in all of its loaded modules."""
    for module, ours, unfit in functions:
        try:
            original = getattr(importlib.import_module(module), ours.__name__)
        except (ImportError, AttributeError):
            continue
        hooked = hook(f"fla.{ours.__name__}", ours, original, tally, unfit)
        places = _swaps.put_everywhere(original, hooked, ("fla.",))
        _logger.info("fla.%s re-assigned in %s", ours.__name__, ", ".join(places))


def unregister() -> None:
    """Undoes `register()`."""
    while _registry:
        _registry.pop()._backends.pop("sluice", None)
    _swaps.restore()
