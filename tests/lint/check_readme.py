#!/usr/bin/env python3
"""Checks README.md: its code is the marked regions of the compiled examples, the commands it names exist, and
its table of speeds is what the committed records say. Exits 1 on a difference.

  tests/lint/check_readme.py [--write]        --write: makes the table anew"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks/results"
REGIONS = {
    "readme-cpp": "examples/cpp/prefill.cpp",
    "readme-c": "examples/c/decode.c",
    "readme-transformers": "examples/python/transformers_generate.py",
}
COMMANDS = ["scripts/quickstart.sh", "scripts/test.sh"]
MARKS = ("<!-- speed: made by tests/lint/check_readme.py --write -->\n", "<!-- end of speed -->\n")
# Numbers that no record stands behind: counts of tests and times of one run on one machine.
STALE = [r"failed out of \d+", r"\(\d+ tests\)", r"Total Test time"]

Row = tuple[str, str, str, str, str]  # work, ours, beside, its time, ours over theirs


def rows_of(name: str, **wanted: object) -> list[dict]:
    rows = json.loads((RESULTS / name).read_text())["rows"]
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def row_of(name: str, **wanted: object) -> dict:
    found = rows_of(name, **wanted)
    if len(found) != 1:
        sys.exit(f"{name}: {len(found)} rows with {wanted}, expected 1")
    return found[0]


def entry(work: str, ours: float, beside: str, theirs: float, unit: str) -> Row:
    return work, f"{ours:.3g} {unit}", beside, f"{theirs:.3g} {unit}", f"{ours / theirs:.2f}"


def cpu_prefill() -> list[Row]:
    def milliseconds(name: str, who: str) -> float:
        row = row_of(f"zen4-2vcpu/{name}", T=2048, HV=32, K=128)
        measured = [m for m in row["measurements"] if m["name"].startswith(who)]
        return 1e3 * measured[0]["cpu_seconds"]["median"]

    ggml = milliseconds("2026-11-21-cpu-prefill.json", "ggml")
    halves = milliseconds("2026-11-21-cpu-prefill-bf16.json", "sluice")
    floats = milliseconds("2026-11-21-cpu-prefill.json", "sluice")
    where = "Zen 4, one thread: prefill of 2048 tokens"
    return [entry(f"{where}, float32", floats, "ggml", ggml, "ms"),
            entry(f"{where}, bfloat16", halves, "ggml, float32", ggml, "ms")]


def prefill_grid() -> Row:
    summary = json.loads((RESULTS / "h200/prefill_published.json").read_text())["summary"]
    slower = summary["cells_slower_than_best_peer"]
    return (f"H200: prefill, geometric mean of {summary['cells_with_peers']} cells", "",
            f"the best peer, published or measured earlier (faster in {slower} of them)", "",
            f"{1 / summary['geometric_mean_ratio']:.2f}")


def decode() -> list[Row]:
    out = []
    for size, name in ((1, "one sequence"), (256, "256 sequences")):
        for state, dtype in (("fp32", "float32"), ("bf16", "bfloat16")):
            row = row_of("h200/decode.json", B=size, T=1, state=state, ring=None)
            peer = row["peers"][0]
            out.append(entry(f"H200: decode step of {name}, {dtype} states", row["us"],
                             f"{peer['peer']}, measured earlier", peer["us"], "us"))
    return out


def beside_fla() -> list[Row]:
    gla = row_of("h200/simple_gla_fla.json", shape="24x6144x20", what="simple_gla")
    stages = row_of("h200/stage_peers.json", shape="1x8192", what="sum")
    return [entry("H200: simple GLA, (B, T, H, K) = (24, 6144, 20, 128)", gla["ms"], "FLA, same process",
                  gla["fla_ms"], "ms"),
            entry("H200: six stages of a prefill of 8192 tokens, 16 heads, in sum", stages["ms"], "FLA, same process",
                  stages["fla_ms"], "ms")]


def convolutions() -> Row:
    shares = [row["us"] / row["peers"]["dao"]["us"] for row in rows_of("h200/conv_norm_peers.json")
              if "dao" in row["peers"]]
    return (f"H200: short convolutions, {len(shares)} sizes", "", "causal_conv1d of Dao, same process", "",
            f"{min(shares):.2f} to {max(shares):.2f}")


def models() -> list[Row]:
    out = []
    for name, peer in (("transformers", "its own torch layers"), ("transformers_fla", "its layers with FLA")):
        rows = {way: row_of(f"h200/{name}.json", model="qwen3_next", dtype="bfloat16", way=way)
                for way in ("layer", "transformers")}
        for what, work in (("prefill", "prefill of 4096 tokens"), ("one token", "one token")):
            ours, theirs = (rows[way][what]["median_ms"] for way in ("layer", "transformers"))
            out.append(entry(f"H200: Qwen3-Next model of 4 layers in transformers, {work}", ours, peer, theirs, "ms"))
    return out


def speed_table() -> str:
    rows = [*cpu_prefill(), prefill_grid(), *decode(), *beside_fla(), convolutions(), *models()]
    lines = ["| work | Sluice | beside | its time | ours / theirs |", "|---|---|---|---|---|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]).replace("|  |", "| |") + "\n"


def region(path: str, mark: str) -> str:
    text = (ROOT / path).read_text()
    return re.search(rf"^[^\n]*\[{mark}\][^\n]*\n(.+?)^[^\n]*\[{mark}\]", text, re.S | re.M).group(1).strip()


def between_marks(readme: str) -> str | None:
    found = re.search("(?s)" + "(.*)".join(map(re.escape, MARKS)), readme)
    return found.group(1) if found else None


def main() -> int:
    readme = (ROOT / "README.md").read_text()
    old, new = between_marks(readme), speed_table()
    if old is None:
        sys.exit("README.md: the marks of the table of speeds are missing")
    if sys.argv[1:] == ["--write"]:
        readme = readme.replace(MARKS[0] + old, MARKS[0] + new)
        (ROOT / "README.md").write_text(readme)
        old = new
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
    findings += [f"README.md: a number without a record: {found}"
                 for pattern in STALE for found in re.findall(pattern, readme)]
    if old != new:
        findings.append("README.md: the table of speeds is not what the records say; "
                        "tests/lint/check_readme.py --write")
    print("\n".join(findings) if findings else "README.md agrees with examples and records")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
