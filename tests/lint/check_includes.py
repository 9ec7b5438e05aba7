#!/usr/bin/env python3
"""Checks that each room includes only what docs/architecture.md allows it, that no family of kernels
includes another one's files, that src/cuda has few files outside its folders, that no modules of the
Python packages import each other in a circle, that sources are ASCII and that no file is over its
length. Reads the #include and import lines of every source; exits 1 on a finding."""

import ast
import graphlib
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = ROOT / "python"
MAX_LINES = 400
MAX_LOOSE = 12  # files of src/cuda outside its folders: what all operators share
SOURCES = {".h", ".hpp", ".cc", ".cpp", ".c", ".cu", ".cuh"}
TEXTS = SOURCES | {".py", ".sh", ".md", ".txt", ".cmake"}

# Room -> prefixes of the quoted or angle includes that are not the standard library's.
ALLOWED = {
    "include/sluice": ["sluice/"],
    "src/core": ["core/", "sluice/"],
    "src/ref": ["ref/", "core/", "sluice/"],
    "src/cpu": ["cpu/", "core/", "sluice/", "hwy/"],
    "src/cuda/ptx": ["cuda/ptx/", "cuda.h", "cuda", "cuda/ptx"],
    "src/cuda/tile": ["cuda/ptx/", "cuda/tile/", "cuda.h", "cuda_", "core/"],
    "src/cuda/device": ["cuda/device/", "cuda/ptx/", "cuda/tile/", "cuda.h", "cuda_"],
    "src/cuda": ["cuda/", "core/", "sluice/", "cuda.h", "cuda_"],
    "src/io": ["io/", "core/dense_view.hpp", "core/numeric.hpp", "core/delta_options.hpp", "sluice/", "nlohmann/"],
    "src/check": ["check/", "core/argument_views.hpp", "core/dense_view.hpp", "core/numeric.hpp",
                  "core/delta_options.hpp", "sluice/", "cuda_"],
    "tools": ["tools/", "sluice/", "io/", "check/", "CLI/", "fmt/", "nlohmann/", "ggml", "cuda_"],
}
SYSTEM = re.compile(r"^[a-z_0-9]+(\.h)?$|^sys/|^linux/")  # standard and POSIX headers
KERNELS = re.compile(r"^(?:src/)?cuda/kernels/(\w+)/")  # a family of kernels


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
    # Exempt, by those words: generated files, and the C header.
    if path.suffix in {*SOURCES, ".py"} and text.count("\n") > MAX_LINES and "LINT length:" not in text:
        findings.append(f"{name}: {text.count(chr(10))} lines, at most {MAX_LINES} where written by hand")
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
        own, other = KERNELS.match(name), KERNELS.match(include)
        if own and other and own[1] != other[1]:
            findings.append(f"{name}: includes {include}, of another family of kernels")
    return findings


def imports_of(path: pathlib.Path, modules: set[str]) -> set[str]:
    """The modules of ours that a Python file imports, inside functions too."""
    package = [*path.relative_to(PYTHON).parent.parts]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = {f"{base}.{alias.name}" for alias in node.names}
            found |= names & modules or {base}
    return found & modules


def check_python_circles() -> list[str]:
    """No circle of imports, and of `sluice` only what is a program imports tools."""
    programs = {"sluice.__main__", "sluice.distributed.bench"}
    paths = {}
    for path in [*PYTHON.glob("sluice/**/*.py"), *PYTHON.glob("sluice_tools/**/*.py")]:
        name = ".".join(path.relative_to(PYTHON).with_suffix("").parts)
        paths[name.removesuffix(".__init__")] = path
    modules = {*paths, "sluice._core"}  # the extension
    graph = {name: imports_of(path, modules) for name, path in paths.items()}
    findings = [
        f"python: {name} imports {other}"
        for name, others in graph.items()
        for other in others
        if not name.startswith("sluice_tools") and other.startswith("sluice_tools")
        if name not in programs
    ]
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as circle:
        findings.append(f"python: imports in a circle: {' <- '.join(circle.args[1])}")
    return findings


def check_loose_files() -> list[str]:
    loose = sum(path.is_file() for path in (ROOT / "src/cuda").iterdir())
    return [f"src/cuda: {loose} files outside its folders, at most {MAX_LOOSE}"] if loose > MAX_LOOSE else []


def main() -> int:
    findings = check_python_circles() + check_loose_files()
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
