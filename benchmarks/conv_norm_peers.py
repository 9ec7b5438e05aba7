#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the short convolution (prefill and update) and the gated RMSNorm on a GPU beside FLA's Triton
kernels and, where it can be imported, Dao's causal_conv1d, in one process: time of a call without host time
(graph_time.py; calls take turns), difference of the outputs. --out writes JSON.

    python benchmarks/conv_norm_peers.py [--out FILE]

Channels and heads are Qwen3-Next's (8192 channels, 32 heads of 128), bfloat16, width 4, SiLU, channels last.
"""

import peer_record
import torch
from fla.modules.causal_conv1d import causal_conv1d_fwd, causal_conv1d_update
from fla.modules.norm.fused_norm_gate import rms_norm_gated
from graph_time import difference, milliseconds_of
from sluice import ops

try:
    from causal_conv1d import causal_conv1d_fn as dao_conv
    from causal_conv1d import causal_conv1d_update as dao_update
except ImportError:
    dao_conv = dao_update = None

CHANNELS, HEADS, D, W = 8192, 32, 128, 4
REPEAT = 31


def normal(*shape):
    return torch.randn(*shape, dtype=torch.bfloat16, device="cuda")


def no_state():
    """There is none to reset."""


def conv(T):
    """Prefill of one sequence."""
    x, weight, out = normal(1, T, CHANNELS), normal(CHANNELS, W), normal(1, T, CHANNELS)
    theirs = {"fla": lambda: causal_conv1d_fwd(x, weight, None, None, activation="silu")[0]}
    if dao_conv:
        theirs["dao"] = lambda: dao_conv(x.mT, weight, activation="silu").mT
    return lambda: ops.causal_conv1d(x, weight, out=out, activation="silu"), theirs, out, no_state


def update(B):
    """One token of B sequences, states replaced in place."""
    x, weight, out = normal(B, 1, CHANNELS), normal(CHANNELS, W), normal(B, 1, CHANNELS)
    state = torch.zeros(B, CHANNELS, W, dtype=torch.bfloat16, device="cuda")
    theirs = {"fla": lambda: causal_conv1d_update(x, state, None, weight, None, "silu")[0]}
    if dao_update:
        theirs["dao"] = lambda: dao_update(x[:, 0], state, weight, activation="silu")

    def ours():
        ops.causal_conv1d(x, weight, out=out, initial_state=state, final_state=state, activation="silu")

    return ours, theirs, out, state.zero_


def norm(T):
    x, z, weight, out = normal(T * HEADS, D), normal(T * HEADS, D), normal(D), normal(T * HEADS, D)
    theirs = {"fla": lambda: rms_norm_gated(x, z, weight, None)}
    return lambda: ops.gated_rms_norm(x, z, weight, out=out), theirs, out, no_state


def main():
    parser = peer_record.parser(__doc__)
    options = parser.parse_args()
    record = peer_record.start(
        "conv_norm_peers", options.commit, ("torch", "triton", "flash-linear-attention", "causal-conv1d"))
    cells = [(conv, T) for T in (512, 1024, 2048, 4096, 8192, 32768)]
    cells += [(update, B) for B in (1, 32, 256)] + [(norm, T) for T in (1, 256, 8192, 32768)]
    print(f"{'op':>7} {'T or B':>7} {'us':>9}  peers: us, x, difference")
    for make, size in cells:
        ours, theirs, out, reset = make(size)
        apart = {}
        for name, call in theirs.items():
            reset()
            ours()
            reset()
            apart[name] = difference(out.flatten(), call().flatten())
        mine, *others = (1e3 * ms for ms in milliseconds_of([ours, *theirs.values()], REPEAT))
        row = {"op": make.__name__, "size": size, "us": mine, "peers": {}}
        for name, us in zip(theirs, others):
            row["peers"][name] = {"us": us, "difference": apart[name]}
        record["rows"].append(row)
        peers = "; ".join(f"{n} {p['us']:.1f}, {p['us'] / row['us']:.2f}, {p['difference']:.0e}"
                          for n, p in row["peers"].items())
        print(f"{row['op']:>7} {size:>7} {row['us']:9.1f}  {peers}", flush=True)
    peer_record.write(record, options.out)


if __name__ == "__main__":
    main()
