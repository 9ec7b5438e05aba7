#!/usr/bin/env python3
"""Writes the table of every CUDA kernel's registers, stack, spills, shared memory and barriers,
from what ptxas said when a build compiled them (cmake/nvcc_resources.sh keeps it).

  scripts/cuda_resources.py BUILD            writes docs/kernels/resources.tsv
  scripts/cuda_resources.py --check BUILD    compares with it: 0 equal, 1 different, 77 skipped"""

import difflib
import pathlib
import re
import subprocess
import sys

TABLE = pathlib.Path(__file__).resolve().parents[1] / "docs/kernels/resources.tsv"
COLUMNS = ["kernel", "arch", "registers", "stack", "spill stores", "spill loads", "static shared",
           "barriers"]
ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\S+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SKIPPED = 77


def count(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found.group(1)) if found else 0


def read_log(path: pathlib.Path) -> list[list[str | int]]:
    """Rows of one object's kernels, names still mangled."""
    rows: list[list[str | int]] = []
    name, arch, stack = "", "", [0, 0, 0]
    for line in path.read_text().splitlines():
        if entry := ENTRY.search(line):
            name, arch = entry.groups()
        elif frame := STACK.search(line):
            stack = [int(n) for n in frame.groups()]
        elif used := USED.search(line):
            rows.append([name, arch, int(used.group(1)), *stack, count(r"(\d+) bytes smem", line),
                         count(r"used (\d+) barriers", line)])
    return rows


def readable(names: list[str]) -> dict[str, str]:
    """Demangled, without result, arguments and our outer namespaces."""
    plain = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True,
                           check=True).stdout.splitlines()
    out = {}
    for mangled, name in zip(names, plain):
        name = re.sub(r"\(bool\)1", "true", re.sub(r"\(bool\)0", "false", name))
        name = re.sub(r"\((?:int|unsigned int|sluice::[\w:]+)\)", "", name)  # of enums too
        name = name.split("(")[0].removeprefix("void ")
        out[mangled] = name.replace("sluice::cuda::", "")
    return out


def nvcc_version(build: pathlib.Path) -> str | None:
    if not (build / "src/cuda").is_dir():
        return None
    for path in build.glob("CMakeFiles/*/CMakeCUDACompiler.cmake"):
        if found := re.search(r'CMAKE_CUDA_COMPILER_VERSION "([^"]+)"', path.read_text()):
            return found.group(1)
    return None


def make_table(build: pathlib.Path, version: str) -> str:
    objects = sorted((build / "src/cuda").rglob("*.cu.o"))
    missing = [o for o in objects if not o.with_name(o.name + ".ptxas").exists()]
    if missing or not objects:
        sys.exit(f"cuda_resources: {build} has no ptxas log for {missing or 'any kernel'}; rebuild it")
    rows = [row for o in objects for row in read_log(o.with_name(o.name + ".ptxas"))]
    names = readable([str(row[0]) for row in rows])
    lines = {"\t".join([names[str(row[0])], *map(str, row[1:])]) for row in rows}
    return "\n".join([f"# nvcc {version}", "\t".join(COLUMNS), *sorted(lines)]) + "\n"


def main() -> int:
    check = sys.argv[1] == "--check"
    build = pathlib.Path(sys.argv[-1])
    version = nvcc_version(build)
    if version is None:
        print(f"cuda_resources: skipped, {build} has no CUDA half")
        return SKIPPED
    if "CMAKE_BUILD_TYPE:STRING=Release\n" not in (build / "CMakeCache.txt").read_text():
        print(f"cuda_resources: skipped, {build} is not a Release build")
        return SKIPPED
    old = TABLE.read_text() if TABLE.exists() else ""
    if check and old and old.splitlines()[:1] != [f"# nvcc {version}"]:
        print(f"cuda_resources: skipped, the table is of another compiler than nvcc {version}")
        return SKIPPED
    new = make_table(build, version)
    if not check:
        TABLE.write_text(new)
        print(f"cuda_resources: {new.count(chr(10)) - 2} kernels in {TABLE.name}")
        return 0
    if old == new:
        print(f"cuda_resources: {new.count(chr(10)) - 2} kernels as in {TABLE.name}")
        return 0
    print("\n".join(difflib.unified_diff(old.splitlines(), new.splitlines(), "committed", "built",
                                         lineterm="", n=0)))
    print(f"cuda_resources: kernels differ from docs/kernels/{TABLE.name}. If that is meant: "
          f"scripts/cuda_resources.py {build}, and commit the table with the reason.")
    return 1


if __name__ == "__main__":
    sys.exit(main())
