#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures gated delta nets of ggml's CUDA backend, its own and Sluice's (examples/ggml): the operator alone,
and small models of random weights in llama.cpp, whether greedy tokens are equal and tokens a second.

    llama_cpp_cuda.py PROGRAMS [--turns 3] [--rounds 5] [--out FILE]

PROGRAMS is what scripts/check_ggml.sh builds: time_cuda, llama_run and libggml-sluice.so. The ways take turns,
a process each, on the clock; all use CUDA graphs. Needs a GPU, and numpy.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from llama_cpp import EXAMPLE, MODELS

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from sluice_tools import whole_file  # needs no sluice

# The backend loaded or not, and who computes prompts.
WAYS = {"ggml": None, "sluice": "", "sluice, prompts in float16": "float16", "sluice, prompts in float32": "float32"}
# Name, tokens, sequences, snapshots, nodes of the graph. Heads are Qwen3-Next's.
HEADS = (128, 16, 32)
OPERATORS = (
    ("decode", 1, 1, 1, 16), ("decode", 1, 8, 1, 8), ("decode", 1, 32, 1, 8), ("decode", 1, 128, 1, 4),
    ("drafts", 4, 1, 4, 16), ("drafts", 4, 32, 4, 4),
    ("prompt", 128, 1, 1, 8), ("prompt", 512, 1, 1, 8), ("prompt", 4096, 1, 1, 2), ("prompt", 512, 8, 1, 2),
)
# Of MODELS, and then tokens of a prompt and to generate, sequences, tokens of a piece of the prompt.
RUNS = ((0, 100, 64, 1, 512), (2, 512, 128, 1, 512), (2, 64, 64, 32, 512), (2, 4096, 16, 1, 4096),
        (1, 512, 128, 1, 512))


def call(command, backend, way):
    """What a program prints, with the backend loaded unless it is ggml's turn."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("GGML_", "SLUICE_GGML"))}
    if WAYS[way] is not None:
        environment |= {"GGML_BACKEND_PATH": str(backend), "SLUICE_GGML_SEQUENCES": "1"}
    if WAYS[way]:
        environment["SLUICE_GGML_PROMPT"] = WAYS[way]
    done = subprocess.run([str(word) for word in command], env=environment, stdout=subprocess.PIPE, text=True,
                          check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def operator_rows(programs, backend, turns):
    """Every process times all calls that its way is for."""
    times = {spec: {} for spec in OPERATORS}
    for _ in range(turns):
        for way in WAYS:
            specs = [spec for spec in OPERATORS if not WAYS[way] or spec[0] == "prompt"]
            command = [programs / "time_cuda", *HEADS, *(number for spec in specs for number in spec[1:])]
            for spec, found in zip(specs, call(command, backend, way), strict=True):
                times[spec].setdefault(way, []).append(found["us"])
    for (name, tokens, sequences, snapshots, _), runs in times.items():
        us = {way: round(statistics.median(each), 2) for way, each in runs.items()}
        print(f"{name}, {tokens} tokens, {sequences} sequences: {us}", flush=True)
        yield {"call": name, "tokens": tokens, "sequences": sequences, "snapshots": snapshots, "us": us, "turns": runs,
               "times_faster": {way: round(us["ggml"] / each, 2) for way, each in us.items() if way != "ggml"}}


def rate(runs, part, tokens):
    """Median tokens a second of all rounds but each process's first two, which make the CUDA graphs."""
    return round(tokens / statistics.median(second for run in runs for second in run[f"{part}_wall"][2:]), 1)


def model_row(programs, backend, folder, spec, turns, rounds):
    index, prompt, generated, sequences, piece = spec
    name, options, _, _ = MODELS[index]
    model = folder / f"{index}.gguf"
    if not model.exists():
        words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
        subprocess.run([sys.executable, EXAMPLE / "make_gguf.py", model, *words], check=True)
    command = [programs / "llama_run", model, prompt, generated, 4, rounds, sequences, piece]
    ways = list(WAYS)[:3]
    runs = {way: [] for way in ways}
    for _ in range(turns):
        for way in ways:
            runs[way] += call(command, backend, way)
    own = runs["ggml"][0]["tokens"]
    made = {"model": name, "options": options, "prompt": prompt, "generated": generated, "sequences": sequences,
            "piece": piece, "tokens": len(own), "distinct_tokens": len(set(own)),
            "tokens_equal": {way: sum(a == b for a, b in zip(own, each[0]["tokens"])) for way, each in runs.items()},
            "first_tokens_equal": {way: next((i for i, (a, b) in enumerate(zip(own, each[0]["tokens"])) if a != b),
                                             len(own)) for way, each in runs.items()},
            "rounds_equal": {way: all(run["rounds_equal"] for run in each) for way, each in runs.items()},
            "calls_on_sluice": {way: each[0]["calls"] for way, each in runs.items()}}
    for part, count in (("prompt", prompt * sequences), ("generated", generated * sequences)):
        made[f"{part}_tokens_per_second"] = {way: rate(each, part, count) for way, each in runs.items()}
    print(f"{name}, prompt {prompt}, {sequences} sequences: {made['tokens_equal']} of {len(own)} equal, prompt "
          f"{made['prompt_tokens_per_second']}, generation {made['generated_tokens_per_second']}", flush=True)
    return made


def card():
    found = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                           stdout=subprocess.PIPE, text=True, check=True)
    return found.stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5, help="of a process; the first two are not counted")
    parser.add_argument("--folder", type=pathlib.Path, help="of models, 0.gguf to 2.gguf: made there, and kept")
    parser.add_argument("--parts", default="operators,models")
    parser.add_argument("--version", default="unknown", help="of llama.cpp, for the record")
    parser.add_argument("--commit", default="unknown", help="of this project, for the record")
    parser.add_argument("--out", type=pathlib.Path)
    o = parser.parse_args()
    programs = o.programs.resolve()
    backend = programs / "libggml-sluice.so"
    record = {"schema": "sluice.llama_cpp_cuda/1", "device": card(), "commit": o.commit, "llama_cpp": o.version,
              "command": f"benchmarks/llama_cpp_cuda.py PROGRAMS --turns {o.turns} --rounds {o.rounds}",
              "weights": "random, float32", "seconds": "of the clock", "heads": list(HEADS), "operators": [],
              "models": []}

    def save():
        if o.out:
            whole_file.write(o.out, json.dumps(record, indent=1) + "\n")

    if "operators" in o.parts:
        record["operators"] = list(operator_rows(programs, backend, o.turns))
        save()
    if "models" in o.parts:
        with tempfile.TemporaryDirectory() as folder:
            for spec in RUNS:
                record["models"].append(
                    model_row(programs, backend, o.folder or pathlib.Path(folder), spec, o.turns, o.rounds))
                save()
    return 0 if all(row["tokens_equal"]["sluice"] == row["tokens"] for row in record["models"]) else 1


if __name__ == "__main__":
    sys.exit(main())
