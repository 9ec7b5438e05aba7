# SPDX-License-Identifier: Apache-2.0
"""Writes the sections of the page about speed: each takes rows of benchmark records, groups them by
source, and puts the source's label above them; "" where there are no rows."""

from collections.abc import Callable, Iterator
from typing import Any

from ..counts import counted
from . import charts, page
from .sections import Report, Row, figure

Lines = dict[str, list[tuple[float, float]]]
_MOST_LINES = 6


def _heads(row: Row) -> str:
    return f"{row['H']}/{row['HV']}"


def _best_peer(row: Row) -> dict[str, Any]:
    return min(row["peers"], key=lambda p: float(p["seconds"]), default={})


def _ratio(row: Row) -> float | None:
    return _best_peer(row)["seconds"] / row["seconds"] if row["peers"] else None


def _rate(what: str, factor: float) -> Callable[[Row], float | None]:
    return lambda row: factor * row[what] / row["seconds"] if row[what] else None


# What tables of benchmark rows show.
_COLUMNS: dict[str, page.Column] = {
    "time": lambda row: page.duration(row["seconds"]),
    "ns a token": lambda row: 1e9 * row["seconds"] / row["T"],
    "times the forward pass": "times_forward",
    "FLOP/byte": lambda row: row["flops"] / row["bytes"],
    "TFLOP/s": _rate("flops", 1e-12),
    "GB/s": _rate("bytes", 1e-9),
    "share of floor": "share",
    "share of copy": "share",
    "share of roof": "share of roof",
    "error o": "error_o",
    "error state": "error_state",
    "peer": lambda row: _best_peer(row).get("who"),
    "its time": lambda row: page.duration(_best_peer(row).get("seconds")),
    "ratio": _ratio,
    "its table": lambda row: _best_peer(row).get("from"),
    "states written": "writes",
    "what": "part",
    "apart": "difference",
    "kernel": "kernel",
}


def _columns(*heads: str) -> dict[str, page.Column]:
    return {head: _COLUMNS[head] for head in heads}


def _table(caption: str, rows: list[Row], cell: Callable[[Row], str], *heads: str, summary: str = "Table") -> str:
    """The rows behind a summary that opens them: which cell of the benchmark each is, then columns by name."""
    return page.folded(summary, page.table(caption, {"cell": cell, **_columns(*heads)}, rows))


def _by_source(report: Report, op: str) -> Iterator[tuple[dict[str, Any], list[Row]]]:
    """(source, its rows of `op`), this machine's first, then the newest records."""
    groups: dict[int, list[Row]] = {}
    for row in report["rows"]:
        if row["op"] == op and row["who"] == "Sluice":
            groups.setdefault(row["source"], []).append(row)
    order = sorted(groups, key=lambda i: str(report["sources"][i]["date"]), reverse=True)
    for i in sorted(order, key=lambda i: not report["sources"][i]["here"]):
        yield report["sources"][i], groups[i]


def _ident(kind: str, source: dict[str, Any], report: Report) -> str:
    return f"{kind}{report['sources'].index(source)}"


def _grids(report: Report) -> Iterator[tuple[dict[str, Any], list[Row]]]:
    """Sources with peers' times: the published grid where there is one, else the marks, for each
    device and each way with history."""
    seen = set()
    for grid in ("published", "marks"):
        found = list(_by_source(report, "chunk_forward"))
        for source, rows in sorted(found, key=lambda i: i[0]["settings"].get("history") == "strict"):
            settings = source["settings"]
            key = (source["here"], source["device"], settings.get("history"))
            if settings.get("grid") != grid or key in seen:
                continue
            known = [row for row in rows if row["peers"] and row["shape"] == "auto"]
            if known:
                seen.add(key)
                yield source, known


def grid(report: Report, draw: bool) -> str:
    """Prefill against the best known peer, cell by cell."""
    content = ""
    for source, rows in _grids(report):
        ratios = [_best_peer(row)["seconds"] / row["seconds"] for row in rows]
        slower = sum(ratio < 1 for ratio in ratios)
        content += page.source(source)
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
        label = (
            "Best peer's time over ours, by head counts H/HV and lengths of the packed sequences; "
            f"above 1 Sluice is faster; history {source['settings'].get('history', '')}"
        )
        content += figure(draw, charts.heat, _ident("grid", source, report), label, columns, names, cells)
        content += _table(
            "Prefill", rows, lambda row: f"{_heads(row)} {row['lengths']}", "time", "peer", "its time", "ratio",
            "its table", "share of floor", "error o", "error state", summary="Table with peers' sources",
        )  # fmt: skip
    return content and content + page.note(
        "Peers' times come from committed tables (benchmarks/peers/README.md: versions, inputs, "
        "machines), not from this run."
    )


