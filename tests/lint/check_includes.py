#!/usr/bin/env python3
"""Checks that each room includes only what docs/architecture.md allows it, that sources are ASCII
and that no file is over its length. Reads the #include lines of every source; exits 1 on a finding."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAX_LINES = 400
SOURCES = {".h", ".hpp", ".cc", ".cpp", ".c", ".cu", ".cuh"}
TEXTS = SOURCES | {".py", ".sh", ".md", ".txt", ".cmake"}

# Room -> prefixes of the quoted or angle includes that are not the standard library's.
ALLOWED = {
    "include/sluice": ["sluice/"],
    "src/core": ["core/", "sluice/"],
    "src/ref": ["ref/", "core/", "sluice/"],
    "src/cpu": ["cpu/", "core/", "sluice/", "hwy/"],
    "src/cuda/ptx": ["cuda/ptx/", "cuda.h", "cuda", "cuda/ptx"],
    "src/cuda/tile": ["cuda/", "cuda.h", "cuda_", "core/"],
    "src/cuda": ["cuda/", "core/", "sluice/", "cuda.h", "cuda_"],
    "src/io": ["io/", "core/numeric.hpp", "sluice/", "nlohmann/"],
    "src/check": ["check/", "core/numeric.hpp", "sluice/", "cuda_"],
    "tools": ["tools/", "sluice/", "io/", "check/", "CLI/", "fmt/", "nlohmann/", "ggml", "cuda_"],
}
SYSTEM = re.compile(r"^[a-z_0-9]+(\.h)?$|^sys/|^linux/")  # standard and POSIX headers


def room_of(path: str) -> str | None:
    rooms = [room for room in ALLOWED if path.startswith(room + "/")]
    return max(rooms, key=len) if rooms else None


def check_build_file(path: pathlib.Path) -> list[str]:
    """What ships builds nothing of the tests."""
    name = str(path.relative_to(ROOT))
    if path.name != "CMakeLists.txt" or not name.startswith(("src/", "tools/")):
        return []
    return [f"{name}: names tests/" for text in [path.read_text()] if "tests/" in text]


def check_file(path: pathlib.Path) -> list[str]:
    name = str(path.relative_to(ROOT))
    data = path.read_bytes()
    findings = []
    if any(byte > 127 for byte in data):
        findings.append(f"{name}: not ASCII")
    text = data.decode("ascii", "replace")
    if path.suffix in SOURCES and text.count("\n") > MAX_LINES and "LINT length:" not in text:
        findings.append(f"{name}: {text.count(chr(10))} lines, at most {MAX_LINES}")
    room = room_of(name)
    if path.suffix not in SOURCES or room is None:
        return findings
    for line, include in re.findall(r"^(\s*#\s*include\s+[<\"]([^>\"]+)[>\"])", text, re.M):
        quoted = '"' in line
        system = not quoted and SYSTEM.match(include) and not include.startswith("cuda")
        allowed = any(include.startswith(prefix) for prefix in ALLOWED[room])
        local = quoted and "/" not in include and (path.parent / include).exists()
        if not (system or allowed or local):
            findings.append(f"{name}: includes {include}, which {room} may not")
    return findings


def main() -> int:
    findings = []
    skip = {"build", ".git", ".cache"}
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        hidden = parts[0].startswith(".") and parts[0] != ".ci"
        if not path.is_file() or parts[0] in skip or hidden or "corpus" in parts:
            continue
        if path.suffix in TEXTS:
            findings += check_file(path) + check_build_file(path)
    print("\n".join(findings) if findings else "includes, lengths and character sets are in order")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
