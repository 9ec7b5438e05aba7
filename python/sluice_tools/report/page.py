# SPDX-License-Identifier: Apache-2.0
"""Writes the parts of the page: tables, figures, labels of sources, and the document around them.
Everything that comes from outside goes through html.escape()."""

import html
import importlib.resources
from collections.abc import Callable, Iterable
from typing import Any

Cell = str | int | float | bool | None
Column = str | Callable[[Any], Cell]


def text(value: Cell) -> str:
    """A cell's value for people."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return number(value)
    return str(value)


def number(value: float) -> str:
    """Three significant digits; scientific where it is very small or large."""
    if value != value or value in (float("inf"), float("-inf")):
        return "not a number"
    if value == 0:
        return "0"
    size = abs(value)
    if size < 1e-3 or size >= 1e7:
        return f"{value:.2e}"
    return f"{value:.0f}" if size >= 1000 else f"{value:.3g}"


def duration(seconds: float | None) -> str:
    """Seconds in the unit that suits."""
    if seconds is None:
        return "-"
    scales = ((1.0, "s"), (1e3, "ms"), (1e6, "us"))
    factor, unit = next((scale for scale in scales if seconds * scale[0] >= 1), scales[-1])
    return f"{number(seconds * factor)} {unit}"


def table(caption: str, columns: dict[str, Column], rows: Iterable[Any]) -> str:
    """A table with a caption. A column has its head and what its cells are: the member of that name of a
    row, or a function of the row. The first column heads its row."""
    body = [[made(row) if callable(made) else row.get(made) for made in columns.values()] for row in rows]
    words = [any(_kind(value) for value in column) for column in zip(*body)] or [False] * len(columns)
    lines = [f'<div class="scroll" tabindex="0"><table><caption>{html.escape(caption)}</caption>']
    lines.append("<thead><tr>")
    lines += [
        f'<th scope="col"{" class=text" if left else ""}>{html.escape(name)}</th>'
        for name, left in zip(columns, words, strict=True)
    ]
    lines.append("</tr></thead><tbody>")
    for first, *others in body:
        cells = [f'<th scope="row">{html.escape(text(first))}</th>']
        for value, left in zip(others, words[1:], strict=True):
            kind = "bad" if value is False else _kind(value) or ("text" if left else "")
            mark = f' class="{kind}"' if kind else ""
            cells.append(f"<td{mark}>{html.escape(text(value))}</td>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    lines.append("</tbody></table></div>")
    return "".join(lines)


def named(names: str) -> dict[str, Column]:
    """Columns whose heads are the names of the members."""
    return {name: name for name in names.split()}


def _kind(value: Cell) -> str:
    """The class of a cell of words, "" for numbers."""
    if not isinstance(value, str) or value[:1].isdigit() or value == "-":
        return ""
    return "wrap" if len(value) > 40 else "text"


def folded(summary: str, content: str) -> str:
    """Content behind a summary that opens it."""
    return f"<details><summary>{html.escape(summary)}</summary>{content}</details>"


def figure(svg: str, caption: str) -> str:
    """A drawing that scrolls sideways where the screen is narrow."""
    return (
        f'<figure><div class="scroll" tabindex="0">{svg}</div>'
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def source(entry: dict[str, Any]) -> str:
    """The label above every number: measured here, or whose record it is."""
    where = "measured here" if entry["here"] else "record, not measured here"
    kind = "here" if entry["here"] else "record"
    file = f"; {entry['file']}" if entry["file"] else ""
    words = (
        f"{entry['device']}, sluice {entry['version']}, commit {entry['commit']}, "
        f"{entry['date']}{file}; {entry['command']}"
    )
    return f'<p class="source {kind}"><b>{where}</b> {html.escape(words)}</p>'


def facts(entries: dict[str, Cell]) -> str:
    """Numbers to see first."""
    inner = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(text(value))}</dd></div>"
        for name, value in entries.items()
    )
    return f'<dl class="facts">{inner}</dl>'


def note(words: str) -> str:
    """A remark on what is missing or how to read it."""
    return f'<p class="note">{html.escape(words)}</p>'


def document(title: str, lead: str, sections: list[tuple[str, str, str]]) -> str:
    """The page: sections are (id, heading, content)."""
    style = importlib.resources.files(__package__).joinpath("page.css").read_text("ascii")
    links = "".join(
        f'<li><a href="#{ident}">{html.escape(heading)}</a></li>' for ident, heading, _ in sections
    )
    body = "".join(
        f'<section aria-labelledby="{ident}"><h2 id="{ident}">{html.escape(heading)}</h2>'
        f"{content}</section>"
        for ident, heading, content in sections
    )
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{style}</style></head><body><main>"
        f"<header><h1>{html.escape(title)}</h1>{lead}</header>"
        f'<nav aria-label="Sections"><ul>{links}</ul></nav>{body}'
        "<footer>Made by <code>python -m sluice report</code>. The same numbers are in the JSON file "
        "beside this page.</footer></main></body></html>\n"
    )
