#!/usr/bin/env python3
"""Prints the branch coverage of each room from what `llvm-cov export` wrote, and fails below a floor.

usage: branches.py FILE [--floor PERCENT] [--missed]
"""

import argparse
import collections
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def branches_of(export: dict, build: pathlib.Path) -> dict[str, dict[tuple[int, ...], list[int]]]:
    """For each file its branches, by their place: how often true and how often false, over all instances."""
    found: dict[str, dict[tuple[int, ...], list[int]]] = collections.defaultdict(dict)
    for file in export["data"][0]["files"]:
        # Relative to the build where a compiler cache made it so.
        path = (build / file["filename"]).resolve()
        if not path.is_relative_to(ROOT / "src"):
            continue
        for *place, taken, not_taken, _, _, _ in file["branches"]:
            counts = found[str(path.relative_to(ROOT))].setdefault(tuple(place), [0, 0])
            counts[0] += taken
            counts[1] += not_taken
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--floor", type=float, default=0)
    parser.add_argument("--missed", action="store_true", help="list what is not taken")
    options = parser.parse_args()
    rooms: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
    for name, branches in sorted(branches_of(json.loads(options.file.read_text()), options.file.parent).items()):
        if not name.startswith(("src/core/", "src/io/")):
            continue
        taken = sum((true > 0) + (false > 0) for true, false in branches.values())
        room = rooms[str(pathlib.Path(name).parent)]
        room[0] += taken
        room[1] += 2 * len(branches)
        print(f"{name:40} {taken:5} of {2 * len(branches):5} branches  {50 * taken / max(len(branches), 1):5.1f} %")
        for (line, column, *_), (true, false) in sorted(branches.items()) if options.missed else []:
            if true == 0 or false == 0:
                print(f"    {name}:{line}:{column} never {'true' if true == 0 else ''}"
                      f"{' nor ' if true == false == 0 else ''}{'false' if false == 0 else ''}")
    low = False
    for room, (taken, count) in rooms.items():
        low |= taken < options.floor / 100 * count
        print(f"{room}: {taken} of {count} branches taken, {100 * taken / count:.1f} %")
    if low or not rooms:
        print(f"expected at least {options.floor:g} % of each room", file=sys.stderr)
    return 1 if low or not rooms else 0


if __name__ == "__main__":
    sys.exit(main())
