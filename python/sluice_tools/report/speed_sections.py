# SPDX-License-Identifier: Apache-2.0
"""Writes the sections of the page about speed: each takes rows of benchmark records, groups them by
source, and puts the source's label above them."""

from collections.abc import Iterator
from typing import Any

from ..counts import counted
from . import charts, page
from .sections import Report, Section

Row = dict[str, Any]
_MOST_LINES = 6
_RATES = (("flops", 1e-12), ("bytes", 1e-9))


def by_source(report: Report, op: str) -> Iterator[tuple[dict[str, Any], list[Row]]]:
    """(source, its rows of `op`), this machine's first, then the newest records."""
    groups: dict[int, list[Row]] = {}
    for row in report["rows"]:
        if row["op"] == op and row["who"] == "Sluice":
            groups.setdefault(row["source"], []).append(row)
    order = sorted(groups, key=lambda i: str(report["sources"][i]["date"]), reverse=True)
    for i in sorted(order, key=lambda i: not report["sources"][i]["here"]):
        yield report["sources"][i], groups[i]


def _heads(row: Row) -> str:
    return f"{row['H']}/{row['HV']}"


def _best_peer(row: Row) -> dict[str, Any] | None:
    return min(row["peers"], key=lambda p: float(p["seconds"]), default=None)


def _ident(kind: str, source: dict[str, Any], report: Report) -> str:
    return f"{kind}{report['sources'].index(source)}"


def _grids(report: Report) -> Iterator[tuple[dict[str, Any], list[Row]]]:
    """Sources with peers' times: the published grid where there is one, else the marks, for each
    device and each way with history."""
    seen = set()
    for grid in ("published", "marks"):
        found = list(by_source(report, "chunk_forward"))
        for source, rows in sorted(
            found, key=lambda i: i[0]["settings"].get("history") == "strict"
        ):
            settings = source["settings"]
            key = (source["here"], source["device"], settings.get("history"))
            if settings.get("grid") != grid or key in seen:
                continue
            known = [row for row in rows if row["peers"] and row["shape"] == "auto"]
            if known:
                seen.add(key)
                yield source, known


def grid(report: Report, draw: bool) -> Section:
    """Prefill against the best known peer, cell by cell."""
    content = ""
    for source, rows in _grids(report):
        content += page.source(source)
        ratios = [_best_peer(row)["seconds"] / row["seconds"] for row in rows]  # type: ignore[index]
        slower = sum(ratio < 1 for ratio in ratios)
        content += (
            f"<p>{counted(len(rows), 'cell')}, {slower} slower than the best peer, ratios from "
            f"{min(ratios):.2f} to {max(ratios):.2f}.</p>"
        )
        columns = list(dict.fromkeys(_heads(row) for row in rows))
        names = list(dict.fromkeys(row["lengths"] for row in rows))
        cells = {
            (names.index(row["lengths"]), columns.index(_heads(row))): ratio
            for row, ratio in zip(rows, ratios, strict=True)
        }
        history = source["settings"].get("history", "")
        label = (
            "Best peer's time over ours, by head counts H/HV and lengths of the packed sequences; "
            f"above 1 Sluice is faster; history {history}"
        )
        if draw:
            ident = _ident("grid", source, report)
            content += page.figure(charts.heat(ident, label, columns, names, cells), label + ".")
        content += page.folded("Table with peers' sources", _grid_table(rows, ratios))
    if not content:
        content = page.note(
            "No grid with peers was measured or given: --results DIR takes committed records."
        )
    else:
        content += page.note(
            "Peers' times come from committed tables (benchmarks/peers/README.md: versions, inputs, "
            "machines), not from this run."
        )
    return "grid", "Prefill against peers", content


def _grid_table(rows: list[Row], ratios: list[float]) -> str:
    body: list[list[page.Cell]] = []
    for row, ratio in zip(rows, ratios, strict=True):
        peer = _best_peer(row) or {}
        body.append(
            [f"{_heads(row)} {row['lengths']}", page.duration(row["seconds"])]
            + [page.duration(peer.get("seconds")), ratio, peer.get("who"), peer.get("from")]
            + [row["share"], row["error_o"], row["error_state"]]
        )
    head = ["cell", "Sluice", "best peer's", "ratio", "peer", "its table", "share of floor"]
    return page.table("Prefill", [*head, "error o", "error state"], body)


