#!/usr/bin/env python3
"""Fails where a file took more CPU time to compile than the budget allows, or the tool's files together.

  scripts/compile_budget.py [--top N] BUILD

BUILD was configured with -DSLUICE_COMPILE_SECONDS=ON, as the scripts do: each compilation then leaves its
user CPU seconds beside its object (cmake/compile_seconds.sh). A file that nvcc compiles for several GPUs
counts as the mean of these compilations.

Budgets are seconds of the machine of docs/ci.md in its best hours. What the same work takes elsewhere is told by
cmake/compile_yardstick.cc, which a build with tests compiles several times: times are divided by
its median, over what it took there. Without it (a build without tests) they are taken as they are."""

import argparse
import json
import pathlib
import re
import statistics
import sys

FILE_BUDGET = 30.0  # seconds: a person waits for one file
TOOL_BUDGET = 300.0  # what scripts/quickstart.sh compiles: 3 minutes on two cores, with what is around it
# Files with a budget of their own, and why.
EXCEPTIONS = {
    "tests/emulation/emulated_backend.cc": 90.0,  # every instance of the prefill kernels, for the emulator
    "tests/emulation/emulated_decode_backend.cc": 90.0,  # the same of decode
    "tests/emulation/emulated_stage_backend.cc": 90.0,  # the same of stages and gradients
}
YARDSTICK = "CMakeFiles/sluice_compile_yardstick.dir/"
YARDSTICK_SECONDS = 5.9  # of cmake/compile_yardstick.cc with g++ 12 on that machine
TOOL_FOLDERS = ("src/core/", "src/ref/", "src/cpu/", "src/io/", "src/check/", "tools/")


def architectures(build: pathlib.Path) -> dict[str, int]:
    """Object -> GPUs that nvcc compiles it for."""
    commands = [entry["command"] for entry in json.loads((build / "compile_commands.json").read_text())
                if entry["file"].endswith(".cu")]
    made = {re.search(r" -o (\S+)", command): command.count("--generate-code=") for command in commands}
    return {found.group(1): max(1, count) for found, count in made.items() if found}


def budget_of(made: str) -> float:
    """Of an object, by the source that it is made of: FOLDER/CMakeFiles/TARGET.dir/FILE.o."""
    folder, _, rest = made.partition("/CMakeFiles/")
    return EXCEPTIONS.get(f"{folder}/{rest.partition('.dir/')[2].removesuffix('.o')}", FILE_BUDGET)


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--top", type=int, default=5)
    parser.add_argument("build", type=pathlib.Path)
    options = parser.parse_args()
    gpus = architectures(options.build)
    rows, yardsticks = [], []
    for path in options.build.rglob("*.seconds"):
        made = str(path.relative_to(options.build)).removesuffix(".seconds")
        if made.startswith(YARDSTICK):
            yardsticks.append(float(path.read_text()))
        elif path.with_suffix("").exists():
            rows.append((float(path.read_text()) / gpus.get(made, 1), made))
    if not rows:
        sys.exit(f"compile_budget: {options.build} has no times; configure it with -DSLUICE_COMPILE_SECONDS=ON")
    slower = statistics.median(yardsticks) / YARDSTICK_SECONDS if yardsticks else 1.0
    rows = sorted(((seconds / slower, made) for seconds, made in rows), reverse=True)
    tool = sum(seconds for seconds, made in rows if made.startswith(TOOL_FOLDERS) and ".cu" not in made)
    print(f"compile_budget: the yardstick took {slower:.2f} times as long as on the machine that budgets are for"
          if yardsticks else "compile_budget: no yardstick in this build; times as they are")
    print(f"{len(rows)} files, {sum(s * gpus.get(m, 1) for s, m in rows):.0f} CPU seconds of that machine; "
          f"library and tool without CUDA {tool:.0f} of {TOOL_BUDGET:.0f}; slowest:")
    for seconds, made in rows[:options.top]:
        print(f"  {seconds:5.1f} s  {made}")
    slow = [f"{made}: {seconds:.1f} CPU seconds, at most {budget_of(made):.0f}"
            for seconds, made in rows if seconds > budget_of(made)]
    if tool > TOOL_BUDGET:
        slow.append(f"library and tool: {tool:.0f} CPU seconds, at most {TOOL_BUDGET:.0f}")
    print("\n".join(slow) if slow else "every file is within its budget")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
