#!/usr/bin/env python3
"""Checks README.md: its code is the marked regions of the compiled examples, the commands it names exist, and its
tables of speeds and costs, and the figure of them, are what the committed records say. Exits 1 on a difference.

  tests/lint/check_readme.py [--write]        --write: makes tables and figure anew"""

import json
import math
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks/results"
REGIONS = {
    "readme-cpp": "examples/cpp/prefill.cpp",
    "readme-transformers": "examples/python/transformers_generate.py",
}
COMMANDS = ["scripts/quickstart.sh", "scripts/test.sh"]
FIGURE = ROOT / "docs/figures/speed.svg"
# Numbers that no record stands behind: counts of tests and times of one run on one machine.
STALE = [r"failed out of \d+", r"\(\d+ tests\)", r"Total Test time"]

Row = tuple[str, str, str, str, str]  # work, ours, beside, its time, times faster


def rows_of(name: str, **wanted: object) -> list[dict]:
    rows = json.loads((RESULTS / name).read_text())["rows"]
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def row_of(name: str, **wanted: object) -> dict:
    found = rows_of(name, **wanted)
    if len(found) != 1:
        sys.exit(f"{name}: {len(found)} rows with {wanted}, expected 1")
    return found[0]


def times(ratio: float) -> str:
    """The one convention of speed: how many times faster; below 1 is slower."""
    return f"{ratio:.1f}" if ratio >= 2 else f"{ratio:.2f}"


def entry(work: str, ours: float, beside: str, theirs: float, unit: str) -> Row:
    return work, f"{ours:.3g} {unit}", beside, f"{theirs:.3g} {unit}", times(theirs / ours)


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
            times(summary["geometric_mean_ratio"]))


def side_by_side() -> Row:
    """Every cell that peers were measured on by us; the one honest mean."""
    summary = json.loads((RESULTS / "h200/side_by_side.json").read_text())["summary"]
    slower = summary["cells_slower_than_best_peer"]
    return (f"H200: prefill, geometric mean of {summary['cells_with_peers']} cells", "",
            f"the best of FLA, FlashQLA, FlashInfer, TileOPs (faster in {slower})", "",
            times(summary["geometric_mean_ratio"]))


def mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def key_gates() -> list[Row]:
    """KDA beside the best peer of each row, which is cuDNN in prefill and FLA in decode."""
    out = []
    for work, peer, wanted in (("prefill, bounded gates", "cuDNN", {"part": "prefill", "gates": "bounded"}),
                               ("prefill, slow gates", "cuDNN", {"part": "prefill", "gates": "slow"}),
                               ("decode step", "FLA 0.6.0", {"part": "decode"})):
        ratios = [row["ratio_to_best_peer"] for row in rows_of("h200/kda.json", **wanted) if "ratio_to_best_peer" in row
                  and row["ratio_to_best_peer"]]
        spread = f"{times(min(ratios))} to {times(max(ratios))}"
        out.append((f"H200: KDA, {work}, geometric mean of {len(ratios)} ({spread})",
                    "", f"{peer}, measured earlier", "", times(mean(ratios))))
    return out


