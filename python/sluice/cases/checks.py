# SPDX-License-Identifier: Apache-2.0
"""Sluice, or somebody else's results, against the recorded answers of case files."""

import dataclasses
import os
import pathlib
from collections.abc import Iterable

import numpy as np

from .._errors import Unsupported
from . import safetensors
from .case import GRADIENT_ROWS, STAGE_ROWS, Array, Case, cases_of
from .execute import execute
from .self_check import self_check_cases

_WINDOW = 64


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One tensor of one case: relative L2 errors of the whole, of the worst head, and of the
    worst window of 64 tokens. The first may be `tolerance`, the others their `limits`: twice that, but
    for gradients (docs/case-format.md)."""

    case: str
    tensor: str
    whole: float
    head: float
    window: float
    tolerance: float
    limits: tuple[float, float]
    problem: str = ""

    @property
    def passed(self) -> bool:
        parts = self.head <= self.limits[0] and self.window <= self.limits[1]
        return not self.problem and self.whole <= self.tolerance and parts

    def __str__(self) -> str:
        if self.problem:
            return f"{self.tensor:18} FAIL: {self.problem}"
        return (
            f"{self.tensor:18} {'PASS' if self.passed else 'FAIL'}  whole {self.whole:.1e}  "
            f"head {self.head:.1e}  window {self.window:.1e}  (limit {self.tolerance:.0e})"
        )


@dataclasses.dataclass
class Report:
    """What `verify` found. `passed`: every case ran and every tensor is within its limit."""

    verdicts: list[Verdict] = dataclasses.field(default_factory=list)
    kernels: dict[str, str] = dataclasses.field(default_factory=dict)
    unsupported: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def failed(self) -> list[Verdict]:
        return [v for v in self.verdicts if not v.passed]

    @property
    def passed(self) -> bool:
        return bool(self.verdicts) and not self.failed and not self.unsupported

    def __str__(self) -> str:
        lines = []
        for case, kernel in self.kernels.items():
            lines.append(f"{case} ({kernel})" if kernel else case)
            lines += [f"  {v}" for v in self.verdicts if v.case == case]
        lines += [f"{case}\n  not supported: {why}" for case, why in self.unsupported.items()]
        lines.append(
            f"{len(self.kernels)} cases, {len(self.verdicts)} tensors, {len(self.failed)} failed"
            + (f"; {len(self.unsupported)} cases not supported" if self.unsupported else "")
        )
        return "\n".join(lines)


def _norm(x: Array) -> float:
    # PERF: without BLAS, whose threads spin on blocks as small as a window.
    return float(np.sqrt(np.sum(np.square(x))))


def _relative(x: Array, reference: Array) -> float:
    """||x - reference|| / ||reference||; infinite on NaN, or where only the reference is 0."""
    norm, distance = _norm(reference), _norm(x - reference)
    if norm == 0:
        return float(np.inf) if np.any(x) else 0.0
    return float(distance / norm) if np.isfinite(distance) else float(np.inf)


def _worst(pairs: list[tuple[Array, Array]]) -> float:
    return max((_relative(x, reference) for x, reference in pairs), default=0.0)


def _errors(case: Case, tensor: str, x: Array, reference: Array) -> tuple[float, float, float]:
    """(whole, worst head, worst window); the last two 0 where a tensor has none."""
    last = tensor.split(".")[-1]
    if last in ("final_state", "d_initial_state") and reference.ndim == 4:
        slots = np.ndindex(*reference.shape[:2])
        return _relative(x, reference), _worst([(x[i], reference[i]) for i in slots]), 0.0
    rows_of_tokens = last in ("o", "core_out", "norm_out", *STAGE_ROWS, *GRADIENT_ROWS)
    if not rows_of_tokens and not (case.op == "conv1d" and last == "out"):
        return _relative(x, reference), 0.0, 0.0
    if x.ndim == 3:
        x, reference = x[:, :, None], reference[:, :, None]
    rows = case.rows(*reference.shape[:2])
    pieces = [(x[b, s:e], reference[b, s:e]) for b, s, e in rows if e > s]
    if not pieces:
        return 0.0, 0.0, 0.0
    heads = range(reference.shape[2])
    head = _worst([(a[:, h], r[:, h]) for a, r in pieces for h in heads])
    cuts = [slice(w, w + _WINDOW) for w in range(0, reference.shape[1], _WINDOW)]
    windows = [(a[c, h], r[c, h]) for a, r in pieces for h in heads for c in cuts if len(r[c])]
    whole = [np.concatenate([piece[i].ravel() for piece in pieces]) for i in (0, 1)]
    return _relative(*whole), head, _worst(windows)


def _limits(case: Case, tensor: str, size: int) -> tuple[float, float, float]:
    """Largest errors of the whole, a head and a window that pass."""
    tolerance = float(case.field("tolerance_rel_l2", 1e-5))
    if case.op != "gradients":
        return tolerance, 2 * tolerance, 2 * tolerance
    few = (10 if tensor in ("dA_log", "ddt_bias") else 2) * tolerance
    whole = few if size < 256 else tolerance
    return (whole, np.inf, np.inf) if tensor in ("dg", "dbeta") else (whole, few, 2 * few)


def judge(case: Case, results: safetensors.Arrays) -> list[Verdict]:
    """One verdict for each answer of the case."""
    verdicts = []
    for tensor in case.answers():
        reference, x = case.get(tensor), results.get(tensor)
        assert reference is not None  # answers() names what is there
        problem, errors = "", (np.inf, np.inf, np.inf)
        if x is None:
            problem = "missing"
        elif x.shape != reference.shape:
            problem = f"shape {x.shape}, expected {reference.shape}"
        else:
            errors = _errors(case, tensor, x.astype(np.float64), reference.astype(np.float64))
        tolerance, *limits = _limits(case, tensor, reference.size)
        verdicts.append(Verdict(case.name, tensor, *errors, tolerance, (limits[0], limits[1]), problem))
    return verdicts


def verify(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    device: str = "cpu",
    implementation: str = "auto",
    filter: str = "",
    against: str | os.PathLike[str] | None = None,
) -> Report:
    """Runs every case of the case files `paths` in float32 and compares with the recorded answers.

    Args:
      paths: one case file or several (docs/case-format.md).
      device: "cpu", or "cuda" (or "cuda:1") for torch tensors there.
      implementation: "auto", "cpu", "cuda", "reference" or "reference-chunked".
      filter: only cases whose name contains this.
      against: a safetensors file with somebody else's results under the expected tensors' names;
        nothing is computed then.

    Returns: a Report; `report.passed`, and `print(report)` for the table.
    Errors: ValueError for files that are no case files, or if no case's name contains `filter`;
      OSError for files that cannot be read. What a backend does not support is in
      `report.unsupported`. 16-bit inputs are for the C++ tool (`sluice verify --dtype bf16`),
      whose limits come from the reference.
    """
    others = None if against is None else safetensors.read(pathlib.Path(against))[0]
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    cases = [case for path in paths for case in cases_of(pathlib.Path(path))]
    chosen = [case for case in cases if filter in case.name]
    if not chosen:
        raise ValueError(f"no case's name contains '{filter}'")
    report = Report()
    for case in chosen:
        if others is None:
            _run(case, device, implementation, report)
        else:
            found = {tensor: case.get(tensor, others) for tensor in case.answers()}
            results = {name: array for name, array in found.items() if array is not None}
            report.kernels[case.name] = ""
            report.verdicts += judge(case, results)
    return report


def self_check(device: str = "cpu", implementation: str = "auto") -> Report:
    """Every operator on random inputs against the reference, which computes in double: `verify`
    where there is no case file."""
    report = Report()
    for case in self_check_cases():
        _run(case, device, implementation, report)
    return report


def _run(case: Case, device: str, implementation: str, report: Report) -> None:
    try:
        results, kernel = execute(case, device, implementation)
    except Unsupported as refusal:
        report.unsupported[case.name] = str(refusal)
    else:
        report.kernels[case.name] = kernel
        report.verdicts += judge(case, results)
