#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants every listed fault into one build, and fails where the tests do not notice one.

  tests/faults/run.py [--only NAMES] [--python PYTHON | --no-python] [--reuse] BUILD
  tests/faults/run.py --check

BUILD is a finished build (scripts/test.sh); PYTHON has NumPy and pytest (default: what scripts/test_python.sh leaves
in build/python/env). --only: a regular expression of names. --reuse: runs what the last call has built.
--check: builds nothing, and fails where a text that a row replaces is not once in its file, or a suite or a file of
Python's tests is not there. tests/faults/README.md says how a fault is added."""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import time

import plant
from mutant import Mutant

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 300  # seconds for one run of a filter, where one is usual and a busy machine takes many
SUITES = {
    "unit": "tests/sluice_unit_tests",
    "parity": "tests/sluice_parity_tests",
    "prefill": "tests/emulation/sluice_emulation_tests",
    "decode": "tests/emulation/sluice_emulated_decode_tests",
    "generic": "tests/emulation/sluice_emulated_generic_tests",
    "layer": "tests/emulation/sluice_emulated_layer_tests",
    "stages": "tests/emulation/sluice_emulated_stage_tests",
    "gradients": "tests/emulation/sluice_emulated_backward_tests",
}

PYTHON = ("python", "torch")  # the second: rows whose tests need torch, left out where Python has none


