#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures kernels that models get on a Hopper beside the generic ones, which every GPU since Ampere has: what
docs/kernels/variants.tsv says that the former gain. The ways take turns, a process each; a row is the median of
replays of a CUDA graph that find the L2 full of other data.

    python benchmarks/generic_kernels.py [--turns 3] [--only WORDS] [--out FILE]

Needs a GPU, and torch. Calls of which the generic kernel takes long are short ones.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

import peer_record
import sluice
import torch
from graph_time import milliseconds
from sluice import ops

WAYS = {"auto": {}, "generic": {"SLUICE_CUDA_KERNEL": "generic"}}


def decode_calls():
    """Steps of 16/32 heads: several tokens, packed rows, states that lie [V,K], heads of 64."""
    def step(B, T, D=128, layout="kv", packed=False):
        rows = (1, B * T) if packed else (B, T)
        q, k = (torch.randn(*rows, 16, D, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        v = torch.randn(*rows, 32, D, device="cuda", dtype=torch.bfloat16)
        gate, beta = -torch.rand(*rows, 32, device="cuda"), torch.rand(*rows, 32, device="cuda")
        state, out = torch.randn(B, 32, D, D, device="cuda").bfloat16(), torch.empty_like(v)
        offsets = torch.arange(0, B * T + 1, T, device="cuda", dtype=torch.int32) if packed else None
        return lambda: ops.recurrent_step(
            q=q, k=k, v=v, gate=gate, beta=beta, o=out, initial_state=state, final_state=state,
            state_layout=layout, qk_norm="l2", cu_seqlens=offsets, max_tokens=T if packed else 0)

    yield "recurrent_step, 32 x 4 tokens", step(32, 4)
    yield "recurrent_step, 32 packed tokens", step(32, 1, packed=True)
    yield "recurrent_step, 32 tokens, [V,K]", step(32, 1, layout="vk")
    yield "recurrent_step, 32 tokens, K = V = 64", step(32, 1, D=64)
    yield "recurrent_step, 32 packed tokens, K = V = 64", step(32, 1, D=64, packed=True)


def prefill_calls():
    """2048 tokens of 16/32 heads by the delta rule, and of 16/16 by simple GLA."""
    def prefill(HV, rule, **rest):
        q, k = (torch.randn(1, 2048, 16, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        v = torch.randn(1, 2048, HV, 128, device="cuda", dtype=torch.bfloat16)
        gate, out = -torch.rand(1, 2048, HV, device="cuda"), torch.empty_like(v)
        return lambda: ops.chunk_forward(q=q, k=k, v=v, gate=gate, o=out, rule=rule, **rest)

    beta = torch.rand(1, 2048, 32, device="cuda")
    yield "chunk_forward, 2048 tokens, 16/32", prefill(32, "gated_delta", beta=beta, qk_norm="l2")
    yield "chunk_forward, 2048 tokens, 16/16, simple GLA", prefill(16, "linear_attention")


CALLS = (decode_calls, prefill_calls)


def measure(words):
    """A line of JSON for each call: its name, kernel and microseconds."""
    torch.manual_seed(1)
    torch.set_grad_enabled(False)
    for calls in CALLS:
        for name, call in calls():
            if not any(word in name for word in words):
                continue
            us = 1e3 * milliseconds(call)
            print(json.dumps({"call": name, "kernel": sluice.last_kernel(), "us": round(us, 2)}), flush=True)


def table_of(turns, words):
    """By call, for each way its kernel and the median of its turns."""
    found = {}
    for _ in range(turns):
        for way, variables in WAYS.items():
            environment = {key: value for key, value in os.environ.items() if key != "SLUICE_CUDA_KERNEL"}
            done = subprocess.run([sys.executable, __file__, "--measure", "--only", ",".join(words)], text=True,
                                  env=environment | variables, stdout=subprocess.PIPE, check=True)
            for row in map(json.loads, done.stdout.splitlines()):
                kept = found.setdefault(row["call"], {}).setdefault(way, {"kernel": row["kernel"], "us": []})
                kept["us"].append(row["us"])
    return found


def main():
    parser = peer_record.parser(__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", default="", help="calls whose names have one of these words")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    words = options.only.split(",")
    if options.measure:
        return measure(words)
    record = peer_record.start("generic_kernels", options.commit, ("torch",))
    for call, ways in table_of(options.turns, words).items():
        us = {way: statistics.median(ways[way]["us"]) for way in WAYS}
        print(f"{call:55} {us['auto']:9.1f} us {us['generic']:10.1f} us {us['generic'] / us['auto']:7.2f} x")
        kernels = {way: ways[way]["kernel"] for way in WAYS}
        record["rows"].append({"call": call, "us": us, "kernels": kernels, "turns": ways})
    peer_record.write(record, options.out)


if __name__ == "__main__":
    main()
