#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures every stage of the chunk form, their sum, the whole chain and the one launch on a GPU beside FLA's
Triton kernels, in one process: median of calls that find the L2 full of other data, launches recorded in CUDA
graphs so that neither side's host time counts; the difference of the outputs. --out writes JSON.

    python benchmarks/stage_peers.py [--shapes 1x1024,1x8192,16x16384] [--seconds 90] [--out FILE]

Shapes are sequences x tokens, more than one sequence packed; 16 heads, K = V = 128, bfloat16, chunks of 64 on both
sides, gates -U(0, 0.1), beta U(0, 1), keys of length one. Every stage of either side reads what that side's own
stages before it wrote. FLA tunes its kernels in its first call, which is not timed; a kernel of it that fails is
a row that says so.
"""

import time

import peer_record
import torch
from fla.ops.common.chunk_delta_h import chunk_gated_delta_rule_fwd_h
from fla.ops.common.chunk_o import chunk_fwd_o
from fla.ops.common.chunk_scaled_dot_kkt import chunk_scaled_dot_kkt_fwd
from fla.ops.gated_delta_rule import chunk_gated_delta_rule
from fla.ops.gated_delta_rule.wy_fast import recompute_w_u_fwd
from fla.ops.utils import chunk_local_cumsum
from fla.ops.utils.constant import RCP_LN2
from fla.ops.utils.solve_tril import solve_tril
from graph_time import difference, milliseconds
from sluice import ops

HEADS, D, C = 16, 128, 64
STAGES = ("chunk_cumsum", "scaled_dot_kkt", "solve_tril", "wy_fast", "chunk_h", "chunk_o")


def inputs(count, tokens):
    """Projected tensors and offsets (None for one sequence) of one row."""
    rows = count * tokens
    q, k, v = (torch.randn(1, rows, HEADS, D, device="cuda") for _ in range(3))
    q, k = (torch.nn.functional.normalize(x, dim=-1).bfloat16() for x in (q, k))
    gate = -0.1 * torch.rand(1, rows, HEADS, device="cuda")
    beta = torch.rand(1, rows, HEADS, device="cuda")
    offsets = None
    if count > 1:
        offsets = torch.arange(0, rows + 1, tokens, dtype=torch.int64, device="cuda")
    return {"q": q, "k": k, "v": v.bfloat16(), "gate": gate, "beta": beta, "cu_seqlens": offsets}


def our_stages(x):
    """Stage name -> call without arguments, and the tensors that the stages write."""
    B, T, HV, K = x["k"].shape

    def empty(*shape, dtype=torch.bfloat16):
        return torch.empty(B, *shape, dtype=dtype, device=x["k"].device)

    sums = empty(T, HV, dtype=torch.float32)
    t = {"g_cumsum": sums, "A": empty(T, HV, C, dtype=torch.float32), "A_inverse": empty(T, HV, C),
         "w": empty(T, HV, K), "u": empty(T, HV, D), "v_new": empty(T, HV, D), "h": empty(T // C, HV, K, D),
         "o": empty(T, HV, D)}
    given = {name: x[name] for name in ("q", "k", "v", "beta", "cu_seqlens")} | t | {"scale": D**-0.5}

    def call(stage):
        gates = {"gate": x["gate"]} if stage == "chunk_cumsum" else {}
        return lambda: ops.chunk_stage(stage, **(given | gates))

    return {stage: call(stage) for stage in STAGES}, t


def their_stages(x):
    """The same of FLA; every call stores its results in the dictionary that comes second."""
    t = {}
    k, v, beta, seqs = x["k"], x["v"], x["beta"], {"cu_seqlens": x["cu_seqlens"]}

    def cumsum():
        t["G"] = chunk_local_cumsum(x["gate"], chunk_size=C, scale=RCP_LN2, **seqs)

    def kkt():
        t["A"] = chunk_scaled_dot_kkt_fwd(k, g=t["G"], beta=beta, chunk_size=C, **seqs)

    def solve():
        t["A_inverse"] = solve_tril(t["A"], output_dtype=k.dtype, **seqs)

    def wy():
        t["w"], t["u"] = recompute_w_u_fwd(k, v, beta, t["A_inverse"], g=t["G"], **seqs)

    def states():
        t["h"], t["v_new"], _ = chunk_gated_delta_rule_fwd_h(k, t["w"], t["u"], g=t["G"], **seqs)

    def outputs():
        t["o"] = chunk_fwd_o(x["q"], k, t["v_new"], t["h"], g=t["G"], scale=D**-0.5, chunk_size=C, **seqs)

    return dict(zip(STAGES, (cumsum, kkt, solve, wy, states, outputs))), t


def timed(call):
    """Milliseconds, or why there are none."""
    try:
        call()
        return milliseconds(call)
    except Exception as error:
        return f"failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def rows(count, tokens):
    """A row a stage, the sum, the chain and the whole operator."""
    x = inputs(count, tokens)
    ours, our_tensors = our_stages(x)
    theirs, their_tensors = their_stages(x)
    written = {"scaled_dot_kkt": "A", "solve_tril": "A_inverse", "wy_fast": "u", "chunk_h": "v_new", "chunk_o": "o"}
    total, their_total = 0.0, 0.0
    for stage in STAGES:
        row = {"what": stage, "ms": timed(ours[stage]), "fla_ms": timed(theirs[stage])}
        total += row["ms"]
        if isinstance(row["fla_ms"], str):
            their_total = row["fla_ms"]
        elif not isinstance(their_total, str):
            their_total += row["fla_ms"]
        name = written.get(stage)
        if name and name in their_tensors:
            row["difference"] = difference(our_tensors[name], their_tensors[name])
        yield row
    yield {"what": "sum", "ms": total, "fla_ms": their_total}

    def chain(stages):
        return lambda: [stages[stage]() for stage in STAGES]

    yield {"what": "chain", "ms": timed(chain(ours)), "fla_ms": timed(chain(theirs))}
    out = {}

    def one_launch():
        ops.chunk_forward(x["q"], x["k"], x["v"], gate=x["gate"], beta=x["beta"], o=our_tensors["o"],
                          cu_seqlens=x["cu_seqlens"], max_tokens=tokens if count > 1 else 0, scale=D**-0.5)

    def whole():
        out["o"], _ = chunk_gated_delta_rule(x["q"], x["k"], x["v"], x["gate"], x["beta"], scale=D**-0.5,
                                             cu_seqlens=x["cu_seqlens"])

    row = {"what": "whole", "ms": timed(one_launch), "fla_ms": timed(whole)}
    yield row | ({"difference": difference(our_tensors["o"], out["o"])} if out else {})


def line(shape, row):
    """One line of the table on the screen."""
    theirs = row["fla_ms"]
    if isinstance(theirs, str):
        return f"{shape:>12}  {row['what']:<14}  {row['ms']:8.4f}  {theirs}"
    differs = f"{row['difference']:.1e}" if "difference" in row else ""
    return f"{shape:>12}  {row['what']:<14}  {row['ms']:8.4f}  {theirs:8.4f}  {theirs / row['ms']:5.2f}  {differs}"


def main():
    parser = peer_record.parser(__doc__)
    parser.add_argument("--shapes", default="1x1024,1x8192,1x65536,16x16384", help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=90, help="no new shape after so many")
    options = parser.parse_args()
    record = peer_record.start("stage_peers", options.commit, ("torch", "triton", "flash-linear-attention"))
    print(f"{'shape':>12}  {'what':<14}  {'ms':>8}  {'FLA ms':>8}  {'x':>5}  differs")
    start = time.time()
    for shape in options.shapes.split(","):
        if time.time() - start > options.seconds:
            break
        for row in rows(*map(int, shape.split("x"))):
            record["rows"].append({"shape": shape} | row)
            print(line(shape, row), flush=True)
        torch.cuda.empty_cache()
    peer_record.write(record, options.out)


if __name__ == "__main__":
    main()
