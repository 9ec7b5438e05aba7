# SPDX-License-Identifier: Apache-2.0
"""Measures prefill time and time per generated token of transformers models with and without Sluice.
Runs random-weight models of realistic head sizes, the ways taking turns within each round after a
warm-up, and writes the median of the rounds and their quartiles as a Markdown table and as JSON.

Usage: python bench_transformers.py [--device cpu] [--rounds 7] [--out table.md]
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import time

import torch
import transformers
from small_models import build, quiet

import sluice
from sluice.engines import transformers as sluice_hf

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
MODELS = {"qwen3_next": {**SIZES, **EXPERTS}, "qwen3_5": SIZES}
WAYS = (None, "ops", "layer")


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def prefill_time(model, ids, device):
    synchronize(device)
    start = time.perf_counter()
    model(ids, use_cache=True)
    synchronize(device)
    return time.perf_counter() - start


def token_time(model, ids, steps, device):
    """Seconds a token, greedy, after a prefill that is not counted."""
    answer = model(ids, use_cache=True)
    cache, token = answer.past_key_values, answer.logits[:, -1:].argmax(-1)
    synchronize(device)
    start = time.perf_counter()
    for _ in range(steps):
        answer = model(token, past_key_values=cache, use_cache=True)
        token = answer.logits[:, -1:].argmax(-1)
    synchronize(device)
    return (time.perf_counter() - start) / steps


def measure(model, ids, arguments):
    """{way: {"prefill": [s, ..], "token": [s, ..]}}."""
    times = {way: {"prefill": [], "token": []} for way in WAYS}
    for turn in range(arguments.rounds + 1):
        for way in WAYS:
            handle = sluice_hf.patch(model, way) if way else None
            prefill = prefill_time(model, ids, arguments.device)
            token = token_time(model, ids[:, :64], arguments.steps, arguments.device)
            if handle:
                assert not handle.report()["handed back"], handle.report()
                handle.restore()
            if turn > 0:
                times[way]["prefill"].append(prefill)
                times[way]["token"].append(token)
    return times


def summary(seconds):
    """Median and quartiles in milliseconds."""
    low, middle, high = statistics.quantiles(seconds, n=4)
    return {"median_ms": middle * 1e3, "low_ms": low * 1e3, "high_ms": high * 1e3}


def rows_of(arguments):
    rows = []
    for name in MODELS:
        for dtype in (torch.float32, torch.bfloat16):
            model = build(name, **MODELS[name]).to(arguments.device, dtype)
            ids = torch.randint(3, 4096, (arguments.batch, arguments.tokens))
            ids = ids.to(arguments.device)
            for way, times in measure(model, ids, arguments).items():
                rows.append(
                    {
                        "model": name,
                        "dtype": str(dtype).removeprefix("torch."),
                        "way": way or "transformers",
                        "prefill": summary(times["prefill"]),
                        "token": summary(times["token"]),
                    }
                )
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
        "sluice": sluice.__version__,
        "batch": arguments.batch,
        "tokens": arguments.tokens,
        "steps": arguments.steps,
        "rounds": arguments.rounds,
        "threads": arguments.threads,
    }


def cell(part, base):
    ratio = base["median_ms"] / part["median_ms"]
    spread = f"{part['low_ms']:.1f} to {part['high_ms']:.1f}"
    return f"{part['median_ms']:.1f} ({spread}) | {ratio:.2f}x"


def table(rows):
    lines = [
        "| model | dtype | way | prefill ms (quartiles) | | ms a token (quartiles) | |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        base = next(
            r
            for r in rows
            if (r["model"], r["dtype"], r["way"]) == (row["model"], row["dtype"], "transformers")
        )
        cells = [cell(row[part], base[part]) for part in ("prefill", "token")]
        lines.append(f"| {row['model']} | {row['dtype']} | {row['way']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=1, help="of torch and of Sluice each")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("transformers.md"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    sluice.set_num_threads(arguments.threads)
    with quiet(), torch.no_grad():
        rows = rows_of(arguments)
    about = machine(arguments)
    facts = ", ".join(f"{k} {v}" for k, v in about.items())
    arguments.out.write_text(f"{facts}\n\n{table(rows)}")
    record = json.dumps({"machine": about, "rows": rows}, indent=1)
    arguments.out.with_suffix(".json").write_text(record + "\n")


if __name__ == "__main__":
    main()
