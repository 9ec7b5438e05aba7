#!/usr/bin/env python3
"""Checks the pages: links lead somewhere, lines and kernel pages keep their length, and a kernel page has its six
sections and names no commit (that is for docs/lab). Exits 1 on a finding."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAX_LINE = 160  # outside tables, code and links that cannot be broken; docs/ops.md is generated
MAX_PAGE = 150  # a kernel page is read aloud in ten minutes
SECTIONS = ["The problem", "The floor", "The idea", "The picture", "Result", "Limits"]
NOTES = {"racecheck.md", "README.md"}  # beside the kernel pages
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
COMMIT = re.compile(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{7,40}\b")


def pages() -> list[pathlib.Path]:
    found = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "*.md"],
                           capture_output=True, text=True).stdout.split()
    return [ROOT / name for name in found if (ROOT / name).exists()] or sorted((ROOT / "docs").rglob("*.md"))


def anchors(text: str) -> set[str]:
    """Anchors of a page's headings, as code hosts make them."""
    headings = re.findall(r"^#+ +(.+?) *$", text, re.M)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", h).lower() for h in headings]
    return {re.sub(r"[^\w\- ]", "", h).replace(" ", "-") for h in plain}


def check_links(path: pathlib.Path, text: str) -> list[str]:
    findings = []
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        other = (path.parent / name).resolve() if name else path
        if not other.exists():
            findings.append(f"{path.relative_to(ROOT)}: no file {target}")
        elif anchor and other.suffix == ".md" and anchor not in anchors(other.read_text()):
            findings.append(f"{path.relative_to(ROOT)}: no heading {target}")
    return findings


def check_lines(path: pathlib.Path, text: str) -> list[str]:
    plain = re.sub(r"^```.*?^```$", lambda block: "\n" * block.group().count("\n"), text, flags=re.S | re.M)
    return [f"{path.relative_to(ROOT)}:{number}: {len(line)} characters, at most {MAX_LINE}"
            for number, line in enumerate(plain.splitlines(), 1)
            if len(line) > MAX_LINE and not line.startswith("|") and " " in LINK.sub("", line)]


def check_kernel_page(path: pathlib.Path, text: str) -> list[str]:
    name = str(path.relative_to(ROOT))
    findings = []
    if text.count("\n") > MAX_PAGE:
        findings.append(f"{name}: {text.count(chr(10))} lines, at most {MAX_PAGE}")
    headings = re.findall(r"^## +(.+)$", text, re.M)
    findings += [f"{name}: no section '{section}'" for section in SECTIONS
                 if not any(h.startswith(section) for h in headings)]
    return findings + [f"{name}: names commit {commit}; docs/lab is for that" for commit in COMMIT.findall(text)]


def main() -> int:
    findings = []
    for path in pages():
        text = path.read_text()
        findings += check_links(path, text)
        if path.is_relative_to(ROOT / "docs") and path.name != "ops.md":
            findings += check_lines(path, text)
        if path.parent == ROOT / "docs/kernels" and path.name not in NOTES:
            findings += check_kernel_page(path, text)
    print("\n".join(findings) if findings else "pages are in order")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
