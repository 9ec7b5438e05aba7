# SPDX-License-Identifier: Apache-2.0
"""Writes the sections of the page about accuracy, environment, first call, peers and sources."""

from typing import Any

from . import build, charts, page

Section = tuple[str, str, str]
Report = dict[str, Any]


def own_source(report: Report, command: str) -> dict[str, Any]:
    """The label of what the report itself measured."""
    return {
        "here": True,
        "file": "",
        "device": report["device"],
        "version": report["version"],
        "commit": report["environment"]["commit"],
        "date": report["environment"]["date"],
        "command": command,
    }


def parts(report: Report, prefix: str) -> list[dict[str, Any]]:
    return [
        part["data"]
        for name, part in report["parts"].items()
        if name.startswith(prefix) and part["status"] == "done"
    ]


def _worst(row: dict[str, Any]) -> float:
    """The error that counts: heads and windows may be twice the whole's limit."""
    return float(max(row["whole"], row["head"] / 2, row["window"] / 2))


def lead(report: Report) -> str:
    """What the page is, and its numbers in short."""
    summary = report["summary"]
    own = sum(1 for row in report["rows"] if report["sources"][row["source"]]["here"])
    wrong = summary["wrong"]
    entries: dict[str, page.Cell] = {
        "measured on": report["device"],
        "sluice": report["version"],
        "tensors compared with float64": summary["tensors"],
        "outside their limit": wrong,
        "not supported here": summary["refused"],
        "benchmark rows measured here": own,
        "rows from records of other runs": len(report["rows"]) - own,
    }
    words = "<p>Accuracy and speed of gated linear attention, each number with its source.</p>"
    words += page.note(build.verdict(summary))
    for row in summary.get("failing", []):
        words += page.note(f"Outside its limit: {row}.")
    words += page.facts(entries)
    if report["quick"]:
        words += page.note("A quick report: fewer lengths, fewer repetitions.")
    for name in summary["parts failed"]:
        part = report["parts"].get(name) or report["speed"].get(name) or {}
        words += page.note(f"Not measured: {name}. {part.get('reason', '')}")
    return words


def accuracy(report: Report, draw: bool) -> Section:
    """The ladder, dtype by dtype, and every operator once."""
    ladders = parts(report, "accuracy ")
    content = page.source(own_source(report, "accuracy ladder of ops/manifest.json"))
    if not ladders:
        return "accuracy", "Accuracy", content + page.note("No ladder was run.")
    heads = ", ".join(f"{name} {value}" for name, value in ladders[0]["heads"].items())
    content += (
        "<p>Prefill end to end against the float64 recurrence on the same rounded inputs, packed "
        f"sequences, random initial states, {heads}. Errors are relative L2 of outputs and final "
        "states: of the whole tensor, of the worst (sequence, head) and of the worst window of 64 "
        "tokens, which may be twice the limit.</p>"
    )
    content += page.table(
        "The worst of each dtype",
        ["dtype", "kernels", "tensors", "limit", "worst error", "its case", "all within"],
        [_ladder_row(data) for data in ladders],
    )
    if draw:
        content += _ladder_chart(ladders)
    content += page.folded("Every case", _ladder_table(ladders))
    return "accuracy", "Accuracy", content + _operators(report)


def _ladder_row(data: dict[str, Any]) -> list[page.Cell]:
    rows = [row for row in data["rows"] if not row.get("refused")]
    head: list[page.Cell] = [data["dtype"], ", ".join(data["kernels"]), len(rows), data["limit"]]
    if not rows:
        return [*head, None, "refused", None]
    worst = max(rows, key=_worst)
    name = f"{worst['tensor']}, {worst['case']}"
    return [*head, _worst(worst), name, all(row["passed"] for row in rows)]


def _ladder_chart(ladders: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(row["case"] for row in ladders[0]["rows"]))
    series = {}
    for data in ladders:
        worst = dict.fromkeys(names, 0.0)
        for row in data["rows"]:
            if not row.get("refused"):
                worst[row["case"]] = max(worst[row["case"]], _worst(row))
        series[data["dtype"]] = list(worst.values())
    limits = {data["dtype"]: data["limit"] for data in ladders}
    label = "Largest error of each case, one mark a dtype; dashed lines are the limits"
    return page.figure(charts.dots("accuracy", label, names, series, limits), label + ".")


def _ladder_table(ladders: list[dict[str, Any]]) -> str:
    rows: list[list[page.Cell]] = []
    for data in ladders:
        for row in data["rows"]:
            cells: list[page.Cell] = [row["case"], data["dtype"], row["tensor"]]
            if row.get("refused"):
                rows.append([*cells, None, None, None, row["refused"]])
                continue
            errors = [row["whole"], row["head"], row["window"] or None]
            rows.append([*cells, *errors, row["passed"]])
    head = ["case", "dtype", "tensor", "whole", "worst head", "worst window", "within"]
    return page.table("The ladder", head, rows)


def _operators(report: Report) -> str:
    found = parts(report, "operators")
    if not found:
        return ""
    rows = [
        [r["case"], r["kernel"], r["tensor"], r["whole"], r["head"], r["window"] or None,
         r["limit"], r["passed"]]
        for r in found[0]["rows"]
    ]  # fmt: skip
    head = ["case", "kernel", "tensor", "whole", "worst head", "worst window", "limit", "within"]
    content = page.table("Every operator on random float32 inputs", head, rows)
    for case, reason in found[0]["refused"].items():
        content += page.note(f"{case}: {reason}")
    return "<h3>Every operator</h3>" + content


