#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prepares the pages for mkdocs, and checks what it made of them.

    site.py prepare FOLDER [TREE]  copies docs/ and README.md (as index.md) there, with mkdocs.yml beside them
    site.py versions SITE          lists the versions that SITE has a folder of, and leads to the newest one
    site.py check SITE             every link of every page leads to a file and, with #, to an anchor

Links to files outside docs/ (sources, examples) become names: the site has pages alone. A version's pages
lie in a folder of its own, SITE/VERSION; the selector on each page reads SITE/versions.json. TREE: a
checkout of another commit, whose pages are taken.
"""

import html.parser
import json
import pathlib
import re
import shutil
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[1]
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
NAVIGATION = [
    ("Begin", ["install", "support", "troubleshooting", "environment", "performance"]),
    ("Use", ["python", "training", "api", "gpu-from-c", "rust", "ops", "stages"]),
    ("Engines", ["engines/README", "engines/vllm", "engines/sglang", "engines/transformers", "engines/fla",
                 "engines/ggml", "engines/flashinfer", "engines/causal_conv1d", "engines/sgl_npu"]),
    ("Understand", ["math", "glossary", "architecture", "kernels/README"]),
    ("Check", ["benchmarks", "report", "requirements", "conformance", "case-format", "first_use"]),
    ("Change", ["ci", "dependencies"]),
]
CONFIGURATION = """site_name: Sluice
site_description: Gated linear attention for CPUs and GPUs
docs_dir: pages
site_dir: {site}
use_directory_urls: false
theme:
  name: material
  font: false
  palette:
    - media: "(prefers-color-scheme: light)"
      scheme: default
      primary: blue grey
      toggle: {{icon: material/weather-night, name: Dark}}
    - media: "(prefers-color-scheme: dark)"
      scheme: slate
      primary: blue grey
      toggle: {{icon: material/weather-sunny, name: Light}}
  features: [navigation.sections, navigation.top, search.highlight, content.code.copy]
extra_css: [extra.css]
plugins: [search]
markdown_extensions:
  - tables
  - toc: {{permalink: true}}
  - pymdownx.highlight
  - pymdownx.superfences
nav:
  - Sluice: index.md
{navigation}
validation: {{omitted_files: ignore, links: {{anchors: warn}}}}
extra:
  version: {{provider: mike}}
"""
# Headings that can be read, dense tables without empty heads, names in one piece, room for wide tables.
STYLE = """.md-grid { max-width: 72rem; }
.md-typeset h1 { color: inherit; font-weight: 600; margin-bottom: 1rem; }
.md-typeset h2 { font-weight: 600; }
.md-typeset table:not([class]) th, .md-typeset table:not([class]) td { min-width: 0; padding: .5em .9em; }
.md-typeset table:not([class]) thead:not(:has(th:not(:empty))) { display: none; }
.md-typeset td code { word-break: normal; overflow-wrap: normal; }
"""
FIRST = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Sluice</title>
<meta http-equiv="refresh" content="0; url={newest}/index.html"><a href="{newest}/index.html">Sluice {newest}</a></html>
"""


def version(tree):
    return re.search(r"project\(sluice VERSION ([0-9.]+)", (tree / "CMakeLists.txt").read_text())[1]


def rewritten(text, page):
    """The text with links that stay inside docs/, seen from `page`, a path of the repository."""
    def link(found):
        mark, label, target = found.groups()
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        name, _, anchor = target.partition("#")
        path = pathlib.PurePosixPath(page).parent / name
        parts = []
        for part in path.parts:
            parts = parts[:-1] if part == ".." else [*parts, part]
        inside = parts[:1] == ["docs"] and parts[-1].endswith((".md", ".svg", ".png"))
        if not inside:
            return f"`{label.strip('`')}`" if not mark else ""
        # The index lies where docs/ does.
        base = pathlib.PurePosixPath("docs") if page == "README.md" else pathlib.PurePosixPath(page).parent
        up = [".."] * (len(base.parts) - 1)
        relative = pathlib.PurePosixPath(*up, *parts[1:])
        return f"{mark}[{label}]({relative}{'#' + anchor if anchor else ''})"

    return LINK.sub(link, text)


def prepare(folder, tree):
    pages, number = folder / "pages", version(tree)
    shutil.rmtree(pages, ignore_errors=True)
    shutil.rmtree(folder / "site" / number, ignore_errors=True)
    shutil.copytree(tree / "docs", pages, ignore=shutil.ignore_patterns("*.tsv", "*.json"))
    for path in pages.rglob("*.md"):
        name = (pathlib.Path("docs") / path.relative_to(pages)).as_posix()
        path.write_text(rewritten(path.read_text(), name))
    (pages / "index.md").write_text(rewritten((tree / "README.md").read_text(), "README.md"))
    (pages / "extra.css").write_text(STYLE)
    lines = []
    for heading, names in NAVIGATION:
        there = [name for name in names if (pages / f"{name}.md").exists()]
        lines += [f"  - {heading}:"] + [f"    - {name}.md" for name in there]
    text = CONFIGURATION.format(site=folder / "site" / number, navigation="\n".join(lines))
    (folder / "mkdocs.yml").write_text(text)


def list_versions(site):
    """Newest first; the selector shows what versions.json has."""
    found = [path.parent.name for path in site.glob("[0-9]*/index.html")]
    found.sort(key=lambda name: [int(part) for part in name.split(".")], reverse=True)
    entries = [{"version": name, "title": name, "aliases": ["latest"] if name == found[0] else []} for name in found]
    (site / "versions.json").write_text(json.dumps(entries) + "\n")
    (site / "index.html").write_text(FIRST.format(newest=found[0]))


class Page(html.parser.HTMLParser):
    """Links and anchors of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors |= {value for key, value in found.items() if key in ("id", "name") and value}
        for key in ("href", "src"):
            if found.get(key):
                self.links.append(found[key])


def findings(site):
    read = {path: Page(path.read_text(errors="replace")) for path in site.rglob("*.html")}
    for path, page in sorted(read.items()):
        if path.name == "404.html":
            continue
        for link in page.links:
            target, _, anchor = urllib.parse.unquote(link).partition("#")
            if re.match(r"[a-z]+:|//", target):
                continue
            other = (path.parent / target.partition("?")[0]).resolve() if target else path
            other = other / "index.html" if other.is_dir() else other
            if not other.exists():
                yield f"{path.relative_to(site)}: no file {link}"
            elif anchor and other in read and anchor not in read[other].anchors and anchor != "__skip":
                yield f"{path.relative_to(site)}: no anchor {link}"


def main():
    command, folder = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    if command == "prepare":
        prepare(folder, pathlib.Path(sys.argv[3]).resolve() if len(sys.argv) > 3 else ROOT)
        return 0
    if command == "versions":
        list_versions(folder)
        return 0
    found = sorted(set(findings(folder)))
    print("\n".join(found) if found else f"links of {len(list(folder.rglob('*.html')))} pages lead somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
