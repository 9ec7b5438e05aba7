#!/usr/bin/env python3
"""Sorts the hazards that compute-sanitizer's racecheck reports for the one-launch prefill into known
false ones and the rest, and fails on the rest.

  compute-sanitizer --tool racecheck --racecheck-report hazard --show-backtrace no \\
    --print-limit 1000000 PROGRAM > LOG;  scripts/racecheck.py LOG

docs/kernels/racecheck.md says why the known ones are false; docs/kernels/racecheck.tsv lists them."""

import collections
import pathlib
import re
import sys

KNOWN = pathlib.Path(__file__).resolve().parents[1] / "docs/kernels/racecheck.tsv"
# Roles of the kernel's 16 warps, as in src/cuda/kernels/chunk_forward/config.h.
ROLES = ["loader", "gate"] + 2 * ["finish"] + 8 * ["state"] + 4 * ["aux"]
ACCESS = r"(Write|Read) Thread \((\d+),\d+,\d+\) at (.*?)\+0x[0-9a-f]+(?: in (\S+))?\s*$"
HAZARD = re.compile(
    r"Potential (RAW|WAR|WAW) hazard detected at __shared__ 0x[0-9a-f]+ in block.*\n"
    rf"=+\s+{ACCESS}\n=+\s+{ACCESS}", re.M)
SUMMARY = re.compile(r"RACECHECK SUMMARY: (\d+) hazards? displayed")


def function_of(signature: str) -> str:
    """The bare name: void a::b<C, (bool)1>(int) -> b."""
    name = re.sub(r"\(bool\)", "", signature)
    return re.split(r"[<(]", name)[0].split("::")[-1].split()[-1]


def hand_over(match: re.Match) -> tuple[tuple[str, ...], bool, str]:
    """(hazard, role that gives, role that takes), whether the giving thread is the one that arrives
    for its warp, and both places."""
    hazard, _, thread, function, line, _, other, other_function, other_line = match.groups()
    roles = [ROLES[int(t) // 32 % len(ROLES)] for t in (thread, other)]
    places = [f"{function_of(f)} {at or ''}".strip()
              for f, at in ((function, line), (other_function, other_line))]
    return (hazard, *roles), int(thread) % 32 == 0, " -> ".join(places)


def read_known() -> set[tuple[str, ...]]:
    lines = [line.split("\t") for line in KNOWN.read_text().splitlines()]
    return {tuple(cells[:3]) for cells in lines[1:]}


def main() -> int:
    text = pathlib.Path(sys.argv[1]).read_text(errors="replace")
    summaries = [int(count) for count in SUMMARY.findall(text)]
    counts: collections.Counter = collections.Counter()
    by_arriving: collections.Counter = collections.Counter()
    places: dict = collections.defaultdict(collections.Counter)
    for match in HAZARD.finditer(text):
        key, arrives, pair = hand_over(match)
        counts[key] += 1
        by_arriving[key] += arrives
        places[key][pair] += 1
    if not summaries or sum(summaries) != sum(counts.values()):
        print(f"racecheck: {sum(counts.values())} hazards read, {summaries} in the summaries")
        return 1
    known = read_known()
    failed = False
    for key, count in sorted(counts.items()):
        reasons = []
        if key not in known:
            reasons.append(f"not in {KNOWN.name}")
        if by_arriving[key]:
            reasons.append("given by the arriving thread itself, which racecheck does follow")
        if key[1] == key[2]:
            reasons.append("inside one role")
        failed = failed or bool(reasons)
        verdict = "NEW: " + ", ".join(reasons) if reasons else "known"
        print(f"{key[0]} {key[1]} -> {key[2]}: {count}, {verdict}")
        for pair, share in sorted(places[key].items()):
            print(f"    {share:6d}  {pair}")
    print(f"racecheck: {sum(counts.values())} hazards in {len(counts)} pairs of roles,",
          "some of them new" if failed else "all known")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