def growth(report: Report, draw: bool) -> Section:
    """One sequence, longer and longer."""
    groups: dict[tuple[bool, str], dict[str, dict[int, Row]]] = {}
    used: dict[tuple[bool, str], list[dict[str, Any]]] = {}
    for source, rows in by_source(report, "chunk_forward"):
        if source["settings"].get("gates", "published") != "published" or source["settings"].get(
            "history"
        ) in ("strict",):
            continue
        key = (source["here"], source["device"])
        for row in rows:
            if row["B"] != 1 or row.get("part") or row["shape"] not in ("auto", "", "kv"):
                continue
            line = groups.setdefault(key, {}).setdefault(f"{_heads(row)} {row['dtype']}", {})
            if row["T"] not in line:
                line[row["T"]] = row
                if source not in used.setdefault(key, []):
                    used[key].append(source)
    content = ""
    for n, (key, named) in enumerate(groups.items()):
        chosen = sorted(named.items(), key=lambda item: -len(item[1]))[:_MOST_LINES]
        content += "".join(page.source(source) for source in used[key])
        points = {
            name: [(float(T), 1e3 * row["seconds"]) for T, row in line.items()]
            for name, line in chosen
        }
        label = "Prefill of one sequence: milliseconds by tokens, a line for each H/HV and dtype"
        if draw:
            svg = charts.lines(f"growth{n}", label, [("", points)], "tokens", "ms", log_y=True)
            content += page.figure(svg, label + ".")
        body: list[list[page.Cell]] = [
            [f"{name}, {counted(T, 'token')}", page.duration(row["seconds"]), 1e9 * row["seconds"] / T]
            + [1e-12 * row["flops"] / row["seconds"], row["error_o"], row["kernel"]]
            for name, line in named.items()
            for T, row in sorted(line.items())
        ]
        head = ["cell", "time", "ns a token", "TFLOP/s", "error o", "kernel"]
        content += page.folded("Table", page.table("Prefill of one sequence", head, body))
    return "growth", "Cost growing with T", content or page.note("Not measured, no record given.")


def decode(report: Report, draw: bool) -> Section:
    """One token a sequence, against the bandwidth of copying memory."""
    content = ""
    seen = set()
    for source, rows in sorted(
        by_source(report, "recurrent_step"), key=lambda item: (not item[0]["here"], -len(item[1]))
    ):
        others = [r for r in rows if r["T"] > 1 or r["writes"] != "last"]
        rows = [r for r in rows if r not in others and r["shape"] in ("", "kv")]
        fresh = (source["here"], source["device"]) not in seen
        if others or (rows and fresh):
            content += page.source(source)
        if rows and fresh:
            seen.add((source["here"], source["device"]))
            content += _curves(report, source, rows, draw, "decode", "Decode of one token")
        if others:
            content += page.folded("Several tokens, replay rings", _steps_table(others, source))
    return "decode", "Decode", content or page.note("Not measured, no record given.")


def _share(row: Row, source: dict[str, Any]) -> float | None:
    """Of the copy bandwidth; of states in caches there is none."""
    if row["share"] is not None:
        return float(row["share"])
    if not row["cold"] or not source["bytes_per_second"]:
        return None
    return float(row["bytes"] / row["seconds"] / source["bytes_per_second"])


def _curves(
    report: Report, source: dict[str, Any], rows: list[Row], draw: bool, kind: str, title: str
) -> str:
    panels = []
    for state in ("fp32", "bf16", "fp16"):
        named: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            share = _share(row, source)
            if row["state"] == state and share is not None:
                named.setdefault(f"HV {row['HV']}", []).append((row["B"], share))
        if named:
            panels.append((f"states {state}", named))
    content = ""
    if draw and panels:
        label = f"{title}: share of the copy bandwidth by sequences, states not in caches"
        svg = charts.lines(_ident(kind, source, report), label, panels, "sequences",
                           "share of copy bandwidth", top=1.05)  # fmt: skip
        content += page.figure(svg, label + ".")
    body: list[list[page.Cell]] = []
    for row in rows:
        peer = _best_peer(row)
        cache = "" if row["cold"] else ", in caches"
        body.append(
            [f"HV {row['HV']}, B {row['B']}, {row['state']}{cache}", page.duration(row["seconds"])]
            + [1e-9 * row["bytes"] / row["seconds"], _share(row, source), row["error_o"]]
            + [peer["who"] if peer else None, page.duration(peer["seconds"]) if peer else None]
            + [peer["seconds"] / row["seconds"] if peer else None]
        )
    head = ["cell", "time", "GB/s", "share of copy", "error o", "peer", "its time", "ratio"]
    return content + page.folded("Table", page.table(title, head, body))


def _steps_table(rows: list[Row], source: dict[str, Any]) -> str:
    body: list[list[page.Cell]] = [
        [f"HV {row['HV']}, B {row['B']}, T {row['T']}, {row['state']}", row["writes"]]
        + [page.duration(row["seconds"]), 1e-9 * row["bytes"] / row["seconds"]]
        + [_share(row, source), row["kernel"]]
        for row in rows
    ]
    head = ["cell", "states written", "time", "GB/s", "share of copy", "kernel"]
    return page.table("Verification of several tokens, and rings", head, body)


def layer(report: Report, draw: bool) -> Section:
    """Whole layer steps, and the parts around the delta rule."""
    content = ""
    for source, rows in by_source(report, "layer_decode"):
        plain = [row for row in rows if row["T"] == 1 and row["writes"] == "last"]
        others = [row for row in rows if row not in plain]
        content += page.source(source)
        content += _curves(report, source, plain, draw, "layer", "One layer step")
        if others:
            content += page.folded("Several tokens, replay rings", _steps_table(others, source))
    for source, rows in by_source(report, "layer_prefill"):
        others = [
            row
            for row in report["rows"]
            if report["sources"][row["source"]] is source and row["op"] != "layer_prefill"
        ]
        content += page.source(source)
        content += _parts_table(report, source, [*rows, *others], draw)
    return "layer", "The layer", content or page.note("Not measured, no record given.")


