# SPDX-License-Identifier: Apache-2.0
"""Checks the single stages of the chunk form, each against its float64 twin."""

from collections.abc import Callable
from typing import Any

import numpy as np
from sluice import Unsupported, last_kernel

from ..cases.execute import IO, STAGES, run_stage
from ..check import relative
from ..place import Place
from .ladder import gates_of, items, keys_of, rounded

_CHUNK = 64


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
        "g": np.zeros((1, T, heads["HV"])) if gates is None else gates[None],
        "beta": 1 / (1 + np.exp(-rng.standard_normal((1, T, heads["HV"])))),
    }
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    twin, place = Place("cpu"), Place(device, dtype)

    def run(stage: str, given: Any, outputs: tuple[str, ...], where: Place, implementation: str) -> Any:
        made = {name: shapes[name] for name in outputs}
        options = {"chunk_size": _CHUNK, "implementation": implementation}
        return run_stage(stage, given, made, where, cu_seqlens=where.put(offsets, io=False), **options)

    rows = []
    for stage, (inputs, outputs, _) in STAGES.items():
        given = {name: rounded(tensors[name], dtype if name in IO else "float32") for name in inputs}
        truth = run(stage, given, outputs, twin, "reference")
        tensors.update(truth)
        common = {"case": item["name"], "stage": stage}
        try:
            results = run(stage, given, outputs, place, "auto")
        except Unsupported as refusal:
            rows.append({**common, "tensor": "", "refused": str(refusal), "passed": False})
            continue
        kernel = last_kernel()
        if stage == "cumsum_kkt" and device != "cpu":
            # There A goes on from sums as they are stored, in float32: their rounding is no error
            # of A's. CPU kernels go on with what they computed (sluice_chunk_stage_args).
            sums = {"k": given["k"], "beta": given["beta"], "g_cumsum": results["g_cumsum"]}
            truth |= run("scaled_dot_kkt", sums, ("A",), twin, "reference")
        for name in outputs:
            error = relative(*(np.asarray(found[name], np.float64) for found in (results, truth)))
            row = {**common, "tensor": name, "kernel": kernel, "limit": limit, "passed": error <= limit}
            rows.append({**row, "whole": error if np.isfinite(error) else None})
    return rows
