# SPDX-License-Identifier: Apache-2.0
"""Measures prefill and decode times by the Python package alone, for machines without the benchmark
tool: wall time of calls, coarser than the tool's (host cost included, inputs warm). Records have
the tool's schemas. And what the first call of a process costs, in a fresh interpreter."""

import json
import statistics
import subprocess
import sys
from typing import Any

import numpy as np
from sluice import __version__, last_kernel

from .. import bench
from ..place import Place
from . import environment, manifest

_PROBE_BYTES = 1 << 27
_PROBE_SIZE = 1024
_COMMAND = "python -m sluice report, without the tool"
# What a fresh interpreter runs for first_call().
_PROGRAM = """
import json, sys, time
t0 = time.perf_counter()
import numpy
t1 = time.perf_counter()
import sluice
t2 = time.perf_counter()
from sluice_tools import bench
place = bench.place_on(sys.argv[1])
call = bench.call_of(place, (1, 256), (4, 4), 128, decode=False)
times = []
for _ in range(9):
    place.wait()
    start = time.perf_counter()
    call()
    place.wait()
    times.append(time.perf_counter() - start)
print(json.dumps({"numpy_import": t1 - t0, "import": t2 - t1, "first": times[0],
                  "second": times[1], "later": sorted(times[2:])[3],
                  "kernel": sluice.last_kernel()}))
"""


def ceilings(place: Place) -> dict[str, Any]:
    """FLOP and bytes a second of a matrix product and a copy: NumPy's on the host (its own threads),
    torch's on a GPU."""
    rng = np.random.default_rng(0)
    square = place.put(rng.standard_normal((_PROBE_SIZE, _PROBE_SIZE), np.float32))
    block, other = (place.put(np.zeros(_PROBE_BYTES // 4, np.float32), io=False) for _ in range(2))

    def copy() -> None:
        other[:] = block

    who = "NumPy" if place.device == "cpu" else "torch"
    return {
        "flop_per_second": 2 * _PROBE_SIZE**3 / min(bench.times(place, lambda: square @ square)),
        "flop_source": f"{place.dtype} matrix product of {who}",
        "bytes_per_second": 2 * _PROBE_BYTES / min(bench.times(place, copy)),
        "bytes_source": f"copy by {who}, bytes read and written",
    }


def measure(device: str, workload: dict[str, Any], quick: bool, commit: str) -> dict[str, Any]:
    """A record as of `sluice bench prefill`, one sequence of each length, or as of `sluice bench decode`,
    one token, float32 states, which stay warm."""
    decode = workload["op"] == "recurrent_step"
    place = bench.place_on(device)
    found = ceilings(place)
    dtype = {"float32": "fp32", "bfloat16": "bf16"}[place.dtype]
    H, HV = (int(n) for n in workload["heads"][0].split("/"))
    heads = {"H": H, "HV": HV, "K": 128, "V": 128}
    unit, factor = ("us", 1e6) if decode else ("ms", 1e3)
    rows = []
    sizes = "batches" if decode else "tokens"
    for size in workload[f"quick {sizes}" if quick else sizes]:
        call = bench.call_of(place, (size, 1) if decode else (1, size), (H, HV), 128, decode)
        low, middle, high = statistics.quantiles(bench.times(place, call), n=4)
        row = {**heads, "kernel": last_kernel(), unit: factor * middle}
        row |= {f"{unit}_min": factor * low, f"{unit}_p90": factor * high, "peers": []}
        if decode:
            moved = 2 * 4 * 128 * 128 * HV * size
            row |= {"B": size, "T": 1, "state": "fp32", "writes": "last"}
            row["share_of_copy"] = moved / middle / found["bytes_per_second"]
        else:
            symbols = {**heads, "tokens": size, "N": 1, "e": 4 if dtype == "fp32" else 2}
            floor = max(
                (manifest.cost(manifest.load(), "chunk_forward", "chunk", what, **symbols) or 0.0) / found[speed]
                for what, speed in (("flops", "flop_per_second"), ("bytes", "bytes_per_second"))
            )
            row |= {"lengths": f"{size}x1", "share_of_floor": floor / middle}
        rows.append(row)
    return {
        "schema": f"sluice.bench.{'step' if decode else 'prefill'}/1",
        "op": workload["op"],
        "date": environment.now(),
        "sluice": __version__,
        "commit": commit,
        "command": _COMMAND,
        "machine": {"name": environment.gpu_name() if device == "cuda" else environment.cpu_name()},
        "ceilings": found,
        "settings": {"dtype": dtype},
        "rows": rows,
    }


def first_call(device: str) -> dict[str, Any]:
    """Seconds: `import` of sluice (NumPy's own beside it), `first`, `second` and `later` calls of
    a prefill of 256 tokens, 4 heads; on a GPU torch's context is there before. RuntimeError if the
    process fails."""
    command = [sys.executable, "-c", _PROGRAM, device]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1])
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
