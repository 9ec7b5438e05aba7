#!/usr/bin/env python3
"""Draws the record of `sluice bench prefill --grid published` as an SVG: time of the best peer over time
of Sluice, a column for each pair of head counts, a row for each list of lengths.

    benchmarks/plot_prefill.py benchmarks/results/h200/prefill_published.json docs/figures/prefill_h200.svg

Needs matplotlib.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import io
import json
import math
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # after the choice of a backend without a screen

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from sluice_tools import whole_file  # needs no sluice


def ratios_of(rows):
    """({"H/HV": column}, {lengths: row}, {(column, row): ratio}) of the rows that have a peer."""
    columns, lines, cells = {}, {}, {}
    for row in rows:
        if row.get("split", "auto") != "auto" or row["ratio_to_best_peer"] is None:
            continue
        column = columns.setdefault(f"{row['H']}/{row['HV']}", len(columns))
        line = lines.setdefault(row["lengths"], len(lines))
        cells[column, line] = row["ratio_to_best_peer"]
    return columns, lines, cells


def draw(record, path):
    columns, lines, cells = ratios_of(record["rows"])
    plt.rcParams.update({"svg.hashsalt": "sluice", "svg.fonttype": "none", "font.size": 9})
    figure, axis = plt.subplots(figsize=(1.8 + 0.9 * len(columns), 1.2 + 0.27 * len(lines)))
    for (column, line), ratio in cells.items():
        # Orange below 1, purple above, full at a half and at twice.
        shade = plt.cm.PuOr(0.5 + 0.5 * max(-1, min(1, math.log2(ratio))))
        dark = 0.3 * shade[0] + 0.6 * shade[1] + 0.1 * shade[2] < 0.55
        axis.add_patch(plt.Rectangle((column, line), 0.97, 0.93, color=shade))
        axis.text(column + 0.48, line + 0.48, f"{ratio:.2f}", ha="center", va="center",
                  color="white" if dark else "black")
    axis.set(xlim=(0, len(columns)), ylim=(len(lines), 0))
    axis.set_xticks([i + 0.48 for i in columns.values()], columns)
    axis.set_yticks([i + 0.48 for i in lines.values()], lines)
    axis.xaxis.tick_top()
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    slower = sum(ratio < 1 for ratio in cells.values())
    mean = math.exp(sum(map(math.log, cells.values())) / len(cells))
    figure.suptitle(
        f"chunk_forward on {record['machine']['name']}: time of the best peer / time of Sluice "
        f"({record['commit']})\n{slower} of {len(cells)} cells slower than the best peer, geometric "
        f"mean {mean:.2f}; peers: published or measured elsewhere", fontsize=10)
    figure.tight_layout()
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    whole_file.write(path, drawn.getvalue())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("record", type=pathlib.Path, help="JSON of sluice bench prefill --grid published")
    parser.add_argument("svg", type=pathlib.Path, help="where to draw")
    arguments = parser.parse_args()
    draw(json.loads(arguments.record.read_text()), arguments.svg)


if __name__ == "__main__":
    main()
