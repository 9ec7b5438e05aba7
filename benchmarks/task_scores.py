#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small Qwen3-Next of transformers on tasks with one right answer each, then scores the same weights on the
same prompts by several implementations: does a model answer as well on Sluice as before?

The model has the heads of Qwen3-Next-80B-A3B (16 key, 32 value heads of 128) and 4 layers, of which one is full
attention. It learns all tasks at once (benchmarks/scored_tasks.py), by Sluice's kernels unless --train-by says
otherwise. A score is the share of prompts whose answer, generated greedily with a cache, is right in every token.

  torch-float32   transformers' own torch functions, float32: what the others are compared with
  torch           the same, bfloat16: before
  fla             transformers' own path where flash-linear-attention is installed, bfloat16
  sluice          the whole layer on Sluice, bfloat16: after; sluice-ops: its functions alone
  forgetful       sluice-ops with states emptied every 64 tokens: what the tasks lose without them

Scores of two implementations differ by chance where prompts are near a tie: the standard error is the binomial one of
a score, and "equal" counts the answers that are those of torch-float32, right or wrong.
"""

import argparse
import contextlib
import copy
import importlib.util
import json
import math
import pathlib
import platform
import shlex
import sys
import time
from importlib.metadata import PackageNotFoundError, version

import scored_tasks
import sluice
import torch
import transformers
from scored_model import WAYS, build, own_path, running, told
from sluice_tools import whole_file

EXAMPLES = """examples:
  a GPU, about four minutes, with a record and a file of scores for each implementation:
    python benchmarks/task_scores.py --device cuda --commit COMMIT --out task_scores.json --scores scores
    python benchmarks/serve.py --scores scores/torch.json scores/sluice.json
  a CPU, toy size, three minutes (one thread):
    python benchmarks/task_scores.py --size toy --threads 1
  fewer prompts, and the table of an earlier record:
    python benchmarks/task_scores.py --device cuda --prompts 128 --implementations torch-float32,sluice
    python benchmarks/task_scores.py --from task_scores.json