def _parts_table(report: Report, source: dict[str, Any], rows: list[Row], draw: bool) -> str:
    named: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["B"] == 1 and row["T"] > 1 and (row["H"], row["HV"]) == (16, 32):
            name = f"{row['part']} {row['shape']}".strip()
            named.setdefault(name, []).append((row["T"], row["share"]))
    content = ""
    if draw and named:
        label = "Share of the copy bandwidth by tokens: convolution, norm, layer and its delta rule"
        few = dict(list(named.items())[:_MOST_LINES])
        svg = charts.lines(_ident("parts", source, report), label, [("16/32 heads", few)], "tokens",
                           "share of copy bandwidth", top=None)  # fmt: skip
        content += page.figure(svg, label + ".")
    body: list[list[page.Cell]] = [
        [f"{row['part']} {row['shape']} {_heads(row)} {row['T']} x {row['B']}".replace("  ", " ")]
        + [page.duration(row["seconds"]), 1e-9 * row["bytes"] / row["seconds"], row["share"]]
        + [row["kernel"]]
        for row in rows
    ]
    head = ["cell", "time", "GB/s", "share of copy", "kernel"]
    return content + page.folded("Table", page.table("Parts of a layer", head, body))


def roofline(report: Report, draw: bool) -> Section:
    """Each kernel's best row under the limits of its machine."""
    machines: dict[tuple[bool, str], list[Row]] = {}
    for row in report["rows"]:
        source = report["sources"][row["source"]]
        if row["who"] == "Sluice" and row["flops"] and row["bytes"] and row["cold"] is not False:
            machines.setdefault((source["here"], source["device"]), []).append(row)
    content = ""
    for n, ((here, device), rows) in enumerate(machines.items()):
        sources = [s for s in report["sources"] if (s["here"], s["device"]) == (here, device)]
        flops = max((s["flop_per_second"] or 0 for s in sources), default=0)
        moved = max((s["bytes_per_second"] or 0 for s in sources), default=0)
        if not flops or not moved:
            continue
        best = _best_rows(rows, flops, moved)
        label = f"Roofline of {device}: each kernel's best row under measured limits"
        where = "measured here" if here else "from records, not measured here"
        content += f"<h3>{page.html.escape(device)}, {where}</h3>"
        points = [(k, r["flops"] / r["bytes"], r["flops"] / r["seconds"]) for k, r in best]
        if draw:
            svg = charts.roofline(f"roof{n}", label, points, flops, moved)
            content += page.figure(svg, f"{label}: {1e-12 * flops:.4g} TFLOP/s, "
                                   f"{1e-9 * moved:.4g} GB/s.")  # fmt: skip
        body: list[list[page.Cell]] = [
            [kernel, f"{_heads(row)} {row['lengths']}"]
            + [row["flops"] / row["bytes"], 1e-12 * row["flops"] / row["seconds"]]
            + [1e-9 * row["bytes"] / row["seconds"], _of_roof(row, flops, moved)]
            for kernel, row in best
        ]
        head = ["kernel", "cell", "FLOP/byte", "TFLOP/s", "GB/s", "share of roof"]
        content += page.table("The points", head, body)
    if content:
        content += page.note(
            "The horizontal limit is of one dtype (float32 FMA on CPUs, bfloat16 wgmma on GPUs): "
            "16-bit kernels of a CPU may lie above it."
        )
    return "roofline", "Roofline", content or page.note("No ceilings were measured or given.")


def stages(report: Report) -> str:
    """The stages, their chain plain and as a graph, and the one-launch prefill: rows of the tool."""
    content = ""
    for source, rows in by_source(report, "chunk_stage"):
        content += page.source(source)
        body: list[list[page.Cell]] = [
            [f"{row['shape']}, H {row['H']}, C {row['C']}", row["part"]]
            + [page.duration(row["seconds"])]
            + [row[what] and factor * row[what] / row["seconds"] for what, factor in _RATES]
            + [row["share"], row["difference"], row["kernel"]]
            for row in rows
        ]
        head = ["cell", "what", "time", "TFLOP/s", "GB/s", "share of floor", "apart", "kernel"]
        content += page.table("Stages and the one-launch prefill", head, body)
    return content


def _of_roof(row: Row, flops: float, moved: float) -> float:
    return float(max(row["flops"] / flops, row["bytes"] / moved) / row["seconds"])


def _best_rows(rows: list[Row], flops: float, moved: float) -> list[tuple[str, Row]]:
    best: dict[str, Row] = {}
    for row in rows:
        kernel = f"{row['kernel'] or row['op']}, {row['state'] or row['dtype']}"
        if kernel not in best or _of_roof(row, flops, moved) > _of_roof(best[kernel], flops, moved):
            best[kernel] = row
    return sorted(best.items())
