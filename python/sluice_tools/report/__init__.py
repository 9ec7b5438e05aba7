# SPDX-License-Identifier: Apache-2.0
"""Writes `python -m sluice report`: accuracy and speed of this machine as one HTML page and one
JSON file.

Parts that are measured here run one after the other and are kept in a state file, so that an
interrupted report goes on where it stopped; records of other machines are read, never mixed with
what was measured here, and labelled by device, commit and version. docs/report.md is the guide.
Needs NumPy; charts need matplotlib (the extra `sluice-gdn[report]`).
"""
