# SPDX-License-Identifier: Apache-2.0
"""Registers Sluice as a backend of fla's dispatch (fla >= 0.5): prefill through fla's registry,
decode, which fla does not dispatch, by re-assigning fla's names.

fla's own switches hold: FLA_SLUICE=0 turns the backend off at any time (per call, so after
registration too), FLA_DISABLE_BACKEND_DISPATCH=1 bypasses every backend. fla logs at INFO which
backend ran and why one was rejected.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from ... import supported
from ..swap import Swaps, Tally, hook, needs_gradient
from . import ops

if TYPE_CHECKING:
    import torch

_logger = logging.getLogger("sluice.engines")
_swaps = Swaps()
_registry: list[Any] = []
tally = Tally()


def enabled() -> bool:
    """False if FLA_SLUICE=0."""
    return os.environ.get("FLA_SLUICE", "1") != "0"


def _unfit_views(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gradients: Any) -> str | None:
    """Why tensors cannot be passed to Sluice, or None. Reads no values."""
    if q.device.type not in ("cpu", "cuda"):
        return f"device {q.device.type}, Sluice has cpu and cuda"
    if needs_gradient(q, k, v, *gradients):
        return "an input requires a gradient, Sluice's backward pass is not fast yet"
    if not q.dtype == k.dtype == v.dtype:
        return f"q, k, v of one dtype expected, got {q.dtype}, {k.dtype}, {v.dtype}"
    if any(t.stride(-1) != 1 for t in (q, k, v)):
        return "q, k, v contiguous in the last dimension expected"
    return None


def _unfit_chunk(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    cu_seqlens_cpu: Any = None,
    chunk_indices: Any = None,
    cp_context: Any = None,
    **kwargs: Any,
) -> str | None:
    """Why a chunk_gated_delta_rule call is left to fla, or None."""
    if cp_context is not None:
        return "context parallelism across devices is not supported"
    A_log, dt_bias = kwargs.get("A_log"), kwargs.get("dt_bias")
    reason = _unfit_views(q, k, v, (g, beta, initial_state, A_log, dt_bias))
    if reason is not None:
        return reason
    raw = bool(kwargs.get("use_gate_in_kernel")) and A_log is not None
    kernel, refusal = supported(
        "chunk_forward",
        q=q,
        k=k,
        v=v,
        gate=g,
        beta=beta,
        o=v.new_empty(v.shape),
        A_log=A_log if raw else None,
        dt_bias=(A_log if dt_bias is None else dt_bias) if raw else None,
        gate_space="raw" if raw else "log",
        cu_seqlens=cu_seqlens,
        initial_state=initial_state,
        state_layout="vk" if state_v_first or kwargs.get("transpose_state_layout") else "kv",
    )
    if refusal is not None:
        return str(refusal)
    if q.device.type == "cuda" and kernel is not None and "generic" in kernel:
        return f"{kernel} would run, which is right but not fast"
    return None


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
    return _unfit_views(q, k, v, (g, beta, kwargs.get("initial_state")))


def _backend_class(base: Any) -> type:
    """The backend, derived from the installed fla's own base class."""

    class SluiceBackend(base):
        backend_type = "sluice"
        package_name = "sluice"
        env_var = "FLA_SLUICE"
        default_enable = True
        # WHY 2: before FlashQLA (3), which takes fewer of fla's flags; after Ascend's Triton (0).
        priority = 2

        def chunk_gated_delta_rule_verifier(
            self, *args: Any, **kwargs: Any
        ) -> tuple[bool, str | None]:
            reason = _unfit_chunk(*args, **kwargs)
            if reason is not None:
                tally.count_back("fla.chunk_gated_delta_rule", reason)
            return reason is None, reason

        def chunk_gated_delta_rule(
            self, *args: Any, **kwargs: Any
        ) -> tuple[torch.Tensor, torch.Tensor | None]:
            tally.count_run("fla.chunk_gated_delta_rule")
            return ops.chunk_gated_delta_rule(*args, **kwargs)

    return SluiceBackend


def _find_registry() -> tuple[Any, Any]:
    """(base class, registry of gated_delta_rule) of the installed fla, 0.6's or 0.5's."""
    import importlib

    module = importlib.import_module("fla.ops.gated_delta_rule.backends")
    if hasattr(module, "gdr_registry"):
        return importlib.import_module("fla.ops.backends").BaseBackend, module.gdr_registry
    backends = importlib.import_module("fla.backends")
    return backends.BaseBackend, backends._get_operation_registry("gated_delta_rule")


def register(decode: bool = True) -> bool:
    """Makes Sluice a backend of the installed fla; with `decode`, its recurrent function too.

    Needs fla >= 0.5 (ImportError without a backend registry). With FLA_SLUICE=0 nothing is done.
    Idempotent; `unregister()` undoes it. Returns whether Sluice is registered.
    """
    if not enabled():
        _logger.info("fla backend not registered: FLA_SLUICE=0")
        return False
    base, registry = _find_registry()
    if not _registry:
        registry.register(_backend_class(base)())
        _registry.append(registry)
        _logger.info("fla backend registered: chunk_gated_delta_rule, priority 2")
    if decode and not _swaps.active():
        _register_decode()
    return True


def _register_decode() -> None:
    """fla does not dispatch its recurrent function: its names are re-assigned instead."""
    import fla.ops.gated_delta_rule as rule

    original = rule.fused_recurrent_gated_delta_rule
    name = "fla.fused_recurrent_gated_delta_rule"
    ours = hook(name, ops.fused_recurrent_gated_delta_rule, original, tally, _unfit_recurrent)
    places = _swaps.put_everywhere(original, ours, ("fla.",))
    _logger.info("fla decode re-assigned in %s", ", ".join(places))


def unregister() -> None:
    """Undoes `register()`."""
    while _registry:
        _registry.pop()._backends.pop("sluice", None)
    _swaps.restore()