def stages(report: Report) -> Section:
    """The single stages against their float64 twins."""
    found = parts(report, "stages ")
    if not found:
        words = "This library has no operators for single stages, so none was measured."
        return "stages", "Stages", page.note(words)
    content = page.source(own_source(report, "each stage on its twin's inputs, the ladder's cases"))
    head = ["stage", "dtype", "kernel", "tensors", "limit", "worst error", "its case", "all within"]
    content += page.table("The worst of each stage", head, _worst_stages(found))
    rows: list[list[page.Cell]] = []
    for data in found:
        for row in data["rows"]:
            cells: list[page.Cell] = [row["stage"], data["dtype"], row["case"], row["tensor"]]
            rows.append([*cells, row.get("refused") or row["whole"], row["passed"]])
    head = ["stage", "dtype", "case", "tensor", "error", "within"]
    content += page.folded("Every case", page.table("Relative L2 error", head, rows))
    return "stages", "Stages", content


def _worst_stages(found: list[dict[str, Any]]) -> list[list[page.Cell]]:
    lines: list[list[page.Cell]] = []
    for data in found:
        for stage in dict.fromkeys(row["stage"] for row in data["rows"]):
            rows = [r for r in data["rows"] if r["stage"] == stage and not r.get("refused")]
            if not rows:
                lines.append([stage, data["dtype"], "refused", 0, data["limit"], None, None, None])
                continue
            worst = max(rows, key=lambda row: float(row["whole"]))
            lines.append(
                [stage, data["dtype"], worst["kernel"], len(rows), data["limit"], worst["whole"]]
                + [f"{worst['tensor']}, {worst['case']}", all(row["passed"] for row in rows)]
            )
    return lines


def first_call(report: Report) -> Section:
    """What starting costs."""
    content = ""
    for data in parts(report, "first call"):
        content += page.source(own_source(report, "a fresh interpreter, prefill of 256 tokens"))
        entries = [
            ("import sluice (NumPy is there)", data["import"]),
            ("first call", data["first"]),
            ("second call", data["second"]),
            ("later calls, median", data["later"]),
        ]
        rows: list[list[page.Cell]] = [[name, page.duration(value)] for name, value in entries]
        content += page.table(f"From Python, {data['kernel']}", ["step", "time"], rows)
    rows = []
    for entry in report["sources"]:
        call = entry.get("first_call")
        if not call or call.get("first_ms") is None:
            continue
        where = "here" if entry["here"] else f"record {entry['file']}"
        times = [page.duration(1e-3 * call[name]) for name in ("first_ms", "second_ms")]
        rows.append([f"{entry['device']} ({where})", *times, entry["commit"]])
    if rows:
        head = ["device", "first call", "second call", "commit"]
        content += page.table("In processes of the benchmark tool", head, rows)
    return "first", "First call", content or page.note("Not measured.")


def peers(report: Report) -> Section:
    """Peers that were installed and ran beside."""
    found = parts(report, "peers")
    if not found:
        words = (
            "No peer is installed here (transformers with torch; flash-linear-attention on a GPU)."
        )
        return "peers", "Peers in this process", page.note(words)
    rows: list[list[page.Cell]] = []
    listed: Any = found[0]
    for row in listed:
        head: list[page.Cell] = [
            row["peer"],
            f"{row['H']}/{row['HV']}",
            row["tokens"],
            row["dtype"],
        ]
        if "failure" in row:
            rows.append([*head, None, None, None, f"failed: {row['failure']}"])
            continue
        times = [page.duration(row["seconds"]), page.duration(row["peer_seconds"])]
        rows.append([*head, *times, row["ratio"], row["apart"]])
    names = [
        "peer",
        "H/HV",
        "tokens",
        "dtype",
        "Sluice",
        "peer's time",
        "ratio",
        "outputs apart by",
    ]
    content = page.source(own_source(report, "in turns, medians of 5, wall time"))
    content += page.table("Prefill with l2 norm and final state, K = V = 128", names, rows)
    content += page.note(
        "transformers' row is its torch layer, which loops over chunks in Python; where it finds "
        "flash-linear-attention it may run those kernels instead."
    )
    return "peers", "Peers in this process", content


def environment(report: Report) -> Section:
    """Everything that a number may depend on."""
    rows: list[list[page.Cell]] = []
    for key, value in report["environment"].items():
        if isinstance(value, dict):
            rows += [[f"{key}: {name}", str(inner)] for name, inner in value.items()]
        else:
            rows.append([key, str(value)])
    for name, part in {**report["parts"], **report["speed"]}.items():
        how = part.get("reason", part["status"])
        kept = ", taken from an interrupted run" if part.get("resumed") else ""
        rows.append([f"part: {name}", f"{how}{kept}, {part['seconds']} s"])
    table = page.table("This machine and this run", ["what", "value"], rows)
    return "environment", "Environment", table


def sources(report: Report) -> Section:
    """Every record that the page has numbers of."""
    rows: list[list[page.Cell]] = []
    for i, entry in enumerate(report["sources"]):
        count = sum(1 for row in report["rows"] if row["source"] == i)
        where = "measured here" if entry["here"] else entry["file"]
        rows.append(
            [where, entry["device"], entry["version"], entry["commit"], entry["date"], count]
            + [entry["command"]]
        )
    head = ["record", "device", "sluice", "commit", "date", "rows", "command"]
    words = "Ratios between runs are ratios between machines and moments, good to some percent."
    return "sources", "Sources", page.table("Records", head, rows) + page.note(words)
