# SPDX-License-Identifier: Apache-2.0
"""Runs the operator of a case, on float32 tensors as `sluice run` does, or with 16-bit tokens."""

from collections.abc import Callable, Iterable
from inspect import signature
from typing import Any

import numpy as np
from sluice import last_kernel, ops

from ..check import Case
from ..place import Array, Place

Results = dict[str, Array]

_ARGUMENTS = {"g": "gate", "dg": "dgate"}  # tensors of other names
_DELTA = ("q", "k", "v", "g", "beta", "A_log", "dt_bias")
# Tensors of a place's dtype, by their names in cases; what is not here is float32.
IO = frozenset(("q", "k", "v", "o", "A", "A_inverse", "u", "w", "v_new", "h", "d_o", "dq", "dk", "dv"))


def floats(case: Case, tensor: str) -> Array | None:
    """A floating tensor of a case as float32, compact."""
    array = case.get(tensor)
    return None if array is None else np.ascontiguousarray(array, np.float32)


def _given(case: Case, place: Place, names: Iterable[str]) -> dict[str, Any]:
    """Tensors of a case by the operators' names for them."""
    return {_ARGUMENTS.get(name, name): place.put(floats(case, name), name in IO) for name in names}


def _offsets(case: Case, place: Place) -> Any:
    return place.put(case.get("cu_seqlens"), io=False)


def _options(case: Case, operator: Callable[..., Any], implementation: str) -> dict[str, Any]:
    """The fields that are arguments of the operator, with the same words and defaults."""
    known = signature(operator).parameters
    found = {name: value for name, value in case.fields.items() if name in known}
    if case.fields.get("use_qk_l2norm", False):
        found["qk_norm"] = "l2"
    return {**found, "implementation": implementation}


def _state(case: Case, heads: int, key_dim: int, value_dim: int, sequences: int) -> Array:
    """The initial states, zeros where the case has none."""
    initial = floats(case, "initial_state")
    if initial is not None:
        return initial
    inner = (key_dim, value_dim)
    if case.fields.get("state_layout", "kv") == "vk":
        inner = inner[::-1]
    return np.zeros((sequences, heads, *inner), np.float32)


def _delta_state(case: Case, tokens: dict[str, Any]) -> Array:
    (batch, rows, _, key_dim), v = tokens["q"].shape, tokens["v"].shape
    return _state(case, v[2], key_dim, v[3], len(case.sequences(batch, rows)))


def _prefill(case: Case, place: Place, implementation: str) -> Results:
    given = _given(case, place, _DELTA)
    state = place.put(_delta_state(case, given), io=False)
    o = ops.chunk_forward(
        **given,
        cu_seqlens=_offsets(case, place),
        initial_state=state,
        final_state=state,
        **_options(case, ops.chunk_forward, implementation),
    )
    return {"o": place.get(o), "final_state": place.get(state)}


def _gradients(case: Case, place: Place, implementation: str) -> Results:
    # Every answer's own memory, under the name of chunk_backward's argument.
    answers = {name: _ARGUMENTS.get(name, name) for name in case.expected()}
    made = {to: place.put(np.zeros_like(floats(case, name)), name in IO) for name, to in answers.items()}
    ops.chunk_backward(
        **_given(case, place, (*_DELTA, "d_o", "d_final_state", "initial_state")),
        cu_seqlens=_offsets(case, place),
        **made,
        **_options(case, ops.chunk_backward, implementation),
    )
    return {name: place.get(made[to]) for name, to in answers.items()}


def _decode(case: Case, place: Place, implementation: str) -> Results:
    given = _given(case, place, _DELTA)
    options = _options(case, ops.recurrent_step, implementation)
    state = place.put(_delta_state(case, given), io=False)
    heads = {name: given.pop(name) for name in ("A_log", "dt_bias")}
    count = given["q"].shape[1] // case.fields["steps"]
    parts = []
    for step in range(case.fields["steps"]):
        part = slice(step * count, (step + 1) * count)
        now: dict[str, Any] = {
            name: None if t is None else t[:, part] for name, t in given.items()
        }
        o = ops.recurrent_step(**now, **heads, initial_state=state, **options)
        parts.append(place.get(o))
    return {"o": np.concatenate(parts, 1), "final_state": place.get(state)}


