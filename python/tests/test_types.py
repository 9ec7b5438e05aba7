# SPDX-License-Identifier: Apache-2.0
"""Measures that the annotations of the wheel's packages hold: the packages themselves, and a caller's
program whose wrong lines must be found. Runs mypy, where it is installed, with the tree's settings."""

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("mypy", reason="mypy is not installed")
SETTINGS = pathlib.Path(__file__).parents[2] / "pyproject.toml"

CALLER = """
import numpy as np
import sluice
from sluice_tools.cases import verify
x = np.zeros((1, 2, 2, 4), np.float32)
o, state = sluice.chunk_gated_delta_rule(x, x, x, output_final_state=True)
reveal_type(o)
o.mean()
sluice.chunk_gated_delta_rule(x, x, x, scale="no")  # wrong
sluice.chunk_gated_delta_rule(x, x)  # wrong
sluice.ops.recurrent_step(x, x, x, frobnicate=1)  # wrong
sluice.gated_rms_norm(x, x, 3)  # wrong
state.mean()  # wrong: it may be None
report = verify("file", filter="a")
report.passed
report.pased  # wrong
"""


def mypy(folder, *arguments):
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(folder / "cache"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_package(tmp_path):
    if not SETTINGS.exists():
        pytest.skip("tests are not in the source tree")
    done = mypy(tmp_path, "--config-file", str(SETTINGS))
    assert done.returncode == 0, done.stdout


def test_a_caller(tmp_path):
    (tmp_path / "caller.py").write_text(CALLER)
    done = mypy(tmp_path, "caller.py")
    found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    lines = enumerate(CALLER.splitlines(), 1)
    assert found == {number for number, line in lines if "# wrong" in line}, done.stdout
    assert 'Revealed type is "numpy.ndarray' in done.stdout
