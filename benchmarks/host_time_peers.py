#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what a call costs on the host beside peers: decode steps and prefills of the gated delta rule (GDN), and
prefills with bounded gates for each channel of k (KDA), by Sluice, FLA, FlashInfer and cuDNN's frontend. Each is
called as its users call it, in one process, on the same inputs, in turns with torch.add(out=) as the unit.

The rows are those of host_time.py, whose clock and inputs this uses: microseconds of the calling thread, so small
tensors that the work in them is next to nothing, the device's own time not in it. One sequence, K = V = 128,
bfloat16, float32 states that begin as zeros; as many heads as the least of --heads that a peer takes.

What a first call compiles or tunes is not in a row's time, but beside it (first_s), as is the largest difference
of its first output from Sluice's, over the largest number of that. A peer that is not here or refuses is a row with
its error in place of times. --out is written anew after each row: what a time limit cuts off loses no more.
"""

import argparse
import contextlib
import math
import os
import shlex
import sys
import time
from importlib import import_module

import peer_record
import sluice
import torch
from host_time import Bench, Inputs
from triton_tuning import compile_at_once

EXAMPLES = """examples:
  python benchmarks/host_time_peers.py --out FILE               all rows, with a record
  python benchmarks/host_time_peers.py --only decode,KDA        the rows whose names have these words
  python benchmarks/host_time_peers.py --seconds 240            no new row after four minutes
  python benchmarks/host_time_peers.py --device cpu             without a GPU: Sluice's rows, and how peers refuse
"""
PACKAGES = ("torch", "triton", "fla-core", "flashinfer-python", "nvidia-cudnn-frontend", "nvidia-cutlass-dsl",
            "nvidia-cutlass-dsl-libs-cu13", "apache-tvm-ffi", "cuda-bindings")
LOWER_BOUND = -5.0
MODULES = {"Sluice": ("sluice", "sluice"), "FLA": ("fla.ops.gated_delta_rule", "fla.ops.kda")}


class Problem:
    """The tensors of all rows: those of host_time.py, as often as there are heads."""

    def __init__(self, device, tokens, heads):
        x = Inputs(device, tokens)
        self.tokens, self.heads, self.D = x.tokens, heads, x.D
        self.slots, (_, layer) = x.slots, x.layer

        def wide(tensor, dim):
            return tensor.repeat_interleave(heads, dim)

        self.prefill = [wide(t, 2) for t in x.prefill[:5]]
        self.decode = [wide(t, 2) for t in x.decode[:5]]
        self.o = wide(x.decode[5], 2)
        self.key_gates, self.initial = wide(x.key_gates, 2), wide(x.initial, 1)
        (_, _, b, a), _ = x.layer
        self.a, self.b = wide(a, 2), wide(b, 2)
        self.A_log, self.dt_bias = (wide(layer[name], 0) for name in ("A_log", "dt_bias"))
        self.key_biases = -0.1 * torch.rand(heads * self.D, device=device)

    def state(self):
        return self.initial.clone()

    def offsets(self, kind):
        return torch.tensor([0, self.tokens], dtype=kind, device=self.initial.device)


def raw_gates(x):
    """What FLA's signature, which is Sluice's too, says of a step whose gates, beta and norm are the kernel's."""
    return dict(use_gate_in_kernel=True, A_log=x.A_log, dt_bias=x.dt_bias, use_beta_sigmoid_in_kernel=True,
                use_qk_l2norm_in_kernel=True)


def step_inputs(x, raw):
    q, k, v, gate, beta = x.decode
    return (q, k, v, x.a, x.b, raw_gates(x)) if raw else (q, k, v, gate, beta, {})


def step(peer, raw):
    """A decode step that returns a new state."""
    def make(x):
        rule = import_module(MODULES[peer][0]).fused_recurrent_gated_delta_rule
        q, k, v, gate, beta, options = step_inputs(x, raw)
        return lambda: rule(q, k, v, gate, beta=beta, initial_state=x.initial, output_final_state=True, **options)[0]

    return make


def step_in_place(raw):
    """Sluice's as serving engines call it: a pool of states, updated in place, and the output given."""
    def make(x):
        rule = sluice.fused_recurrent_gated_delta_rule
        q, k, v, gate, beta, options = step_inputs(x, raw)
        pool, out = x.state(), torch.empty_like(x.o)
        return lambda: rule(q, k, v, gate, beta=beta, initial_state=pool, final_state=pool, read_slots=x.slots,
                            out=out, **options)[0]

    return make


