#!/usr/bin/env python3
"""Fails where a file took more CPU time to compile than the budget allows, or the tool's files together.

  scripts/compile_budget.py [--top N] BUILD

BUILD was configured with -DSLUICE_COMPILE_SECONDS=ON, as the scripts do: each compilation then leaves its
user CPU seconds beside its object (cmake/compile_seconds.sh). These hardly depend on what else the
machine does, where the wall clock does. A file that nvcc compiles for several GPUs counts as
the mean of these compilations. SLUICE_COMPILE_FACTOR scales the budgets for a slower machine."""

import argparse
import json
import os
import pathlib
import re
import sys

FILE_BUDGET = 30.0  # seconds: a person waits for one file
TOOL_BUDGET = 300.0  # what scripts/quickstart.sh compiles: 3 minutes on two cores, with what is around it
# Files with a budget of their own, and why.
EXCEPTIONS = {
    "tests/emulation/emulated_backend.cc": 90.0,  # every instance of the prefill kernels, for the emulator
    "tests/emulation/emulated_decode_backend.cc": 90.0,  # the same of decode
    "tests/emulation/emulated_stage_backend.cc": 90.0,  # the same of stages and gradients
}
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
    factor = float(os.environ.get("SLUICE_COMPILE_FACTOR", "1"))
    gpus = architectures(options.build)
    rows = []
    for path in options.build.rglob("*.seconds"):
        made = str(path.relative_to(options.build)).removesuffix(".seconds")
        if path.with_suffix("").exists():
            rows.append((float(path.read_text()) / gpus.get(made, 1), made))
    if not rows:
        sys.exit(f"compile_budget: {options.build} has no times; configure it with -DSLUICE_COMPILE_SECONDS=ON")
    rows.sort(reverse=True)
    tool = sum(seconds for seconds, made in rows if made.startswith(TOOL_FOLDERS) and ".cu" not in made)
    print(f"compile_budget: {len(rows)} files, {sum(s * gpus.get(m, 1) for s, m in rows):.0f} CPU seconds; "
          f"library and tool without CUDA {tool:.0f} of {TOOL_BUDGET * factor:.0f}; slowest:")
    for seconds, made in rows[:options.top]:
        print(f"  {seconds:5.1f} s  {made}")
    slow = [f"{made}: {seconds:.1f} CPU seconds, at most {budget_of(made) * factor:.0f}"
            for seconds, made in rows if seconds > budget_of(made) * factor]
    if tool > TOOL_BUDGET * factor:
        slow.append(f"library and tool: {tool:.0f} CPU seconds, at most {TOOL_BUDGET * factor:.0f}")
    print("\n".join(slow) if slow else "every file is within its budget")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
