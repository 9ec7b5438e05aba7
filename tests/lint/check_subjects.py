#!/usr/bin/env python3
"""Checks the subjects of commits: at most 72 characters, then an empty line. Reads the commits after the
one that brought this file; says so and passes where there is no history. Exits 1 on a finding."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAX_SUBJECT = 72


def git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True,
                          check=True).stdout


def main() -> int:
    this = str(pathlib.Path(__file__).resolve().relative_to(ROOT))
    try:
        added = git("log", "--diff-filter=A", "--format=%H", "--", this).split()
    except (OSError, subprocess.CalledProcessError):
        added = []
    if not added:
        print("subjects of commits: skipped, no history here")
        return 0
    findings = []
    for message in git("log", "--no-merges", "-z", "--format=%h%n%B", f"{added[-1]}..HEAD").split("\0"):
        commit, _, text = message.strip("\n").partition("\n")
        lines = text.splitlines()
        if lines and len(lines[0]) > MAX_SUBJECT:
            findings.append(f"{commit}: subject of {len(lines[0])} characters, at most {MAX_SUBJECT}: {lines[0]}")
        if len(lines) > 1 and lines[1]:
            findings.append(f"{commit}: no empty line after the subject: {lines[0]}")
    print("\n".join(findings) if findings else "subjects of commits are in order")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
