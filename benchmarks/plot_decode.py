#!/usr/bin/env python3
"""Draws the record of `sluice bench decode --grid full` as an SVG: share of the copy bandwidth over the
number of sequences, one line for each number of value heads, float32 and bfloat16 states side by side.

    benchmarks/plot_decode.py benchmarks/results/h200/decode_full.json docs/figures/decode_h200.svg

Needs matplotlib.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import json
import pathlib

import matplotlib
import matplotlib.ticker

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # after the choice of a backend without a screen


def lines_of(rows, state):
    """{HV: [(B, share of copy, us)]} of the rows of one token with states of this type."""
    lines = {}
    for row in rows:
        if row["state"] == state and row["T"] == 1 and row["share_of_copy"] is not None:
            lines.setdefault(row["HV"], []).append((row["B"], row["share_of_copy"], row["us"]))
    return {heads: sorted(points) for heads, points in sorted(lines.items())}


def peers_of(rows, state):
    """[(B, share of copy)] of the fastest known peer with 32 heads, by its time and this row's bytes."""
    points = []
    for row in rows:
        if row["state"] == state and row["T"] == 1 and row["HV"] == 32 and row["peers"]:
            best = min(peer["us"] for peer in row["peers"])
            points.append((row["B"], row["share_of_copy"] * row["us"] / best))
    return sorted(points)


def draw(record, path):
    plt.rcParams.update({"svg.hashsalt": "sluice", "font.size": 10})
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True)
    colors = plt.cm.viridis([0.0, 0.22, 0.44, 0.66, 0.88])
    for axis, state, title in zip(axes, ("fp32", "bf16"), ("float32 states", "bfloat16 states")):
        for color, (heads, points) in zip(colors, lines_of(record["rows"], state).items()):
            axis.plot([p[0] for p in points], [p[1] for p in points], "o-", color=color,
                      markersize=3, label=f"{heads} value heads")
        peers = peers_of(record["rows"], state)
        if peers:
            axis.plot([p[0] for p in peers], [p[1] for p in peers], "rx", label="best peer, 32 heads")
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter(matplotlib.ticker.ScalarFormatter())
        axis.set_ylim(0, 1)
        axis.set_xlabel("sequences")
        axis.set_title(f"one token, {title}")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("share of copy bandwidth")
    axes[1].legend(loc="upper left", fontsize=8)
    figure.suptitle(f"recurrent_step on {record['machine']['name']}, K = V = 128, cold states "
                    f"({record['commit']})", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("record", type=pathlib.Path, help="JSON of sluice bench decode --grid full")
    parser.add_argument("svg", type=pathlib.Path, help="where to draw")
    arguments = parser.parse_args()
    draw(json.loads(arguments.record.read_text()), arguments.svg)


if __name__ == "__main__":
    main()
