# SPDX-License-Identifier: Apache-2.0
"""Measures how long prefill and decode take here, at the sizes of a model's layer (`python -m
sluice bench`). A quick look, not a benchmark: docs/benchmarks.md has those."""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sluice import functional, last_kernel

_ROUNDS = 9
_SHORTEST = 2e-3  # seconds a round: short calls are repeated


class Host:
    """NumPy arrays on the CPU, float32."""

    dtype = "float32"

    def put(self, array: np.ndarray[Any, Any], io: bool = True) -> Any:
        return array

    def wait(self) -> None:
        """Calls return when they are done."""


class Gpu:
    """torch tensors on a CUDA device, bfloat16."""

    dtype = "bfloat16"

    def __init__(self, device: str = "cuda") -> None:
        import torch

        self._torch: Any = torch
        self._device = device

    def put(self, array: np.ndarray[Any, Any], io: bool = True) -> Any:
        tensor = self._torch.from_numpy(array).to(self._device)
        return tensor.bfloat16() if io else tensor

    def wait(self) -> None:
        self._torch.cuda.synchronize()


def quartiles(place: Host | Gpu, call: Callable[[], object]) -> tuple[float, float, float]:
    """Quartiles of the time of one call."""

    def once(calls: int) -> float:
        place.wait()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        place.wait()
        return (time.perf_counter() - start) / calls

    once(1)
    calls = max(1, int(_SHORTEST / max(once(1), 1e-7)))
    low, middle, high = statistics.quantiles((once(calls) for _ in range(_ROUNDS)), n=4)
    return low, middle, high


def call_of(
    place: Host | Gpu, shape: tuple[int, int], heads: tuple[int, int], dim: int, decode: bool
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
    place: Host | Gpu = Host() if device == "cpu" else Gpu(device)
    rates = []
    yield (
        f"H {heads[0]}, HV {heads[1]}, K = V = {dim}, {place.dtype}; median of {_ROUNDS} rounds "
        "(quartiles)"
    )
    for name, shape in (("prefill", (1, tokens)), ("decode", (batch, 1))):
        call = call_of(place, shape, heads, dim, name == "decode")
        low, middle, high = (1e3 * t for t in quartiles(place, call))
        count = shape[0] * shape[1]
        rates.append(count / middle * 1e3)
        noun = "token" if count == 1 else "tokens"
        yield (
            f"{name:8} {count:6} {noun:6}  {middle:9.3f} ms ({low:.3f} to {high:.3f})  "
            f"{rates[-1]:11.0f} tokens/s  {last_kernel()}"
        )
    yield f"One such layer reads {rates[0]:.0f} and writes {rates[1]:.0f} tokens a second."
