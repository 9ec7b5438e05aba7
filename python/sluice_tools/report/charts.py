# SPDX-License-Identifier: Apache-2.0
"""Draws charts as inline SVG that follow the page's colours, light or dark. Needs matplotlib.

Drawn with placeholder colours that become CSS variables of the page, so that one drawing serves both
themes; text stays text, ids are made unique, nothing refers to anything outside."""

import contextlib
import html
import io
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

INK = "#010203"
SERIES = ["#0100f1", "#0100f2", "#0100f3", "#0100f4", "#0100f5", "#0100f6"]
_MARKERS = "osD^vP"


def available() -> str:
    """Empty if charts can be drawn, else what is missing, in words."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return "no charts: matplotlib is not installed (pip install 'sluice-gdn[report]')"
    return ""


@contextlib.contextmanager
def _chart(name: str, width: float, height: float, count: int = 1) -> Iterator[list[Any]]:
    """Axes side by side, drawn in the page's ink on nothing."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    inked = ("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color", "grid.color")
    style: Any = dict.fromkeys(inked, INK) | {"axes.edgecolor": f"{INK}80", "axes.facecolor": "none"}
    style |= {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False, "font.size": 9}
    style |= {"axes.grid": True, "grid.alpha": 0.12, "grid.linewidth": 0.6, "axes.titlesize": 9}
    with matplotlib.rc_context({**style, "svg.fonttype": "none", "svg.hashsalt": name}):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield list(figure.subplots(1, count, sharey=count > 1, squeeze=False)[0])


def _svg(axis: Any, name: str, label: str) -> str:
    """The drawing that the axis is in, ready to stand in a page."""
    out = io.StringIO()
    axis.figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return _inline(out.getvalue(), name, label)