def flashinfer_step(x):
    """FlashInfer's step on states [B,HV,K,V], in place; it takes raw gates alone."""
    rule = import_module("flashinfer.gdn_decode").gated_delta_rule_decode
    (q, k, v, *_), state = x.decode, x.state()
    return lambda: rule(q, k, v, state, x.A_log, x.a, x.dt_bias, x.b)[0]


def flashinfer_step_in_place(x):
    """The same as serving engines call it: a pool of states [N,HV,V,K], and the output given."""
    rule = import_module("flashinfer.gdn_decode").gated_delta_rule_decode_pretranspose
    (q, k, v, *_), pool, out = x.decode, x.state(), torch.empty_like(x.o)
    return lambda: rule(q, k, v, None, x.A_log, x.a, x.dt_bias, x.b, output=out, initial_state=pool,
                        initial_state_indices=x.slots)[0]


def prefill(peer):
    def make(x):
        rule = import_module(MODULES[peer][0]).chunk_gated_delta_rule
        return lambda: rule(*x.prefill, initial_state=x.initial, output_final_state=True)[0]

    return make


def flashinfer_prefill(use_cp):
    """FlashInfer's takes packed sequences and linear gates, and cuts a sequence into pieces for more SMs by itself."""
    def make(x):
        rule = import_module("flashinfer.gdn_prefill").chunk_gated_delta_rule
        q, k, v, gate, beta = (tensor[0] for tensor in x.prefill)
        decay, offsets = gate.exp(), x.offsets(torch.int64)
        return lambda: rule(q, k, v, decay, beta, initial_state=x.initial, output_final_state=True,
                            cu_seqlens=offsets, use_cp=use_cp)[0]

    return make


def key_wise(peer, raw):
    """A KDA prefill: ready gates of -5 and above, or raw ones that the kernel bounds, with its l2 norm."""
    def make(x):
        rule = import_module(MODULES[peer][1]).chunk_kda
        q, k, v, _, beta = x.prefill
        options = {}
        if raw:
            options = dict(use_gate_in_kernel=True, A_log=x.A_log, dt_bias=x.key_biases, lower_bound=LOWER_BOUND,
                           use_qk_l2norm_in_kernel=True)
        return lambda: rule(q, k, v, x.key_gates, beta, initial_state=x.initial, output_final_state=True,
                            safe_gate=True, **options)[0]

    return make


def cudnn_key_wise(raw):
    """cuDNN's, by the name of its engine for Hopper: where that refuses, the row says so instead of another's time."""
    def make(x):
        rule = import_module("cudnn.linear_attention").kimi_delta_attention
        q, k, v, _, beta = (tensor[0] for tensor in x.prefill)
        gates, offsets, options = x.key_gates[0], x.offsets(torch.int32), {}
        if raw:
            options = dict(safe_gate=True, gate_lower_bound=LOWER_BOUND, a_log=x.A_log,
                           dt_bias=x.key_biases.view(x.heads, x.D), use_qk_l2norm_in_kernel=True)
        return lambda: rule(q, k, v, gates, beta, offsets, initial_state=x.initial, output_final_state=True,
                            plan_name="kda_hopper_cuda", **options)[0]

    return make


# Operations, and Sluice's calls to whose outputs the others' are compared.
STEP, STEP_RAW, PREFILL = "GDN decode", "GDN decode, raw", "GDN prefill"
KDA, KDA_RAW = "KDA prefill", "KDA prefill, raw"
OURS = {STEP: step("Sluice", False), STEP_RAW: step("Sluice", True), PREFILL: prefill("Sluice"),
        KDA: key_wise("Sluice", False), KDA_RAW: key_wise("Sluice", True)}
# FlashInfer's prefills, which take longest to compile, come last.
ROWS = (
    (STEP, "Sluice", "fused_recurrent_gated_delta_rule", OURS[STEP]),
    (STEP, "Sluice", "the same in place, out given", step_in_place(False)),
    (STEP_RAW, "Sluice", "fused_recurrent_gated_delta_rule", OURS[STEP_RAW]),
    (STEP_RAW, "Sluice", "the same in place, out given", step_in_place(True)),
    (PREFILL, "Sluice", "chunk_gated_delta_rule", OURS[PREFILL]),
    (KDA, "Sluice", "chunk_kda", OURS[KDA]),
    (KDA_RAW, "Sluice", "chunk_kda", OURS[KDA_RAW]),
    (STEP, "FLA", "fused_recurrent_gated_delta_rule", step("FLA", False)),
    (STEP_RAW, "FLA", "fused_recurrent_gated_delta_rule", step("FLA", True)),
    (PREFILL, "FLA", "chunk_gated_delta_rule", prefill("FLA")),
    (KDA, "FLA", "chunk_kda", key_wise("FLA", False)),
    (KDA_RAW, "FLA", "chunk_kda", key_wise("FLA", True)),
    (STEP_RAW, "FlashInfer", "gated_delta_rule_decode", flashinfer_step),
    (STEP_RAW, "FlashInfer", "gated_delta_rule_decode_pretranspose", flashinfer_step_in_place),
    (KDA, "cuDNN", "kimi_delta_attention", cudnn_key_wise(False)),
    (KDA_RAW, "cuDNN", "kimi_delta_attention", cudnn_key_wise(True)),
    (PREFILL, "FlashInfer", "chunk_gated_delta_rule, use_cp=False", flashinfer_prefill(False)),
    (PREFILL, "FlashInfer", "chunk_gated_delta_rule", flashinfer_prefill("auto")),
)


