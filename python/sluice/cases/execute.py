# SPDX-License-Identifier: Apache-2.0
"""Runs the operator of a case on float32 tensors, as `sluice run` does."""

from typing import Any

import numpy as np

from .. import _library, ops
from .case import Array, Case
from .stages import execute_stages

Results = dict[str, Array]


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


def _delta_rule(case: Case, place: Place) -> tuple[dict[str, Any], dict[str, Any]]:
    """(token tensors, the other arguments) of the delta rule operators."""
    tokens = {name: place.put(case.floats(name)) for name in ("q", "k", "v", "beta")}
    tokens["gate"] = place.put(case.floats("g"))
    rest = dict(
        A_log=place.put(case.floats("A_log")),
        dt_bias=place.put(case.floats("dt_bias")),
        scale=case.field("scale", None),
        l2norm_eps=case.field("l2norm_eps", 1e-6),
        gate_space=case.field("gate_space", "log"),
        beta_space=case.field("beta_space", "value"),
        eigenvalues=case.field("eigenvalues", "positive"),
        qk_norm="l2" if case.field("use_qk_l2norm", False) else "none",
        head_map=case.field("head_map", "block"),
        rule=case.field("rule", "gated_delta"),
        state_layout=case.field("state_layout", "kv"),
    )
    return tokens, rest


def _state(case: Case, q: Array, v: Array) -> Array:
    """The initial states, zeros where the case has none."""
    initial = case.floats("initial_state")
    if initial is not None:
        return initial
    inner = (q.shape[3], v.shape[3])
    if case.field("state_layout", "kv") == "vk":
        inner = inner[::-1]
    n = len(case.rows(q.shape[0], q.shape[1]))
    return np.zeros((n, v.shape[2], *inner), np.float32)


def _prefill(case: Case, place: Place, implementation: str) -> Results:
    tokens, rest = _delta_rule(case, place)
    state = place.put(_state(case, tokens["q"], tokens["v"]))
    cu_seqlens = case.get("cu_seqlens")
    o = ops.chunk_forward(
        **tokens,
        cu_seqlens=place.put(cu_seqlens),
        initial_state=state,
        final_state=state,
        implementation=implementation,
        **rest,
    )
    return {"o": place.get(o), "final_state": place.get(state)}


def _gradients(case: Case, place: Place, implementation: str) -> Results:
    tokens, rest = _delta_rule(case, place)
    # Every answer's own memory, under the name of chunk_backward's argument.
    answers = {name: "dgate" if name == "dg" else name for name in case.answers()}
    given = {to: place.put(np.zeros_like(case.floats(name))) for name, to in answers.items()}
    ops.chunk_backward(
        **tokens,
        d_o=place.put(case.floats("d_o")),
        d_final_state=place.put(case.floats("d_final_state")),
        cu_seqlens=place.put(case.get("cu_seqlens")),
        initial_state=place.put(case.floats("initial_state")),
        implementation=implementation,
        **given,
        **rest,
    )
    return {name: place.get(given[to]) for name, to in answers.items()}


def _decode(case: Case, place: Place, implementation: str) -> Results:
    tokens, rest = _delta_rule(case, place)
    state = place.put(_state(case, tokens["q"], tokens["v"]))
    count = tokens["q"].shape[1] // case.fields["steps"]
    parts = []
    for step in range(case.fields["steps"]):
        part = slice(step * count, (step + 1) * count)
        now: dict[str, Any] = {
            name: None if t is None else t[:, part] for name, t in tokens.items()
        }
        o = ops.recurrent_step(**now, initial_state=state, implementation=implementation, **rest)
        parts.append(place.get(o))
    return {"o": np.concatenate(parts, 1), "final_state": place.get(state)}


