#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what one call from Python costs on the host beside the library's own work: a decode step
of 8 tensors so small that the arithmetic is nothing, for NumPy and torch tensors on the CPU.
Each row has the least, the median and the quartiles of 100 rounds of 200 calls: on a machine with
other work the least is the cost. On a GPU the launch is in it and the device's time is not: the
queue is emptied between rounds, outside of the time; `launch alone` is torch's smallest kernel.

    python benchmarks/python_call.py        (with sluice installed; torch and GPU rows where they are)
"""

import statistics
import time

import numpy as np
import sluice
from sluice import _core, ops

CALLS, ROUNDS = 200, 100


def measure(name, call, wait=lambda: None):
    """Prints microseconds per call: the least, median and quartiles."""
    times = []
    for _ in range(ROUNDS):
        wait()
        start = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter_ns() - start) / CALLS / 1000)
    wait()
    low, middle, high = statistics.quantiles(times, n=4)
    print(f"{name:62} least {min(times):6.2f} us, median {middle:.2f} ({low:.2f} .. {high:.2f})")


def arrays(make):
    """q, k, v, g, beta, o, state, slots: one token, one head, K = V = 4."""
    shapes = [(1, 1, 1, 4)] * 3 + [(1, 1, 1)] * 2 + [(1, 1, 1, 4), (1, 1, 4, 4)]
    floats = [make(np.full(shape, 0.01, np.float32)) for shape in shapes]
    return [*floats, make(np.zeros(1, np.int32))]


def rows(kind, make, wait=lambda: None):
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

    measure(f"{kind}: extension, 8 tensors", direct, wait)
    measure(f"{kind}: ops.recurrent_step, 8 tensors, o given", full, wait)
    measure(f"{kind}: fused_recurrent_gated_delta_rule, out given", fla, wait)
    measure(f"{kind}: the same, o allocated", lambda: fla(None), wait)
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
    if torch.cuda.is_available():
        sluice.warm_up("cuda")
        with torch.inference_mode():
            tensor = torch.zeros(1, device="cuda")
            measure("torch, CUDA: launch alone (zero_)", tensor.zero_, torch.cuda.synchronize)
            rows("torch, CUDA, inference mode", lambda a: torch.from_numpy(a).cuda(),
                 torch.cuda.synchronize)


if __name__ == "__main__":
    main()
