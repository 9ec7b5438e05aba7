#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what one call from Python costs on the host beside the library's own work: a decode step
of 8 tensors so small that the arithmetic is nothing, for NumPy and torch tensors on the CPU.
Each row is the median of 30 rounds of 2000 calls; `empty` is the extension called with an argument
that it refuses at once, `library` the C interface alone through a prebuilt ctypes struct.

    python benchmarks/python_call.py        (with sluice installed; torch rows where it is)
"""

import statistics
import time

import numpy as np

import sluice
from sluice import _core, ops

CALLS, ROUNDS = 2000, 30


def measure(name, call):
    """Prints microseconds per call: median, and the quartiles."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter_ns() - start) / CALLS / 1000)
    low, middle, high = statistics.quantiles(times, n=4)
    print(f"{name:58} {middle:7.2f} us   ({low:.2f} .. {high:.2f})")


def arrays(make):
    """q, k, v, g, beta, o, state, slots: one token, one head, K = V = 4."""
    shapes = [(1, 1, 1, 4)] * 3 + [(1, 1, 1)] * 2 + [(1, 1, 1, 4), (1, 1, 4, 4)]
    floats = [make(np.full(shape, 0.01, np.float32)) for shape in shapes]
    return [*floats, make(np.zeros(1, np.int32))]


def rows(kind, make):
    """Every way in, for one kind of tensors."""
    q, k, v, g, beta, o, state, slots = arrays(make)

    def direct():
        _core.recurrent_step(
            q=q, k=k, v=v, gate=g, beta=beta, o=o, initial_state=state, read_slots=slots
        )

    def full():
        ops.recurrent_step(q, k, v, g, beta, o=o, initial_state=state, read_slots=slots)

    def fla(out=o):
        sluice.fused_recurrent_gated_delta_rule(
            q, k, v, g, beta=beta, initial_state=state, final_state=state, read_slots=slots, out=out
        )

    measure(f"{kind}: extension, 8 tensors", direct)
    measure(f"{kind}: ops.recurrent_step, 8 tensors, o given", full)
    measure(f"{kind}: fused_recurrent_gated_delta_rule, out given", fla)
    measure(f"{kind}: the same, o allocated", lambda: fla(None))
    measure(f"{kind}: supported() of the same", lambda: _core.supported(
        "recurrent_step", q=q, k=k, v=v, gate=g, beta=beta, o=o, initial_state=state,
        read_slots=slots))


def refused():
    """A call that ends at its first keyword."""
    try:
        _core.recurrent_step(nothing=None)
    except TypeError:
        pass


def main():
    sluice.set_num_threads(1)
    print("Sluice", sluice.__version__, sluice.info().get("cpu.isa"), "NumPy", np.__version__)
    measure("refused keyword, with its exception", refused)
    rows("numpy", lambda array: array)
    try:
        import torch
    except ImportError:
        print("torch rows: no torch here")
        return
    print("torch", torch.__version__)
    with torch.inference_mode():
        rows("torch, inference mode", torch.from_numpy)
        q, k, v, g, beta, o, state, slots = arrays(torch.from_numpy)
        measure("torch.ops.sluice.recurrent_step_", lambda: torch.ops.sluice.recurrent_step_(
            q=q, k=k, v=v, gate=g, beta=beta, o=o, initial_state=state, read_slots=slots))
    rows("torch, grad mode on", torch.from_numpy)


if __name__ == "__main__":
    main()
