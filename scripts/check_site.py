#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Opens every page of the built site in a browser: broken links, errors on the console, what is wider than a
phone, images that do not load, whether dark mode and the choice of versions are there.

    check_site.py SITE [--browser chromium] [--pictures FOLDER]      (needs playwright from PyPI)

A page may not scroll sideways at 375 pixels; tables and code that are wider scroll by themselves.
"""

import argparse
import contextlib
import functools
import http.server
import pathlib
import shutil
import sys
import threading

from playwright.sync_api import sync_playwright

PHONE, DESK = {"width": 375, "height": 812}, {"width": 1280, "height": 900}
PICTURED = ("index.html", "install.html", "benchmarks.html", "engines/index.html", "engines/vllm.html", "ops.html")
# What sticks out of the page although nothing around it scrolls.
OVERFLOW = """() => {
  const width = document.documentElement.clientWidth;
  const scrolls = (e) => { for (; e && e !== document.body; e = e.parentElement) {
    const how = getComputedStyle(e).overflowX; if (how !== 'visible') return true; } return false; };
  const wide = [...document.querySelectorAll('.md-main *')]
    .filter(e => e.getBoundingClientRect().right > width + 1 && !scrolls(e)).slice(0, 3)
    .map(e => e.tagName.toLowerCase() + ' "' + e.textContent.trim().slice(0, 40) + '"');
  return {scroll: document.documentElement.scrollWidth, width, wide};
}"""
IMAGES = "() => [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
LINKS = "() => [...document.querySelectorAll('a[href]')].map(a => a.href)"
COLOURS = "() => getComputedStyle(document.body).backgroundColor"


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, address):
        # A tab that is closed while it loads the search index breaks its connection.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, address)


@contextlib.contextmanager
def served(site):
    """The site at a port of this machine."""
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = Server(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


def brightness(colour):
    """0 to 255 of "rgb(r, g, b)"."""
    parts = [float(part) for part in colour[colour.index("(") + 1:-1].split(",")[:3]]
    return sum(parts) / 3


class Walk:
    """A browser, the pages of one version, and what is wrong with them."""

    def __init__(self, browser, base, site, pictures):
        self.browser, self.base, self.site, self.pictures = browser, base, site, pictures
        self.found, self.followed = [], {}

    def shoot(self, tab, page, name):
        if self.pictures and page.as_posix().endswith(PICTURED):
            tab.screenshot(path=str(self.pictures / f"{page.as_posix().replace('/', '_')}.{name}.png"))

    def follow(self, tab, page):
        """Every link to this site leads to a file, and its anchor to an element."""
        for link in set(tab.evaluate(LINKS)):
            target = link.partition("#")[0].partition("?")[0]
            if not target.startswith(self.base):
                continue
            if target not in self.followed:
                self.followed[target] = tab.request.get(target).status
            if self.followed[target] != 200:
                self.found.append(f"{page}: {link} answers {self.followed[target]}")

    def read(self, tab, page, width):
        errors = []
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.on("response", lambda answer: answer.status >= 400 and errors.append(f"{answer.url}: {answer.status}"))
        tab.goto(self.base + page.as_posix(), wait_until="load")
        self.found += [f"{page}: {error}" for error in errors]
        self.found += [f"{page}: no picture {source}" for source in tab.evaluate(IMAGES)]
        size = tab.evaluate(OVERFLOW)
        if size["scroll"] > size["width"] or size["wide"]:
            self.found.append(f"{page}: {size['scroll']} pixels wide at {width}: {', '.join(size['wide'])}")

    def pass_over(self, pages, view, scheme, name):
        """Reads all pages; returns the colours of their backgrounds."""
        context = self.browser.new_context(viewport=view, color_scheme=scheme)
        colours = set()
        for page in pages:
            tab = context.new_page()
            self.read(tab, page, view["width"])
            colours.add(tab.evaluate(COLOURS))
            self.shoot(tab, page, name)
            self.follow(tab, page)
            tab.close()
        context.close()
        return colours


def check(site, browser, pictures):
    pages = sorted(path.relative_to(site) for path in site.rglob("*.html") if path.name != "404.html")
    with served(site) as base, sync_playwright() as play:
        opened = play.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        walk = Walk(opened, base, site, pictures)
        content = [page for page in pages if len(page.parts) > 1]
        light = walk.pass_over(content, PHONE, "light", "phone")
        dark = walk.pass_over(content, DESK, "dark", "dark")
        if any(brightness(colour) < 128 for colour in light) or any(brightness(colour) > 128 for colour in dark):
            walk.found.append(f"light pages are {light}, dark ones {dark}")
        tab = opened.new_context(viewport=DESK).new_page()
        tab.goto(base, wait_until="load")
        tab.wait_for_selector(".md-version", state="attached", timeout=10000)
        walk.shoot(tab, content[0].parent / "index.html", "light")
        opened.close()
    return walk.found, len(content)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=pathlib.Path)
    parser.add_argument("--browser", default="chromium")
    parser.add_argument("--pictures", type=pathlib.Path)
    options = parser.parse_args()
    if options.pictures:
        options.pictures.mkdir(parents=True, exist_ok=True)
    found, count = check(options.site.resolve(), shutil.which(options.browser), options.pictures)
    print("\n".join(found) if found else f"{count} pages are right in a browser, on a phone and in the dark")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
