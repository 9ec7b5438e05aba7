#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a Qwen3-Next-like model of transformers by several backends from the same seeds, and records their losses,
step times and peak memory: the bytes of Python's standard library, cut into packed documents of mixed lengths.

Backends: sluice (transformers' layers, patched), torch (their own torch functions, for which the same documents are
rows of a padded batch, since these functions cannot keep packed ones apart), fla (their own path where
flash-linear-attention is installed, and its convolution). Every run is a process of its own: one after the other, or
--together, all at once for their losses and then one by one for times. Needs torch and transformers.
"""

import argparse
import inspect
import json
import math
import os
import pathlib
import platform
import random
import resource
import shlex
import statistics
import subprocess
import sys
import time

EXAMPLES = """examples:
  two seeds on the CPU, a few minutes:
    python examples/python/train_qwen3_next.py --json losses.json --svg losses.svg
  a GPU in bfloat16, all backends that are installed, a minute:
    python examples/python/train_qwen3_next.py --device cuda --size small --steps 300 --tokens 2048 --longest 512 \\
        --backends sluice,torch,fla --once torch --together --json losses.json --svg losses.svg
  the picture of an earlier record:
    python examples/python/train_qwen3_next.py --from losses.json --svg losses.svg
"""
# Sizes that are no option: hidden size, key heads, value heads, size of a head, learning rate.
SIZES = {"toy": (64, 2, 4, 32, 3e-3), "small": (1024, 8, 16, 128, 6e-4)}
SHORTEST = 16
TIMED = 20  # steps of a process alone, behind those that it trains beside others


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    words = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda, cuda:1")
    parser.add_argument("--size", choices=sorted(SIZES), default="toy")
    parser.add_argument("--layers", type=int, default=4, help="every fourth is attention (default 4)")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seconds", type=float, help="of training, after which a run ends before its last step")
    parser.add_argument("--tokens", type=int, default=1024, help="of a step, in documents of 16 and more")
    parser.add_argument("--longest", type=int, help="document, in tokens (default: half of a step's)")
    parser.add_argument("--seeds", type=lambda text: [int(x) for x in words(text)], default=[1, 2], metavar="1,2")
    parser.add_argument("--backends", type=words, default=["sluice", "torch"], metavar="sluice,torch,fla")
    parser.add_argument("--once", type=words, default=[], metavar="torch", help="backends of the first seed alone")
    parser.add_argument("--padded", action="store_true", help="a document a row for all backends, not torch's alone")
    parser.add_argument("--together", action="store_true", help="all runs at once; times are of steps behind them")
    parser.add_argument("--level", choices=["layer", "ops"], default="layer", help="of the patch (default layer)")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], help="bfloat16: autocast (default on a GPU)")
    parser.add_argument("--threads", type=int, default=0, help="of the CPU (default: those there are)")
    parser.add_argument("--json", help="where the record is written")
    parser.add_argument("--svg", help="where the picture is written")
    parser.add_argument("--from", dest="record", help="draw this record and train nothing")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # a run of a process of its own: BACKEND,SEED
    options = parser.parse_args(arguments)
    for backend in options.backends:
        if backend not in ("sluice", "torch", "fla"):
            parser.error(f"--backends: {backend} is none of sluice, torch, fla")
    options.longest = options.longest or options.tokens // 2
    if min(options.tokens // 2, options.longest) < SHORTEST or options.layers < 1 or options.steps < 1:
        parser.error(f"--tokens of {2 * SHORTEST}, --longest of {SHORTEST}, --layers and --steps of 1 or more expected")
    options.dtype = options.dtype or ("float32" if options.device == "cpu" else "bfloat16")
    return options


def text():
    """The standard library's modules, one after the other."""
    folder = pathlib.Path(os.__file__).parent
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))


def documents(options, seed, step, corpus):
    """Pieces of the text, `options.tokens` together, of lengths whose logarithms are even."""
    chance, left, found = random.Random(f"{seed} {step}"), options.tokens, []
    while left:
        length = round(math.exp(chance.uniform(math.log(SHORTEST), math.log(options.longest))))
        length = left if left - length < SHORTEST else length
        start = chance.randrange(len(corpus) - length)
        found.append(corpus[start : start + length])
        left -= length
    return found


