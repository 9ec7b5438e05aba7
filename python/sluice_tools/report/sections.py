# SPDX-License-Identifier: Apache-2.0
"""Writes the sections of the page about accuracy, environment, first call, peers and sources: functions
of (report, whether charts are drawn), "" where there is nothing to show."""

import math
from collections.abc import Callable
from typing import Any

from . import build, charts, page

Report = dict[str, Any]
Row = dict[str, Any]


def _error(member: str) -> page.Column:
    """A row's error, null being infinite; none where the row was refused."""
    return lambda row: math.inf if row.get(member, 0) is None else row.get(member)


_ERRORS: dict[str, page.Column] = {
    "whole": _error("whole"),
    "worst head": _error("head"),
    "worst window": lambda row: row.get("window") or None,
}


def _own(report: Report, command: str) -> str:
    """The label of what the report itself measured."""
    facts = report["environment"]
    entry = {"here": True, "file": "", "commit": facts["commit"], "date": facts["date"], "command": command}
    return page.source({**entry, "device": report["device"], "version": report["version"]})


def _parts(report: Report, prefix: str) -> list[Any]:
    return [
        part["data"]
        for name, part in report["parts"].items()
        if name.startswith(prefix) and part["status"] == "done"
    ]


def _rows(report: Report, prefix: str) -> list[Row]:
    """The rows of an accuracy part in every dtype, with what the part says of all of them."""
    return [
        {"kernel": ", ".join(data.get("kernels", [])), "limit": data["limit"], **row, "dtype": data["dtype"]}
        for data in _parts(report, prefix)
        for row in data["rows"]
    ]


def figure(draw: bool, chart: Callable[..., str], name: str, label: str, *arguments: Any, **more: Any) -> str:
    """A chart with its label below; nothing where no charts are drawn."""
    return page.figure(chart(name, label, *arguments, **more), label + ".") if draw else ""


