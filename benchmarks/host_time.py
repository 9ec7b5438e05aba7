#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what calls from Python cost on the host, beside torch.add(out=) as the unit, and what the
longest of them consist of. Tensors are so small that the work in them is next to nothing.

A row is a call: the least, the median and the quartiles of rounds of calls, in microseconds, and the
median of its rounds over rounds of torch.add that take turns with them: hosts change their pace within
a run, and this ratio does not. On a machine with other work the least is the cost. On a GPU the
launches are in it and the device's time is not: the queue is emptied between rounds, outside of the
time, and never fills. Rows of a backward pass begin when its forward pass is over; "in this thread" is
without torch's own threads for backward passes (torch.autograd.set_multithreading_enabled(False)), "in a
row" one after the other, each of a forward pass of its own, without waiting for the GPU in between.
"""

import argparse
import json
import os
import pathlib
import shlex
import statistics
import sys
import time

import numpy as np
import sluice
import torch
from sluice import _core, ops
from sluice_tools import whole_file

EXAMPLES = """examples:
  python benchmarks/host_time.py                                all rows on the CPU
  python benchmarks/host_time.py --device cuda --out FILE       on a GPU, with a record
  python benchmarks/host_time.py --only backward,layer          the rows whose names have these words
  python benchmarks/host_time.py --mode grad --calls 500        longer rounds, gradients enabled
