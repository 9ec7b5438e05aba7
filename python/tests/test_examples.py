# SPDX-License-Identifier: Apache-2.0
"""Measures that the example scripts run and say what README shows.
Each runs in a process of its own, from another folder."""

import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples/python"
if not EXAMPLES.exists():
    pytest.skip("tests are not in the source tree", allow_module_level=True)


def run(name, folder):
    command = [sys.executable, str(EXAMPLES / name)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_prefill_and_decode(tmp_path):
    assert "from the prefill's, on cpu.recurrent_step" in run("prefill_decode.py", tmp_path)


def test_transformers(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    answer = run("transformers_generate.py", tmp_path)
    readme = (EXAMPLES.parents[1] / "README.md").read_text()
    assert answer.startswith("same tokens: True, ran {'layer': ")
    assert answer.strip() in readme


def test_training(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    losses = [float(line.split()[-1]) for line in run("train_tiny.py", tmp_path).splitlines()]
    assert losses[-1] < 0.7 * losses[0], losses


def test_context_parallel(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    lines = run("context_parallel.py", tmp_path).splitlines()
    assert len(lines) == 4 and lines[-1] == "equal: True", lines
