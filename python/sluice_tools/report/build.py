# SPDX-License-Identifier: Apache-2.0
"""Runs the parts of a report in order, keeps what is finished, and puts the report together."""

import dataclasses
import functools
import itertools
import pathlib
import time
from collections.abc import Callable
from typing import Any

import sluice

from .. import cases
from . import environment, ladder, manifest, peers, records, timing, tool
from .progress import Progress, State

SCHEMA = "sluice.report/1"
Part = tuple[str, Callable[[Callable[[float], None]], Any]]


def _silent(call: Callable[..., Any], *arguments: Any) -> Callable[[Callable[[float], None]], Any]:
    """A part that tells of no progress."""
    return lambda step: call(*arguments)


@dataclasses.dataclass
class Plan:
    """What one report is asked: device, quick or full, tool, commit, whether speed is measured."""

    device: str
    quick: bool
    tool: pathlib.Path | None
    commit: str
    speed: bool

    def __post_init__(self) -> None:
        self.manifest = manifest.load()
        self.facts = environment.describe(self.device, self.commit)
        if self.tool is not None:
            self.facts["tool"] = f"sluice bench, {tool.version(self.tool)}"

    def fingerprint(self) -> dict[str, Any]:
        """What finished parts must agree in with a report that takes them over."""
        return {
            "version": sluice.__version__,
            "commit": self.commit,
            "device": environment.device_name(self.facts),
            "quick": self.quick,
            "tool": self.facts.get("tool", "none"),
        }

    def parts(self) -> list[Part]:
        """(name, function of a progress callback) in the order in which they run."""
        listed: list[Part] = [("operators", _silent(self._operators))]
        for dtype in self.manifest["ladder"]["limits"]:
            for what in ("accuracy", "stages", "gradients"):
                asked = (what, self.manifest, dtype, self.device, self.quick)
                listed.append((f"{what} {dtype}", functools.partial(ladder.measure, *asked)))
        listed.append(("first call", _silent(timing.first_call, self.device)))
        if not self.speed:
            return listed
        for workload in self.manifest["workloads"]:
            if self._fits(workload):
                for i, call in enumerate(self._speed(workload)):
                    name = f"speed: {workload['name']}" + (f" {i + 1}" if i else "")
                    listed.append((name, _silent(call)))
        if peers.installed(self.device):
            listed.append(("peers", _silent(peers.measure, self.device, self.quick)))
        return listed

    def _fits(self, workload: dict[str, Any]) -> bool:
        if self.tool is None:  # what Python can time itself, on any device
            return "tokens" in workload or "batches" in workload
        return workload["backend"] == self.device and not (self.quick and workload.get("full only"))

    def _operators(self) -> dict[str, Any]:
        report = cases.self_check(self.device)
        rows = [{"case": v.case, "kernel": report.kernels[v.case], **ladder.row_of(v)} for v in report.verdicts]
        return {"rows": rows, "refused": report.unsupported}

    def _speed(self, workload: dict[str, Any]) -> list[Callable[[], dict[str, Any]]]:
        """What gives the records of a workload."""
        if self.tool is None:
            return [functools.partial(timing.measure, self.device, workload, self.quick, self.commit)]
        commands = tool.arguments_of(workload, self.quick)
        return [functools.partial(tool.record, self.tool, arguments, self.commit) for arguments in commands]


def run(
    plan: Plan, state: State, progress: Progress, seconds: float = float("inf")
) -> dict[str, Any]:
    """Every part, from the state file or now. A part that fails is a result too, with its reason,
    and is tried again by the next report that resumes; none begins after `seconds`."""
    results = {}
    begin = time.monotonic()
    for name, function in plan.parts():
        progress.step(name)
        kept = state.get(name)
        if kept is not None:
            results[name] = {**kept, "resumed": True}
            progress.end(name, "taken from the interrupted run")
            continue
        start = time.monotonic()
        try:
            if start - begin > seconds:
                raise RuntimeError(f"not begun within {seconds:g} s (--seconds)")
            data = function(lambda share: progress.step(name, share))
            result = {"status": "done", "data": data}
        except (RuntimeError, ValueError, OSError, ImportError, NotImplementedError) as error:
            result = {"status": "failed", "reason": f"{type(error).__name__}: {error}"}
        result["seconds"] = round(time.monotonic() - start, 3)
        if result["status"] == "done":
            state.put(name, result)
        results[name] = result
        progress.end(name, str(result.get("reason", f"{result['seconds']} s")))
    return results


def assemble(plan: Plan, results: dict[str, Any], folders: list[pathlib.Path]) -> dict[str, Any]:
    """The report as JSON: results of this machine, then committed records; each row knows its
    source, each source says whether it is of here."""
    speed = {name: result for name, result in results.items() if name.startswith("speed: ")}
    found = [(result["data"], True, "") for result in speed.values() if result["status"] == "done"]
    for folder in folders:
        found += [(record, False, f"{folder.name}/{file}") for file, record in records.read_folder(folder)]
    rows = [records.rows_of(record, i, plan.manifest) for i, (record, _, _) in enumerate(found)]
    return {
        "schema": SCHEMA,
        "version": sluice.__version__,
        "date": environment.now(),
        "quick": plan.quick,
        "device": environment.device_name(plan.facts),
        "environment": plan.facts,
        "parts": {name: result for name, result in results.items() if name not in speed},
        "speed": {
            name: {key: value for key, value in result.items() if key != "data"}
            for name, result in speed.items()
        },
        "sources": [records.source_of(*entry) for entry in found],
        "rows": list(itertools.chain(*rows)),
        "summary": summary(results),
    }


def summary(results: dict[str, Any]) -> dict[str, Any]:
    """Counts over the accuracy parts, the rows outside their limit, the parts that failed."""
    judged = [
        (part, result["data"])
        for part, result in results.items()
        if result["status"] == "done"
        and isinstance(result.get("data"), dict)
        and "passed" in (result["data"].get("rows") or [{}])[0]
    ]
    rows = [(part, row, data) for part, data in judged for row in data["rows"]]
    checked = [entry for entry in rows if not entry[1].get("refused")]
    failing = [_row_name(*entry) for entry in checked if not entry[1]["passed"]]
    broken = [name for name, result in results.items() if result["status"] == "failed"]
    return {
        "tensors": len(checked),
        "wrong": len(failing),
        "refused": len(rows) - len(checked) + sum(len(data.get("refused", {})) for _, data in judged),
        "parts failed": broken,
        "failing": failing,
    }


def _row_name(part: str, row: dict[str, Any], data: dict[str, Any]) -> str:
    """One row in words: which part, operator, case and tensor, its error and the limit."""
    names = [str(row[key]) for key in ("operator", "stage", "case", "tensor") if row.get(key)]
    limit = row.get("limit", data.get("limit"))
    bound = "" if limit is None else f", limit {limit:.1e}"
    error = "not a number" if row["whole"] is None else f"{row['whole']:.1e}"
    return f"{part}: {', '.join(names)}: error {error}{bound}"


def verdict(summary: dict[str, Any]) -> str:
    """The report in one sentence."""
    if summary["wrong"]:
        return f"{summary['wrong']} of {summary['tensors']} tensors are outside their limit."
    return f"All {summary['tensors']} tensors are within their limits."
