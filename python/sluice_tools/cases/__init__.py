# SPDX-License-Identifier: Apache-2.0
"""Reads case files (recorded inputs and answers, docs/case-format.md) and runs Sluice on them
(`verify`). conformance/check.py reads the files and judges; the wheel has it as
`sluice_tools.check`. Needs NumPy, and torch for a GPU."""

from ..check import Case, Verdict, judge, read_cases
from .execute import execute
from .verify import Report, answered, self_check, self_check_cases, verify

__all__ = [
    "Case",
    "Report",
    "Verdict",
    "answered",
    "execute",
    "judge",
    "read_cases",
    "self_check",
    "self_check_cases",
    "verify",
]
