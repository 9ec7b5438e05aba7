# SPDX-License-Identifier: Apache-2.0
"""Measures whether docs/engines says what is so: each page has its facts, versions are the recorded ones, log lines
are in the code that prints them, commands and snippets name what exists. Needs no engine and no GPU."""

import ast
import importlib
import os
import pathlib
import re
import shlex
import subprocess

import pytest
from record_signatures import recorded

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGES = ROOT / "docs/engines"
if not PAGES.exists():
    pytest.skip("tests are not in the source tree", allow_module_level=True)
NAMES = sorted(path.stem for path in PAGES.glob("*.md") if path.stem != "README")
RECORDED = recorded()
FACTS = ("versions", "log lines that prove it", "handed back", "off", "ran inside")
# Programs of others that a reader has.
THEIRS = {"pip", "g++", "vllm", "kill"}


def page(name):
    return (PAGES / f"{name}.md").read_text()


def blocks(name, language):
    """The fenced blocks of a language; "" are commands."""
    parts = re.split(r"^```(.*)\n", page(name), flags=re.M)
    return [text for mark, text in zip(parts[1::4], parts[2::4]) if mark == language]


def namespace(name):
    return importlib.import_module(f"sluice.engines.{name}")


def rows(name):
    return dict(re.findall(r"^\| ([^|`]+?) \| (.+) \|$", page(name), re.M))


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_its_facts(name):
    found = rows(name)
    for fact in FACTS:
        assert [key for key in found if key.startswith(fact)], f"{name}.md has no row '{fact}'"


@pytest.mark.parametrize("name", [name for name in NAMES if name in RECORDED])
def test_versions_are_the_recorded_ones(name):
    assert RECORDED[name]["version"].removesuffix(".post1") in rows(name)["versions"]
    for other in (key for key in RECORDED if key.startswith(f"{name}.v")):
        assert RECORDED[other]["version"] in rows(name)["versions"]


@pytest.mark.parametrize("name", [name for name in NAMES if name in RECORDED])
def test_every_function_of_a_namespace_is_on_its_page(name):
    missing = [function for function in RECORDED[name]["functions"] if f"`{function}`" not in page(name)]
    assert not missing
    for function in RECORDED[name]["functions"]:
        assert callable(getattr(namespace(name), function))


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_log_lines_are_those_of_the_code(name):
    sources = "".join(path.read_text() for path in (ROOT / "python/sluice/engines").rglob("*.py"))
    lines = re.findall(r"`([^`]+)`", rows(name)["log lines that prove it"] + rows(name)["handed back"])
    lines = [line for line in lines if not line.startswith("SLUICE_")]
    assert len(lines) == 3
    for line in lines:
        fixed = re.sub(r"^\w+\.\w+ ", "", line).replace("REASON", "").strip(". ").strip()
        assert fixed in sources, line


def commands():
    """(page, words of one command); comments and continued lines are gone."""
    for name in NAMES:
        for block in blocks(name, ""):
            for line in block.replace("\\\n", " ").splitlines():
                if line.strip():
                    yield name, shlex.split(line, comments=True)


def label(value):
    return value if isinstance(value, str) else value[0]


@pytest.mark.parametrize("name, words", list(commands()), ids=label)
def test_commands_name_what_exists(name, words):
    variables = (ROOT / "docs/environment.md").read_text()
    while re.match(r"[A-Z_]+=", words[0]):
        variable = words.pop(0).partition("=")[0]
        assert f"`{variable}`" in variables or not re.match("SLUICE|FLA_SLUICE", variable), variable
    program = words[0]
    if "/" in program and "$" not in program:
        path = ROOT / program
        assert path.exists() and os.access(path, os.X_OK), program
        options = [word for word in words[1:] if word.startswith("--")]
        text = path.read_text()
        assert all(option in text for option in options), options
        if path.suffix == ".sh":
            subprocess.run(["bash", "-n", path], check=True)
    else:
        assert program in THEIRS or words[:2] == ["python", "-m"] or program.startswith("$"), program
    for word in words:
        if re.match(r"(examples|scripts|benchmarks|docs)/", word) and "*" not in word:
            assert (ROOT / word).exists(), word


@pytest.mark.parametrize("name", NAMES)
def test_snippets_import_what_exists(name):
    for block in blocks(name, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("sluice"):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, alias.name) for alias in node.names), block
            elif isinstance(node, ast.Import):
                for alias in (alias.name for alias in node.names if alias.name.startswith("sluice")):
                    importlib.import_module(alias)
            elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith(("sluice_hf.", "sluice.engines.")):
                path = ast.unparse(node.func).replace("sluice_hf", "sluice.engines.transformers")
                owner, _, function = path.rpartition(".")
                assert callable(getattr(importlib.import_module(owner), function))
