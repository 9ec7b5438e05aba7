#!/usr/bin/env python3
"""Checks docs/environment.md: it has every variable that the code reads and no other, and the library asks the
environment in src/core/environment.cc alone. Exits 1 on a finding.

SPDX-License-Identifier: Apache-2.0
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
READER = "src/core/environment.cc"
FOLDERS = {"src": ("cc", "hpp", "h", "cu", "cuh"), "tools": ("cc", "hpp"), "python/src": ("cc", "hpp"),
           "python/sluice": ("py",), "python/sluice_tools": ("py",)}
READS = re.compile(r'getenv\("(\w+)"|os\.environ(?:\.get\(|\[)"(\w+)"')
LOOKS = re.compile(r"\bgetenv\(")


def sources():
    for folder, endings in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix[1:] in endings:
                yield path.relative_to(ROOT).as_posix(), path.read_text()


def variables():
    """Names that the code reads."""
    names = set(re.findall(r'"(SLUICE_\w+)"', (ROOT / READER).read_text()))
    for path, text in sources():
        if path != READER:
            names |= {a or b for a, b in READS.findall(text)}
    return names


def findings():
    page = (ROOT / "docs/environment.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|", page, re.M)
    known = variables()
    for name in sorted(known - set(rows)):
        yield f"docs/environment.md: no row of {name}, which the code reads"
    for name in sorted(set(rows) - known):
        yield f"docs/environment.md: {name} is read nowhere"
    for name in sorted({name for name in rows if rows.count(name) > 1}):
        yield f"docs/environment.md: {name} is there twice"
    for path, text in sources():
        if path.startswith("src/") and path != READER and LOOKS.search(text):
            yield f"{path}: reads the environment; {READER} does that"


def main():
    found = list(findings())
    print("\n".join(found) if found else "docs/environment.md has every variable that is read")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
