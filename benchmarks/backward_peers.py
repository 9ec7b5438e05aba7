#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the backward pass of the chunked gated delta rule on a GPU beside FLA's and FlashQLA's, in one process and
on the same inputs: median of calls that find the L2 full of other data, torch's autograd of each side's function
recorded in a CUDA graph, the backward pass alone, so that no side's host time counts; and the difference of every
gradient, ours from each peer's and the peers' from each other. --out writes JSON.

    python benchmarks/backward_peers.py [--shapes 1x8192x16x32,4x8192x16x32] [--peers fla,flashqla] [--out FILE]

Shapes are sequences x tokens x H x HV, more than one sequence packed; K = V = 128, bfloat16, gates -U(0, 0.1),
beta U(0, 1), l2 norm of q and k inside. Peers compile and tune their kernels in their first calls, which are not
timed. A peer that is not here, or does not take a shape, is an entry that says why. "timed" is "queued" where a
pass cannot be captured: then it is queued behind a kernel that waits.

On Hopper with Triton from 3.4.0 to before 3.7.1 FLA's backward pass refuses (its issue 640) unless tilelang is
here, whose kernel it then takes by itself. FLA calls FlashQLA where that is installed; the script turns that off.
"""

import importlib
import itertools
import os
import time

import peer_record
import torch
from graph_time import Queued, difference, graph_or_queued, milliseconds_of_graphs
from sluice import chunk_gated_delta_rule as our_rule
from triton_tuning import compile_at_once

D = 128
NAMES = ("q", "k", "v", "g", "beta")
LADDER = "1x1024x16x32,1x8192x16x32,1x32768x16x32,4x8192x16x32,1x8192x16x16,4x8192x16x16"
PEERS = {"fla": "fla.ops.gated_delta_rule", "flashqla": "flash_qla"}
PACKAGES = ("torch", "triton", "flash-linear-attention", "fla-core", "flash-qla", "tilelang", "apache-tvm-ffi")
SWITCHES = ("FLA_FLASH_QLA", "FLA_TILELANG", "FLA_USE_FAST_OPS", "FLA_USE_TMA")


def rule_of(peer):
    """A peer's public function, imported when it is called: a peer that is not here fails there."""
    # WHY: FLA hands the call to FlashQLA where it finds that, and the row would be FlashQLA's twice.
    os.environ["FLA_FLASH_QLA"] = "0"

    def rule(*inputs, **options):
        return importlib.import_module(PEERS[peer]).chunk_gated_delta_rule(*inputs, **options)

    return rule


def problem(count, tokens, H, HV, device="cuda"):
    """Inputs that require gradients, what else every side takes, and the gradient of o."""
    rows = count * tokens
    q, k = (torch.randn(1, rows, H, D, device=device).bfloat16() for _ in range(2))
    v, d_o = (torch.randn(1, rows, HV, D, device=device).bfloat16() for _ in range(2))
    g, beta = -0.1 * torch.rand(1, rows, HV, device=device), torch.rand(1, rows, HV, device=device)
    inputs = [x.requires_grad_() for x in (q, k, v, g, beta)]
    options = {"scale": D**-0.5, "use_qk_l2norm_in_kernel": True}
    if count > 1:
        options["cu_seqlens"] = torch.arange(0, rows + 1, tokens, dtype=torch.int64, device=device)
    return inputs, options, d_o


def backward_graph(rule, inputs, options, d_o):
    """A CUDA graph of the backward pass alone, the gradients that it writes, and o, which keeps what it reads."""
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
    return graph, gradients, o


def backward_queued(rule, inputs, options, d_o):
    """The same of a pass that cannot be captured."""
    o = rule(*inputs, **options)[0]
    queued = Queued(lambda: torch.autograd.grad(o, inputs, d_o, retain_graph=True))
    return queued, queued.replay(), o


