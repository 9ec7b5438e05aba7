# SPDX-License-Identifier: Apache-2.0
"""Says where the GPU's time goes inside a serving engine: has its profiler (torch's) trace one load, and adds up the
kernels' times by what they are for. serving_measure.py asks for it, of engines that have such a profiler."""

import collections
import json
import re
import time

# (tokens of a prompt, prompts at once, new tokens): one step of prefill, and steps of nothing but decoding.
TRACED = ((8192, 1, 1), (16, 32, 64))
# The first that a kernel's name fits. Kernels that torch.compile makes are named after all that they join.
GROUPS = {
    "convolution": r"conv1d",
    "gated norm": r"gated_norm|norm_gated|layer_norm_fwd|layer_norm_gated",
    "recurrence": r"sluice|delta_rule|kda|chunk_|recurrent|l2norm|post_conv|recompute_w_u|solve_tril|merge_16x16|"
                  r"cumsum_scalar|cumsum_vector|sigmoid_gating",
    "attention": r"flash|fmha|attn|attention|mla|reshape_and_cache",
    "matrix products": r"nvjet|gemm|cublas|splitk|cutlass|moe|topk",
    "copies": r"memcpy|memset",
    "joined by torch.compile": r"^triton_",
}
KEPT = 30


def group(name):
    return next((found for found, words in GROUPS.items() if re.search(words, name, re.I)), "others")


def summary(events):
    """Milliseconds of GPU time in all and by group, milliseconds from the first kernel's start to the last one's end,
    and the longest kernels: milliseconds, launches, group, name."""
    kernels = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    names, groups, launches = collections.Counter(), collections.Counter(), collections.Counter()
    for event in kernels:
        name = event["name"]
        names[name] += event["dur"]
        groups[group(name)] += event["dur"]
        launches[name] += 1
    begin = min((e["ts"] for e in kernels), default=0)
    end = max((e["ts"] + e["dur"] for e in kernels), default=0)
    return {
        "gpu_ms": round(sum(names.values()) / 1e3, 3), "from first to last_ms": round((end - begin) / 1e3, 3),
        "launches": len(kernels),
        "groups_ms": {name: round(us / 1e3, 3) for name, us in groups.most_common()},
        "kernels": [[round(us / 1e3, 3), launches[name], group(name), name[:160]]
                    for name, us in names.most_common(KEPT)],
    }


async def traced(client, server, prompts, tokens):
    """Summary of the trace of one load; the load runs once before, so that nothing is compiled in it."""
    await client.together(server, prompts(0), tokens)
    before = set(server.traces.glob("*.json"))
    await client.post(server, "/start_profile")
    await client.together(server, prompts(1), tokens)
    await client.post(server, "/stop_profile")
    until = time.monotonic() + 20
    while time.monotonic() < until:
        for path in set(server.traces.glob("*.json")) - before:
            try:
                row = summary(json.loads(path.read_text())["traceEvents"])
            except ValueError:  # not yet written to its end
                continue
            if row["launches"]:
                return row
        time.sleep(0.3)
    raise RuntimeError("no trace with kernels")
