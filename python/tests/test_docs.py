# SPDX-License-Identifier: Apache-2.0
"""Measures that the snippets of README.md and docs/python.md run: all Python blocks of a page in
order, as one program."""

import pathlib
import re

import pytest


@pytest.mark.parametrize("name, least", [("README.md", 1), ("docs/python.md", 6)])
def test_snippets(name, least):
    page = pathlib.Path(__file__).parents[2] / name
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M)
    assert len(blocks) >= least
    exec(compile("\n".join(blocks), str(page), "exec"), {})