def growth(report: Report, draw: bool) -> str:
    """One sequence, longer and longer."""
    groups: dict[tuple[bool, str], dict[str, dict[int, Row]]] = {}
    for source, rows in _by_source(report, "chunk_forward"):
        settings = source["settings"]
        if settings.get("gates", "published") != "published" or settings.get("history") == "strict":
            continue
        lines = groups.setdefault((source["here"], source["device"]), {})
        for row in rows:
            if row["B"] == 1 and not row.get("part") and row["shape"] in ("auto", "", "kv"):
                lines.setdefault(f"{_heads(row)} {row['dtype']}", {}).setdefault(row["T"], row)
    content = ""
    for n, named in enumerate(filter(None, groups.values())):
        rows = [line[T] for line in named.values() for T in sorted(line)]
        used = [report["sources"][i] for i in sorted({row["source"] for row in rows})]
        for source in sorted(used, key=lambda source: str(source["date"]), reverse=True):
            content += page.source(source)
        chosen = sorted(named.items(), key=lambda item: -len(item[1]))[:_MOST_LINES]
        points = {
            name: [(float(T), 1e3 * row["seconds"]) for T, row in line.items()] for name, line in chosen
        }
        label = "Prefill of one sequence: milliseconds by tokens, a line for each H/HV and dtype"
        content += figure(draw, charts.lines, f"growth{n}", label, [("", points)], "tokens", "ms", log_y=True)
        content += _table(
            "Prefill of one sequence", rows,
            lambda row: f"{_heads(row)} {row['dtype']}, {counted(row['T'], 'token')}",
            "time", "ns a token", "TFLOP/s", "error o", "kernel",
        )  # fmt: skip
    return content


def _copying(report: Report, op: str) -> Iterator[tuple[dict[str, Any], list[Row]]]:
    """As _by_source(), with shares of the copy bandwidth where a record has none; of states in caches
    there is none."""
    for source, rows in _by_source(report, op):
        limit = source["bytes_per_second"]
        yield source, [
            {**row, "share": row["bytes"] / row["seconds"] / limit}
            if row["share"] is None and row["cold"] and limit
            else row
            for row in rows
        ]


def decode(report: Report, draw: bool) -> str:
    """One token a sequence, against the bandwidth of copying memory."""
    content = ""
    seen = set()
    found = sorted(_copying(report, "recurrent_step"), key=lambda item: (not item[0]["here"], -len(item[1])))
    for source, rows in found:
        others = [r for r in rows if r["T"] > 1 or r["writes"] != "last"]
        rows = [r for r in rows if r not in others and r["shape"] in ("", "kv")]
        fresh = (source["here"], source["device"]) not in seen
        if others or (rows and fresh):
            content += page.source(source)
        if rows and fresh:
            seen.add((source["here"], source["device"]))
            content += _curves(rows, draw, _ident("decode", source, report), "Decode of one token")
        content += _steps(others)
    return content


def _bandwidth(draw: bool, ident: str, label: str, panels: dict[str, Lines], x: str, top: float | None) -> str:
    """Curves of shares of the copy bandwidth, where there are any."""
    some = [(title, lines) for title, lines in panels.items() if lines]
    what = "share of copy bandwidth"
    return figure(draw and bool(some), charts.lines, ident, label, some, x, what, top=top)


def _curves(rows: list[Row], draw: bool, ident: str, title: str) -> str:
    panels: dict[str, Lines] = {f"states {state}": {} for state in ("fp32", "bf16", "fp16")}
    for row in rows:
        if row["share"] is not None:
            lines = panels.setdefault(f"states {row['state']}", {})
            lines.setdefault(f"HV {row['HV']}", []).append((row["B"], row["share"]))
    label = f"{title}: share of the copy bandwidth by sequences, states not in caches"
    return _bandwidth(draw, ident, label, panels, "sequences", 1.05) + _table(
        title, rows,
        lambda row: f"HV {row['HV']}, B {row['B']}, {row['state']}{'' if row['cold'] else ', in caches'}",
        "time", "GB/s", "share of copy", "error o", "peer", "its time", "ratio",
    )  # fmt: skip