def gradients() -> list[Row]:
    """The delta rule's backward pass beside the peers that have one."""
    row = row_of("h200/backward_peers.json", shape="1x8192x16x32")
    return [entry("H200: gradients of 8192 tokens, 16-bit", row["ms"], peer + ", same process",
                  row["peers"][name]["ms"], "ms")
            for name, peer in (("flashqla", "FlashQLA 0.1.3"), ("fla", "FLA 0.6.0"))]


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
    shares = [row["peers"]["dao"]["us"] / row["us"] for row in rows_of("h200/conv_norm_peers.json")
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


def rows() -> list[Row]:
    return [*cpu_prefill(), side_by_side(), prefill_grid(), *key_gates(), *gradients(), *decode(), *beside_fla(),
            convolutions(), *models()]


def table(head: str, lines: list[Row] | list[tuple[str, ...]]) -> str:
    out = [head, "|" + "---|" * head.count(" | ") + "---|"]
    return "\n".join(out + ["| " + " | ".join(row) + " |" for row in lines]).replace("|  |", "| |") + "\n"


def speed_table() -> str:
    return table("| work | Sluice | beside | its time | times faster |", rows())


def host_time(work: str, peer: str) -> str:
    """Of a peer's fastest way from Python: the least, and the ratio, which the host's pace leaves alone."""
    found = [row for row in rows_of("h200/host_time_peers.json", peer=peer) if row["name"].startswith(f"{work}: ")]
    row = min(found, key=lambda row: row["us_min"])
    return f"{row['us_min']:.{1 if row['us_min'] < 10 else 0}f} us ({row['over_add']:.2g})"


def beside(peers: tuple[str, ...], work: str) -> str:
    """Host times of peers, with the versions in the record."""
    versions = json.loads((RESULTS / "h200/host_time_peers.json").read_text())["versions"]
    packages = {"FLA": ("FLA", "fla-core"), "FlashInfer": ("FlashInfer", "flashinfer-python"),
                "cuDNN": ("cuDNN frontend", "nvidia-cudnn-frontend")}
    return ", ".join(f"{name} {versions[package]} {host_time(work, peer)}"
                     for peer in peers for name, package in [packages[peer]])


def cost_table() -> str:
    """What a caller pays beside the kernels."""
    first = json.loads((RESULTS / "h200/report.json").read_text())["parts"]["first call"]["data"]
    step = row_of("h200/decode_layouts.json", B=1, T=1, state="fp32", vk=False)
    return table("| | Sluice | others |", [
        ("`import`, without NumPy", f"{1e3 * first['import']:.0f} ms", "torch and a kernel compiler are loaded first"),
        ("first prefill of a process, then the next ones",
         f"{1e3 * first['first']:.0f} ms, {1e6 * first['later']:.0f} us",
         "Triton, TileLang and CuTe kernels are compiled, or read from a cache"),
        ("host time of a decode step",
         f"{step['host_us']:.1f} us from C, {host_time('GDN decode, raw', 'Sluice')} from Python",
         beside(("FLA", "FlashInfer"), "GDN decode, raw")),
        ("host time of a prefill of 64 tokens", f"{host_time('GDN prefill', 'Sluice')} from Python",
         beside(("FLA", "FlashInfer"), "GDN prefill")),
        ("host time of a KDA prefill of 64 tokens", f"{host_time('KDA prefill', 'Sluice')} from Python",
         beside(("FLA", "cuDNN"), "KDA prefill")),
        ("needs at run time", "libstdc++, and NVIDIA's driver for a GPU",
         "FLA: torch, Triton; FlashInfer: torch, TVM-FFI, CuTe DSL; cuDNN frontend: cuDNN, NVRTC"),
    ])


MARKED = {"speed": speed_table, "cost": cost_table}


def bars() -> list[tuple[str, str, float]]:
    """Of the figure: work, beside what, times faster."""
    found = {(row[0], row[2]): float(row[4]) for row in rows() if " to " not in row[4]}
    wanted = [("Prefill, 21 cells", "the best peer of each", "H200: prefill, geometric mean", "the best of"),
              ("KDA, bounded gates", "cuDNN", "H200: KDA, prefill, bounded", ""),
              ("KDA, slow gates", "cuDNN", "H200: KDA, prefill, slow", ""),
              ("Gradients", "FlashQLA", "H200: gradients", "FlashQLA"),
              ("the same", "FLA", "H200: gradients", "FLA 0.6.0"),
              ("Decode, one sequence", "FLA", "H200: decode step of one sequence, float32", ""),
              ("Decode, 256 sequences", "FLA", "H200: decode step of 256 sequences, float32", ""),
              ("the same, bfloat16 states", "FLA", "H200: decode step of 256 sequences, bfloat16", ""),
              ("Simple GLA", "FLA", "H200: simple GLA", ""),
              ("Qwen3-Next in transformers", "FLA", "H200: Qwen3-Next model of 4 layers in transformers, prefill",
               "its layers with FLA"),
              ("the same", "torch", "H200: Qwen3-Next model of 4 layers in transformers, prefill", "its own torch"),
              ("Prefill on a CPU, float32", "ggml", "Zen 4, one thread: prefill of 2048 tokens, float32", "")]
    out = []
    for label, beside, work, peer in wanted:
        values = [ratio for (a, b), ratio in found.items() if a.startswith(work) and b.startswith(peer)]
        out.append((label, beside, values[0]))
    return out


STYLE = """svg{font:14px system-ui,sans-serif}.a{fill:#1f2328}.m{fill:#57606a}.b{fill:#2f6f9f}.g{stroke:#8c959f}
@media(prefers-color-scheme:dark){.a{fill:#e6edf3}.m{fill:#9ea7b3}.b{fill:#58a6d6}.g{stroke:#6e7681}}"""


def figure() -> str:
    """The bars, readable on a light and on a dark page."""
    items, left, right, step = bars(), 250, 560, 30
    scale = (right - left) / max(ratio for *_, ratio in items)
    height = 58 + step * len(items)
    one = left + scale
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" role="img" '
             'aria-label="Times faster than others">', f"<style>{STYLE}</style>",
             '<text class="a" x="8" y="22" font-weight="600">'
             "Times faster on an H200; last row: on one thread of a Zen 4</text>"]
    for i, (label, beside, ratio) in enumerate(items):
        y = 44 + step * i
        lines += [f'<text class="a" x="{left - 10}" y="{y + 15}" text-anchor="end">{label}</text>',
                  f'<rect class="b" x="{left}" y="{y}" width="{scale * ratio:.1f}" height="20" rx="2"/>',
                  # Right of the line at 1, which would cross it.
                  f'<text class="a" x="{left + scale * max(ratio, 1) + 8:.1f}" y="{y + 15}">{times(ratio)}'
                  f'<tspan class="m" dx="6">than {beside}</tspan></text>']
    lines += [f'<path class="g" d="M{one:.1f} 38V{height - 16}" stroke-dasharray="3 3" fill="none"/>',
              f'<text class="m" x="{one:.1f}" y="{height - 3}" text-anchor="middle" font-size="12">1: as fast</text>']
    return "\n".join([*lines, "</svg>", ""])


