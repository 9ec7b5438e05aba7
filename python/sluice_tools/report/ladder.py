# SPDX-License-Identifier: Apache-2.0
"""Climbs the accuracy ladder of the op manifest: prefill end to end and its gradients against the float64
recurrence, the stages of the chunk form against their float64 twins, at lengths around every chunk border,
with gates that forget nothing or everything and with keys that are nearly parallel."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sluice import Unsupported, last_kernel

from ..cases import answered, execute
from ..cases.execute import IO, STAGES, run_stage
from ..check import Case, Verdict, judge, relative
from ..place import Array, Place

_SEED = 20
_CHUNK = 64
# Token by token in float64 the reference takes seconds for more.
_MOST_TOKENS_BACKWARDS = 1024


def items(manifest: dict[str, Any], quick: bool) -> Iterator[dict[str, Any]]:
    """One dict a case: name, lengths, gates, keys."""
    ladder = manifest["ladder"]
    for entry in ladder["lengths"]:
        if quick and not entry.get("quick"):
            continue
        combinations = [("slow", "random")]
        if entry.get("profiles"):
            combinations += [(gates, "random") for gates in ladder["gates"] if gates != "slow"]
            combinations += [("slow", keys) for keys in ladder["keys"] if keys != "random"]
        for gates, keys in combinations:
            yield {
                "name": f"{entry['name']} | gates {gates} | keys {keys}",
                "lengths": entry["lengths"],
                "gates": gates,
                "keys": keys,
            }


def _softplus(x: Array) -> Array:
    return np.logaddexp(0.0, x)


def gates_of(profile: str, rng: np.random.Generator, tokens: int, heads: int) -> Array | None:
    """[tokens, heads] log gates; None for no decay."""
    normal = rng.standard_normal((tokens, heads))
    slow = -1e-3 * (0.5 + rng.random((tokens, heads)))
    strong = -_softplus(-normal)
    row = np.arange(tokens)[:, None]
    match profile:
        case "none":
            return None
        case "slow":
            return slow
        case "strong":
            return strong
        case "published":  # a quarter of the heads never forgets
            return np.where(np.arange(heads) % 4 == 0, 0.0, strong / 16)
        case "model":
            rate = 16 * rng.random(heads)
            bias = np.log(np.expm1(10.0 ** (-3 + 2 * rng.random(heads))))
            return -rate * _softplus(normal + bias)
        case "resets":
            return np.where(row % 32 < 16, np.where(row % 2 == 0, 0.0, -80.0), slow)
        case "half zeros":
            return np.where(rng.random((tokens, heads)) < 0.5, 0.0, strong)
    raise ValueError(f"ladder: gates = {profile}, expected one of the manifest's profiles")


def keys_of(profile: str, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Unit keys: random directions, or with a mean cosine of .12 (silu), .75, .90."""
    match profile:
        case "random":
            keys = rng.standard_normal(shape)
        case "silu":
            normal = rng.standard_normal(shape)
            keys = normal / (1 + np.exp(-normal))
        case "cos75":
            keys = rng.random(shape)
        case "cos90":  # mean m and variance 1/12: m^2 / (m^2 + 1/12) = .9
            keys = rng.random(shape) - 0.5 + 0.75**0.5
        case _:
            raise ValueError(f"ladder: keys = {profile}, expected one of the manifest's profiles")
    return np.asarray(keys / np.linalg.norm(keys, axis=-1, keepdims=True))


