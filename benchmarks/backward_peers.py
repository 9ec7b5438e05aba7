#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the backward pass of the chunked gated delta rule on a GPU beside FLA's, in one process: median of
calls that find the L2 full of other data, torch's autograd of both recorded in CUDA graphs, the backward pass
alone, so that neither side's host time counts; the difference of every gradient. --out writes JSON.

    python benchmarks/backward_peers.py [--shapes 1x8192x16x32,4x8192x16x32] [--seconds 90] [--out FILE]

Shapes are sequences x tokens x H x HV, more than one sequence packed; K = V = 128, bfloat16, gates -U(0, 0.1),
beta U(0, 1), l2 norm of q and k inside. FLA tunes its kernels in its first calls, which are not timed.
"""

import time

import peer_record
import torch
from fla.ops.gated_delta_rule import chunk_gated_delta_rule as fla_rule
from graph_time import difference, milliseconds, milliseconds_of_graphs
from sluice import chunk_gated_delta_rule as our_rule

D = 128
NAMES = ("q", "k", "v", "g", "beta")
LADDER = "1x1024x16x32,1x8192x16x32,1x32768x16x32,4x8192x16x32,1x8192x16x16,4x8192x16x16"


def problem(count, tokens, H, HV):
    """Inputs that require gradients, what else both sides take, and the gradient of o."""
    rows = count * tokens
    q, k = (torch.randn(1, rows, H, D, device="cuda").bfloat16() for _ in range(2))
    v, d_o = (torch.randn(1, rows, HV, D, device="cuda").bfloat16() for _ in range(2))
    g, beta = -0.1 * torch.rand(1, rows, HV, device="cuda"), torch.rand(1, rows, HV, device="cuda")
    inputs = [x.requires_grad_() for x in (q, k, v, g, beta)]
    options = {"scale": D**-0.5, "use_qk_l2norm_in_kernel": True}
    if count > 1:
        options["cu_seqlens"] = torch.arange(0, rows + 1, tokens, dtype=torch.int64, device="cuda")
    return inputs, options, d_o


def backward_graph(rule, inputs, options, d_o):
    """A CUDA graph of the backward pass alone, and the gradients that it writes."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())

    # Autograd runs a backward pass on the stream of its forward pass: both on the one that captures.
    with torch.cuda.stream(stream):
        o = rule(*inputs, **options)[0]

        def backward():
            return torch.autograd.grad(o, inputs, d_o, retain_graph=True)

        for _ in range(2):
            backward()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            gradients = backward()
    torch.cuda.synchronize()
    graph.replay()
    torch.cuda.synchronize()
    return graph, gradients


def row(count, tokens, H, HV):
    """Both backward passes, and both forward passes of the same inputs."""
    inputs, options, d_o = problem(count, tokens, H, HV)
    ours, our_gradients = backward_graph(our_rule, inputs, options, d_o)
    theirs, their_gradients = backward_graph(fla_rule, inputs, options, d_o)
    ms, fla_ms = milliseconds_of_graphs([ours, theirs])
    found = {"ms": ms, "fla_ms": fla_ms}
    with torch.no_grad():
        found["forward_ms"] = milliseconds(lambda: our_rule(*inputs, **options))
        found["fla_forward_ms"] = milliseconds(lambda: fla_rule(*inputs, **options))
        pairs = zip(NAMES, our_gradients, their_gradients)
        return found | {"difference": {name: difference(a, b) for name, a, b in pairs}}


def main():
    parser = peer_record.parser(__doc__)
    parser.add_argument("--shapes", default=LADDER, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=90, help="no new shape after so many")
    options = parser.parse_args()
    record = peer_record.start("backward_peers", options.commit, ("torch", "triton", "flash-linear-attention"))
    torch.set_grad_enabled(True)
    print(f"{'shape':>16}  {'ms':>8}  {'FLA ms':>8}  {'x':>5}  forward ms, FLA's; gradients differ")
    start = time.time()
    for shape in options.shapes.split(","):
        if time.time() - start > options.seconds:
            break
        try:
            found = row(*map(int, shape.split("x")))
        except Exception as error:
            record["rows"].append({"shape": shape, "failure": f"{type(error).__name__}: {error}"})
            print(f"{shape:>16}  failed: {type(error).__name__}: {error}", flush=True)
            continue
        record["rows"].append({"shape": shape} | found)
        differs = ", ".join(f"{name} {x:.1e}" for name, x in found["difference"].items())
        print(f"{shape:>16}  {found['ms']:8.3f}  {found['fla_ms']:8.3f}  {found['fla_ms'] / found['ms']:5.2f}"
              f"  {found['forward_ms']:.3f}, {found['fla_forward_ms']:.3f}; {differs}", flush=True)
        torch.cuda.empty_cache()
    peer_record.write(record, options.out)


if __name__ == "__main__":
    main()
