#!/usr/bin/env python3
"""Checks that what docs/requirements.md names is there: every test of the tree, every file, every link, every number.
Reads the page and the sources of the tests; exits 1 on a finding.

SPDX-License-Identifier: Apache-2.0
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/requirements.md"
WHOLE = {2: 19, 3: 17}  # groups of which every number has a row


def tests_of_the_tree():
    """Names as the page writes them: Suite.Test, test_function."""
    names = set()
    for path in [*(ROOT / "tests").rglob("*.cc"), *(ROOT / "python/tests").rglob("*.py")]:
        text = path.read_text()
        names |= {f"{a}.{b}" for a, b in re.findall(r"^TEST\w*\((\w+),\s*(\w+)\)", text, re.M)}
        names |= set(re.findall(r"^def (test_\w+)\(", text, re.M))
    return names


def findings(text):
    known = tests_of_the_tree()
    for name in re.findall(r"`([A-Z]\w+\.[A-Z]\w+|test_\w+)`", text):
        if name not in known:
            yield f"there is no test {name}"
    for name in re.findall(r"`([a-z]\w*/[\w/.]+)`", text):
        if not (ROOT / name).exists():
            yield f"there is no {name}"
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        if not (PAGE.parent / link).exists():
            yield f"the link {link} leads nowhere"
    for group, last in WHOLE.items():
        for number in range(1, last + 1):
            if f"\n| {group}.{number} |" not in text:
                yield f"{group}.{number} is missing"
    for row in re.findall(r"^\| (\d\.\d+\w?) \|.*$", text, re.M):
        if text.count(f"| {row} |") != 1:
            yield f"{row} is there twice"
    for line in re.findall(r"^\| \d\.\d+.*$", text, re.M):
        if not re.search(r"\| (done|part|missing)[^|]*\|$", line):
            yield f"no status: {line[:40]}"


def main():
    found = sorted(set(findings(PAGE.read_text())))
    print("\n".join(found) if found else "docs/requirements.md names what is there")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
