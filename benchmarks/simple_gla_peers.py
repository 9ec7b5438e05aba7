#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures simple GLA and its stage chunk_o on a GPU beside FLA's Triton kernels, in one process: median of
calls that find the L2 full of other data, launches recorded in CUDA graphs so that neither side's host time
counts; the difference of the outputs. --out writes JSON.

    python benchmarks/simple_gla_peers.py [--shapes 24x6144x20,1x8192x16] [--seconds 60] [--out FILE]

Shapes are batch x tokens x heads, K = V = 128, bfloat16, chunks of 64, gates -U(0, 0.1). FLA tunes its kernels
in its first call, which is not timed.
"""

import time

import peer_record
import torch
from fla.ops.common.chunk_h import chunk_fwd_h
from fla.ops.common.chunk_o import chunk_fwd_o
from fla.ops.simple_gla import chunk_simple_gla
from fla.ops.utils import chunk_local_cumsum
from fla.ops.utils.constant import RCP_LN2
from graph_time import difference, milliseconds
from sluice import ops

D, RULE = 128, "linear_attention"
LADDER = "24x6144x20," + ",".join(f"1x{1024 * n}x16" for n in (1, 2, 4, 8, 16, 32, 64, 128))


def rows(B, T, H):
    """One row for the operator, one for the stage on given states."""
    q, k, v = (torch.randn(B, T, H, D, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    g = -0.1 * torch.rand(B, T, H, device="cuda")
    scale = D**-0.5
    o = torch.empty_like(v)
    out = {}

    def ours():
        ops.chunk_stage("chunk_o", q=q, k=k, v=v, gate=g, o=o, scale=scale, rule=RULE)

    def theirs():
        out["o"] = chunk_simple_gla(q, k, v, g=g, scale=scale)[0]

    row = {"what": "simple_gla", "ms": milliseconds(ours), "fla_ms": milliseconds(theirs)}
    yield row | {"difference": difference(o, out["o"])}
    G = chunk_local_cumsum(g, chunk_size=64)
    theirs_G = chunk_local_cumsum(g, chunk_size=64, scale=RCP_LN2)  # FLA's kernels raise 2 to it
    h, _ = chunk_fwd_h(k, v, g=theirs_G, chunk_size=64)
    h = h.view(B, -1, H, D, D)

    def our_stage():
        ops.chunk_stage("chunk_o", q=q, k=k, v=v, g_cumsum=G, h=h, o=o, scale=scale, rule=RULE)

    def their_stage():
        out["o"] = chunk_fwd_o(q, k, v, h, g=theirs_G, scale=scale, chunk_size=64)

    row = {"what": "chunk_o", "ms": milliseconds(our_stage), "fla_ms": milliseconds(their_stage)}
    yield row | {"difference": difference(o, out["o"])}


def main():
    parser = peer_record.parser(__doc__)
    parser.add_argument("--shapes", default=LADDER, help=f"default: {LADDER}")
    parser.add_argument("--seconds", type=float, default=60, help="no new shape after so many")
    options = parser.parse_args()
    record = peer_record.start("simple_gla_peers", options.commit, ("torch", "triton", "flash-linear-attention"))
    print(f"{'B x T x H':>14}  {'what':<10}  {'ms':>8}  {'FLA ms':>8}  {'x':>5}  differs")
    start = time.time()
    for shape in options.shapes.split(","):
        if time.time() - start > options.seconds:
            break
        for row in rows(*map(int, shape.split("x"))):
            record["rows"].append({"shape": shape} | row)
            print(f"{shape:>14}  {row['what']:<10}  {row['ms']:8.4f}  {row['fla_ms']:8.4f}  "
                  f"{row['fla_ms'] / row['ms']:5.2f}  {row['difference']:.1e}", flush=True)
    peer_record.write(record, options.out)


if __name__ == "__main__":
    main()
