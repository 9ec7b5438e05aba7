# SPDX-License-Identifier: Apache-2.0
"""Measures prefill time and time per generated token of transformers models with and without
Sluice. Runs random-weight models of realistic head sizes, the ways taking turns within each round
after a warm-up, and writes medians, quartiles and the median of the rounds' ratios as a table and
as JSON; on the CPU also the part of that time that is spent in the gated delta rule layers.

    python benchmarks/transformers_models.py [--device cpu] [--rounds 7] [--out table.md]

Where flash-linear-attention can be imported, its kernels are transformers' own path on a GPU.
On a GPU the heads and the width are those of Qwen3-Next-80B-A3B, on the CPU a quarter of them. What
Sluice hands back to transformers is said beside the row, and is part of its time.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import platform
import statistics
import sys
import time
from importlib.metadata import version

import sluice
import torch
import transformers
from sluice.engines import transformers as sluice_hf
from sluice_tools import whole_file

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python/tests/engines"))
from small_models import build, quiet

# One linear-attention layer in four is full attention, as in the released models.
SIZES = dict(
    vocab_size=4096,
    hidden_size=1024,
    intermediate_size=2048,
    num_hidden_layers=4,
    num_attention_heads=8,
    num_key_value_heads=2,
    head_dim=128,
    linear_num_key_heads=4,
    linear_num_value_heads=8,
    linear_key_head_dim=128,
    linear_value_head_dim=128,
)
EXPERTS = dict(
    num_experts=8,
    num_experts_per_tok=2,
    moe_intermediate_size=256,
    shared_expert_intermediate_size=256,
)
MODELS = {"qwen3_next": EXPERTS, "qwen3_5": {}}
GPU_SIZES = dict(
    SIZES,
    hidden_size=2048,
    intermediate_size=4096,
    num_attention_heads=16,
    linear_num_key_heads=16,
    linear_num_value_heads=32,
)
WAYS = (None, "ops", "layer")
PARTS = ("prefill", "of it in the layers", "one token", "of it in those layers")


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


class LayerClock:
    """Seconds spent in the gated delta rule layers, projections included (CPU only)."""

    def __init__(self, model):
        self.seconds = 0.0
        for module in model.modules():
            if type(module).__name__.endswith("GatedDeltaNet"):
                module.register_forward_pre_hook(self._enter)
                module.register_forward_hook(self._leave)

    def _enter(self, *_):
        self.start = time.perf_counter()

    def _leave(self, *_):
        self.seconds += time.perf_counter() - self.start


def timed(clock, device, run, repeats=1):
    """[seconds of one run, of them in the layers]."""
    synchronize(device)
    start, clock.seconds = time.perf_counter(), 0.0
    for _ in range(repeats):
        run()
    synchronize(device)
    return [(time.perf_counter() - start) / repeats, clock.seconds / repeats]


def prefill_time(model, clock, ids, device):
    return timed(clock, device, lambda: model(ids, use_cache=True))


def token_time(model, clock, ids, steps, device):
    """Greedy tokens after a prefill that is not counted."""
    answer = model(ids, use_cache=True)
    cache, token = answer.past_key_values, answer.logits[:, -1:].argmax(-1)

    def step():
        nonlocal token
        token = model(token, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)

    return timed(clock, device, step, steps)


def measure(model, ids, arguments):
    """({way: {part: [seconds of each round]}}, parts as in PARTS; {way: what was handed back})."""
    back = {}
    times = {way: {part: [] for part in PARTS} for way in WAYS}
    clock = LayerClock(model)
    for turn in range(arguments.rounds + 1):
        for way in WAYS:
            handle = sluice_hf.patch(model, way) if way else None
            prefill = prefill_time(model, clock, ids, arguments.device)
            token = token_time(model, clock, ids[:, :64], arguments.steps, arguments.device)
            if handle:
                reasons = handle.report()["handed back"]
                back[way] = sorted({f"{hook}: {reason}" for hook, reason in reasons})
                handle.restore()
            if turn > 0:
                for part, seconds in zip(PARTS, prefill + token, strict=True):
                    times[way][part].append(seconds)
    return times, back


def summary(seconds, base):
    """Median and quartiles in milliseconds, and the median of base / seconds over the rounds."""
    low, middle, high = statistics.quantiles(seconds, n=4)
    ratio = statistics.median(b / s for b, s in zip(base, seconds, strict=True))
    return {"median_ms": middle * 1e3, "low_ms": low * 1e3, "high_ms": high * 1e3, "ratio": ratio}


def rows_of(arguments):
    rows = []
    for name in MODELS:
        for dtype in arguments.dtypes:
            dtype = getattr(torch, dtype)
            sizes = GPU_SIZES if arguments.device == "cuda" else SIZES
            model = build(name, **sizes, **MODELS[name]).to(arguments.device, dtype)
            ids = torch.randint(3, 4096, (arguments.batch, arguments.tokens))
            ids = ids.to(arguments.device)
            times, back = measure(model, ids, arguments)
            for way in WAYS:
                row = {"model": name, "dtype": str(dtype).removeprefix("torch.")}
                row["way"] = way or "transformers"
                row["handed back"] = back.get(way, [])
                for part in PARTS:
                    row[part] = summary(times[way][part], times[None][part])
                rows.append(row)
                print(rows[-1], flush=True)
    return rows


def machine(arguments):
    name = platform.processor() or platform.machine()
    if arguments.device == "cuda":
        name = torch.cuda.get_device_name()
    elif pathlib.Path("/proc/cpuinfo").exists():
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        name = next((x.partition(":")[2].strip() for x in lines if "model name" in x), name)
    return {
        "device": name,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "fla": version("fla-core") if importlib.util.find_spec("fla") else "none",
        "sluice": sluice.__version__,
        "batch": arguments.batch,
        "tokens": arguments.tokens,
        "steps": arguments.steps,
        "rounds": arguments.rounds,
        "threads": arguments.threads,
    }


def cell(part):
    spread = f"{part['low_ms']:.1f} to {part['high_ms']:.1f}"
    return f"{part['median_ms']:.1f} ({spread}), {part['ratio']:.2f}x"


def table(rows, parts):
    lines = [
        "| model | dtype | way | " + " | ".join(f"{part}, ms" for part in parts) + " |",
        "|---|---|---|" + "---|" * len(parts),
    ]
    for row in rows:
        cells = [cell(row[part]) for part in parts]
        way = row["way"] + (" *" if row["handed back"] else "")
        lines.append(f"| {row['model']} | {row['dtype']} | {way} | {' | '.join(cells)} |")
    back = sorted({reason for row in rows for reason in row["handed back"]})
    lines += ["", *(f"\\* handed back to transformers: {reason}" for reason in back)] if back else []
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=1, help="of torch and of Sluice each")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("transformers.md"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    sluice.set_num_threads(arguments.threads)
    with quiet(), torch.no_grad():
        rows = rows_of(arguments)
    about = machine(arguments)
    facts = ", ".join(f"{k} {v}" for k, v in about.items())
    parts = PARTS if arguments.device == "cpu" else PARTS[::2]
    whole_file.write(arguments.out, f"{facts}\n\n{table(rows, parts)}")
    record = json.dumps({"machine": about, "rows": rows}, indent=1)
    whole_file.write(arguments.out.with_suffix(".json"), record + "\n")


if __name__ == "__main__":
    main()
