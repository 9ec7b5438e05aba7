# SPDX-License-Identifier: Apache-2.0
"""Checks gradients of the prefill on the ladder's shorter cases."""

from collections.abc import Callable
from typing import Any

import numpy as np
from sluice import Unsupported, last_kernel, ops

from ..cases import Case, judge
from . import ladder

# Token by token in float64 the reference takes seconds for more.
_MOST_TOKENS = 1024
_IO = ("q", "k", "v", "d_o", "dq", "dk", "dv")
_GIVEN = {"q": "q", "k": "k", "v": "v", "g": "gate", "beta": "beta", "initial_state": "initial_state"}
_ASKED = ("d_o", "d_final_state")


def measure(
    manifest: dict[str, Any],
    dtype: str,
    device: str,
    quick: bool,
    step: Callable[[float], None] = lambda share: None,
) -> dict[str, Any]:
    """The ladder's cases of up to 1024 tokens backwards in one dtype: a row a gradient, judged as cases of op
    `gradients` are, the ladder's limit being theirs."""
    heads, limit = manifest["ladder"]["heads"], manifest["ladder"]["limits"][dtype]
    listed = [item for item in ladder.items(manifest, quick) if sum(item["lengths"]) <= _MOST_TOKENS]
    rows: list[dict[str, Any]] = []
    kernels = set()
    for i, item in enumerate(listed):
        step(i / len(listed))
        case = _case(item, heads, dtype, limit)
        try:
            results = _run(case, dtype, device, "auto")
        except Unsupported as refusal:
            rows.append({"case": case.name, "tensor": "dq", "refused": str(refusal), "passed": False})
            continue
        kernels.add(last_kernel())
        for verdict in judge(case, results):
            whole, head, window = (e if np.isfinite(e) else None for e in verdict.errors)
            row = {"case": case.name, "tensor": verdict.tensor, "whole": whole, "head": head, "window": window}
            rows.append({**row, "limit": verdict.limits[0], "passed": verdict.passed})
    return {"dtype": dtype, "limit": limit, "heads": heads, "kernels": sorted(kernels), "rows": rows}


def _case(item: dict[str, Any], heads: dict[str, int], dtype: str, limit: float) -> Case:
    """The ladder's case as one of op `gradients`, with gradients of o and of the final states."""
    forward = ladder.build(item, heads, dtype, limit)
    rng = np.random.default_rng(11)
    tensors = {name: forward.get(name) for name in (*_GIVEN, "cu_seqlens") if forward.get(name) is not None}
    for name, shape in (("d_o", tensors["v"].shape), ("d_final_state", tensors["initial_state"].shape)):
        made = rng.standard_normal(shape).astype(np.float32)
        tensors[name] = ladder.rounded(made, dtype) if name in _IO else made
    fields = {"op": "gradients", "tolerance_rel_l2": limit}
    named = {f"{forward.name}.{name}": array for name, array in tensors.items()}
    # Answers are found by their names, so their memory comes first.
    for name in _GIVEN:
        if name in tensors:
            answer = f"d_{name}" if name == "initial_state" else f"d{name}"
            named[f"{forward.name}.{answer}"] = np.zeros(tensors[name].shape, np.float32)
    case = Case(forward.name, fields, named)
    answers = _run(case, "float32", "cpu", "reference")
    return Case(forward.name, fields, {**named, **{f"{case.name}.{n}": array for n, array in answers.items()}})


def _run(case: Case, dtype: str, device: str, implementation: str) -> dict[str, Any]:
    place = ladder.placer(dtype, device)
    given = {to: place(case.get(name), name in _IO) for name, to in _GIVEN.items()}
    given.update({name: place(case.get(name), name in _IO) for name in _ASKED})
    answers = {name: {"dg": "dgate"}.get(name, name) for name in case.expected()}
    made = {to: place(np.zeros(case.get(name).shape, np.float32), name in _IO) for name, to in answers.items()}
    ops.chunk_backward(
        **given, cu_seqlens=place(case.get("cu_seqlens"), False), implementation=implementation, **made
    )
    return {name: ladder.fetched(made[to]) for name, to in answers.items()}
