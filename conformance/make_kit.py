#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the conformance kit: the accuracy ladder of ops/manifest.json and small cases of every operator
as case files (docs/case-format.md), with float64 answers, for owners of any accelerator.

Usage: make_kit.py --tool sluice FOLDER [--quick] [--dim 64] [--dtype f32|bf16|f16]

Runs `sluice make-case`, which draws the same inputs on every machine. docs/conformance.md says what to
do with the files.
"""

import argparse
import json
import pathlib
import subprocess
import sys

MANIFEST = pathlib.Path(__file__).resolve().parents[1] / "ops/manifest.json"
GATES = {"published": "flashqla", "half zeros": "half-zeros"}  # the tool's names, where they differ
TOLERANCE = {"f32": "1e-5", "f16": "2e-3", "bf16": "1e-2"}


def ladder(quick):
    """(case name, arguments of make-case) of every rung."""
    content = json.loads(MANIFEST.read_text())["ladder"]
    for entry in content["lengths"]:
        if quick and sum(entry["lengths"]) > 500:
            continue
        pairs = [("slow", "random")]
        if entry.get("profiles") and not quick:
            pairs += [(gates, "random") for gates in content["gates"] if gates != "slow"]
            pairs += [("slow", keys) for keys in content["keys"] if keys != "random"]
        for gates, keys in pairs:
            name = f"{entry['name']}.{gates}.{keys}".replace(", ", "_").replace(" ", "_")
            lengths = ",".join(str(length) for length in entry["lengths"])
            yield name, ["--lengths", lengths, "--gates", GATES.get(gates, gates), "--keys", keys]


def others(dim):
    """(file, case name, arguments) of the other operators: states carried on, both packings."""
    for steps in (1, 4, 16):
        yield "decode", f"steps{steps}", ["--op", "decode", "--T", "16", "--steps", str(steps), "--B", "3",
                                          "--gates", "model", "--l2norm"]
    for layout, state in (("bhtd", "kv"), ("bthd", "vk")):
        yield "prefill", f"{layout}_{state}", ["--T", "150", "--B", "2", "--layout", layout,
                                               "--state-layout", state]
    for space in ("linear", "raw"):
        yield "prefill", f"{space}_gates", ["--T", "150", "--gate-space", space, "--gates", "model"]
    for packing in ("qwen3_5", "qwen3_next"):
        yield "layer", packing, ["--op", "layer", "--packing", packing, "--T", "70", "--steps", "4"]
    yield "conv1d", "packed", ["--op", "conv1d", "--lengths", "5,0,1,90", "--channels", str(dim)]
    yield "gated_norm", "rows", ["--op", "gated_norm", "--T", "9"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path, help="where to write the files")
    parser.add_argument("--tool", default="sluice", help="the command-line tool")
    parser.add_argument("--quick", action="store_true", help="short rungs alone")
    parser.add_argument("--dim", type=int, default=64, help="K = V (64)")
    parser.add_argument("--dtype", default="f32", choices=TOLERANCE, help="of q, k, v as stored")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for old in arguments.folder.glob("*.safetensors"):
        old.unlink()
    wanted = [("ladder", name, more) for name, more in ladder(arguments.quick)]
    wanted += list(others(arguments.dim))
    shape = ["--H", "1", "--HV", "2", "--K", str(arguments.dim), "--V", str(arguments.dim)]
    for file, name, more in wanted:
        path = arguments.folder / f"{file}.safetensors"
        command = [arguments.tool, "make-case", "-o", str(path), "--name", name, *shape, *more]
        command += ["--dtype", arguments.dtype, "--tolerance", TOLERANCE[arguments.dtype]]
        command += ["--append"] if path.exists() else []
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"{file} {name}: {done.stderr.strip()}", file=sys.stderr)
            return 1
    index = [{"file": f"{file}.safetensors", "case": name} for file, name, _ in wanted]
    (arguments.folder / "index.json").write_text(json.dumps(index, indent=1) + "\n")
    print(f"{len(wanted)} cases in {arguments.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