class Side:
    """What is timed of a function, its backward pass and its forward pass, and its gradients."""

    def __init__(self, rule, inputs, options, d_o):
        self.why = None
        try:
            self.backward, gradients, self.o = backward_graph(rule, inputs, options, d_o)
        except Exception as error:
            self.why = text(error)
            self.backward, gradients, self.o = backward_queued(rule, inputs, options, d_o)
        self.gradients = [gradient.clone() for gradient in gradients]
        with torch.no_grad():
            self.forward = graph_or_queued(lambda: rule(*inputs, **options))

    def entry(self, ms, forward_ms):
        found = {"ms": ms, "forward_ms": forward_ms, "timed": how(self.backward), "forward_timed": how(self.forward)}
        return found | ({"not_captured": self.why} if self.why else {})


def how(timed):
    return "queued" if isinstance(timed, Queued) else "graph"


def text(error):
    return f"{type(error).__name__}: {str(error)[:300]}"


def differences(gradients, others):
    return {name: difference(a, b) for name, a, b in zip(NAMES, gradients, others)}


def row(shape, peers, device="cuda"):
    """All backward passes in turns, then all forward passes of the same inputs."""
    given = problem(*map(int, shape.split("x")), device=device)
    ours, theirs, found = Side(our_rule, *given), {}, {}
    for name, rule in peers.items():
        try:
            theirs[name] = Side(rule, *given)
        except Exception as error:  # a peer's failure is a result
            found[name] = {"failure": text(error)}
    sides = [ours, *theirs.values()]
    ms = milliseconds_of_graphs([side.backward for side in sides])
    with torch.no_grad():
        forward_ms = milliseconds_of_graphs([side.forward for side in sides])
    for (name, side), *times in zip(theirs.items(), ms[1:], forward_ms[1:]):
        found[name] = side.entry(*times) | {"times_ours": times[0] / ms[0]}
        found[name]["difference"] = differences(ours.gradients, side.gradients)
    between = {f"{a} from {b}": differences(theirs[a].gradients, theirs[b].gradients)
               for a, b in itertools.combinations(theirs, 2)}
    return {"shape": shape} | ours.entry(ms[0], forward_ms[0]) | {"peers": found, "difference_of_peers": between}


def shown(found):
    """The lines of a row."""
    if "failure" in found:
        return f"{found['shape']:>16}  failed: {found['failure']}"
    lines = [f"{found['shape']:>16}  {'sluice':<8} {found['ms']:8.3f}         forward {found['forward_ms']:.3f}"]
    for name, peer in found["peers"].items():
        line = f"{'':16}  {name:<8} "
        if "failure" in peer:
            lines.append(f"{line}failed: {peer['failure']}")
            continue
        differs = ", ".join(f"{gradient} {x:.1e}" for gradient, x in peer["difference"].items())
        lines.append(f"{line}{peer['ms']:8.3f}  {peer['times_ours']:5.2f}  forward {peer['forward_ms']:.3f}, "
                     f"{peer['timed']}; ours differs: {differs}")
    for pair, gradients in found["difference_of_peers"].items():
        lines.append(f"{'':18}{pair}: " + ", ".join(f"{gradient} {x:.1e}" for gradient, x in gradients.items()))
    return "\n".join(lines)


def main(arguments=None):
    parser = peer_record.parser(__doc__)
    parser.add_argument("--shapes", default=LADDER, help="default: %(default)s")
    parser.add_argument("--peers", default=",".join(PEERS), help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=240, help="no new shape after so many")
    options = parser.parse_args(arguments)
    record = peer_record.start("backward_peers", options.commit, PACKAGES)
    peers = {name: rule_of(name) for name in options.peers.split(",")}
    record["switches"] = {name: os.environ[name] for name in SWITCHES if name in os.environ}
    torch.set_grad_enabled(True)
    compile_at_once()
    start = time.time()
    for shape in options.shapes.split(","):
        if time.time() - start > options.seconds:
            break
        try:
            found = row(shape, peers)
        except Exception as error:
            found = {"shape": shape, "failure": text(error)}
        record["rows"].append(found | {"seconds": round(time.time() - start, 1)})
        print(shown(found), flush=True)
        peer_record.write(record, options.out)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