"""


class Inputs:
    """The tensors of all calls: one sequence, one head. On a GPU rows of 16 bits and K = V = 128, so
    that the kernels which Hopper has for them run; on a CPU float32 and K = V = 4."""

    def __init__(self, device, tokens):
        self.device, self.D = device, 128 if device == "cuda" else 4
        self.rows = torch.bfloat16 if device == "cuda" else torch.float32
        self.tokens = tokens or (64 if device == "cuda" else 2)
        self.prefill, self.decode = self._delta_rule(self.tokens), self._delta_rule(1)
        self.key_gates = self._new(1, self.tokens, 1, self.D, kind=torch.float32)
        q, k, v, _, beta, _ = self._delta_rule(64)
        gates = self._new(1, 64, 1, self.D, kind=torch.float32)
        self.long = [x.bfloat16() for x in (q, k, v)] + [gates, beta]
        self.state, self.initial = (self._state() for _ in range(2))
        self.slots = torch.zeros(1, dtype=torch.int32, device=device)
        self.layer = self._layer()

    def _new(self, *shape, kind=None):
        values = -0.1 * torch.rand(shape, device=self.device)
        return values.to(kind or self.rows)

    def _state(self):
        return torch.zeros(1, 1, self.D, self.D, device=self.device)

    def _delta_rule(self, tokens):
        """q, k, v, gates, beta, o."""
        q, k, v, o = (self._new(1, tokens, 1, self.D) for _ in range(4))
        gate, beta = (self._new(1, tokens, 1, kind=torch.float32) for _ in range(2))
        return q, k, v, gate, -beta, o

    def _layer(self):
        """The arguments of gdn_layer_decode: one token of a layer of width 3 D."""
        D, wide = self.D, 3 * self.D
        heads = dict(num_k_heads=1, num_v_heads=1, head_k_dim=D, head_v_dim=D)
        weights = dict(
            conv_weight=self._new(wide, 4), A_log=self._new(1, kind=torch.float32),
            dt_bias=self._new(1, kind=torch.float32), norm_weight=self._new(D)
        )
        pools = dict(conv_state=self._new(1, wide, 3), state=self._state())
        projections = [self._new(1, 1, width) for width in (wide, D, 1, 1)]
        return projections, dict(heads, **weights, **pools, out=self._new(1, 1, 1, D))


class Bench:
    """Times calls and keeps their rows."""

    def __init__(self, options):
        self.options, self.rows = options, []
        self.wait = torch.cuda.synchronize if options.device == "cuda" else lambda: None
        self.words = options.only.split(",")
        a, b, c = (torch.zeros(4, device=options.device) for _ in range(3))
        self.unit = lambda: torch.add(a, b, out=c)

    def row(self, mode, name, call, before=None, in_a_row=False):
        """Times call(), or call(x) with x = before(), which is not in the time."""
        if not any(word in name for word in self.words):
            return
        run = self._round if before is None else self._round_of_pairs
        if in_a_row:
            run = self._round_in_a_row
        for _ in range(3):
            run(call, before)
        pairs = [(run(call, before), self._round(self.unit, None)) for _ in range(self.options.rounds)]
        times = sorted(us for us, _ in pairs)
        low, middle, high = statistics.quantiles(times, n=4)
        ratio = statistics.median(us / unit for us, unit in pairs)
        self.rows.append(dict(mode=mode, name=name, us=middle, us_min=times[0], us_low=low, us_high=high,
                              over_add=ratio, add_us=statistics.median(unit for _, unit in pairs)))
        print(f"{mode:9} {name:60} {times[0]:8.2f} {middle:8.2f} ({low:.2f} .. {high:.2f}){ratio:8.2f}",
              flush=True)

    def _round(self, call, _):
        self.wait()
        start = time.perf_counter_ns()
        for _ in range(self.options.calls):
            call()
        spent = time.perf_counter_ns() - start
        self.wait()
        return spent / self.options.calls / 1000

    def _round_of_pairs(self, call, before):
        spent = 0
        for _ in range(self.options.calls):
            argument = before()
            self.wait()
            start = time.perf_counter_ns()
            call(argument)
            spent += time.perf_counter_ns() - start
        self.wait()
        return spent / self.options.calls / 1000

    def _round_in_a_row(self, call, before):
        arguments = [before() for _ in range(self.options.calls)]
        self.wait()
        start = time.perf_counter_ns()
        for argument in arguments:
            call(argument)
        spent = time.perf_counter_ns() - start
        self.wait()
        return spent / self.options.calls / 1000


def prefill_rows(bench, mode, x):
    """Prefills, and what two of them call."""
    q, k, v, gate, beta, o = x.prefill
    bench.row(mode, "torch.add, out given", bench.unit)
    bench.row(mode, "torch.empty_like", lambda: torch.empty_like(o))
    bench.row(mode, "prefill: _core.chunk_forward",
              lambda: CORE["chunk_forward", mode](q=q, k=k, v=v, gate=gate, beta=beta, o=o))
    bench.row(mode, "prefill: ops.chunk_forward, outputs given",
              lambda: ops.chunk_forward(q, k, v, gate, beta, o=o))
    bench.row(mode, "prefill: chunk_gated_delta_rule",
              lambda: sluice.chunk_gated_delta_rule(q, k, v, gate, beta))
    bench.row(mode, "prefill: the same with states and l2 norm", lambda: sluice.chunk_gated_delta_rule(
        q, k, v, gate, beta, initial_state=x.initial, output_final_state=True,
        use_qk_l2norm_in_kernel=True))
    g = x.key_gates
    bench.row(mode, "key-wise: _core.chunk_forward",
              lambda: CORE["chunk_forward", mode](q=q, k=k, v=v, gate=g, beta=beta, o=o))
    bench.row(mode, "key-wise: ops.chunk_forward, outputs given",
              lambda: ops.chunk_forward(q, k, v, g, beta, o=o))
    bench.row(mode, "key-wise: ops.chunk_forward with states and l2 norm", lambda: ops.chunk_forward(
        q, k, v, g, beta, o=o, initial_state=x.initial, final_state=x.state, qk_norm="l2"))
    long = x.long
    bench.row(mode, "key-wise: fused_recurrent_kda, more rows than a step",
              lambda: sluice.fused_recurrent_kda(*long))
    bench.row(mode, "key-wise: the same, chunks allowed",
              lambda: sluice.fused_recurrent_kda(*long, allow_chunks=True))


def step_rows(bench, mode, x):
    """Decode steps in place, by every way in, and layer steps."""
    q, k, v, gate, beta, o = x.decode
    named = dict(q=q, k=k, v=v, gate=gate, beta=beta, o=o, initial_state=x.state, read_slots=x.slots)
    bench.row(mode, "step: _core.recurrent_step", lambda: CORE["recurrent_step", mode](**named))
    bench.row(mode, "step: _core.supported of it", lambda: _core.supported("recurrent_step", **named))
    bench.row(mode, "step: ops.recurrent_step, out given", lambda: ops.recurrent_step(
        q, k, v, gate, beta, o=o, initial_state=x.state, read_slots=x.slots))

    def fla(out):
        sluice.fused_recurrent_gated_delta_rule(
            q, k, v, gate, beta=beta, initial_state=x.state, final_state=x.state, read_slots=x.slots,
            out=out)

    bench.row(mode, "step: fused_recurrent_gated_delta_rule, out given", lambda: fla(o))
    bench.row(mode, "step: the same, o allocated", lambda: fla(None))
    fla(o)  # the first call registers torch.ops
    bench.row(mode, "step: torch.ops.sluice.recurrent_step_",
              lambda: torch.ops.sluice.recurrent_step_(**named))
    rows, rest = x.layer
    core = dict(zip(("qkv", "z", "b", "a"), rows), **rest, gate_activation="silu")
    core["conv_initial"], core["initial_state"] = core.pop("conv_state"), core.pop("state")
    bench.row(mode, "layer: _core.layer_decode", lambda: CORE["layer_decode", mode](**core))
    bench.row(mode, "layer: ops.layer_decode, out given", lambda: ops.layer_decode(**core))
    bench.row(mode, "layer: gdn_layer_decode, out given", lambda: sluice.gdn_layer_decode(*rows, **rest))
    without = dict(rest, out=None)
    bench.row(mode, "layer: the same, out allocated", lambda: sluice.gdn_layer_decode(*rows, **without))


class Nothing(torch.autograd.Function):
    """torch's own part of a gradient: an operation on as many tensors that computes nothing."""

    @staticmethod
    def forward(ctx, o, *given):
        ctx.save_for_backward(*given)
        ctx.mark_dirty(o)
        return o

    @staticmethod
    def backward(ctx, d_o):
        return None, *(torch.empty_like(x) for x in ctx.saved_tensors)


