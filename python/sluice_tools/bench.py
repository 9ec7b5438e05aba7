# SPDX-License-Identifier: Apache-2.0
"""Measures how long prefill and decode take here, at the sizes of a model's layer (`python -m
sluice bench`). A quick look, not a benchmark: docs/benchmarks.md has those."""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sluice import functional, last_kernel

from .place import Place

_ROUNDS = 9
_SHORTEST = 2e-3  # seconds a round: short calls are repeated


def place_on(device: str) -> Place:
    """float32 on the host, bfloat16 on a GPU."""
    return Place(device, "float32" if device == "cpu" else "bfloat16")


def times(place: Place, call: Callable[[], object]) -> list[float]:
    """Seconds of one call, round by round."""

    def once(calls: int) -> float:
        place.wait()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        place.wait()
        return (time.perf_counter() - start) / calls

    once(1)
    calls = max(1, int(_SHORTEST / max(once(1), 1e-7)))
    return [once(calls) for _ in range(_ROUNDS)]


def call_of(
    place: Place, shape: tuple[int, int], heads: tuple[int, int], dim: int, decode: bool
) -> Callable[[], object]:
    """A call of the delta rule on random inputs: `shape` sequences and tokens, states in place."""
    H, HV = heads
    rng = np.random.default_rng(0)
    q, k, v, out = (
        place.put(rng.standard_normal((*shape, n, dim), np.float32)) for n in (H, H, HV, HV)
    )
    gate = place.put(-0.1 * rng.random((*shape, HV), np.float32), io=False)
    beta = place.put(rng.random((*shape, HV), np.float32), io=False)
    state = place.put(np.zeros((shape[0], HV, dim, dim), np.float32), io=False)
    run = (
        functional.fused_recurrent_gated_delta_rule if decode else functional.chunk_gated_delta_rule
    )
    options: dict[str, Any] = dict(
        initial_state=state, final_state=state, use_qk_l2norm_in_kernel=True, out=out
    )
    return lambda: run(q, k, v, gate, beta=beta, **options)


def rows(
    device: str, heads: tuple[int, int], dim: int, tokens: int, batch: int
) -> Iterator[str]:
    """The table, line by line: prefill of one sequence of `tokens`, one token of `batch` others."""
    place = place_on(device)
    rates = []
    yield (
        f"H {heads[0]}, HV {heads[1]}, K = V = {dim}, {place.dtype}; median of {_ROUNDS} rounds "
        "(quartiles)"
    )
    for name, shape in (("prefill", (1, tokens)), ("decode", (batch, 1))):
        call = call_of(place, shape, heads, dim, name == "decode")
        low, middle, high = (1e3 * t for t in statistics.quantiles(times(place, call), n=4))
        count = shape[0] * shape[1]
        rates.append(count / middle * 1e3)
        noun = "token" if count == 1 else "tokens"
        yield (
            f"{name:8} {count:6} {noun:6}  {middle:9.3f} ms ({low:.3f} to {high:.3f})  "
            f"{rates[-1]:11.0f} tokens/s  {last_kernel()}"
        )
    yield f"One such layer reads {rates[0]:.0f} and writes {rates[1]:.0f} tokens a second."