"""
# Symbols: of the task recall. Lengths: of a row that is trained on, shortest first, and of prompts with answers.
SIZES = {
    "toy": dict(hidden=64, key_heads=2, value_heads=4, head=32, rate=3e-3, symbols=32, step_tokens=1024, steps=1500,
                trained=(32, 64), lengths=dict(recall=(32, 64), latest=(32, 64), copy=(32, 64))),
    "full": dict(hidden=512, key_heads=16, value_heads=32, head=128, rate=1e-3, symbols=256, step_tokens=16384,
                 steps=2000, trained=(32, 64, 128, 256, 512, 1024, 2048),
                 lengths=dict(recall=(128, 384, 768), latest=(256, 1024, 3072), copy=(256, 1024))),
}
BATCH_TOKENS = 32768  # of prompts that are evaluated together: torch's chunks of them take about 15 GiB at full size


def parser():
    def words(text):
        return text.split(",")

    made = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    made.add_argument("--size", choices=tuple(SIZES), default="full")
    made.add_argument("--tasks", type=words, default=list(scored_tasks.TASKS), help="recall,latest,copy,reverse,add")
    made.add_argument("--implementations", type=words, metavar="torch,sluice",
                      help="default: all but sluice-ops, fla where it is installed")
    made.add_argument("--steps", type=int, help="of training (2000, toy 1500)")
    made.add_argument("--seconds", type=float, default=110, help="of training at most (110)")
    made.add_argument("--prompts", type=int, default=512, help="of each task and length (512)")
    made.add_argument("--seed", type=int, default=1, help="of weights and rows; prompts have the next (1)")
    made.add_argument("--train-by", choices=("sluice", "torch"), default="sluice")
    made.add_argument("--threads", type=int, default=0, help="of torch and of Sluice each (as many as there are)")
    made.add_argument("--commit", default="unknown", help="written to the record")
    made.add_argument("--out", metavar="FILE", help="a record in JSON, written after every implementation")
    made.add_argument("--scores", metavar="FOLDER", help="NAME.json with {task: score}, for serve.py --scores")
    made.add_argument("--from", dest="record", metavar="FILE", help="print this record's table, nothing else")
    return made


def options_of(argv):
    made = parser()
    options = made.parse_args(argv)
    has_fla = importlib.util.find_spec("fla") is not None
    usual = [way for way in WAYS if way != "sluice-ops" and (way != "fla" or has_fla)]
    options.implementations = options.implementations or usual
    for name, given, known in (("tasks", options.tasks, scored_tasks.TASKS),
                               ("implementations", options.implementations, WAYS)):
        for word in given:
            if word not in known:
                made.error(f"--{name}: {word} is none of {', '.join(known)}")
    options.steps = options.steps or SIZES[options.size]["steps"]
    if min(options.steps, options.prompts) < 1 or options.seconds <= 0:
        made.error("--steps, --prompts and --seconds above 0 expected")
    return options


def row_lengths(size, done):
    """Lengths that are trained on after this share of the training: one more with each tenth of it."""
    return size["trained"][:1 + int(10 * done)]


class Training:
    """A run of AdamW over batches of mixed tasks; history has a row for each report."""

    def __init__(self, options, model):
        self.options, self.size, self.model = options, SIZES[options.size], model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.01, betas=(0.9, 0.98))
        self.generator = torch.Generator().manual_seed(options.seed)
        self.history, self.begin = [], time.perf_counter()

    def batch(self, done):
        lengths = row_lengths(self.size, done)
        tokens = lengths[int(torch.randint(len(lengths), (1,), generator=self.generator))]
        made = scored_tasks.batch(self.options.tasks, max(1, self.size["step_tokens"] // tokens), tokens,
                                  self.generator, self.size["symbols"])
        return [x.to(self.options.device) for x in made]

    def step(self, number):
        """(loss, which scored tokens are right, the task of each)"""
        seconds = (time.perf_counter() - self.begin) / self.options.seconds
        done = max(number / self.options.steps, min(seconds, 1))
        for group in self.optimizer.param_groups:  # up for 50 steps, then down to a tenth along a cosine
            warm = min(1, (number + 1) / 50)
            group["lr"] = self.size["rate"] * warm * (0.55 + 0.45 * math.cos(math.pi * done))
        ids, targets, owners = self.batch(done)
        with torch.autocast(self.options.device, torch.bfloat16, enabled=self.options.device == "cuda"):
            logits = self.model(ids, use_cache=False).logits
        places = targets != -100
        found, wanted, owners = logits[places].float(), targets[places], owners[:, None].expand_as(places)[places]
        # WHY tasks count alike: one that has answers all over a row would be learned before those at its end.
        counts = owners.bincount(minlength=len(self.options.tasks))
        losses = torch.nn.functional.cross_entropy(found, wanted, reduction="none")
        loss = (losses / counts[owners]).sum() / (counts > 0).sum()
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.detach()[None], found.argmax(1) == wanted, owners

    def run(self):
        """Steps done. Rows of history are means since the row before."""
        done, seen, every = 0, [], max(1, self.options.steps // 20)
        while done < self.options.steps and time.perf_counter() - self.begin < self.options.seconds:
            seen.append(self.step(done))
            done += 1
            if done % every == 0:
                self.tell(done, seen)
                seen = []
        if seen:
            self.tell(done, seen)
        return done

    def tell(self, number, seen):
        losses, right, owners = (torch.cat(parts).float() for parts in zip(*seen))
        seconds = time.perf_counter() - self.begin
        shares = {task: round(right[owners == n].mean().item(), 4) for n, task in enumerate(self.options.tasks)}
        row = {"step": number, "loss": round(losses.mean().item(), 4), "tokens_right": shares,
               "seconds": round(seconds, 1)}
        self.history.append(row)
        words = ", ".join(f"{task} {share:.2f}" for task, share in shares.items())
        say(f"step {number}: loss {row['loss']:.3f}, tokens right: {words}, {seconds:.0f} s")


def say(text):
    print(text, file=sys.stderr, flush=True)


def prompts_of(options):
    """{"TASK TOKENS": (prompts, answers)}, the same for every implementation and device."""
    size, made = SIZES[options.size], {}
    generator = torch.Generator().manual_seed(options.seed + 1)
    for task in options.tasks:
        for tokens in size["lengths"].get(task, (None,)):
            pair = scored_tasks.evaluated(task, options.prompts, tokens, generator, size["symbols"])
            made[f"{task} {sum(x.shape[1] for x in pair)}"] = pair
    return made


@torch.no_grad()
def generated(model, prompts, count, device):
    """Greedy answers [rows, count], prompts in batches."""
    rows = max(1, BATCH_TOKENS // prompts.shape[1])
    found = []
    for ids in prompts.split(rows):
        ids = ids.to(device)
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, min_new_tokens=count,
                             do_sample=False)
        found.append(out[:, ids.shape[1]:].cpu())
    return torch.cat(found)


def evaluate(options, model, way, prompts):
    """(answers of every task and length, seconds of each, what Sluice did)."""
    answers, seconds = {}, {}
    with running(model, way) as report:
        for name, (asked, wanted) in prompts.items():
            start = time.perf_counter()
            answers[name] = generated(model, asked, wanted.shape[1], options.device)
            seconds[name] = round(time.perf_counter() - start, 2)
            score = right(answers[name], wanted).float().mean().item()
            say(f"{way}, {name}: {100 * score:.1f} %, {seconds[name]:.1f} s")
        return answers, seconds, told(report())


def right(answers, wanted):
    return (answers == wanted).all(1)


def rows_of(way, answers, seconds, prompts, yardstick):
    """A row for every task and length; yardstick: answers in float32, or None."""
    rows = []
    for name, (_, wanted) in prompts.items():
        hits = right(answers[name], wanted)
        count, share = len(hits), hits.float().mean().item()
        row = {"task": name, "implementation": way, "prompts": count, "score": share,
               "standard_error": math.sqrt(share * (1 - share) / count), "seconds": seconds[name]}
        if yardstick:
            before = right(yardstick[name], wanted)
            row["equal"] = int(right(answers[name], yardstick[name]).sum())
            row["right_here_alone"], row["right_there_alone"] = int((hits & ~before).sum()), int((before & ~hits).sum())
        rows.append(row)
    return rows


def table(rows):
    """A line for every task and length, a column for every implementation."""
    ways, tasks = (list(dict.fromkeys(row[key] for row in rows)) for key in ("implementation", "task"))
    by_place = {(row["task"], row["implementation"]): row for row in rows}

    def cell(row):
        equal = row.get("equal") if row["implementation"] != "torch-float32" else None
        return f"{100 * row['score']:.1f}" + ("" if equal is None else f" ({equal})")

    lines = [f"{rows[0]['prompts']} prompts a line: score in percent (answers equal to torch-float32's)", "",
             f"| task, tokens | {' | '.join(ways)} | standard error |", "|---|" + "---|" * (len(ways) + 1)]
    for task in tasks:
        cells = [by_place[task, way] for way in ways]
        error = f"{100 * cells[0]['standard_error']:.1f}"
        lines.append(f"| {task} | {' | '.join(map(cell, cells))} | {error} |")
    return "\n".join(lines)


def versions():
    found = {"python": platform.python_version(), "torch": torch.__version__, "sluice": sluice.__version__}
    for name in ("transformers", "flash-linear-attention", "fla-core", "triton"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def new_record(options, argv):
    return {"schema": "sluice.bench.task_scores/1", "commit": options.commit,
            "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
            "command": shlex.join(["benchmarks/task_scores.py", *argv]), "versions": versions(),
            "seeds": {"weights and rows": options.seed, "prompts": options.seed + 1},
            "size": SIZES[options.size], "prompts": options.prompts, "rows": []}


def keep(options, record):
    if options.out:
        whole_file.write(pathlib.Path(options.out), json.dumps(record, indent=1) + "\n")
    if options.scores:
        pathlib.Path(options.scores).mkdir(parents=True, exist_ok=True)
        for way in {row["implementation"] for row in record["rows"]}:
            scores = {row["task"]: row["score"] for row in record["rows"] if row["implementation"] == way}
            whole_file.write(pathlib.Path(options.scores) / f"{way}.json", json.dumps(scores, indent=1) + "\n")


def train(options, model):
    """What the record says of it."""
    say(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} million parameters, {options.steps} steps")
    training = Training(options, model.train())
    with running(model, options.train_by) as report:
        steps = training.run()
        return {"by": options.train_by, "steps": steps, "history": training.history, **told(report())}


def run(options, argv):
    record = new_record(options, argv)
    model = build(SIZES[options.size], options.seed, options.device)
    record["own_path"] = own_path(model)
    if "fla" in options.implementations and not record["own_path"].startswith("fla"):
        sys.exit(f"task_scores: transformers runs {record['own_path']}, expected fla's kernels; leave fla out")
    record["training"] = train(options, model)
    keep(options, record)
    prompts, model, yardstick = prompts_of(options), model.eval(), None
    rounded = copy.deepcopy(model).to(torch.bfloat16)
    record["sluice"] = {}
    for way in sorted(options.implementations, key=WAYS.index):  # torch-float32 first
        answers, seconds, did = evaluate(options, model if way == "torch-float32" else rounded, way, prompts)
        yardstick = answers if way == "torch-float32" else yardstick
        record["rows"] += rows_of(way, answers, seconds, prompts, yardstick)
        record["sluice"][way] = did
        keep(options, record)
    return record


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    options = options_of(argv)
    if options.record:
        print(table(json.loads(pathlib.Path(options.record).read_text())["rows"]))
        return
    transformers.logging.set_verbosity_error()
    if options.threads:
        torch.set_num_threads(options.threads)
        sluice.set_num_threads(options.threads)
    print(table(run(options, argv)["rows"]))


if __name__ == "__main__":
    main()
