# SPDX-License-Identifier: Apache-2.0
"""Measures that the snippets of README.md and docs/python.md run: all Python blocks of a page in
order, as one program; blocks that are regions of an example script run there (test_examples.py). The
examples in docstrings run too."""

import doctest
import inspect
import pathlib
import re

import numpy as np
import pytest
import sluice


@pytest.mark.parametrize("name, least", [("README.md", 1), ("docs/python.md", 6), ("docs/training.md", 1)])
def test_snippets(name, least):
    root = pathlib.Path(__file__).parents[2]
    page = root / name
    examples = [script.read_text() for script in (root / "examples/python").glob("*.py")]
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M)
    blocks = [block for block in blocks if not any(block in script for script in examples)]
    assert len(blocks) >= least
    if any("import torch" in block for block in blocks):
        pytest.importorskip("torch")
    exec(compile("\n".join(blocks), str(page), "exec"), {})


def test_every_function_has_an_example_that_runs():
    functions = [f for name in sluice.__all__ if inspect.isfunction(f := getattr(sluice, name))]
    runner = doctest.DocTestRunner(optionflags=doctest.FAIL_FAST)
    for function in functions:
        examples = doctest.DocTestFinder().find(function, globs={"np": np, "sluice": sluice})
        assert any(example.examples for example in examples), function.__name__
        for example in examples:
            runner.run(example)
    assert runner.failures == 0
