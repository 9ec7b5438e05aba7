# SPDX-License-Identifier: Apache-2.0
"""The single stages of the chunk form, each against its float64 twin. This table is the one place to
plug a stage in; a library without `sluice.ops.chunk_stage` has none of them."""

from typing import Any

import numpy as np

from .. import _core, ops
from .._errors import Unsupported
from .._library import last_kernel
from . import ladder

# Stage -> (its inputs, its outputs), names as in sluice_chunk_stage_args. In this order every input
# of a stage is there when its turn comes.
STAGES: dict[str, tuple[list[str], list[str]]] = {
    "chunk_cumsum": (["gate"], ["g_cumsum"]),
    "scaled_dot_kkt": (["k", "beta", "g_cumsum"], ["A"]),
    "solve_tril": (["A"], ["A_inverse"]),
    "wy_fast": (["k", "v", "beta", "g_cumsum", "A_inverse"], ["u", "w"]),
    "chunk_h": (["k", "u", "w", "g_cumsum"], ["h", "v_new"]),
    "chunk_o": (["q", "k", "v_new", "g_cumsum", "h"], ["o"]),
}
_CHUNK = 64
_TOKENS = ("q", "k", "v", "A", "A_inverse", "u", "w", "v_new", "h", "o")


def installed() -> list[str]:
    """The stages that this library has."""
    if not hasattr(ops, "chunk_stage") or not hasattr(_core, "chunk_stage"):
        return []
    return list(STAGES)


def _shapes(B: int, T: int, heads: dict[str, int]) -> dict[str, tuple[int, ...]]:
    H, HV, K, V = (heads[name] for name in ("H", "HV", "K", "V"))
    return {
        "g_cumsum": (B, T, HV),
        "A": (B, T, HV, _CHUNK),
        "A_inverse": (B, T, HV, _CHUNK),
        "u": (B, T, HV, V),
        "w": (B, T, HV, K),
        "v_new": (B, T, HV, V),
        "h": (B, -(-T // _CHUNK), HV, K, V),
        "o": (B, T, HV, V),
    }


def measure(manifest: dict[str, Any], dtype: str, device: str, quick: bool) -> dict[str, Any]:
    """A row for each stage, profile and output. Every stage gets inputs that the float64 twin made
    and that were rounded to `dtype`, so that errors do not add up along the chain."""
    heads = manifest["ladder"]["heads"]
    limit = manifest["ladder"]["limits"][dtype]
    place = ladder.placer(dtype, device)
    rows = []
    for gates, keys in (("slow", "random"), ("strong", "silu"), ("slow", "cos75")):
        rng = np.random.default_rng(7)
        T = 200 if quick else 1000
        tensors: dict[str, Any] = {
            "q": rng.standard_normal((1, T, heads["H"], heads["K"])) * heads["K"] ** -0.5,
            "k": ladder.keys_of(keys, rng, (1, T, heads["H"], heads["K"])),
            "v": rng.standard_normal((1, T, heads["HV"], heads["V"])),
            "gate": ladder.gates_of(gates, rng, T, heads["HV"]),
            "beta": 1 / (1 + np.exp(-rng.standard_normal((1, T, heads["HV"])))),
        }
        tensors["gate"] = tensors["gate"][None]
        for stage in installed():
            inputs, outputs = STAGES[stage]
            given = {
                name: ladder.rounded(tensors[name], dtype)
                if name in _TOKENS
                else tensors[name].astype(np.float32)
                for name in inputs
            }
            truth = _run(stage, given, outputs, heads, ladder.placer("float32", "cpu"), "reference")
            tensors.update(truth)
            common = {"stage": stage, "gates": gates, "keys": keys}
            try:
                results = _run(stage, given, outputs, heads, place, "auto")
            except Unsupported as refusal:
                rows.append({**common, "tensor": "", "refused": str(refusal), "passed": False})
                continue
            kernel = last_kernel()
            for name in outputs:
                difference = float(np.linalg.norm(results[name] - truth[name]))
                error = difference / max(float(np.linalg.norm(truth[name])), 1e-30)
                row = {**common, "tensor": name, "kernel": kernel, "whole": error}
                rows.append({**row, "passed": error <= limit})
    return {"dtype": dtype, "limit": limit, "heads": heads, "rows": rows}


def _run(
    stage: str,
    given: dict[str, Any],
    outputs: list[str],
    heads: dict[str, int],
    place: Any,
    implementation: str,
) -> dict[str, Any]:
    placed = {name: place(array, name in _TOKENS) for name, array in given.items()}
    B, T = next(iter(given.values())).shape[:2]
    shapes = _shapes(B, T, heads)
    for name in outputs:
        placed[name] = place(np.zeros(shapes[name], np.float32), name in _TOKENS)
    ops.chunk_stage(stage, **placed, chunk_size=_CHUNK, implementation=implementation)
    return {name: ladder.fetched(placed[name]) for name in outputs}