class Given(torch.autograd.Function):
    """The least that a gradient of five inputs costs: gradients that are there already, nothing is saved."""

    @staticmethod
    def forward(ctx, o, found, *given):
        ctx.found = found
        ctx.mark_dirty(o)
        return o

    @staticmethod
    def backward(ctx, d_o):
        return None, None, *ctx.found


def gradient_rows(bench, x):
    """Calls that autograd records, their backward passes, and what both consist of."""
    *leaves, o = (t.clone() for t in x.prefill)
    leaves = [leaf.requires_grad_() for leaf in leaves]
    d_o = torch.ones_like(o)

    def forward():
        return sluice.chunk_gated_delta_rule(*leaves)[0]

    def again():
        for leaf in leaves:
            leaf.grad = None
        return forward()

    def nothing():
        return Nothing.apply(torch.empty_like(o), *leaves)

    rows = dict(zip(("q", "k", "v", "gate", "beta"), x.prefill), d_o=d_o)
    grads = {f"d{name}": torch.empty_like(t) for name, t in rows.items() if name != "d_o"}
    bench.row("grad", "recorded: torch's part, an operation of five inputs", nothing)
    bench.row("grad", "recorded: chunk_gated_delta_rule, inputs require gradients", forward)
    bench.row("grad", "backward: torch's part, an operation of five inputs",
              lambda y: torch.autograd.grad(y, leaves, d_o), nothing)
    bench.row("grad", "backward: _core.chunk_backward, gradients given",
              lambda: _core.chunk_backward(**rows, **grads))
    bench.row("grad", "backward: ops.chunk_backward", lambda: ops.chunk_backward(**rows))
    bench.row("grad", "backward: torch.autograd.grad",
              lambda y: torch.autograd.grad(y, leaves, d_o), forward)
    found = tuple(grads.values())

    def given():
        return Given.apply(torch.empty_like(o), found, *leaves)

    def copy():
        return leaves[0].clone()

    def grad_of(inputs):
        return lambda y: torch.autograd.grad(y, inputs, d_o)

    with torch.autograd.set_multithreading_enabled(False):
        for in_a_row in (False, True):
            where = "in a row" if in_a_row else "in this thread"
            for name, inputs, before in (
                ("an operation of torch's with one input", leaves[0], copy),
                ("torch's part, gradients given", leaves, given),
                ("torch's part", leaves, nothing),
                ("torch.autograd.grad", leaves, forward),
            ):
                bench.row("grad", f"backward: {name}, {where}", grad_of(inputs), before, in_a_row)
    bench.row("grad", "backward: o.backward(), gradients left in leaves",
              lambda y: y.backward(d_o), again)


