# SPDX-License-Identifier: Apache-2.0
"""Runs the command `python -m sluice report`: from its options to files and exit status."""

import argparse
import json
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

from .. import whole_file
from ..counts import counted
from . import build, charts, environment, page, sections, speed_sections, tool
from .progress import Progress, State

_NO_ROWS = "Not measured, no record given."
# What the page has: name, heading, who writes it, and what stands there where that is nothing.
_SECTIONS: tuple[tuple[str, str, tuple[Callable[[dict[str, Any], bool], str], ...], str], ...] = (
    ("accuracy", "Accuracy", (sections.accuracy,), ""),
    ("stages", "Stages", (sections.stages, speed_sections.stages), ""),
    (
        "grid",
        "Prefill against peers",
        (speed_sections.grid,),
        "No grid with peers was measured or given: --results DIR takes committed records.",
    ),
    ("growth", "Cost growing with T", (speed_sections.growth,), _NO_ROWS),
    ("decode", "Decode", (speed_sections.decode,), _NO_ROWS),
    ("layer", "The layer", (speed_sections.layer,), _NO_ROWS),
    ("gradients", "Gradients", (sections.gradients, speed_sections.backward), _NO_ROWS),
    ("roofline", "Roofline", (speed_sections.roofline,), "No ceilings were measured or given."),
    (
        "peers",
        "Peers in this process",
        (sections.peers,),
        "No peer is installed here (transformers with torch; flash-linear-attention on a GPU).",
    ),
    ("first", "First call", (sections.first_call,), "Not measured."),
    ("environment", "Environment", (sections.environment,), ""),
    ("sources", "Sources", (sections.sources,), ""),
)


def run(arguments: argparse.Namespace) -> int:
    """Status 0, or 1 if an error is outside its limit, 130 if it was interrupted."""
    draw = not arguments.no_charts
    missing = charts.available() if draw else ""
    if missing:
        print(f"sluice: {missing}; the page will have tables alone", file=sys.stderr)
    output = pathlib.Path(arguments.output)
    if arguments.json:
        report = json.loads(pathlib.Path(arguments.json).read_text(encoding="utf-8"))
        if not isinstance(report, dict) or report.get("schema") != build.SCHEMA:
            raise ValueError(f"{arguments.json}: no report of schema {build.SCHEMA}")
        whole_file.write(output, html_of(report, draw and not missing))
        return 0
    plan = build.Plan(
        environment.best_device() if arguments.device == "auto" else arguments.device,
        arguments.quick,
        tool.find(arguments.tool),
        arguments.commit or os.environ.get("SLUICE_COMMIT") or "unknown",
        not arguments.no_speed,
    )
    folders = [] if arguments.no_results else _folders(arguments.results)
    state = _state(output, plan, arguments.fresh)
    try:
        results = build.run(plan, state, Progress(len(plan.parts())), arguments.seconds)
    except KeyboardInterrupt:
        print("\nsluice: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    report = build.assemble(plan, results, folders)
    whole_file.write(output.with_suffix(".json"), json_of(report))
    whole_file.write(output, html_of(report, draw and not missing))
    state.remove()
    print(f"{output}, {output.with_suffix('.json')}")
    for row in report["summary"]["failing"]:
        print(f"outside its limit: {row}")
    print(build.verdict(report["summary"]))
    return 1 if report["summary"]["wrong"] else 0


def json_of(report: dict[str, Any]) -> str:
    """The report as text, a line for each benchmark row."""
    head = json.dumps({key: value for key, value in report.items() if key != "rows"}, indent=1)
    rows = ",\n  ".join(json.dumps(row) for row in report["rows"])
    return f'{head[:-2]},\n "rows": [\n  {rows}\n ]\n}}\n'


def html_of(report: dict[str, Any], draw: bool) -> str:
    """The page of a report; draw: with charts."""
    found = []
    for ident, heading, writers, nothing in _SECTIONS:
        content = "".join(write(report, draw) for write in writers)
        found.append((ident, heading, content or page.note(nothing)))
    lead = sections.lead(report)
    if not draw:
        lead += page.note(charts.available() or "Charts were left out (--no-charts).")
    return page.document(f"Sluice {report['version']} on {report['device']}", lead, found)


def _tree() -> pathlib.Path | None:
    root = pathlib.Path(__file__).resolve().parents[3]
    return root if (root / "include/sluice/sluice.h").exists() else None


def _folders(given: list[str] | None) -> list[pathlib.Path]:
    if given:
        folders = [pathlib.Path(name) for name in given]
        for folder in folders:
            if not folder.is_dir():
                raise FileNotFoundError(f"--results {folder} is no directory")
        return folders
    tree = _tree()
    default = (tree or pathlib.Path()) / "benchmarks/results/h200"
    return [default] if default.is_dir() else []


def _state(output: pathlib.Path, plan: build.Plan, fresh: bool) -> State:
    path = output.with_name(output.name + ".state.json")
    if fresh:
        path.unlink(missing_ok=True)
    state = State(path, plan.fingerprint())
    if state.dropped:
        print(f"sluice: {path} is not used: {state.dropped}", file=sys.stderr)
    if state.resumed:
        finished = counted(state.resumed, "finished part")
        print(f"sluice: goes on after {finished} ({path})", file=sys.stderr)
    return state