def _inline(text: str, name: str, label: str) -> str:
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    text = text.replace("xlink:href", "href")
    text = re.sub(r'(<svg[^>]*?)\swidth="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?)\sheight="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'href="#', f'href="#{name}-', text)
    text = text.replace("url(#", f"url(#{name}-").replace(INK, "currentColor")
    for i, color in enumerate(SERIES):
        text = text.replace(color, f"var(--c{i + 1})")
    box = re.search(r'viewBox="0 0 ([\d.]+) ', text)
    width = f"max-width:{1.5 * float(box.group(1)):.0f}px" if box else ""
    head = f'<svg role="img" aria-labelledby="{name}-t" style="{width}"'
    title = f'<title id="{name}-t">{html.escape(label)}</title>'
    return re.sub(r"<svg([^>]*)>", lambda found: head + found.group(1) + ">" + title, text, count=1)


def lines(
    name: str,
    label: str,
    panels: list[tuple[str, dict[str, list[tuple[float, float]]]]],
    x: str,
    y: str,
    log_y: bool = False,
    top: float | None = None,
) -> str:
    """Lines of points over a logarithmic x, one panel a title, one line a name."""
    with _chart(name, 3.4 + 3.2 * len(panels), 3.4, len(panels)) as axes:
        for axis, (title, named) in zip(axes, panels, strict=True):
            for i, (line, points) in enumerate(named.items()):
                xs, ys = zip(*sorted(points), strict=True)
                axis.plot(xs, ys, "-", marker=_MARKERS[i % 6], markersize=3.5, linewidth=1.4,
                          color=SERIES[i % 6], label=line)  # fmt: skip
            axis.set_xscale("log", base=2)
            axis.set_xticks(*_ticks(named))
            axis.minorticks_off()
            if log_y:
                axis.set_yscale("log")
            else:
                axis.set_ylim(0, top)
            axis.set_title(title)
            axis.set_xlabel(x)
        axes[0].set_ylabel(y)
        axes[-1].legend(fontsize=8)
        return _svg(axes[0], name, label)


def _ticks(named: dict[str, list[tuple[float, float]]]) -> tuple[list[float], list[str]]:
    """Up to eight of the lines' own x, with 1024 as 1K and 2^20 as 1M."""
    xs = sorted({x for points in named.values() for x, _ in points})
    xs = xs[:: -(-len(xs) // 8)]

    def word(x: float) -> str:
        for size, letter in ((1 << 20, "M"), (1 << 10, "K")):
            if x >= size and x % size == 0:
                return f"{x / size:g}{letter}"
        return f"{x:g}"

    return xs, [word(x) for x in xs]


def heat(
    name: str,
    label: str,
    columns: list[str],
    lines_: list[str],
    cells: dict[tuple[int, int], float],
) -> str:
    """Ratios in a grid: blue above 1, orange below, the number in each cell."""
    from matplotlib import colormaps, patches

    colors = colormaps["PuOr"]
    with _chart(name, 1.6 + 0.62 * len(columns), 0.7 + 0.27 * len(lines_)) as [axis]:
        axis.grid(visible=False)
        axis.spines[["left", "bottom"]].set_visible(False)
        for (row, column), value in cells.items():
            shade = colors(0.5 + 0.5 * float(np.clip(np.log2(value), -1, 1)))
            dark = 0.3 * shade[0] + 0.6 * shade[1] + 0.1 * shade[2] < 0.55
            axis.add_patch(patches.Rectangle((column, row), 0.96, 0.92, color=shade))
            axis.text(column + 0.48, row + 0.48, f"{value:.2f}", ha="center", va="center",
                      fontsize=8, color="#ffffff" if dark else "#101010")  # fmt: skip
        axis.set_xlim(0, len(columns))
        axis.set_ylim(len(lines_), 0)
        axis.set_xticks([i + 0.48 for i in range(len(columns))], columns)
        axis.set_yticks([i + 0.48 for i in range(len(lines_))], lines_)
        axis.tick_params(length=0)
        axis.xaxis.tick_top()
        return _svg(axis, name, label)


def roofline(
    name: str,
    label: str,
    points: list[tuple[str, float, float]],
    flop_per_second: float,
    bytes_per_second: float,
) -> str:
    """Points (kernel, FLOP per byte, FLOP/s) under the two limits of a machine."""
    with _chart(name, 7.2, 4.0) as [axis]:
        xs = [point[1] for point in points] + [flop_per_second / bytes_per_second]
        low, high = min(xs) / 3, max(xs) * 4
        grid = np.geomspace(low, high, 100)
        roof = np.minimum(flop_per_second, grid * bytes_per_second)
        axis.plot(grid, 1e-12 * roof, color=INK, alpha=0.7, linewidth=1.4)
        for i, (kernel, intensity, speed) in enumerate(points):
            axis.plot([intensity], [1e-12 * speed], _MARKERS[i % 6], color=SERIES[(i + i // 6) % 6],
                      markersize=6, label=kernel)  # fmt: skip
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("FLOP per byte (models of the op manifest)")
        axis.set_ylabel("TFLOP/s")
        axis.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
        return _svg(axis, name, label)


def dots(
    name: str,
    label: str,
    cases: list[str],
    series: dict[str, list[float]],
    limits: dict[str, float],
) -> str:
    """One line a case, one dot a series, on a logarithmic axis; dashed: the limits."""
    with _chart(name, 7.2, 0.9 + 0.19 * len(cases)) as [axis]:
        for i, (line, values) in enumerate(series.items()):
            finite = [min(max(value, 1e-9), 10.0) for value in values]
            axis.plot(finite, range(len(cases)), _MARKERS[i % 6], color=SERIES[i % 6], markersize=4,
                      linestyle="none", label=line)  # fmt: skip
            axis.axvline(limits[line], color=SERIES[i % 6], linestyle="--", linewidth=1)
        axis.set_xscale("log")
        axis.set_ylim(len(cases) - 0.5, -0.5)
        axis.set_yticks(range(len(cases)), cases, fontsize=8)
        axis.set_xlabel("relative L2 error against float64, the worst of whole, head / 2, window / 2")
        axis.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
        return _svg(axis, name, label)
