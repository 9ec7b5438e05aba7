#!/usr/bin/env python3
"""Compares the table of CUDA kernels in docs/kernels/README.md with what `sluice info` prints.

Usage: sluice info | check_kernels.py [--write]

Exits with 77 where the build has no CUDA backend. --write makes the table anew.
SPDX-License-Identifier: Apache-2.0
"""

import pathlib
import sys

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "kernels" / "README.md"
BEGIN, END = "<!-- kernels: begin -->\n", "<!-- kernels: end -->\n"
PREFIX = "cuda.kernels."


def table(lines: list[str]) -> str:
    """The rows of the catalogues' kernels, in the order in which they are asked."""
    rows = ["| kernel | takes |", "|---|---|"]
    for line in lines:
        if line.startswith(PREFIX):
            name, takes = line.removeprefix(PREFIX).rstrip("\n").split(": ", 1)
            rows.append(f"| `{name}` | {takes} |")
    return "\n".join(rows) + "\n"


def main() -> int:
    lines = sys.stdin.readlines()
    if not any(line.startswith(PREFIX) for line in lines):
        print("no CUDA backend in this build")
        return 77
    before, rest = PAGE.read_text().split(BEGIN)
    found, after = rest.split(END)
    expected = table(lines)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(before + BEGIN + expected + END + after)
    elif found != expected:
        print(f"{PAGE.name}: the table of kernels is not what sluice info prints; "
              "sluice info | tests/lint/check_kernels.py --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