def _layer_constants(case: Case, place: Place, implementation: str) -> dict[str, Any]:
    names = ("conv_weight", "conv_bias", "A_log", "dt_bias", "norm_weight")
    return {
        **_given(case, place, names),
        **_options(case, ops.layer_decode, implementation),
        "packing": "flat" if case.fields["packing"] == "qwen3_5" else "interleaved",
        "rounding": case.fields.get("norm_rounding", "once"),
    }


def _layer_states(case: Case, batch: int, channels: int) -> tuple[Array, Array]:
    """(convolution states, recurrent states) before the first step."""
    f = case.fields
    final = case.get("final_conv_state")
    columns = f["conv_width"] - 1 if final is None else final.shape[2]
    conv = floats(case, "initial_conv_state")
    if conv is None:
        conv = np.zeros((batch, channels, columns), np.float32)
    return conv, _state(case, f["num_v_heads"], f["head_k_dim"], f["head_v_dim"], batch)


def _layer(case: Case, place: Place, implementation: str) -> Results:
    constants = _layer_constants(case, place, implementation)
    flat, weight = constants["packing"] == "flat", case.get("out_proj_weight")
    results: Results = {}
    conv: Any = None
    state: Any = None
    for step in range(case.fields["steps"]):
        prefix = f"step{step}."
        inputs = [prefix + name for name in (("qkv", "z", "b", "a") if flat else ("qkvz", "ba"))]
        rows = [place.put(floats(case, name)) for name in inputs]
        if not flat:
            rows = [rows[0], None, rows[1], None]
        batch, tokens = rows[0].shape[:2]
        if step == 0:
            states = _layer_states(case, batch, constants["conv_weight"].shape[0])
            conv, state = (place.put(s) for s in states)
        shape = (batch, tokens, constants["num_v_heads"], constants["head_v_dim"])
        core = place.put(np.empty(shape, np.float32))
        operator = ops.layer_prefill if step == 0 else ops.layer_decode
        out = operator(
            *rows,
            core_out=core,
            conv_initial=conv,
            conv_final=conv,
            initial_state=state,
            final_state=state,
            **constants,
        )
        norm_out = place.get(out)
        results[prefix + "core_out"], results[prefix + "norm_out"] = place.get(core), norm_out
        if weight is not None:  # the model's out_proj, which is no operator of Sluice
            flat_out = norm_out.reshape(batch, tokens, -1).astype(np.float64)
            results[prefix + "output"] = flat_out @ weight.T
    results["final_state"], results["final_conv_state"] = place.get(state), place.get(conv)
    return results


def _conv1d(case: Case, place: Place, implementation: str) -> Results:
    answer = case.get("final_state")
    state = None if answer is None else place.put(np.empty(answer.shape, np.float32))
    out = ops.causal_conv1d(
        **_given(case, place, ("x", "weight", "bias", "initial_state")),
        cu_seqlens=_offsets(case, place),
        final_state=state,
        activation=case.fields.get("activation", "silu"),
        implementation=implementation,
    )
    results = {"out": place.get(out)}
    if state is not None:
        results["final_state"] = place.get(state)
    return results


def _gated_norm(case: Case, place: Place, implementation: str) -> Results:
    out = ops.gated_rms_norm(
        **_given(case, place, ("x", "z", "weight")),
        eps=case.fields.get("norm_eps", 1e-6),
        rounding=case.fields.get("norm_rounding", "once"),
        **_options(case, ops.gated_rms_norm, implementation),
    )
    return {"out": place.get(out)}


