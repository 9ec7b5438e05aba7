#!/usr/bin/env python3
"""Checks that every source says in its first sentence what it does: a comment (in Python the docstring) that
starts with a verb ("Computes ..", so its first word ends in s) and ends with a full stop or colon, before or
after an SPDX line that has nothing else on it. Exits 1 on a finding."""

import ast
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUFFIXES = {".h", ".hpp", ".cc", ".cpp", ".c", ".cu", ".cuh", ".py", ".sh"}
# Inputs of the fuzzers, which are no sources, and the C interface, which begins with its name.
EXEMPT = ("fuzz/corpus/", "include/sluice/sluice.h")
SPDX = "SPDX-License-Identifier: Apache-2.0"


def sources() -> list[pathlib.Path]:
    found = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"],
                           capture_output=True, text=True, check=True).stdout.split()
    return [ROOT / name for name in found
            if pathlib.Path(name).suffix in SUFFIXES and not name.startswith(EXEMPT) and (ROOT / name).exists()]


def head(path: pathlib.Path) -> str:
    """The first comment or docstring, without the SPDX line."""
    text = path.read_text()
    if path.suffix == ".py":
        return ast.get_docstring(ast.parse(text)) or ""
    lines = []
    for line in text.splitlines():
        if not line.startswith(("//", "/*", " *", "#")):
            break
        if SPDX not in line and not line.startswith("#!"):
            lines.append(line.strip("/*# "))
    return " ".join(lines).strip()


def begins_with_a_verb(said: str) -> bool:
    return said[:1].isupper() and said.split()[0].rstrip(",").endswith("s") and any(mark in said for mark in ".:")


def main() -> int:
    findings = []
    for path in sources():
        if not begins_with_a_verb(head(path)):
            findings.append(f"{path.relative_to(ROOT)}: its first sentence does not say what it does, with a verb")
        if any(SPDX in line and line.strip("/*#- ") != SPDX for line in path.read_text().splitlines()[:12]):
            findings.append(f"{path.relative_to(ROOT)}: its SPDX line says something else too")
    print("\n".join(findings) if findings else "every source says what it does")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
