# SPDX-License-Identifier: Apache-2.0
"""Runs benchmarks/host_time.py and benchmarks/host_time_peers.py for a moment on the CPU: what their records hold,
and that a peer that is not here or refuses is a row with its error."""

import json
import subprocess
import sys

import pytest
from conftest import BENCHMARKS

pytest.importorskip("torch", reason="torch is not installed: its tests are skipped")
if not BENCHMARKS.exists():
    pytest.skip("tests are not in the source tree", allow_module_level=True)


def run(script, *options):
    command = [sys.executable, str(BENCHMARKS / f"{script}.py"), *options]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=240).stdout


def record_of(script, out, *options):
    run(script, *options, "--commit", "none", "--out", str(out))
    record = json.loads(out.read_text())
    assert record["schema"] == f"sluice.bench.{script}/1" and record["commit"] == "none"
    return record["rows"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return record_of("host_time", tmp_path_factory.mktemp("host") / "record.json", "--calls", "2", "--rounds", "3")


@pytest.fixture(scope="module")
def peers(tmp_path_factory):
    options = ["--device", "cpu", "--calls", "2", "--rounds", "3", "--heads", "1"]
    return record_of("host_time_peers", tmp_path_factory.mktemp("peers") / "record.json", *options)


def test_rows_have_times_and_a_unit(rows):
    for row in rows:
        assert 0 < row["us_min"] <= row["us"] and row["over_add"] > 0 and row["add_us"] > 0


def test_every_kind_of_call_is_there(rows):
    named = {(row["mode"], row["name"].partition(":")[0]) for row in rows}
    for mode in ("inference", "grad"):
        assert {(mode, kind) for kind in ("prefill", "key-wise", "step", "layer")} <= named
    assert {("grad", "recorded"), ("grad", "backward"), ("numpy", "step")} <= named


def test_every_library_has_rows_and_sluices_have_times(peers):
    assert {row["peer"] for row in peers} == {"Sluice", "FLA", "FlashInfer", "cuDNN"}
    ours = [row for row in peers if row["peer"] == "Sluice"]
    test_rows_have_times_and_a_unit(ours)
    assert len(ours) == 7
    assert all(row["differs"] == 0 and row["first_s"] >= 0 and row["heads"] == 1 for row in ours)


def test_a_peer_that_refuses_is_named_with_its_error(peers):
    for row in peers:
        if row["peer"] == "FlashInfer":  # needs a GPU wherever it is installed
            assert "us" not in row and ":" in row["error"] and row["refused"] == {"1": row["error"]}


def test_rows_that_the_time_leaves_out_say_so(tmp_path):
    options = ["--device", "cpu", "--calls", "1", "--rounds", "2", "--only", "GDN prefill: Sluice", "--seconds", "0"]
    (row,) = record_of("host_time_peers", tmp_path / "record.json", *options)
    assert row["error"] == "not begun: the time was over" and row["peer"] == "Sluice"


@pytest.mark.parametrize("script, device", [("host_time", "cuda"), ("host_time_peers", "cpu")])
def test_help_has_examples(script, device):
    told = run(script, "--help")
    assert "examples:" in told and f"--device {device}" in told
