# SPDX-License-Identifier: Apache-2.0
"""Runs the operator of a case on float32 tensors, as `sluice run` does."""

from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np
from sluice import last_kernel, ops

from ..check import Case

Array = np.ndarray[Any, Any]
Results = dict[str, Array]

_ARGUMENTS = {"g": "gate", "dg": "dgate"}  # tensors of other names
_DELTA = ("q", "k", "v", "g", "beta", "A_log", "dt_bias")


def floats(case: Case, tensor: str) -> Array | None:
    """A floating tensor of a case as float32, compact."""
    array = case.get(tensor)
    return None if array is None else np.ascontiguousarray(array, np.float32)


class Place:
    """Where a case runs: NumPy arrays on the host, torch tensors on a GPU."""

    def __init__(self, device: str) -> None:
        self._torch: Any = None
        self._device = device
        if device != "cpu":
            import torch

            self._torch = torch

    def put(self, array: Array | None) -> Any:
        """The array there; None stays None. States are updated in place, so it is a copy."""
        if array is None or self._torch is None:
            return None if array is None else array.copy()
        return self._torch.from_numpy(array.copy()).to(self._device)

    def get(self, tensor: Any) -> Array:
        """The values on the host."""
        return np.asarray(tensor if self._torch is None else tensor.cpu().numpy())

    def given(self, case: Case, names: Any) -> dict[str, Any]:
        """Tensors of a case by the operators' names for them."""
        return {_ARGUMENTS.get(name, name): self.put(floats(case, name)) for name in names}


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
    given = place.given(case, _DELTA)
    state = place.put(_delta_state(case, given))
    o = ops.chunk_forward(
        **given,
        cu_seqlens=place.put(case.get("cu_seqlens")),
        initial_state=state,
        final_state=state,
        **_options(case, ops.chunk_forward, implementation),
    )
    return {"o": place.get(o), "final_state": place.get(state)}


def _gradients(case: Case, place: Place, implementation: str) -> Results:
    # Every answer's own memory, under the name of chunk_backward's argument.
    answers = {name: _ARGUMENTS.get(name, name) for name in case.expected()}
    made = {to: place.put(np.zeros_like(floats(case, name))) for name, to in answers.items()}
    ops.chunk_backward(
        **place.given(case, (*_DELTA, "d_o", "d_final_state", "initial_state")),
        cu_seqlens=place.put(case.get("cu_seqlens")),
        **made,
        **_options(case, ops.chunk_backward, implementation),
    )
    return {name: place.get(made[to]) for name, to in answers.items()}


def _decode(case: Case, place: Place, implementation: str) -> Results:
    given = place.given(case, _DELTA)
    options = _options(case, ops.recurrent_step, implementation)
    state = place.put(_delta_state(case, given))
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
        **place.given(case, names),
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
        **place.given(case, ("x", "weight", "bias", "initial_state")),
        cu_seqlens=place.put(case.get("cu_seqlens")),
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
        **place.given(case, ("x", "z", "weight")),
        eps=case.fields.get("norm_eps", 1e-6),
        activation=case.fields.get("activation", "silu"),
        rounding=case.fields.get("norm_rounding", "once"),
        implementation=implementation,
    )
    return {"out": place.get(out)}


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


def _stages(case: Case, place: Place, implementation: str) -> Results:
    """Results of every stage whose results the case records, each on what is recorded of those
    before it, so that every one is judged alone."""
    expected = case.expected()
    linear = case.fields.get("rule", "gated_delta") == "linear_attention"
    results: Results = {}
    stages = _PAIRS if case.fields.get("fused", "none") == "pairs" else _STAGES
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
        given = place.given(case, reads)
        for name in made:
            given[name] = place.put(np.zeros(case.get(name).shape, np.float32))
        cu_seqlens = place.put(case.get("cu_seqlens"))
        options = _options(case, ops.chunk_stage, implementation)
        ops.chunk_stage(stage, **given, cu_seqlens=cu_seqlens, **options)
        results.update({name: place.get(given[name]) for name in made})
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


def execute(case: Case, device: str, implementation: str) -> tuple[Results, str]:
    """(results under the expected tensors' names, the kernel that the last call ran)."""
    op = case.fields["op"]
    if op not in _OPERATORS:
        raise ValueError(f"{case.name}: op = {op}, expected one of {', '.join(_OPERATORS)}")
    results = _OPERATORS[op](case, Place(device), implementation)
    return results, last_kernel()
