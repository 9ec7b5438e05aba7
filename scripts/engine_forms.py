#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of engines' forms that were tested on a GPU, from what scripts/test_python_cuda.sh leaves.

    SLUICE_PARTS="engines fla-backend fla" scripts/test_python_cuda.sh WHEEL RESULTS
    scripts/engine_forms.py RESULTS --commit COMMIT [--out docs/engines/gpu_tests.tsv]

A row is an engine: contract tests of its namespace with tensors on the GPU, and of flash-linear-attention
also Sluice in its dispatch and its own tests of the gated delta rule. A row of its own has the tests that have
no tensors there. Skipped: what wants the engine itself, or what Sluice hands back by rule. Exits 1 if a test
failed.
"""

import argparse
import collections
import csv
import pathlib
import re
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python")]
from sluice_tools import whole_file

ENGINES = {"causal_conv1d": "causal-conv1d", "fla": "flash-linear-attention", "flashinfer": "FlashInfer",
           "npu": "sgl-kernel-npu", "sglang": "SGLang", "transformers": "transformers", "vllm": "vLLM"}
# Files of tests of all engines in which no operator has tensors on the GPU.
WITHOUT_TENSORS = ("pages", "plugins", "plugins_sglang", "signatures", "trace")
OUTCOMES = ("passed", "skipped", "failed")


def engine_of(case):
    """By the test's name, which some files of several engines begin with theirs, or else by its file."""
    file = case.get("classname").rpartition("test_engine_")[2].partition(".")[0]
    if file in WITHOUT_TENSORS:
        return "signatures, pages and plug-ins in stubs: no tensors on the GPU"
    for text in (case.get("name"), file):
        if found := re.search(rf"(?<![a-z])({'|'.join(ENGINES)})(?![a-z])", text):
            return ENGINES[found[1]]
    raise SystemExit(f"engine_forms: {case.get('classname')}, {case.get('name')}: of which engine? (ENGINES)")


def count_file(path, counts, what=""):
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        tags = {child.tag for child in case}
        outcome = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
        counts[engine_of(case) + what][outcome] += 1


def count_list(path, counts):
    """fla's own tests: what has a reason in brackets is handed back by rule."""
    with open(path, newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            counts["flash-linear-attention, its own tests"][row["outcome"]] += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--device", default="", help="the GPU's name, for the first line")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/engines/gpu_tests.tsv")
    options = parser.parse_args()
    counts = collections.defaultdict(collections.Counter)
    count_file(options.results / "engines.xml", counts)
    if (options.results / "fla-backend.xml").exists():
        count_file(options.results / "fla-backend.xml", counts, ", in its dispatch")
    if (options.results / "fla_tests.tsv").exists():
        count_list(options.results / "fla_tests.tsv", counts)
    lines = [f"# {options.device or 'a GPU'}, commit {options.commit}: scripts/engine_forms.py",
             "\t".join(("engine", *OUTCOMES))]
    lines += ["\t".join((name, *(str(counts[name][outcome]) for outcome in OUTCOMES))) for name in sorted(counts)]
    whole_file.write(options.out, "\n".join(lines) + "\n")
    print(*lines, sep="\n")
    return 1 if any(found["failed"] for found in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