@contextlib.contextmanager
def tuned_at_once(peer):
    """In it Triton compiles what FLA's kernels are tuned from at once; after it the autotuner is what users have."""
    if peer != "FLA":
        yield
        return
    from triton.runtime.autotuner import Autotuner

    kept = {name: value for name, value in vars(Autotuner).items() if name in ("run", "check_disk_cache")}
    compile_at_once()
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(Autotuner, name, value)


def difference(o, ours):
    """The largest difference of two outputs over the largest number of ours; None where o has no number."""
    o, ours = o.flatten().float(), ours.flatten().float()
    ratio = ((o - ours).abs().max() / ours.abs().max()).item()
    return ratio if math.isfinite(ratio) else None


def measure(bench, problems, name, op, peer, make):
    """A row's dictionary: times of the first problem that the peer takes, or what it says of each."""
    refused = {}
    for x in problems:
        try:
            start = time.perf_counter()
            with tuned_at_once(peer):
                call = make(x)
                o = call()
                bench.wait()
            found = dict(heads=x.heads, first_s=time.perf_counter() - start, differs=difference(o, OURS[op](x)()))
            bench.row("inference", name, call)
            print(f"{'':9} heads {x.heads}, first call {found['first_s']:.1f} s, differs {found['differs']}")
            return bench.rows.pop() | found | ({"refused": refused} if refused else {})
        except Exception as error:  # whatever a peer throws, the next row is measured
            refused[x.heads] = f"{type(error).__name__}: {error}"
    first = refused[problems[0].heads]
    print(f"{'inference':9} {name:60} {first}", flush=True)
    return dict(mode="inference", name=name, error=first, refused=refused)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--only", default="", metavar="WORDS", help="rows whose names have one of these")
    parser.add_argument("--tokens", type=int, default=64, help="of a prefill; default 64")
    parser.add_argument("--heads", default="1,4", metavar="LIST", help="H = HV, the first a peer takes; default 1,4")
    parser.add_argument("--calls", type=int, default=20, help="a round; default 20")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=1e9, help="no new row after so many")
    parser.add_argument("--commit", default="unknown", help="written to the record")
    parser.add_argument("--out", metavar="FILE", help="a record in JSON")
    return parser.parse_args()


def start_record(options):
    """The record without rows, with the versions of the packages that are here."""
    device = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    return dict(schema="sluice.bench.host_time_peers/1", device=device, commit=options.commit,
                command=shlex.join(["benchmarks/host_time_peers.py", *sys.argv[1:]]),
                sluice=sluice.__version__, versions=peer_record.versions(PACKAGES), tokens=options.tokens,
                calls=options.calls, rounds=options.rounds, load=os.getloadavg()[0], rows=[])


def main():
    begin, options = time.monotonic(), arguments()
    # WHY: FLA hands calls to FlashQLA and FlashKDA where it finds them, and its rows would be theirs.
    os.environ.update(FLA_FLASH_QLA="0", FLA_FLASH_KDA="0")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    sluice.set_num_threads(1)
    sluice.warm_up(options.device)
    bench, record = Bench(options), start_record(options)
    problems = [Problem(options.device, options.tokens, int(heads)) for heads in options.heads.split(",")]
    print(f"Sluice {record['sluice']}, {record['versions']}: us, least, median (quartiles), over torch.add")
    with torch.inference_mode():
        for op, peer, call, make in ROWS:
            name = f"{op}: {peer} {call}"
            if not any(word in name for word in bench.words):
                continue
            if time.monotonic() - begin > options.seconds:
                row = dict(mode="inference", name=name, error="not begun: the time was over")
            else:
                row = measure(bench, problems, name, op, peer, make)
            record["rows"].append(row | dict(peer=peer))
            peer_record.write(record, options.out)


if __name__ == "__main__":
    main()
