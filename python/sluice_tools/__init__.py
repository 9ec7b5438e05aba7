# SPDX-License-Identifier: Apache-2.0
"""Holds what `python -m sluice` runs: case files, a quick benchmark, the report. In the wheel
beside the package `sluice`, which does not import it. docs/python.md and docs/report.md are the
guides."""