def lead(report: Report) -> str:
    """What the page is, and its numbers in short."""
    summary = report["summary"]
    own = sum(1 for row in report["rows"] if report["sources"][row["source"]]["here"])
    entries: dict[str, page.Cell] = {
        "measured on": report["device"],
        "sluice": report["version"],
        "tensors compared with float64": summary["tensors"],
        "outside their limit": summary["wrong"],
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


def _whole(row: Row) -> float:
    return math.inf if row["whole"] is None else float(row["whole"])


def _worst(row: Row) -> float:
    """The error that counts: heads and windows may be twice the whole's limit."""
    errors = (row["whole"], row["head"], row["window"])
    return math.inf if None in errors else max(errors[0], errors[1] / 2, errors[2] / 2)


def _worst_table(caption: str, rows: list[Row], keys: str, error: Callable[[Row], float]) -> str:
    """A line for all rows that have the same `keys`: the row that is nearest to its limit, which small
    tensors have wider."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys.split()), []).append(row)
    lines = []
    for group in groups.values():
        done = [row for row in group if not row.get("refused")]
        line = {**group[0], "kernel": "refused", "tensors": len(done)}
        if done:
            worst = max(done, key=lambda row: error(row) / row["limit"])
            line |= {**worst, "error": error(worst), "name": f"{worst['tensor']}, {worst['case']}"}
            line["kernel"] = ", ".join(sorted({row["kernel"] for row in done}))
            line["within"] = all(row["passed"] for row in done)
        lines.append(line)
    columns = {**page.named(f"{keys} kernel tensors limit"), "worst error": "error", "its case": "name"}
    return page.table(caption, {**columns, "all within": "within"}, lines)


def accuracy(report: Report, draw: bool) -> str:
    """The ladder, dtype by dtype, and every operator once."""
    rows = _rows(report, "accuracy ")
    content = _own(report, "accuracy ladder of ops/manifest.json")
    if not rows:
        return content + page.note("No ladder was run.")
    heads = ", ".join(f"{name} {value}" for name, value in _parts(report, "accuracy ")[0]["heads"].items())
    content += (
        "<p>Prefill end to end against the float64 recurrence on the same rounded inputs, packed "
        f"sequences, random initial states, {heads}. Errors are relative L2 of outputs and final "
        "states: of the whole tensor, of the worst (sequence, head) and of the worst window of 64 "
        "tokens, which may be twice the limit.</p>"
    )
    content += _worst_table("The worst of each dtype", rows, "dtype", _worst)
    names = list(dict.fromkeys(row["case"] for row in rows))
    limits = {row["dtype"]: row["limit"] for row in rows}
    worst = {dtype: dict.fromkeys(names, 0.0) for dtype in limits}
    for row in rows:
        if not row.get("refused"):
            errors = worst[row["dtype"]]
            errors[row["case"]] = max(errors[row["case"]], _worst(row))
    series = {dtype: list(errors.values()) for dtype, errors in worst.items()}
    label = "Largest error of each case, one mark a dtype; dashed lines are the limits"
    content += figure(draw, charts.dots, "accuracy", label, names, series, limits)
    columns = {**page.named("case dtype tensor"), **_ERRORS}
    columns["within"] = lambda row: row.get("refused") or row["passed"]
    return content + page.folded("Every case", page.table("The ladder", columns, rows)) + _operators(report)


def _operators(report: Report) -> str:
    content = ""
    for data in _parts(report, "operators"):
        columns = {**page.named("case kernel tensor"), **_ERRORS, "limit": "limit", "within": "passed"}
        content += "<h3>Every operator</h3>"
        content += page.table("Every operator on random float32 inputs", columns, data["rows"])
        for case, reason in data["refused"].items():
            content += page.note(f"{case}: {reason}")
    return content


def stages(report: Report, draw: bool) -> str:
    """The single stages against their float64 twins."""
    rows = _rows(report, "stages ")
    if not rows:
        return page.note("This library has no operators for single stages, so none was measured.")
    content = _own(report, "each stage on its twin's inputs, the ladder's cases")
    content += _worst_table("The worst of each stage", rows, "stage dtype", _whole)
    columns = page.named("stage dtype case tensor")
    columns |= {"error": lambda row: row.get("refused") or _whole(row), "within": "passed"}
    return content + page.folded("Every case", page.table("Relative L2 error", columns, rows))


def gradients(report: Report, draw: bool) -> str:
    """Errors of gradients."""
    rows = _rows(report, "gradients ")
    if not rows:
        return ""
    content = _own(report, "gradients of the ladder's cases")
    content += (
        "<p>Gradients of the prefill against the reference in float64 on the same rounded inputs, gradients of "
        "outputs and of final states at random. Relative L2 of whole tensors; those of gates and beta are sums "
        "that cancel, judged as a whole alone.</p>"
    )
    return content + _worst_table("The worst of each gradient", rows, "dtype tensor", _whole)


def first_call(report: Report, draw: bool) -> str:
    """What starting costs."""
    content = ""
    for data in _parts(report, "first call"):
        content += _own(report, "a fresh interpreter, prefill of 256 tokens")
        steps = {
            "import sluice (NumPy is there)": "import",
            "first call": "first",
            "second call": "second",
            "later calls, median": "later",
        }
        rows = [{"step": step, "time": page.duration(data[name])} for step, name in steps.items()]
        content += page.table(f"From Python, {data['kernel']}", page.named("step time"), rows)
    called = [e for e in report["sources"] if (e.get("first_call") or {}).get("first_ms") is not None]
    columns: dict[str, page.Column] = {
        "device": lambda entry: f"{entry['device']} ({'here' if entry['here'] else 'record ' + entry['file']})",
        "first call": lambda entry: page.duration(1e-3 * entry["first_call"]["first_ms"]),
        "second call": lambda entry: page.duration(1e-3 * entry["first_call"]["second_ms"]),
        "commit": "commit",
    }
    return content + (page.table("In processes of the benchmark tool", columns, called) if called else "")


def peers(report: Report, draw: bool) -> str:
    """Peers that were installed and ran beside."""
    columns: dict[str, page.Column] = {
        "peer": "peer",
        "H/HV": lambda row: f"{row['H']}/{row['HV']}",
        "tokens": "tokens",
        "dtype": "dtype",
        "Sluice": lambda row: page.duration(row.get("seconds")),
        "peer's time": lambda row: page.duration(row.get("peer_seconds")),
        "ratio": "ratio",
        "outputs apart by": lambda row: f"failed: {row['failure']}" if "failure" in row else row["apart"],
    }
    content = ""
    for rows in _parts(report, "peers"):
        content += _own(report, "in turns, medians of 5, wall time")
        content += page.table("Prefill with l2 norm and final state, K = V = 128", columns, rows)
        content += page.note(
            "transformers' row is its torch layer, which loops over chunks in Python; where it finds "
            "flash-linear-attention it may run those kernels instead."
        )
    return content


def environment(report: Report, draw: bool) -> str:
    """Everything that a number may depend on."""
    facts: dict[str, Any] = {}
    for key, value in report["environment"].items():
        facts |= {f"{key}: {name}": inner for name, inner in value.items()} if isinstance(value, dict) else {key: value}
    for name, part in {**report["parts"], **report["speed"]}.items():
        how = part.get("reason", part["status"])
        kept = ", taken from an interrupted run" if part.get("resumed") else ""
        facts[f"part: {name}"] = f"{how}{kept}, {part['seconds']} s"
    rows = [{"what": what, "value": str(value)} for what, value in facts.items()]
    return page.table("This machine and this run", page.named("what value"), rows)


def sources(report: Report, draw: bool) -> str:
    """Every record that the page has numbers of."""
    counts = [0] * len(report["sources"])
    for row in report["rows"]:
        counts[row["source"]] += 1
    columns: dict[str, page.Column] = {
        "record": lambda entry: "measured here" if entry["here"] else entry["file"],
        "device": "device",
        "sluice": "version",
        **page.named("commit date rows command"),
    }
    rows = [{**entry, "rows": count} for entry, count in zip(report["sources"], counts)]
    words = "Ratios between runs are ratios between machines and moments, good to some percent."
    return page.table("Records", columns, rows) + page.note(words)
