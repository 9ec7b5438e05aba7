# SPDX-License-Identifier: Apache-2.0
"""Measures prefill and decode times by the Python package alone, for machines without the benchmark
tool: wall time of calls, coarser than the tool's (host cost included, inputs warm). Records have
the tool's schemas."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sluice import __version__, last_kernel

from .. import bench
from . import environment, manifest

_PROBE_BYTES = 1 << 27
_PROBE_SIZE = 1024
_COMMAND = "python -m sluice report, without the tool"


def _best(call: Callable[[], object], wait: Callable[[], None]) -> float:
    times = []
    for _ in range(4):
        wait()
        start = time.perf_counter()
        call()
        wait()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def ceilings(place: Any) -> dict[str, Any]:
    """FLOP and bytes a second of a matrix product and a copy: NumPy's on the host (its own threads),
    torch's on a GPU."""
    rng = np.random.default_rng(0)
    square = place.put(rng.standard_normal((_PROBE_SIZE, _PROBE_SIZE), np.float32))
    block = place.put(np.zeros(_PROBE_BYTES // 4, np.float32), io=False)
    other = place.put(np.zeros(_PROBE_BYTES // 4, np.float32), io=False)

    def copy() -> None:
        other[:] = block

    product = _best(lambda: square @ square, place.wait)
    moved = _best(copy, place.wait)
    who = "NumPy" if isinstance(place, bench.Host) else "torch"
    return {
        "flop_per_second": 2 * _PROBE_SIZE**3 / product,
        "flop_source": f"{place.dtype} matrix product of {who}",
        "bytes_per_second": 2 * _PROBE_BYTES / moved,
        "bytes_source": f"copy by {who}, bytes read and written",
    }


def _time(place: Any, shape: tuple[int, int], heads: str, decode: bool) -> dict[str, Any]:
    H, HV = (int(n) for n in heads.split("/"))
    call = bench.call_of(place, shape, (H, HV), 128, decode)
    low, middle, high = bench.quartiles(place, call)
    row = {"H": H, "HV": HV, "K": 128, "V": 128, "kernel": last_kernel(), "failure": ""}
    return {**row, "low": low, "middle": middle, "high": high, "peers": []}


def prefill(device: str, workload: dict[str, Any], quick: bool, commit: str) -> dict[str, Any]:
    """A record as of `sluice bench prefill`: one sequence of each length."""
    place = bench.Host() if device == "cpu" else bench.Gpu()
    dtype = {"float32": "fp32", "bfloat16": "bf16"}[place.dtype]
    found, rows = ceilings(place), []
    content = manifest.load()
    for T in workload["quick tokens"] if quick else workload["tokens"]:
        row = _time(place, (1, T), workload["heads"][0], decode=False)
        symbols = {name: row[name] for name in ("H", "HV", "K", "V")}
        symbols.update(tokens=T, N=1, e=4 if dtype == "fp32" else 2)
        flops = manifest.cost(content, "chunk_forward", "chunk", "flops", **symbols) or 0.0
        moved = manifest.cost(content, "chunk_forward", "chunk", "bytes", **symbols) or 0.0
        floor = max(flops / found["flop_per_second"], moved / found["bytes_per_second"])
        row.update(
            lengths=f"{T}x1",
            ms=1e3 * row["middle"],
            ms_min=1e3 * row["low"],
            ms_p90=1e3 * row["high"],
            tflops=1e-12 * flops / row["middle"],
            gb_per_s=1e-9 * moved / row["middle"],
            share_of_floor=floor / row["middle"],
        )
        rows.append(row)
    return _record("prefill", device, commit, rows, ceilings=found, settings={"dtype": dtype})


def decode(device: str, workload: dict[str, Any], quick: bool, commit: str) -> dict[str, Any]:
    """A record as of `sluice bench decode`: one token, float32 states, which stay warm."""
    place = bench.Host() if device == "cpu" else bench.Gpu()
    found, rows = ceilings(place), []
    for B in workload["quick batches"] if quick else workload["batches"]:
        row = _time(place, (B, 1), workload["heads"][0], decode=True)
        states = 2 * 4 * 128 * 128 * row["HV"] * B
        row.update(
            B=B,
            T=1,
            state="fp32",
            writes="last",
            us=1e6 * row["middle"],
            us_min=1e6 * row["low"],
            us_p90=1e6 * row["high"],
            share_of_copy=states / row["middle"] / found["bytes_per_second"],
        )
        rows.append(row)
    extra = {"op": "recurrent_step", "bytes_per_second": found["bytes_per_second"]}
    return _record("step", device, commit, rows, **extra)


def _record(
    kind: str, device: str, commit: str, rows: list[dict[str, Any]], **more: Any
) -> dict[str, Any]:
    name = environment.gpu_name() if device == "cuda" else environment.cpu_name()
    return {
        "schema": f"sluice.bench.{kind}/1",
        "date": environment.now(),
        "sluice": __version__,
        "commit": commit,
        "command": _COMMAND,
        "machine": {"name": name},
        "rows": rows,
        **more,
    }
