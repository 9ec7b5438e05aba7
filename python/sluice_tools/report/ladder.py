# SPDX-License-Identifier: Apache-2.0
"""Climbs the accuracy ladder of the op manifest: prefill end to end against the float64 recurrence,
at lengths around every chunk border, with gates that forget nothing or everything and with keys
that are nearly parallel."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sluice import Unsupported, last_kernel, ops

from ..cases.execute import Array, floats
from ..check import Case, judge

_SEED = 20


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


def build(item: dict[str, Any], heads: dict[str, int], dtype: str, limit: float) -> Case:
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
    name = item["name"]
    fields = {"op": "prefill", "tolerance_rel_l2": limit}
    case = Case(name, fields, {f"{name}.{key}": array for key, array in tensors.items()})
    answers = run(case, "float32", "cpu", "reference")
    named = {f"{name}.{key}": array for key, array in {**tensors, **answers}.items()}
    return Case(name, fields, named)


def run(case: Case, dtype: str, device: str, implementation: str = "auto") -> dict[str, Array]:
    """o and final_state of the library, q, k, v and o being `dtype` there; as float32."""
    place = placer(dtype, device)
    q, k, v = (place(floats(case, name), True) for name in ("q", "k", "v"))
    gate, beta, state = (place(floats(case, n), False) for n in ("g", "beta", "initial_state"))
    o = ops.chunk_forward(
        q,
        k,
        v,
        gate,
        beta,
        cu_seqlens=place(case.get("cu_seqlens"), False),
        initial_state=state,
        final_state=state,
        implementation=implementation,
    )
    return {"o": fetched(o), "final_state": fetched(state)}


def placer(dtype: str, device: str) -> Callable[[Array | None, bool], Any]:
    """A function that copies an array to the device, as `dtype` where its second argument says
    so. ImportError without torch on a GPU, or without ml_dtypes for bfloat16 on the host."""
    if device == "cpu":
        kind: Any = dtype
        if dtype == "bfloat16":
            import ml_dtypes

            kind = ml_dtypes.bfloat16

        def put(array: Array | None, cast: bool) -> Any:
            return None if array is None else array.astype(kind if cast else array.dtype)

        return put
    import torch

    def move(array: Array | None, cast: bool) -> Any:
        if array is None:
            return None
        tensor = torch.from_numpy(array.copy()).to(device)
        return tensor.to(getattr(torch, dtype)) if cast else tensor

    return move


def fetched(tensor: Any) -> Array:
    """The values on the host, float32."""
    if isinstance(tensor, np.ndarray):
        return tensor.astype(np.float32)
    return np.asarray(tensor.float().cpu().numpy())


def measure(
    manifest: dict[str, Any],
    dtype: str,
    device: str,
    quick: bool,
    step: Callable[[float], None] = lambda share: None,
) -> dict[str, Any]:
    """The ladder in one dtype: a row a tensor, with the errors of the whole, of the worst head and
    of the worst window of 64 tokens (those two may be twice the limit)."""
    ladder = manifest["ladder"]
    limit = ladder["limits"][dtype]
    listed = list(items(manifest, quick))
    rows, kernels = [], set()
    for i, item in enumerate(listed):
        step(i / len(listed))
        case = build(item, ladder["heads"], dtype, limit)
        common = {"case": case.name, "gates": item["gates"], "keys": item["keys"]}
        try:
            results = run(case, dtype, device)
        except Unsupported as refusal:
            rows.append({**common, "tensor": "o", "refused": str(refusal), "passed": False})
            continue
        kernels.add(last_kernel())
        for verdict in judge(case, results):
            errors = dict(zip(("whole", "head", "window"), verdict.errors))
            rows.append({**common, "tensor": verdict.tensor, **errors, "passed": verdict.passed})
    return {
        "dtype": dtype,
        "limit": limit,
        "heads": ladder["heads"],
        "kernels": sorted(kernels),
        "rows": rows,
    }
