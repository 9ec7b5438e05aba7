# SPDX-License-Identifier: Apache-2.0
"""Runs a case of op stages: each stage on what the case records of those before it, so that every one
is judged alone."""

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import ops
from .case import Array, Case

if TYPE_CHECKING:
    from .execute import Place

# Stage -> (what it reads, what it writes); u and v_new are v without a delta rule.
_STAGES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "chunk_cumsum": (("g",), ("g_cumsum",)),
    "scaled_dot_kkt": (("k", "beta"), ("A",)),
    "solve_tril": (("A",), ("A_inverse",)),
    "wy_fast": (("k", "v", "beta", "A_inverse"), ("u", "w")),
    "chunk_h": (("k", "u", "w"), ("h", "v_new", "final_state")),
    "chunk_o": (("q", "k", "v_new", "h"), ("o", "final_state")),
}
_PAIRS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "cumsum_kkt": (("g", "k", "beta"), ("g_cumsum", "A")),
    "solve_wy": (("k", "v", "beta", "A"), ("u", "w", "A_inverse")),
    **{stage: _STAGES[stage] for stage in ("chunk_h", "chunk_o")},
}
_LINEAR = {"chunk_h": ("k", "v"), "chunk_o": ("q", "k", "v", "h")}
_NAMES = {"g": "gate"}


def execute_stages(case: Case, place: "Place", implementation: str) -> dict[str, Array]:
    """Results of every stage whose results the case records."""
    expected = case.answers()
    linear = case.field("rule", "gated_delta") == "linear_attention"
    results: dict[str, Array] = {}
    stages = _PAIRS if case.field("fused", "none") == "pairs" else _STAGES
    for stage, (reads, writes) in stages.items():
        if writes[0] not in expected:
            continue
        if linear:
            reads = _LINEAR.get(stage, reads)
        # States come from this stage where it carries them: without recorded states of chunks.
        carries = stage == "chunk_h" or (stage == "chunk_o" and "h" not in expected)
        made = [name for name in writes if name in expected]
        if not carries:
            made = [name for name in made if name != "final_state"]
        if stage not in ("chunk_cumsum", "solve_tril", "cumsum_kkt"):
            reads += ("g_cumsum" if "g_cumsum" in expected else "g",)
        if carries:
            reads += ("initial_state",)
        given: dict[str, Any] = {
            _NAMES.get(name, name): place.put(case.floats(name)) for name in reads
        }
        for name in made:
            shape = case.get(name)
            assert shape is not None  # answers() names what is there
            given[name] = place.put(np.zeros(shape.shape, np.float32))
        cu_seqlens = case.get("cu_seqlens")
        ops.chunk_stage(
            stage,
            **given,
            cu_seqlens=place.put(cu_seqlens),
            scale=case.field("scale", None),
            chunk_size=case.fields["chunk_size"],
            rule=case.field("rule", "gated_delta"),
            head_map=case.field("head_map", "block"),
            state_layout=case.field("state_layout", "kv"),
            direction=case.field("direction", "forward"),
            triangle=case.field("triangle", "lower"),
            implementation=implementation,
        )
        results.update({name: place.get(given[name]) for name in made})
    return results
