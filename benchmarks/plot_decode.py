#!/usr/bin/env python3
"""Draws the record of `sluice bench decode --grid full` as an SVG: share of the copy bandwidth over the
number of sequences, one line for each number of value heads, float32 and bfloat16 states side by side. Readable on a
light and on a dark page; each line has its name at its end.

    benchmarks/plot_decode.py benchmarks/results/h200/decode_full.json docs/figures/decode_h200.svg

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import json
import math
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from sluice_tools import whole_file  # needs no sluice

WIDTH, HEIGHT, LEFT, TOP, PANEL, TALL, GAP = 880, 330, 56, 62, 300, 210, 135
# From few heads to many; the last is the one that peers are known for when it is 32.
LIGHT = {8: "#7a5195", 16: "#3f6fb0", 32: "#0f7f6c", 48: "#9a6a00", 64: "#b5463c"}
DARK = {8: "#c39bdc", 16: "#7fb0ee", 32: "#4fc7b0", 48: "#e0b04a", 64: "#f08a80"}


def lines_of(rows, state):
    """{HV: [(B, share of copy)]} of the rows of one token with states of this type."""
    lines = {}
    for row in rows:
        if row["state"] == state and row["T"] == 1 and row["share_of_copy"] is not None:
            lines.setdefault(row["HV"], []).append((row["B"], row["share_of_copy"]))
    return {heads: sorted(points) for heads, points in sorted(lines.items())}


def peers_of(rows, state):
    """[(B, share of copy)] of the fastest known peer with 32 heads, by its time and this row's bytes."""
    points = []
    for row in rows:
        if row["state"] == state and row["T"] == 1 and row["HV"] == 32 and row["peers"]:
            best = min(peer["us"] for peer in row["peers"])
            points.append((row["B"], row["share_of_copy"] * row["us"] / best))
    return sorted(points)


def style():
    def colours(table):
        return "".join(f".h{heads}{{stroke:{c};fill:{c}}}" for heads, c in table.items())

    last = ".l{fill:none;stroke-width:2}.t{stroke:none}"  # behind the colours, so that it counts
    return ("svg{font:13px system-ui,sans-serif}.a{fill:#1f2328}.m{fill:#57606a}.g{stroke:#d0d7de}" + colours(LIGHT)
            + last + "@media(prefers-color-scheme:dark){.a{fill:#e6edf3}.m{fill:#9ea7b3}.g{stroke:#30363d}"
            + colours(DARK) + last + "}")


def spread(wanted, distance):
    """Heights of labels, in order, at least `distance` apart."""
    placed = []
    for y in sorted(wanted):
        placed.append(max(y, placed[-1] + distance) if placed else y)
    return placed


def panel(left, rows, state, title):
    lines = lines_of(rows, state)
    most = max(B for points in lines.values() for B, _ in points)

    def place(B, share):
        return left + PANEL * math.log2(B) / math.log2(most), TOP + TALL * (1 - share)

    out = [f'<text class="a" x="{left}" y="{TOP - 14}" font-weight="600">{title}</text>']
    for share in (0, 0.25, 0.5, 0.75, 1):
        _, y = place(1, share)
        out += [f'<path class="g" d="M{left} {y:.1f}h{PANEL}"/>',
                f'<text class="m" x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>']
    for B in sorted({B for points in lines.values() for B, _ in points}):
        if math.log2(B) % 2 == 0:
            x, _ = place(B, 0)
            out.append(f'<text class="m" x="{x:.1f}" y="{TOP + TALL + 18}" text-anchor="middle">{B}</text>')
    for heads, points in lines.items():
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
        out.append(f'<polyline class="h{heads} l" points="{path}"/>')
    for B, share in peers_of(rows, state):
        x, y = place(B, share)
        out.append(f'<path class="h32 l" d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"/>')
    ends = sorted((place(*points[-1])[1], heads) for heads, points in lines.items())
    for y, (_, heads) in zip(spread([y for y, _ in ends], 15), ends):
        out.append(f'<text class="h{heads} t" x="{left + PANEL + 8}" y="{y + 4:.1f}">{heads} heads</text>')
    return out


def figure(record):
    title = f"One decoded token on an {record['machine']['name']}: share of the copy bandwidth, by sequences"
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
             f'aria-label="{title}">', f"<style>{style()}</style>",
             f'<text class="a" x="{LEFT}" y="22" font-size="15">{title}</text>']
    for i, (state, name) in enumerate((("fp32", "float32 states"), ("bf16", "bfloat16 states"))):
        lines += panel(LEFT + i * (PANEL + GAP), record["rows"], state, name)
    note = (f"value heads; K = V = 128, states out of cache, commit {record['commit']}. "
            "Crosses: the best peer, 32 heads.")
    return "\n".join([*lines, f'<text class="m" x="{LEFT}" y="{HEIGHT - 12}">{note}</text>', "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("record", type=pathlib.Path, help="JSON of sluice bench decode --grid full")
    parser.add_argument("svg", type=pathlib.Path, help="where to draw")
    arguments = parser.parse_args()
    whole_file.write(arguments.svg, figure(json.loads(arguments.record.read_text())))


if __name__ == "__main__":
    main()