# Stage -> (what it reads, what it writes, what it may write besides). In this order every tensor that a
# stage reads is there when its turn comes.
STAGES: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "chunk_cumsum": (("g",), ("g_cumsum",), ()),
    "scaled_dot_kkt": (("k", "beta", "g_cumsum"), ("A",), ()),
    "solve_tril": (("A",), ("A_inverse",), ()),
    "wy_fast": (("k", "v", "beta", "g_cumsum", "A_inverse"), ("u", "w"), ()),
    "cumsum_kkt": (("g", "k", "beta"), ("g_cumsum", "A"), ()),
    "solve_wy": (("k", "v", "beta", "g_cumsum", "A"), ("u", "w"), ("A_inverse",)),
    "chunk_h": (("k", "u", "w", "g_cumsum"), ("h", "v_new"), ("final_state",)),
    "chunk_o": (("q", "k", "v_new", "g_cumsum", "h"), ("o",), ("final_state",)),
}
_PAIRS = ("cumsum_kkt", "solve_wy")
_SINGLE = ("chunk_cumsum", "scaled_dot_kkt", "solve_tril", "wy_fast")
# Without a delta rule v stands for u and v_new.
_LINEAR = {"chunk_h": ("k", "v", "g_cumsum"), "chunk_o": ("q", "k", "v", "g_cumsum", "h")}


def run_stage(
    stage: str, given: dict[str, Array | None], shapes: dict[str, tuple[int, ...]], place: Place, **options: Any
) -> Results:
    """The tensors of `shapes` that a stage makes of those that are given, by their names in cases."""
    read = {_ARGUMENTS.get(name, name): place.put(array, name in IO) for name, array in given.items()}
    made = {name: place.put(np.zeros(shape, np.float32), name in IO) for name, shape in shapes.items()}
    ops.chunk_stage(stage, **read, **made, **options)
    return {name: place.get(tensor) for name, tensor in made.items()}


def _stages(case: Case, place: Place, implementation: str) -> Results:
    """Results of every stage whose results the case records, each on what is recorded of those
    before it, so that every one is judged alone."""
    expected = case.expected()
    linear = case.fields.get("rule", "gated_delta") == "linear_attention"
    options = _options(case, ops.chunk_stage, implementation)
    results: Results = {}
    for stage in (*(_PAIRS if case.fields.get("fused", "none") == "pairs" else _SINGLE), *_LINEAR):
        reads, writes, more = STAGES[stage]
        if writes[0] not in expected:
            continue
        if linear:
            reads = _LINEAR.get(stage, reads)
        if "g_cumsum" not in expected:
            reads = tuple("g" if name == "g_cumsum" else name for name in reads)
        # States come from this stage where it carries them: without recorded states of chunks.
        if stage == "chunk_h" or (stage == "chunk_o" and "h" not in expected):
            reads += ("initial_state",)
        else:
            more = tuple(name for name in more if name != "final_state")
        given = {name: floats(case, name) for name in reads}
        shapes = {name: case.get(name).shape for name in (*writes, *more) if name in expected}
        results |= run_stage(stage, given, shapes, place, cu_seqlens=_offsets(case, place), **options)
    return results


_OPERATORS = {
    "prefill": _prefill,
    "decode": _decode,
    "layer": _layer,
    "conv1d": _conv1d,
    "gated_norm": _gated_norm,
    "stages": _stages,
    "gradients": _gradients,
}


def execute(
    case: Case, device: str, implementation: str, dtype: str = "float32"
) -> tuple[Results, str]:
    """(results under the expected tensors' names, the kernel that the last call ran). dtype: of the
    tokens of prefill, stages and gradients."""
    op = case.fields["op"]
    if op not in _OPERATORS:
        raise ValueError(f"{case.name}: op = {op}, expected one of {', '.join(_OPERATORS)}")
    results = _OPERATORS[op](case, Place(device, dtype), implementation)
    return results, last_kernel()
