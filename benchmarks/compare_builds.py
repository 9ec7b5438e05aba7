#!/usr/bin/env python3
"""Times two builds of Sluice beside each other and says which rows got slower.

The benchmarks of both builds run in turns (old, new, new, old, old, new ..), so that clocks and
temperature are alike; a row's time is the best median of its turns, its host time likewise. Take an
even number of turns: in one, the old build is the cooler one.

  benchmarks/compare_builds.py OLD/tools/sluice NEW/tools/sluice --json FILE
  benchmarks/compare_builds.py OLD/tools/sluice NEW/tools/sluice --only decode,layer --turns 3

Exit status 1 if a row of the new build is slower than --limit allows.
SPDX-License-Identifier: Apache-2.0
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from sluice_tools import whole_file  # needs no sluice

COMMANDS = {
    "marks": "prefill --grid marks --history forget --repeat 40 --rest 50 --no-error",
    "published": "prefill --grid published --history forget --repeat 12 --rest 10 --no-error",
    "strict": "prefill --grid marks --history strict --repeat 30 --rest 20 --no-error",
    "decode": "decode",
    "layer": "layer",
    "parts": "parts --repeat 15",
    "stages": "stages --T 8192 --gla-T 8192",
    "backward": "backward --lengths 1024,8192,32768",
}
DEFAULT = "marks,decode,layer,parts,stages,backward"
VARIABLE = ("kernel", "failure", "launches", "floor", "clock_mhz", "segments")


def run(tool, command, commit):
    """The rows of one benchmark."""
    with tempfile.TemporaryDirectory() as folder:
        record = pathlib.Path(folder) / "record.json"
        call = [tool, "bench", *command.split(), "--commit", commit, "--json", str(record)]
        done = subprocess.run(call, capture_output=True, text=True)
        if not record.exists():
            sys.exit(f"{' '.join(call)}: no record\n{done.stderr[-2000:]}")
        data = json.loads(record.read_text())
        return data["rows"], data.get("machine", {})


def identity(row):
    """What a row measures: its words and whole numbers. A switch that is off says nothing: an older
    build may not have it."""
    kept = {}
    for name, value in row.items():
        if name not in VARIABLE and isinstance(value, (str, int)) and value is not False:
            kept[name] = value
    return kept


def time_us(row):
    """Its time in microseconds; None where it failed."""
    if row.get("us") is not None:
        return row["us"]
    return None if row.get("ms") is None else 1e3 * row["ms"]


def best(rows, value):
    """The least of what the turns say."""
    known = [value(row) for row in rows if value(row) is not None]
    return min(known) if known else None


def compare(part, old, new):
    """One comparison a row; old and new are lists of turns, each a list of rows."""
    if len({len(turn) for turn in old + new}) != 1:
        sys.exit(f"{part}: the builds measure different rows")
    for i, row in enumerate(new[0]):
        if identity(row) != identity(old[0][i]):
            sys.exit(f"{part}: row {i} is {identity(old[0][i])} before, {identity(row)} now")
        before, after = [turn[i] for turn in old], [turn[i] for turn in new]
        yield {
            "part": part,
            "row": identity(row),
            "kernel_old": old[0][i].get("kernel"),
            "kernel_new": row.get("kernel"),
            "us_old": best(before, time_us),
            "us_new": best(after, time_us),
            "host_us_old": best(before, lambda r: r.get("host_us")),
            "host_us_new": best(after, lambda r: r.get("host_us")),
        }


def ratio(entry, name):
    """New over old."""
    old, new = entry[f"{name}_old"], entry[f"{name}_new"]
    return None if not old or not new else new / old


def table(entries, name, limit):
    """Prints the parts' ratios and the rows beyond the limit; returns how many those are."""
    beyond = []
    for part in dict.fromkeys(entry["part"] for entry in entries):
        mine = [e for e in entries if e["part"] == part and ratio(e, name)]
        if not mine:
            continue
        ratios = sorted(ratio(e, name) for e in mine)
        print(f"{part:10} {name:8} {len(mine):4} rows  new/old: least {ratios[0]:.3f}  "
              f"median {ratios[len(ratios) // 2]:.3f}  most {ratios[-1]:.3f}")
        beyond += [e for e in mine if ratio(e, name) > limit]
    for entry in beyond:
        words = ", ".join(f"{k} {v}" for k, v in entry["row"].items() if v not in ("", None))
        print(f"  {ratio(entry, name):.3f}  {entry[name + '_old']:.2f} -> "
              f"{entry[name + '_new']:.2f}  {entry['part']}: {words[:100]}")
    return len(beyond)


def main():
    """Measures, prints, records."""
    parser = argparse.ArgumentParser(description=__doc__.split("SPDX")[0],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="the tool of the old build")
    parser.add_argument("new", help="the tool of the new build")
    parser.add_argument("--only", default=DEFAULT, help=f"parts, of {', '.join(COMMANDS)}")
    parser.add_argument("--turns", type=int, default=2, help="how often each build runs a part")
    parser.add_argument("--limit", type=float, default=1.02, help="slowest new/old that is fine")
    parser.add_argument("--old-commit", default="unknown")
    parser.add_argument("--new-commit", default="unknown")
    parser.add_argument("--json", help="write everything measured")
    options = parser.parse_args()
    entries, machine = [], {}
    for part in options.only.split(","):
        old, new = [], []
        for turn in range(options.turns):
            print(f"{part}: sluice bench {COMMANDS[part]}", file=sys.stderr, flush=True)
            builds = [(options.old, options.old_commit, old), (options.new, options.new_commit, new)]
            for tool, commit, turns in builds[::-1] if turn % 2 else builds:
                rows, machine = run(tool, COMMANDS[part], commit)
                turns.append(rows)
        entries += compare(part, old, new)
    slower = table(entries, "us", options.limit)
    table(entries, "host_us", options.limit)
    if options.json:
        record = {"machine": machine, "old_commit": options.old_commit,
                  "new_commit": options.new_commit, "turns": options.turns,
                  "commands": {p: COMMANDS[p] for p in options.only.split(",")}, "rows": entries}
        whole_file.write(pathlib.Path(options.json), json.dumps(record, indent=1) + "\n")
    print(f"{slower} of {len(entries)} rows slower than {options.limit} times the old build")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
