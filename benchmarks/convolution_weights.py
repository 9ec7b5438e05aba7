#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures short convolutions of bfloat16 rows whose weights are bfloat16, or float32 as vLLM keeps those of Kimi:
updates in place by slots, and prefills. W = 4, SiLU, states of three columns. A row is the median of replays of a
CUDA graph of calls that have tensors of their own. Of two builds run it in turns, each first on PYTHONPATH.

    python benchmarks/convolution_weights.py [--commit COMMIT] [--out FILE]

Needs a GPU, and torch.
"""

import statistics

import peer_record
import torch
from graph_time import graph_of
from sluice import ops

REPEAT = 40
UPDATES = ((32, 4096), (32, 8192), (1, 8192), (128, 4096))  # sequences, channels
PREFILLS = ((8192, 4096), (8192, 8192), (512, 8192))  # tokens, channels


def rows(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def update(B, D, kind):
    x, weight, states = rows(B, 1, D), rows(D, 4).to(kind), rows(B + 8, D, 3)
    out, slots = torch.empty_like(x), torch.randperm(B, device="cuda").to(torch.int32)
    return lambda: ops.causal_conv1d(x, weight, out=out, initial_state=states, final_state=states,
                                     read_slots=slots, write_slots=slots, activation="silu")


def prefill(T, D, kind):
    x, weight = rows(1, T, D), rows(D, 4).to(kind)
    out = torch.empty_like(x)
    return lambda: ops.causal_conv1d(x, weight, out=out, activation="silu")


def microseconds(calls):
    """Of one of the calls, which follow each other in a graph."""
    def run():
        for call in calls:
            call()

    graph, times = graph_of(run), []
    for _ in range(REPEAT):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return 1e3 * statistics.median(times) / len(calls)


def main():
    options = peer_record.parser(__doc__).parse_args()
    record = peer_record.start("convolution_weights", options.commit, ("torch",))
    for kind in (torch.bfloat16, torch.float32):
        for what, make, count, shapes in (("update", update, 24, UPDATES), ("prefill", prefill, 6, PREFILLS)):
            for shape in shapes:
                us = microseconds([make(*shape, kind) for _ in range(count)])
                call = f"{what} {shape[0]}x{shape[1]} {str(kind).removeprefix('torch.')}"
                print(f"{call:32} {us:9.3f} us")
                record["rows"].append({"call": call, "us": round(us, 3)})
    peer_record.write(record, options.out)


if __name__ == "__main__":
    main()
