# SPDX-License-Identifier: Apache-2.0
"""Runs benchmarks/host_time.py for a moment: that every row works, and what its record holds."""

import json
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="torch is not installed: its tests are skipped")
SCRIPT = pathlib.Path(__file__).parents[2] / "benchmarks/host_time.py"


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    if not SCRIPT.exists():
        pytest.skip("tests are not in the source tree")
    out = tmp_path_factory.mktemp("host") / "host_time.json"
    options = ["--calls", "2", "--rounds", "3", "--commit", "none", "--out", str(out)]
    subprocess.run([sys.executable, str(SCRIPT), *options], check=True, capture_output=True, timeout=240)
    return json.loads(out.read_text())


def test_rows_have_times_and_a_unit(record):
    assert record["schema"] == "sluice.bench.host_time/1" and record["commit"] == "none"
    for row in record["rows"]:
        assert 0 < row["us_min"] <= row["us"] and row["over_add"] > 0 and row["add_us"] > 0


def test_every_kind_of_call_is_there(record):
    named = {(row["mode"], row["name"].partition(":")[0]) for row in record["rows"]}
    for mode in ("inference", "grad"):
        assert {(mode, kind) for kind in ("prefill", "key-wise", "step", "layer")} <= named
    assert {("grad", "recorded"), ("grad", "backward"), ("numpy", "step")} <= named


def test_help_has_examples():
    if not SCRIPT.exists():
        pytest.skip("tests are not in the source tree")
    told = subprocess.run([sys.executable, str(SCRIPT), "--help"], check=True, capture_output=True, text=True)
    assert "examples:" in told.stdout and "--device cuda" in told.stdout