def region(path: str, mark: str) -> str:
    text = (ROOT / path).read_text()
    return re.search(rf"^[^\n]*\[{mark}\][^\n]*\n(.+?)^[^\n]*\[{mark}\]", text, re.S | re.M).group(1).strip()


def marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: made by tests/lint/check_readme.py --write -->\n", f"<!-- end of {name} -->\n"


def between_marks(readme: str, name: str) -> str:
    found = re.search("(?s)" + "(.*)".join(map(re.escape, marks(name))), readme)
    if found is None:
        sys.exit(f"README.md: the marks of {name} are missing")
    return found.group(1)


def main() -> int:
    readme = (ROOT / "README.md").read_text()
    if sys.argv[1:] == ["--write"]:
        for name, make in MARKED.items():
            begin = marks(name)[0]
            readme = readme.replace(begin + between_marks(readme, name), begin + make())
        (ROOT / "README.md").write_text(readme)
        FIGURE.write_text(figure())
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
    findings += [f"README.md: the table of {name} is not what the records say; tests/lint/check_readme.py --write"
                 for name, make in MARKED.items() if between_marks(readme, name) != make()]
    if not FIGURE.exists() or FIGURE.read_text() != figure():
        findings.append("docs/figures/speed.svg is not what the records say; tests/lint/check_readme.py --write")
    print("\n".join(findings) if findings else "README.md agrees with examples and records")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
