#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures small models of random weights in llama.cpp, with ggml's own gated delta net and with Sluice's
(examples/ggml): whether greedy tokens are equal, and tokens a second of prompt and generation.

    llama_cpp.py LLAMA_SOURCE LLAMA_BUILD [--library build/release/src] [--rounds 7] [--out FILE]

LLAMA_BUILD is a finished build of LLAMA_SOURCE with shared libraries, as its own pages describe. Both ways
take turns, on one thread, and seconds are the processor's, so that other work on the machine changes
both alike and little. Needs a C++ compiler and numpy.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from sluice_tools import whole_file  # needs no sluice

HERE = pathlib.Path(__file__).resolve().parents[1]
EXAMPLE = HERE / "examples/ggml"
# Name, options of make_gguf.py, tokens of the prompt and to generate.
MODELS = (
    ("tiny", {}, 100, 64),
    ("Qwen3.5-0.8B's layers, 4 of 24",
     {"hidden": 1024, "heads": 8, "head-dim": 256, "key-heads": 16, "value-heads": 16, "state-dim": 128,
      "feed-forward": 3584}, 512, 64),
    ("Qwen3-Next's heads, 4 layers",
     {"hidden": 2048, "heads": 16, "head-dim": 256, "key-heads": 16, "value-heads": 32, "state-dim": 128,
      "feed-forward": 2048}, 512, 64),
)


def compile_all(source, libraries, ours, folder):
    """The backend as a library that ggml loads, and the program; returns both paths."""
    include = [f"-I{path}" for path in (HERE / "include", source / "include", source / "ggml/include",
                                        source / "ggml/src")]
    backend, program = folder / "libggml-sluice.so", folder / "llama_run"
    places = [flag for path in (libraries, ours) for flag in (f"-L{path}", f"-Wl,-rpath,{path}")]
    base = ["g++", "-std=c++20", "-O2", *include]
    dl = ["-DGGML_BACKEND_DL", "-DGGML_BACKEND_SHARED", "-DGGML_BACKEND_BUILD", "-fPIC", "-shared"]
    subprocess.run([*base, *dl, EXAMPLE / "sluice_backend.cpp", *places, "-lsluice", "-lggml-cpu",
                    "-lggml-base", "-o", backend], check=True)
    subprocess.run([*base, EXAMPLE / "llama_run.cpp", *places, "-lllama", "-lggml", "-lggml-base",
                    "-o", program], check=True)
    return backend, program


def run(program, model, prompt, generated, backend):
    environment = {**os.environ, "SLUICE_NUM_THREADS": "1"}
    environment.pop("GGML_BACKEND_PATH", None)
    if backend:
        environment["GGML_BACKEND_PATH"] = str(backend)
    done = subprocess.run([program, model, str(prompt), str(generated), "1"], env=environment,
                          stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout)
    return {**found, **{f"{part}_seconds": found[f"{part}_seconds"][0] for part in ("prompt", "generated")}}


def speed(runs, part, tokens):
    """Median and quartiles of tokens a second."""
    rates = sorted(tokens / each[f"{part}_seconds"] for each in runs)
    low, _, high = statistics.quantiles(rates, n=4, method="inclusive")
    return {"median": round(statistics.median(rates), 1), "quartiles": [round(low, 1), round(high, 1)]}


def row(name, options, prompt, generated, runs):
    own, ours = runs["ggml"], runs["sluice"]
    made = {"model": name, "options": options, "prompt": prompt, "generated": generated,
            "tokens_equal": sum(a == b for a, b in zip(own[0]["tokens"], ours[0]["tokens"])),
            "calls_on_sluice": ours[0]["calls"], "distinct_tokens": len(set(own[0]["tokens"]))}
    for part, tokens in (("prompt", prompt), ("generated", generated)):
        ratios = [a[f"{part}_seconds"] / b[f"{part}_seconds"] for a, b in zip(own, ours)]
        made[part + "_tokens_per_second"] = {way: speed(each, part, tokens) for way, each in runs.items()}
        made[part + "_times_faster"] = round(statistics.median(ratios), 3)
    return made


def processor():
    with open("/proc/cpuinfo") as info:
        return next((line.partition(":")[2].strip() for line in info if line.startswith("model name")), "unknown")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--library", type=pathlib.Path, default=HERE / "build/release/src")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--version", default="unknown", help="of llama.cpp, for the record")
    parser.add_argument("--out", type=pathlib.Path)
    o = parser.parse_args()
    record = {"schema": "sluice.llama_cpp/1", "command": " ".join(["benchmarks/llama_cpp.py", "SOURCE", "BUILD"]),
              "llama_cpp": o.version, "processor": processor(), "threads": 1, "rounds": o.rounds,
              "seconds": "of the processor", "weights": "random, float32", "rows": []}
    equal = True
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        backend, program = compile_all(o.source.resolve(), (o.build / "bin").resolve(), o.library.resolve(), folder)
        for name, options, prompt, generated in MODELS:
            model = folder / "model.gguf"
            words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
            subprocess.run([sys.executable, EXAMPLE / "make_gguf.py", model, *words], check=True)
            runs = {"ggml": [], "sluice": []}
            for _ in range(o.rounds):
                for way in runs:
                    runs[way].append(run(program, model, prompt, generated, backend if way == "sluice" else None))
            made = row(name, options, prompt, generated, runs)
            equal &= made["tokens_equal"] == generated and made["calls_on_sluice"] > 0
            record["rows"].append(made)
            print(f"{name}: {made['tokens_equal']} of {generated} tokens equal, prompt "
                  f"{made['prompt_times_faster']}, generation {made['generated_times_faster']} times faster")
    if o.out:
        whole_file.write(o.out, json.dumps(record, indent=1) + "\n")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
