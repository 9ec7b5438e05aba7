# SPDX-License-Identifier: Apache-2.0
"""Measures that the example scripts run and say what they should, each in a process of its own, from another folder;
and that the snippets of README.md and pages of docs/ run: all Python blocks of a page in order, as one program, but for
those that are regions of an example script. The examples in docstrings run too."""

import doctest
import importlib.util
import inspect
import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import sluice

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = ROOT / "examples/python"
if not EXAMPLES.exists():
    pytest.skip("tests are not in the source tree", allow_module_level=True)


def run(name, folder, *options):
    command = [sys.executable, str(EXAMPLES / name), *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_prefill_and_decode(tmp_path):
    assert "from the prefill's, on cpu.recurrent_step" in run("prefill_decode.py", tmp_path)


def test_transformers(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    assert run("transformers_generate.py", tmp_path).startswith("same tokens: True, ran {'layer': ")


def test_training(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    losses = [float(line.split()[-1]) for line in run("train_tiny.py", tmp_path).splitlines()]
    assert losses[-1] < 0.7 * losses[0], losses


def test_context_parallel(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    lines = run("context_parallel.py", tmp_path).splitlines()
    assert len(lines) == 4 and lines[-1] == "equal: True", lines


def test_training_of_a_model_of_transformers(tmp_path):
    """A toy run: both backends from the same seed have the same curve; the record is drawn."""
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    if importlib.util.find_spec("fla") is not None:
        pytest.skip("with fla installed, transformers' own path needs a GPU")
    options = ["--steps", "5", "--tokens", "128", "--layers", "2", "--seeds", "1", "--threads", "1"]
    answer = run("train_qwen3_next.py", tmp_path, *options, "--json", "record.json", "--svg", "losses.svg")
    record = json.loads((tmp_path / "record.json").read_text())
    losses = {row["backend"]: row["losses"] for row in record["runs"]}
    assert losses["sluice"][-1] < losses["sluice"][0] - 0.3
    assert record["summary"]["largest_distance_of_backends"] < 1e-3, losses
    assert not any(row["handed_back"] for row in record["runs"])
    assert record["runs"][0]["ran"] == {"layer": 10} and record["command"].endswith("--svg losses.svg")
    assert "curves apart at most" in answer
    drawn = (tmp_path / "losses.svg").read_text()
    assert drawn.count("<path") == 4 and "prefers-color-scheme: dark" in drawn
    assert run("train_qwen3_next.py", tmp_path, "--from", "record.json") == answer


def test_all_runs_at_once(tmp_path):
    """A backend may run one seed alone; a run ends at its last second where that comes before its last step."""
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    if importlib.util.find_spec("fla") is not None:
        pytest.skip("with fla installed, transformers' own path needs a GPU")
    options = ["--steps", "1000000", "--seconds", "0.3", "--tokens", "64", "--longest", "20", "--layers", "1"]
    options += ["--threads", "1", "--together", "--once", "torch"]
    run("train_qwen3_next.py", tmp_path, *options, "--json", "record.json")
    record = json.loads((tmp_path / "record.json").read_text())
    losses = {(row["backend"], row["seed"]): row["losses"] for row in record["runs"]}
    assert list(losses) == [("sluice", 1), ("torch", 1), ("sluice", 2)]
    assert all(0 < len(steps) < 1000000 for steps in losses.values())
    assert losses["sluice", 1][0] == pytest.approx(losses["torch", 1][0], abs=1e-4) != losses["sluice", 2][0]
    assert all(row["median_step_s"] > 0 for row in record["runs"])


@pytest.mark.parametrize("name, least", [("README.md", 1), ("docs/python.md", 6), ("docs/training.md", 1)])
def test_snippets(name, least):
    page = ROOT / name
    examples = [script.read_text() for script in EXAMPLES.glob("*.py")]
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
