# SPDX-License-Identifier: Apache-2.0
"""Holds Sluice, or somebody else's results, against the recorded answers of case files."""

import dataclasses
import os
import pathlib
from collections.abc import Iterable

from sluice import Unsupported

from ..check import Case, Verdict, judge, read_cases, read_safetensors, results_of
from ..counts import counted
from .execute import execute
from .self_check import self_check_cases


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
            f"{counted(len(self.kernels), 'case')}, {counted(len(self.verdicts), 'tensor')}, "
            f"{len(self.failed)} failed"
            + (
                f"; {counted(len(self.unsupported), 'case')} not supported"
                if self.unsupported
                else ""
            )
        )
        return "\n".join(lines)


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
    others = None if against is None else read_safetensors(pathlib.Path(against))[0]
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    cases = [case for path in paths for case in read_cases(pathlib.Path(path))]
    chosen = [case for case in cases if filter in case.name]
    if not chosen:
        raise ValueError(f"no case's name contains '{filter}'")
    report = Report()
    for case in chosen:
        if others is None:
            _run(case, device, implementation, report)
        else:
            report.kernels[case.name] = ""
            report.verdicts += judge(case, results_of(case, others))
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