def _steps(rows: list[Row]) -> str:
    return "" if not rows else _table(
        "Verification of several tokens, and rings", rows,
        lambda row: f"HV {row['HV']}, B {row['B']}, T {row['T']}, {row['state']}", "states written",
        "time", "GB/s", "share of copy", "kernel", summary="Several tokens, replay rings",
    )  # fmt: skip


def layer(report: Report, draw: bool) -> str:
    """Whole layer steps, and the parts around the delta rule."""
    content = ""
    for source, rows in _copying(report, "layer_decode"):
        plain = [row for row in rows if row["T"] == 1 and row["writes"] == "last"]
        content += page.source(source)
        content += _curves(plain, draw, _ident("layer", source, report), "One layer step")
        content += _steps([row for row in rows if row not in plain])
    for source, rows in _by_source(report, "layer_prefill"):
        others = [
            row
            for row in report["rows"]
            if report["sources"][row["source"]] is source and row["op"] != "layer_prefill"
        ]
        content += page.source(source) + _layer_parts([*rows, *others], draw, _ident("parts", source, report))
    return content


def _layer_parts(rows: list[Row], draw: bool, ident: str) -> str:
    named: Lines = {}
    for row in rows:
        if row["B"] == 1 and row["T"] > 1 and (row["H"], row["HV"]) == (16, 32):
            name = f"{row['part']} {row['shape']}".strip()
            named.setdefault(name, []).append((row["T"], row["share"]))
    label = "Share of the copy bandwidth by tokens: convolution, norm, layer and its delta rule"
    panels = {"16/32 heads": dict(list(named.items())[:_MOST_LINES])}
    return _bandwidth(draw, ident, label, panels, "tokens", None) + _table(
        "Parts of a layer", rows,
        lambda row: " ".join(f"{row['part']} {row['shape']} {_heads(row)} {row['T']} x {row['B']}".split()),
        "time", "GB/s", "share of copy", "kernel",
    )  # fmt: skip


def backward(report: Report, draw: bool) -> str:
    """Times of the backward pass in every record."""
    content = ""
    for source, rows in _by_source(report, "chunk_backward"):
        content += page.source(source) + _table(
            "Backward pass", rows, lambda row: f"{_heads(row)}, {row['lengths']}",
            "time", "times the forward pass", "TFLOP/s", "share of floor", "kernel",
        )  # fmt: skip
    return content


def roofline(report: Report, draw: bool) -> str:
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
        where = "measured here" if here else "from records, not measured here"
        content += f"<h3>{page.html.escape(device)}, {where}</h3>"
        label = (
            f"Roofline of {device}: each kernel's best row under measured limits: "
            f"{1e-12 * flops:.4g} TFLOP/s, {1e-9 * moved:.4g} GB/s"
        )
        points = [(r["kernel"], r["flops"] / r["bytes"], r["flops"] / r["seconds"]) for r in best]
        content += figure(draw, charts.roofline, f"roof{n}", label, points, flops, moved)
        columns: dict[str, page.Column] = {"kernel": "kernel"}
        columns["cell"] = lambda row: f"{_heads(row)} {row['lengths']}"
        columns |= _columns("FLOP/byte", "TFLOP/s", "GB/s", "share of roof")
        content += page.table("The points", columns, best)
    return content and content + page.note(
        "The horizontal limit is of one dtype (float32 FMA on CPUs, bfloat16 wgmma on GPUs): "
        "16-bit kernels of a CPU may lie above it."
    )


def _best_rows(rows: list[Row], flops: float, moved: float) -> list[Row]:
    """Of each kernel and dtype the row with the largest share of the roof."""
    best: dict[str, Row] = {}
    for row in rows:
        kernel = f"{row['kernel'] or row['op']}, {row['state'] or row['dtype']}"
        share = max(row["flops"] / flops, row["bytes"] / moved) / row["seconds"]
        if kernel not in best or share > best[kernel]["share of roof"]:
            best[kernel] = {**row, "kernel": kernel, "share of roof": share}
    return [best[kernel] for kernel in sorted(best)]


def stages(report: Report, draw: bool) -> str:
    """The stages, their chain plain and as a graph, and the one-launch prefill: rows of the tool."""
    content = ""
    for source, rows in _by_source(report, "chunk_stage"):
        columns: dict[str, page.Column] = {"cell": lambda row: f"{row['shape']}, H {row['H']}, C {row['C']}"}
        columns |= _columns("what", "time", "TFLOP/s", "GB/s", "share of floor", "apart", "kernel")
        content += page.source(source) + page.table("Stages and the one-launch prefill", columns, rows)
    return content