def _layer_constants(case: Case, place: Place) -> dict[str, Any]:
    names = ("conv_weight", "conv_bias", "A_log", "dt_bias", "norm_weight")
    sizes = ("num_k_heads", "num_v_heads", "head_k_dim", "head_v_dim")
    constants: dict[str, Any] = {name: place.put(case.floats(name)) for name in names}
    constants.update({name: case.fields[name] for name in sizes})
    constants.update(
        scale=case.field("scale", None),
        l2norm_eps=case.field("l2norm_eps", 1e-6),
        norm_eps=case.field("norm_eps", 1e-6),
        packing="flat" if case.fields["packing"] == "qwen3_5" else "interleaved",
        eigenvalues=case.field("eigenvalues", "positive"),
        head_map=case.field("head_map", "block"),
        gate_activation=case.field("gate_activation", "silu"),
        rounding=case.field("norm_rounding", "once"),
        state_layout=case.field("state_layout", "kv"),
    )
    return constants


def _layer_states(case: Case, batch: int, channels: int) -> tuple[Array, Array]:
    """(convolution states, recurrent states) before the first step."""
    f = case.fields
    inner = (f["head_k_dim"], f["head_v_dim"])
    if case.field("state_layout", "kv") == "vk":
        inner = inner[::-1]
    final = case.get("final_conv_state")
    columns = f["conv_width"] - 1 if final is None else final.shape[2]
    conv, state = case.floats("initial_conv_state"), case.floats("initial_state")
    if conv is None:
        conv = np.zeros((batch, channels, columns), np.float32)
    if state is None:
        state = np.zeros((batch, f["num_v_heads"], *inner), np.float32)
    return conv, state


def _layer(case: Case, place: Place, implementation: str) -> Results:
    constants = _layer_constants(case, place)
    flat, weight = constants["packing"] == "flat", case.get("out_proj_weight")
    results: Results = {}
    conv: Any = None
    state: Any = None
    for step in range(case.fields["steps"]):
        prefix = f"step{step}."
        inputs = [prefix + name for name in (("qkv", "z", "b", "a") if flat else ("qkvz", "ba"))]
        rows = [place.put(case.floats(name)) for name in inputs]
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
            implementation=implementation,
            **constants,
        )
        norm_out = place.get(out)
        results[prefix + "core_out"], results[prefix + "norm_out"] = place.get(core), norm_out
        if weight is not None:  # the model's out_proj, which is no operator of Sluice
            flat_out = norm_out.reshape(batch, tokens, -1).astype(np.float64)
            results[prefix + "output"] = flat_out @ weight.astype(np.float64).T
    results["final_state"], results["final_conv_state"] = place.get(state), place.get(conv)
    return results


def _conv1d(case: Case, place: Place, implementation: str) -> Results:
    x, weight, bias = (place.put(case.floats(name)) for name in ("x", "weight", "bias"))
    answer = case.get("final_state")
    state = None if answer is None else place.put(np.empty(answer.shape, np.float32))
    out = ops.causal_conv1d(
        x,
        weight,
        bias,
        cu_seqlens=place.put(case.get("cu_seqlens")),
        initial_state=place.put(case.floats("initial_state")),
        final_state=state,
        activation=case.field("activation", "silu"),
        implementation=implementation,
    )
    results = {"out": place.get(out)}
    if state is not None:
        results["final_state"] = place.get(state)
    return results


def _gated_norm(case: Case, place: Place, implementation: str) -> Results:
    x, z, weight = (place.put(case.floats(name)) for name in ("x", "z", "weight"))
    out = ops.gated_rms_norm(
        x,
        z,
        weight,
        eps=case.field("norm_eps", 1e-6),
        activation=case.field("activation", "silu"),
        rounding=case.field("norm_rounding", "once"),
        implementation=implementation,
    )
    return {"out": place.get(out)}


_OPERATORS = {
    "prefill": _prefill,
    "decode": _decode,
    "layer": _layer,
    "conv1d": _conv1d,
    "gated_norm": _gated_norm,
    "stages": execute_stages,
    "gradients": _gradients,
}


def execute(case: Case, device: str, implementation: str) -> tuple[Results, str]:
    """(results under the expected tensors' names, the kernel that the last call ran)."""
    if case.op not in _OPERATORS:
        raise ValueError(f"{case.name}: op = {case.op}, expected one of {', '.join(_OPERATORS)}")
    results = _OPERATORS[case.op](case, Place(device), implementation)
    return results, _library.last_kernel()
