#!/usr/bin/env python3
"""Checks that every source says in its first sentence what it does: a comment (in Python the docstring) that
starts with a capital and ends with a full stop or colon, before or after the SPDX line. Exits 1 on a finding."""

import ast
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUFFIXES = {".h", ".hpp", ".cc", ".cpp", ".c", ".cu", ".cuh", ".py"}
# Inputs of the fuzzers, which are no sources.
EXEMPT = ("fuzz/corpus/",)


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
        if not line.startswith(("//", "/*", " *")):
            break
        if "SPDX-License-Identifier" not in line:
            lines.append(line.strip("/* "))
    return " ".join(lines).strip()


def main() -> int:
    findings = []
    for path in sources():
        said = head(path)
        if not said or not (said[0].isupper() or said[0] in "`") or not any(mark in said for mark in ".:"):
            findings.append(f"{path.relative_to(ROOT)}: its first sentence does not say what it does")
    print("\n".join(findings) if findings else "every source says what it does")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
