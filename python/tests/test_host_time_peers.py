# SPDX-License-Identifier: Apache-2.0
"""Runs benchmarks/host_time_peers.py for a moment on the CPU: Sluice's rows have times, and a peer that is not here
or refuses is a row with its error."""

import json
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="torch is not installed: its tests are skipped")
SCRIPT = pathlib.Path(__file__).parents[2] / "benchmarks/host_time_peers.py"
PEERS = {"Sluice", "FLA", "FlashInfer", "cuDNN"}


def run(*options):
    if not SCRIPT.exists():
        pytest.skip("tests are not in the source tree")
    return subprocess.run([sys.executable, str(SCRIPT), *options], check=True, capture_output=True, text=True,
                          timeout=240)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    out = tmp_path_factory.mktemp("peers") / "record.json"
    run("--device", "cpu", "--calls", "2", "--rounds", "3", "--heads", "1", "--commit", "none", "--out", str(out))
    return json.loads(out.read_text())


def test_every_library_has_rows(record):
    assert record["schema"] == "sluice.bench.host_time_peers/1" and record["commit"] == "none"
    assert {row["peer"] for row in record["rows"]} == PEERS


def test_sluices_rows_have_times_and_a_unit(record):
    ours = [row for row in record["rows"] if row["peer"] == "Sluice"]
    assert len(ours) == 7
    for row in ours:
        assert 0 < row["us_min"] <= row["us"] and row["over_add"] > 0 and row["add_us"] > 0
        assert row["differs"] == 0 and row["first_s"] >= 0 and row["heads"] == 1


def test_a_peer_that_refuses_is_named_with_its_error(record):
    for row in record["rows"]:
        if row["peer"] == "FlashInfer":  # needs a GPU wherever it is installed
            assert "us" not in row and ":" in row["error"] and row["refused"] == {"1": row["error"]}


def test_rows_that_the_time_leaves_out_say_so(tmp_path):
    out = tmp_path / "record.json"
    run("--device", "cpu", "--calls", "1", "--rounds", "2", "--only", "GDN prefill: Sluice", "--seconds", "0", "--out",
        str(out))
    (row,) = json.loads(out.read_text())["rows"]
    assert row["error"] == "not begun: the time was over" and row["peer"] == "Sluice"


def test_help_has_examples():
    told = run("--help").stdout
    assert "examples:" in told and "--device cpu" in told
