# SPDX-License-Identifier: Apache-2.0
"""Writes the section of the page about gradients: their errors and the times of the backward pass."""

import math
from typing import Any

from . import page, sections, speed_sections


def section(report: sections.Report, draw: bool) -> sections.Section:
    """Errors of gradients measured here, and times of the backward pass in every record."""
    content = ""
    found = sections.parts(report, "gradients ")
    if found:
        content += page.source(sections.own_source(report, "gradients of the ladder's cases"))
        content += (
            "<p>Gradients of the prefill against the reference in float64 on the same rounded inputs, gradients of "
            "outputs and of final states at random. Relative L2 of whole tensors; those of gates and beta are sums "
            "that cancel, judged as a whole alone.</p>"
        )
        head = ["dtype", "kernels", "gradient", "cases", "limit", "worst error", "its case", "all within"]
        content += page.table("The worst of each gradient", head, _worst(found))
    for source, rows in speed_sections.by_source(report, "chunk_backward"):
        body: list[list[page.Cell]] = [
            [f"{row['H']}/{row['HV']}, {row['lengths']}", page.duration(row["seconds"]), row["times_forward"]]
            + [1e-12 * row["flops"] / row["seconds"] if row["flops"] else None, row["share"], row["kernel"]]
            for row in rows
        ]
        head = ["cell", "time", "times the forward pass", "TFLOP/s", "share of floor", "kernel"]
        content += page.source(source) + page.folded("Table", page.table("Backward pass", head, body))
    return "gradients", "Gradients", content or page.note("Not measured, no record given.")


def _worst(found: list[dict[str, Any]]) -> list[list[page.Cell]]:
    lines: list[list[page.Cell]] = []
    for data in found:
        kept = [row for row in data["rows"] if not row.get("refused")]
        if not kept:
            lines.append([data["dtype"], "refused", "", 0, data["limit"], None, None, None])
        for tensor in dict.fromkeys(row["tensor"] for row in kept):
            rows = [row for row in kept if row["tensor"] == tensor]
            # The nearest to its own limit: small tensors have wider ones.
            worst = max(rows, key=lambda row: math.inf if row["whole"] is None else row["whole"] / row["limit"])
            lines.append(
                [data["dtype"], ", ".join(data["kernels"]), tensor, len(rows), worst["limit"], worst["whole"]]
                + [worst["case"], all(row["passed"] for row in rows)]
            )
    return lines