class Runs:
    """Runs of tests of the mutated build."""

    def __init__(self, out: pathlib.Path, python: pathlib.Path):
        self.out, self.python = out, python

    def command(self, suite: str, tests: str, fault: str) -> list[str]:
        if suite not in PYTHON:
            # PERF: the first failed check ends the process, where a test of many sizes would go on for half a minute.
            first = ["--gtest_throw_on_failure"] if fault else []
            return [str(self.out / SUITES[suite]), "--gtest_brief=1", "--gtest_fail_fast", *first,
                    f"--gtest_filter={tests}:-*Slow*"]
        file, _, names = tests.partition(" ")
        return [str(self.python), "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-c",
                str(ROOT / "pyproject.toml"), str(ROOT / "python/tests" / file), *(["-k", names] if names else [])]

    def run(self, suite: str, tests: str, fault: str = "") -> tuple[int | None, str]:
        """The exit status, None if it never ended, and what was printed."""
        environment = os.environ | {"SLUICE_FAULT": fault, "PYTHONPATH": str(self.out / "package"),
                                    "PYTHONDONTWRITEBYTECODE": "1", "SLUICE_TESTED_TREE": str(self.out / "tree")}
        with subprocess.Popen(self.command(suite, tests, fault), env=environment, cwd=self.out, text=True,
                              errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            try:
                printed = process.communicate(timeout=LIMIT)[0]
            except subprocess.TimeoutExpired:
                process.kill()
                return None, process.communicate()[0]
        return process.returncode, printed


def tests_passed(printed: str) -> int:
    counts = re.findall(r"\[  PASSED  \] (\d+) test|\b(\d+) passed", printed)
    return max((int(a or b) for a, b in counts), default=0)


def check_without_faults(runs: Runs, faults: list[plant.Fault], pool) -> None:
    """Every filter passes, and has tests, where no fault is on."""
    filters = sorted({(fault.suite, fault.tests) for fault in faults})
    for (suite, tests), (status, printed) in zip(filters, pool.map(lambda one: runs.run(*one), filters)):
        if status != 0 or tests_passed(printed) == 0:
            sys.exit(f"faults: {suite} {tests} fails, or has no test, without any fault:\n{printed[-3000:]}")


def survives(fault: plant.Fault, status: int | None) -> bool:
    return status == 0 or (status is None and not fault.hangs)


def judge(runs: Runs, faults: list[plant.Fault], pool) -> int:
    """Prints each survivor and the score; returns how many there are."""
    def one(fault: plant.Fault):
        begin = time.monotonic()
        return runs.run(fault.suite, fault.tests, fault.name)[0], time.monotonic() - begin

    survivors, seconds = 0, collections.Counter()
    for fault, (status, took) in zip(faults, pool.map(one, faults)):
        seconds[fault.name] = took
        if survives(fault, status):
            survivors += 1
            print(f"SURVIVES {fault.name} ({fault.file}; {fault.why}): {fault.suite} {fault.tests} "
                  f"{'passes' if status == 0 else f'does not end within {LIMIT} s'}", flush=True)
    slowest = ", ".join(f"{name} {took:.1f} s" for name, took in seconds.most_common(3))
    print(f"faults: {len(faults) - survivors} of {len(faults)} caught; slowest: {slowest}")
    return survivors


def check_rows(faults: list[plant.Fault]) -> int:
    """What can be said of the rows without a build."""
    wrong = [f"{fault.name}: no suite {fault.suite}" for fault in faults if fault.suite not in {*SUITES, *PYTHON}]
    for fault in faults:
        file = ROOT / "python/tests" / fault.tests.partition(" ")[0]
        if fault.suite in PYTHON and not file.is_file():
            wrong.append(f"{fault.name}: no file {file.relative_to(ROOT)}")
    if wrong:
        sys.exit("faults: the list is not true any more:\n  " + "\n  ".join(wrong))
    plant.mutate(ROOT, faults)
    print(f"faults: the texts of {len(faults)} rows are in their files")
    return 0


def available(build: pathlib.Path, python: pathlib.Path | None, faults: list[plant.Fault]) -> list[plant.Fault]:
    """Without what this build lacks, which is said: the emulator needs the CUDA toolkit. Python's rows are left out
    on request alone."""
    missing = {suite for suite, program in SUITES.items() if not (build / program).exists()}
    if python is None:
        missing.update(PYTHON)
    elif any(fault.suite in PYTHON for fault in faults):
        if not python.exists():
            sys.exit(f"faults: no {python}: scripts/test_python.sh makes it; --no-python leaves its rows out")
        if subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode != 0:
            missing.add("torch")
    left_out = [fault for fault in faults if fault.suite in missing]
    if left_out:
        print(f"faults: {len(left_out)} left out, of suites that are not here: {', '.join(sorted(missing))}")
    return [fault for fault in faults if fault.suite not in missing]


def make(mutant: Mutant, suites: set[str], python: pathlib.Path) -> None:
    """Builds what `suites` run."""
    targets = {SUITES[suite] for suite in suites.difference(PYTHON)}
    if suites.intersection(PYTHON):
        targets.add("src/libsluice_inside.a")
    mutant.make(sorted(targets))
    if suites.intersection(PYTHON):
        mutant.make_python(python)


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--python", type=pathlib.Path, default=ROOT / "build/python/env/bin/python")
    parser.add_argument("--no-python", action="store_true")
    parser.add_argument("--reuse", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("build", type=pathlib.Path, nargs="?")
    options = parser.parse_args()
    begin = time.monotonic()
    every = plant.read_lists(pathlib.Path(__file__).parent)
    if options.check:
        return check_rows(every)
    if options.build is None:
        parser.error("no BUILD")
    build, out = options.build.resolve(), ROOT / "build/faults"
    python = None if options.no_python else options.python.absolute()
    faults = available(build, python, [fault for fault in every if re.search(options.only, fault.name)])
    if not options.reuse:
        shutil.rmtree(out, ignore_errors=True)
        files = plant.plant(ROOT, out / "tree", every)
        make(Mutant(ROOT, build, out, files), {fault.suite for fault in faults}, python)
        print(f"faults: built in {time.monotonic() - begin:.0f} s", flush=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        check_without_faults(Runs(out, python), faults, pool)
        survivors = judge(Runs(out, python), faults, pool)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"faults: {time.monotonic() - begin:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of processors")
    print(f"faults: {len(faults) - survivors} passed, {survivors} failed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