def rounded(array: Array, dtype: str) -> Array:
    """The values as `dtype` has them, in float32."""
    if dtype == "bfloat16":
        # Round to nearest, ties to even, on the bits: NumPy has no bfloat16 of its own.
        bits = np.asarray(array, np.float32).view(np.uint32)
        odd = (bits >> 16) & 1
        return ((bits + 0x7FFF + odd) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return array.astype(dtype).astype(np.float32)


def build_prefill(item: dict[str, Any], heads: dict[str, int], dtype: str, limit: float) -> Case:
    """The case of an item with inputs rounded to `dtype` and the reference's answers, in double."""
    rng = np.random.default_rng([_SEED, sum(item["lengths"]), len(item["gates"])])
    lengths, tokens = item["lengths"], sum(item["lengths"])
    H, HV, K, V = (heads[name] for name in ("H", "HV", "K", "V"))
    q = rng.standard_normal((1, tokens, H, K))
    gates = gates_of(item["gates"], rng, tokens, HV)
    tensors = {
        "q": rounded(q / np.linalg.norm(q, axis=-1, keepdims=True), dtype),
        "k": rounded(keys_of(item["keys"], rng, (1, tokens, H, K)), dtype),
        "v": rounded(rng.standard_normal((1, tokens, HV, V)), dtype),
        "beta": (1 / (1 + np.exp(-rng.standard_normal((1, tokens, HV))))).astype(np.float32),
        "initial_state": (0.3 * rng.standard_normal((len(lengths), HV, K, V))).astype(np.float32),
        "cu_seqlens": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
    }
    if gates is not None:
        tensors["g"] = gates[None].astype(np.float32)
    return answered(item["name"], {"op": "prefill", "tolerance_rel_l2": limit}, tensors)


def build_gradients(item: dict[str, Any], heads: dict[str, int], dtype: str, limit: float) -> Case:
    """The item's case as one of op `gradients`, with gradients of o and of the final states."""
    forward = build_prefill(item, heads, dtype, limit)
    rng = np.random.default_rng(11)
    given = ("q", "k", "v", "g", "beta", "initial_state")
    tensors = {name: forward.get(name) for name in (*given, "cu_seqlens") if forward.get(name) is not None}
    tensors["d_o"] = rounded(rng.standard_normal(tensors["v"].shape).astype(np.float32), dtype)
    tensors["d_final_state"] = rng.standard_normal(tensors["initial_state"].shape).astype(np.float32)
    # Answers are found by their names, so their memory comes first.
    for name in given:
        if name in tensors:
            answer = f"d_{name}" if name == "initial_state" else f"d{name}"
            tensors[answer] = np.zeros(tensors[name].shape, np.float32)
    return answered(forward.name, {"op": "gradients", "tolerance_rel_l2": limit}, tensors)


def row_of(verdict: Verdict) -> dict[str, Any]:
    """A tensor's errors: of the whole, of the worst head and of the worst window of 64 tokens (those two
    may be twice the limit). JSON has no infinity, which is None."""
    errors = (error if np.isfinite(error) else None for error in verdict.errors)
    row = {"tensor": verdict.tensor, **dict(zip(("whole", "head", "window"), errors))}
    return {**row, "limit": verdict.limits[0], "passed": verdict.passed}


def _case_rows(case: Case, dtype: str, device: str) -> list[dict[str, Any]]:
    try:
        results, kernel = execute(case, device, "auto", dtype)
    except Unsupported as refusal:
        return [{"tensor": case.expected()[-1], "refused": str(refusal), "passed": False}]
    return [{"kernel": kernel, **row_of(verdict)} for verdict in judge(case, results)]


def _shapes(T: int, chunks: int, heads: dict[str, int]) -> dict[str, tuple[int, ...]]:
    HV, K, V = (heads[name] for name in ("HV", "K", "V"))
    widths = {"A": _CHUNK, "A_inverse": _CHUNK, "u": V, "w": K, "v_new": V, "o": V}
    rows = {name: (1, T, HV, width) for name, width in widths.items()}
    return {**rows, "g_cumsum": (1, T, HV), "h": (1, chunks, HV, K, V)}


def _stage_rows(
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
        try:
            results = run(stage, given, outputs, place, "auto")
        except Unsupported as refusal:
            rows.append({"stage": stage, "tensor": "", "refused": str(refusal), "passed": False})
            continue
        kernel = last_kernel()
        if stage == "cumsum_kkt" and device != "cpu":
            # There A goes on from sums as they are stored, in float32: their rounding is no error
            # of A's. CPU kernels go on with what they computed (sluice_chunk_stage_args).
            sums = {"k": given["k"], "beta": given["beta"], "g_cumsum": results["g_cumsum"]}
            truth |= run("scaled_dot_kkt", sums, ("A",), twin, "reference")
        for name in outputs:
            error = relative(*(np.asarray(found[name], np.float64) for found in (results, truth)))
            row = {"stage": stage, "tensor": name, "kernel": kernel, "limit": limit, "passed": error <= limit}
            rows.append({**row, "whole": error if np.isfinite(error) else None})
    return rows


def measure(
    what: str,
    manifest: dict[str, Any],
    dtype: str,
    device: str,
    quick: bool,
    step: Callable[[float], None] = lambda share: None,
) -> dict[str, Any]:
    """The ladder in one dtype: a row a tensor. what: "accuracy", prefill end to end; "stages", each on
    inputs that the float64 twin made and that were rounded to `dtype`, so that errors do not add up along
    the chain; "gradients", judged as cases of op `gradients` are, the ladder's limit being theirs."""
    ladder = manifest["ladder"]
    heads, limit = ladder["heads"], ladder["limits"][dtype]
    listed = list(items(manifest, quick))
    if what == "gradients":
        listed = [item for item in listed if sum(item["lengths"]) <= _MOST_TOKENS_BACKWARDS]
    rows: list[dict[str, Any]] = []
    for i, item in enumerate(listed):
        step(i / len(listed))
        if what == "stages":
            found = _stage_rows(item, heads, dtype, device, limit)
        else:
            build = build_gradients if what == "gradients" else build_prefill
            found = _case_rows(build(item, heads, dtype, limit), dtype, device)
        rows += [{"case": item["name"], "gates": item["gates"], "keys": item["keys"], **row} for row in found]
        if what == "stages" and all(row.get("refused") for row in rows):
            break  # no kernels for this device: one case says so
    kernels = sorted({row["kernel"] for row in rows if "kernel" in row})
    return {"dtype": dtype, "limit": limit, "heads": heads, "kernels": kernels, "rows": rows}
