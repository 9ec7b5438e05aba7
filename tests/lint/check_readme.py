#!/usr/bin/env python3
"""Checks that the code blocks of README.md are the marked regions of the compiled examples, and that
the commands it names exist. Compares text; exits 1 on a difference."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
REGIONS = {
    "readme-cpp": "examples/cpp/prefill.cpp",
    "readme-c": "examples/c/decode.c",
    "readme-transformers": "examples/python/transformers_generate.py",
}
COMMANDS = ["scripts/quickstart.sh", "scripts/test.sh"]


def region(path: str, mark: str) -> str:
    text = (ROOT / path).read_text()
    return re.search(rf"^[^\n]*\[{mark}\][^\n]*\n(.+?)^[^\n]*\[{mark}\]", text, re.S | re.M).group(1).strip()


def main() -> int:
    readme = (ROOT / "README.md").read_text()
    findings = [
        f"README.md: the block of {path} differs from its region [{mark}]"
        for mark, path in REGIONS.items()
        if region(path, mark) not in readme
    ]
    findings += [
        f"README.md: {command} is missing, there or here"
        for command in COMMANDS
        if command not in readme or not (ROOT / command).exists()
    ]
    print("\n".join(findings) if findings else "README.md agrees with the examples")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
