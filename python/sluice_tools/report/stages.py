# SPDX-License-Identifier: Apache-2.0
"""Checks the single stages of the chunk form, each against its float64 twin. This table is the one
place to plug a stage in."""

from collections.abc import Callable
from typing import Any

import numpy as np
from sluice import Unsupported, last_kernel, ops

from .ladder import fetched, gates_of, items, keys_of, placer, rounded

# Stage -> (its inputs, its outputs), names as in sluice_chunk_stage_args. In this order every input
# of a stage is there when its turn comes.
STAGES: dict[str, tuple[list[str], list[str]]] = {
    "chunk_cumsum": (["gate"], ["g_cumsum"]),
    "scaled_dot_kkt": (["k", "beta", "g_cumsum"], ["A"]),
    "solve_tril": (["A"], ["A_inverse"]),
    "wy_fast": (["k", "v", "beta", "g_cumsum", "A_inverse"], ["u", "w"]),
    "cumsum_kkt": (["gate", "k", "beta"], ["g_cumsum", "A"]),
    "solve_wy": (["k", "v", "beta", "g_cumsum", "A"], ["u", "w"]),
    "chunk_h": (["k", "u", "w", "g_cumsum"], ["h", "v_new"]),
    "chunk_o": (["q", "k", "v_new", "g_cumsum", "h"], ["o"]),
}
_CHUNK = 64
_TOKENS = ("q", "k", "v", "A", "A_inverse", "u", "w", "v_new", "h", "o")


def _shapes(T: int, chunks: int, heads: dict[str, int]) -> dict[str, tuple[int, ...]]:
    HV, K, V = (heads[name] for name in ("HV", "K", "V"))
    return {
        "g_cumsum": (1, T, HV),
        "A": (1, T, HV, _CHUNK),
        "A_inverse": (1, T, HV, _CHUNK),
        "u": (1, T, HV, V),
        "w": (1, T, HV, K),
        "v_new": (1, T, HV, V),
        "h": (1, chunks, HV, K, V),
        "o": (1, T, HV, V),
    }


def measure(
    manifest: dict[str, Any],
    dtype: str,
    device: str,
    quick: bool,
    step: Callable[[float], None] = lambda share: None,
) -> dict[str, Any]:
    """A row for each case of the ladder, stage and output. Every stage gets inputs that the float64
    twin made and that were rounded to `dtype`, so that errors do not add up along the chain."""
    ladder = manifest["ladder"]
    limit = ladder["limits"][dtype]
    listed = list(items(manifest, quick))
    rows = []
    for i, item in enumerate(listed):
        step(i / len(listed))
        rows += _case_rows(item, ladder["heads"], dtype, device, limit)
        if all(row.get("refused") for row in rows):
            break  # no kernels for this device: one case says so
    return {"dtype": dtype, "limit": limit, "heads": ladder["heads"], "rows": rows}


def _case_rows(
    item: dict[str, Any], heads: dict[str, int], dtype: str, device: str, limit: float
) -> list[dict[str, Any]]:
    rng = np.random.default_rng(7)
    lengths = item["lengths"]
    T, chunks = sum(lengths), sum(-(-length // _CHUNK) for length in lengths)
    shapes = _shapes(T, chunks, heads)
    gates = gates_of(item["gates"], rng, T, heads["HV"])
    tensors: dict[str, Any] = {
        "q": rng.standard_normal((1, T, heads["H"], heads["K"])) * heads["K"] ** -0.5,
        "k": keys_of(item["keys"], rng, (1, T, heads["H"], heads["K"])),
        "v": rng.standard_normal((1, T, heads["HV"], heads["V"])),
        "gate": np.zeros((1, T, heads["HV"])) if gates is None else gates[None],
        "beta": 1 / (1 + np.exp(-rng.standard_normal((1, T, heads["HV"])))),
    }
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    rows = []
    for stage, (inputs, outputs) in STAGES.items():
        given = {
            name: rounded(tensors[name], dtype)
            if name in _TOKENS
            else tensors[name].astype(np.float32)
            for name in inputs
        }
        made = {name: shapes[name] for name in outputs}
        truth = _run(stage, given, made, offsets, placer("float32", "cpu"), "reference")
        tensors.update(truth)
        common = {"case": item["name"], "stage": stage}
        try:
            results = _run(stage, given, made, offsets, placer(dtype, device), "auto")
        except Unsupported as refusal:
            rows.append({**common, "tensor": "", "refused": str(refusal), "passed": False})
            continue
        kernel = last_kernel()
        if stage == "cumsum_kkt" and device != "cpu":
            # There A goes on from sums as they are stored, in float32: their rounding is no error
            # of A's. CPU kernels go on with what they computed (sluice_chunk_stage_args).
            sums = {**given, "g_cumsum": np.asarray(results["g_cumsum"], np.float32)}
            del sums["gate"]
            made, place = {"A": shapes["A"]}, placer("float32", "cpu")
            truth |= _run("scaled_dot_kkt", sums, made, offsets, place, "reference")
        for name in outputs:
            error = _error(results[name], truth[name])
            row = {**common, "tensor": name, "kernel": kernel, "whole": error}
            rows.append({**row, "passed": error <= limit})
    return rows


def _error(x: Any, truth: Any) -> float:
    """Relative L2, in double; infinite where there is a NaN."""
    difference = np.asarray(x, np.float64) - truth
    error = float(np.sqrt(np.sum(difference * difference)))
    norm = float(np.sqrt(np.sum(np.square(truth, dtype=np.float64))))
    return error / max(norm, 1e-30) if np.isfinite(error) else float("inf")


def _run(
    stage: str,
    given: dict[str, Any],
    made: dict[str, tuple[int, ...]],
    offsets: Any,
    place: Any,
    implementation: str,
) -> dict[str, Any]:
    placed = {name: place(array, name in _TOKENS) for name, array in given.items()}
    for name, shape in made.items():
        placed[name] = place(np.zeros(shape, np.float32), name in _TOKENS)
    options: dict[str, Any] = {"chunk_size": _CHUNK, "implementation": implementation}
    ops.chunk_stage(stage, **placed, cu_seqlens=place(offsets, False), **options)
    return {name: fetched(placed[name]) for name in made}