def numpy_rows(bench):
    """A decode step of NumPy arrays, and a refusal."""
    floats = [np.full(shape, 0.01, np.float32) for shape in [(1, 1, 1, 4)] * 3 + [(1, 1, 1)] * 2]
    o, state = np.zeros((1, 1, 1, 4), np.float32), np.zeros((1, 1, 4, 4), np.float32)
    slots = np.zeros(1, np.int32)
    named = dict(zip(("q", "k", "v", "gate", "beta"), floats), o=o, initial_state=state, read_slots=slots)

    def fla(out):
        sluice.fused_recurrent_gated_delta_rule(
            *floats[:4], beta=floats[4], initial_state=state, final_state=state, read_slots=slots, out=out)

    def refused():
        try:
            _core.recurrent_step(nothing=None)
        except TypeError:
            pass

    bench.row("numpy", "refused keyword, with its exception", refused)
    bench.row("numpy", "step: _core.recurrent_step", lambda: _core.recurrent_step(**named))
    bench.row("numpy", "step: ops.recurrent_step, out given", lambda: ops.recurrent_step(**named))
    bench.row("numpy", "step: fused_recurrent_gated_delta_rule, out given", lambda: fla(o))
    bench.row("numpy", "step: the same, o allocated", lambda: fla(None))


# The extension's function of an operator and a mode.
CORE = {(op, mode): getattr(_core, op + suffix)
        for op in ("chunk_forward", "recurrent_step", "layer_decode")
        for mode, suffix in (("inference", ""), ("grad", "_recorded"))}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--mode", choices=("all", "inference", "grad", "numpy"), default="all",
                        help="torch in inference mode, or with gradients enabled; NumPy")
    parser.add_argument("--only", default="", metavar="WORDS", help="rows whose names have one of these")
    parser.add_argument("--tokens", type=int, default=0, help="of a prefill; default 64, on a CPU 2")
    parser.add_argument("--calls", type=int, default=0, help="a round; default 200, on a GPU 20")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--commit", default="unknown", help="written to the record")
    parser.add_argument("--out", metavar="FILE", help="a record in JSON")
    options = parser.parse_args()
    # 20 backward passes stay far below the 1024 launches that a queue holds.
    options.calls = options.calls or (20 if options.device == "cuda" else 200)
    return options


def write(options, rows):
    device = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    command = shlex.join(["benchmarks/host_time.py", *sys.argv[1:]])
    record = dict(schema="sluice.bench.host_time/1", device=device, commit=options.commit, command=command,
                  sluice=sluice.__version__, torch=torch.__version__, numpy=np.__version__,
                  calls=options.calls, rounds=options.rounds, load=os.getloadavg()[0], rows=rows)
    whole_file.write(pathlib.Path(options.out), json.dumps(record, indent=1) + "\n")


def main():
    options = arguments()
    sluice.set_num_threads(1)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    sluice.warm_up(options.device)
    bench = Bench(options)
    x = Inputs(options.device, options.tokens)
    print(f"Sluice {sluice.__version__}, torch {torch.__version__}, {options.device}: us, least, median "
          "(quartiles), over torch.add")
    for mode in ("inference", "grad"):
        if options.mode in ("all", mode):
            with torch.inference_mode(mode == "inference"):
                prefill_rows(bench, mode, x)
                step_rows(bench, mode, x)
    if options.mode in ("all", "grad"):
        gradient_rows(bench, x)
    if options.mode in ("all", "numpy"):
        numpy_rows(bench)
    if options.out:
        write(options, bench.rows)


if __name__ == "__main__":
    main()