def build(options, seed):
    import torch
    import transformers

    hidden, key_heads, value_heads, head, _ = SIZES[options.size]
    kinds = ["full_attention" if n % 4 == 3 else "linear_attention" for n in range(options.layers)]
    config = transformers.Qwen3NextConfig(
        vocab_size=256, hidden_size=hidden, intermediate_size=3 * hidden, num_hidden_layers=options.layers,
        num_attention_heads=max(2, hidden // 128), num_key_value_heads=2, head_dim=max(32, head // 2),
        linear_num_key_heads=key_heads, linear_num_value_heads=value_heads, linear_key_head_dim=head,
        linear_value_head_dim=head, layer_types=kinds, mlp_only_layers=list(range(options.layers)),
        bos_token_id=None, eos_token_id=None, pad_token_id=None, use_cache=False,
    )  # fmt: skip
    torch.manual_seed(seed)
    return transformers.Qwen3NextForCausalLM(config).to(options.device).train()


def take_torch(model):
    """Gives the modeling module its torch functions back where fla has taken their place."""
    module = sys.modules[type(model).__module__]
    for name in ("torch_chunk_gated_delta_rule", "causal_conv1d_fn"):
        setattr(module, name, inspect.unwrap(getattr(module, name)))


def take_fla(model):
    """Gives the modeling module fla's convolution, which keeps packed documents apart: transformers asks for another
    package's, and without that its torch function mixes neighbours."""
    from fla.modules.causal_conv1d import causal_conv1d

    def convolve(x, weight, bias=None, activation=None, cu_seq_lens_q=None, **_):
        out, _ = causal_conv1d(x.transpose(1, 2), weight, bias, activation=activation, cu_seqlens=cu_seq_lens_q)
        return out.transpose(1, 2)

    sys.modules[type(model).__module__].causal_conv1d_fn = convolve


def packed(parts, device):
    """All documents in one row: (ids, targets, what else the model is told)."""
    import torch

    lengths = [len(part) for part in parts]
    ids = torch.tensor(list(b"".join(parts)), device=device)[None]
    targets = torch.tensor([t for part in parts for t in (*part[1:], -100)], device=device)[None]
    positions = torch.cat([torch.arange(n, device=device) for n in lengths])[None]
    offsets = torch.tensor([0, *lengths], device=device).cumsum(0).int()
    return ids, targets, dict(
        position_ids=positions, cu_seq_lens_q=offsets, cu_seq_lens_k=offsets, max_length_q=max(lengths),
        max_length_k=max(lengths),
    )  # fmt: skip


def padded(parts, device):
    """A document a row."""
    import torch

    longest = max(map(len, parts))
    ids, targets, mask = [], [], []
    for part in parts:
        missing = longest - len(part)
        ids.append([*part, *[0] * missing])
        targets.append([*part[1:], *[-100] * (missing + 1)])
        mask.append([1] * len(part) + [0] * missing)
    made = [torch.tensor(rows, device=device) for rows in (ids, targets, mask)]
    return made[0], made[1], dict(attention_mask=made[2])


def plug_in(options, model, backend):
    """Makes a model run on a backend; returns the patch, of which Sluice alone has one."""
    if backend == "sluice":
        import sluice.engines.transformers as sluice_hf

        return sluice_hf.patch(model, options.level)
    if backend == "fla":
        take_fla(model)
    else:
        take_torch(model)
    return None


def train(options, backend, seed):
    """One run: its row of the record."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    if options.threads:
        torch.set_num_threads(options.threads)
    model, gpu = build(options, seed), options.device != "cpu"
    handle = plug_in(options, model, backend)
    corpus, lay_out = text(), padded if options.padded or backend == "torch" else packed
    rate = SIZES[options.size][4]
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)

    def step(number):
        """(loss, seconds)."""
        ids, targets, more = lay_out(documents(options, seed, number, corpus), options.device)
        begin = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (number + 1) / 10)
        with torch.autocast(options.device.split(":")[0], torch.bfloat16, enabled=options.dtype == "bfloat16"):
            logits = model(ids, use_cache=False, **more).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return round(loss.item(), 6), time.perf_counter() - begin  # item() waits for the GPU

    losses, times, end = [], [], time.perf_counter() + (options.seconds or math.inf)
    for number in range(options.steps):
        if time.perf_counter() > end:
            break
        loss, seconds = step(number)
        losses.append(loss)
        times.append(seconds)
        if number % max(1, options.steps // 20) == 0 or number == options.steps - 1:
            print(f"{backend}, seed {seed}, step {number}: loss {loss:.4f}, {seconds:.3f} s",
                  file=sys.stderr, flush=True)
    times = times[2:] or times
    if options.together:
        print("trained", flush=True)
        sys.stdin.readline()
        times = [step(options.steps + n)[1] for n in range(TIMED)]
    report = handle.report() if handle else {"ran": {}, "handed back": {}}
    peak = torch.cuda.max_memory_allocated() if gpu else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "backend": backend, "seed": seed, "losses": losses, "median_step_s": statistics.median(times),
        "peak_bytes": peak, "memory": "of the GPU's allocator" if gpu else "resident, of the process",
        "ran": report["ran"], "handed_back": [[*key, n] for key, n in report["handed back"].items()],
        "device": torch.cuda.get_device_name() if gpu else cpu_name(),
        "threads": torch.get_num_threads(), "versions": versions(),
    }  # fmt: skip


def cpu_name():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def versions():
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in ("torch", "transformers", "flash-linear-attention", "triton"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            pass
    if "sluice" in sys.modules:
        found["sluice"] = sys.modules["sluice"].__version__
    return found


def run_all(options, arguments):
    """Every backend and seed in a process of its own, so that memory is one run's."""
    jobs = [
        f"{backend},{seed}" for seed in options.seeds for backend in options.backends
        if seed == options.seeds[0] or backend not in options.once
    ]  # fmt: skip
    rows = []
    for batch in [jobs] if options.together else [[job] for job in jobs]:
        started = [start(job, arguments) for job in batch]
        if options.together:
            for job, process in started:
                if process.stdout.readline() != "trained\n":
                    give_up(job, process, started)
        for job, process in started:
            said, _ = process.communicate("\n")
            if process.returncode != 0:
                give_up(job, process, started)
            rows.append(json.loads(said))
    record = {
        "schema": "sluice.train/1", "command": shlex.join(["train_qwen3_next.py", *arguments]),
        "options": {k: v for k, v in vars(options).items() if k not in ("json", "svg", "record", "one")},
        "runs": rows, "summary": summary(rows),
    }  # fmt: skip
    return record


def start(job, arguments):
    command = [sys.executable, os.path.abspath(__file__), *arguments, "--one", job]
    return job, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def give_up(job, process, started):
    """Ends the program after a run has failed, and the others with it."""
    code = process.wait()
    for _, other in started:
        other.kill()
    sys.exit(f"train_qwen3_next: {job}: ended with {code}")


def smooth(losses, width=10):
    """Means of up to `width` steps: the noise of single batches is no part of a curve."""
    return [statistics.fmean(losses[max(0, n - width + 1) : n + 1]) for n in range(len(losses))]


def curve(row):
    """(step, loss) of a run: means of 10 steps, or single steps where a log is all that is left of it."""
    if "steps" in row:
        return list(zip(row["steps"], row["losses"]))
    return list(enumerate(smooth(row["losses"])))


def summary(rows):
    """How far backends are from one another with the same seed, beside how far seeds are."""
    curves = {(row["backend"], row["seed"]): [loss for _, loss in curve(row)] for row in rows}

    def apart(a, b):
        return max(abs(x - y) for x, y in zip(curves[a], curves[b]))

    keys = sorted(curves)
    pairs = [(a, b) for n, a in enumerate(keys) for b in keys[n + 1 :]]
    backends = [apart(a, b) for a, b in pairs if a[1] == b[1]]
    seeds = [apart(a, b) for a, b in pairs if a[0] == b[0]]
    return {
        "largest_distance_of_backends": max(backends, default=None),
        "largest_distance_of_seeds": max(seeds, default=None),
        "final": {f"{b}, seed {s}": losses[-1] for (b, s), losses in curves.items()},
    }  # fmt: skip


def table(record):
    def shown(x, form):
        return "-" if x is None else format(x, form)

    lines = ["| backend | seed | last losses, mean of 10 | a step, s | peak memory, MiB |", "|---|---|---|---|---|"]
    for row in record["runs"]:
        final, memory = record["summary"]["final"][f"{row['backend']}, seed {row['seed']}"], row["peak_bytes"]
        cells = (shown(row["median_step_s"], ".3f"), shown(memory and memory / 2**20, ".0f"))
        lines.append(f"| {row['backend']} | {row['seed']} | {final:.4f} | {' | '.join(cells)} |")
    distances = [record["summary"][f"largest_distance_of_{name}"] for name in ("backends", "seeds")]
    said = [shown(x, ".2g") for x in distances]
    return "\n".join([*lines, "", f"curves apart at most: backends {said[0]}, seeds {said[1]}"])


STYLE = """<style>
text { font: 12px sans-serif; fill: #24292f } .axis { stroke: #8c959f } .grid { stroke: #8c959f; opacity: .25 }
path { fill: none; stroke-width: 1.6 } .b0 { stroke: #54aeff; stroke-width: 5 } .b1 { stroke: #bc4c00 }
.b2 { stroke: #1a7f37 } .s1 { stroke-dasharray: 5 3 } .s2 { stroke-dasharray: 2 2 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .b0 { stroke: #1f6feb } .b1 { stroke: #ffa657 }
.b2 { stroke: #56d364 } }
</style>"""


def draw(record):
    """The curves as an SVG for pages of light and dark background: a colour a backend, a dash a seed."""
    rows, width, height, left, top = record["runs"], 640, 330, 50, 30
    curves = [curve(row) for row in rows]
    heights = [loss for points in curves for _, loss in points]
    low, high, steps = min(heights), max(heights), 1 + max(points[-1][0] for points in curves)
    across = lambda n: left + (width - left - 20) * n / max(1, steps - 1)  # noqa: E731
    down = lambda y: top + (height - top - 40) * (high - y) / ((high - low) or 1)  # noqa: E731
    backends = list(dict.fromkeys(row["backend"] for row in rows))
    seeds = list(dict.fromkeys(row["seed"] for row in rows))
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">', STYLE]
    parts.append("<title>Loss by step</title>")
    for tick in range(math.ceil(2 * low), math.floor(2 * high) + 1):
        y = down(tick / 2)
        parts.append(f'<line class="grid" x1="{left}" x2="{width - 20}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{tick / 2:.1f}</text>')
    for n in range(5):
        step = round(n * (steps - 1) / 4)
        parts.append(f'<text x="{across(step):.1f}" y="{height - 22}" text-anchor="middle">{step}</text>')
    parts.append(f'<line class="axis" x1="{left}" x2="{width - 20}" y1="{height - 40}" y2="{height - 40}"/>')
    parts.append(f'<text x="{width / 2}" y="{height - 5}" text-anchor="middle">step</text>')
    for n, (row, losses) in enumerate(zip(rows, curves)):
        kind = f"b{backends.index(row['backend']) % 3} s{seeds.index(row['seed']) % 3}"
        points = " L".join(f"{across(x):.1f},{down(y):.1f}" for x, y in losses)
        parts.append(f'<path class="{kind}" d="M{points}"/>')
        x = left + 10 + 145 * (n % 4)
        y = 14 + 14 * (n // 4)
        parts.append(f'<path class="{kind}" d="M{x},{y - 4} h24"/>')
        parts.append(f'<text x="{x + 30}" y="{y}">{row["backend"]}, seed {row["seed"]}</text>')
    return "\n".join([*parts, "</svg>", ""])


def in_lines(record):
    """The record as JSON, a run a line."""
    rows = ",\n".join(f"  {json.dumps(row)}" for row in record["runs"])
    return json.dumps({**record, "runs": []}, indent=1).replace('"runs": []', f'"runs": [\n{rows}\n ]') + "\n"


def main(arguments):
    options = parse(arguments)
    if options.one:
        backend, seed = options.one.split(",")
        print(json.dumps(train(options, backend, int(seed))))
        return
    if options.record:
        record = json.loads(pathlib.Path(options.record).read_text())
    else:
        record = run_all(options, arguments)
    print(table(record))
    if options.json and not options.record:
        pathlib.Path(options.json).write_text(in_lines(record))
    if options.svg:
        pathlib.Path(options.svg).write_text(draw(record))


if __name__ == "__main__":
    main(sys.argv[1:])
