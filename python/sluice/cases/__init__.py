# SPDX-License-Identifier: Apache-2.0
"""Case files: recorded inputs and answers in safetensors files (docs/case-format.md), and `verify`,
which runs Sluice on them. Needs NumPy, and torch for a GPU."""

from .checks import Report, Verdict, self_check, verify

__all__ = ["Report", "Verdict", "self_check", "verify"]
