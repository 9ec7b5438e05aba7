# SPDX-License-Identifier: Apache-2.0
"""Measures benchmarks of calls, on a CPU. backward_peers.py with stand-ins of the peers and the clock: a
peer's wrong gradient is seen, one that is not here or refuses says why, and FLA is kept from handing its call to
FlashQLA. long_row_errors.py on short rows: ours is near, a rival that drops a state is seen under slow gates. And
host_time.py and host_time_peers.py for a moment: what their records hold."""

import importlib
import json
import os
import subprocess
import sys
import types

import pytest
from conftest import BENCHMARKS, benchmark

torch = pytest.importorskip("torch")
long_rows = benchmark("long_row_errors")
SHAPE = "2x70x1x2"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.setenv("FLA_FLASH_QLA", "1")
    module = benchmark("backward_peers")

    def at_once(rule, inputs, options, d_o):
        o = rule(*inputs, **options)[0]
        return None, torch.autograd.grad(o, inputs, d_o), o

    monkeypatch.setattr(module, "backward_graph", at_once)
    monkeypatch.setattr(module, "backward_queued", at_once)
    monkeypatch.setattr(module, "graph_or_queued", lambda call: call())
    monkeypatch.setattr(module, "milliseconds_of_graphs", lambda graphs: [2.0 + i for i in range(len(graphs))])
    with torch.enable_grad():
        yield module


def wrong_in_v(script):
    def rule(q, k, v, g, beta, **options):
        return script.our_rule(q, k, 2 * v, g, beta, **options)

    return rule


def refuses(*_, **__):
    raise RuntimeError("no such head size")


def test_differences_of_every_gradient_and_times_of_ours(script):
    peers = {"fla": script.our_rule, "flashqla": wrong_in_v(script)}
    row = script.row(SHAPE, peers, "cpu")
    same, wrong = row["peers"]["fla"], row["peers"]["flashqla"]
    assert set(same["difference"]) == set(script.NAMES) and max(same["difference"].values()) == 0
    assert wrong["difference"]["v"] == pytest.approx(0.5, abs=1e-3)
    assert row["difference_of_peers"] == {"fla from flashqla": wrong["difference"]}
    assert (row["ms"], same["ms"], wrong["times_ours"]) == (2.0, 3.0, 2.0)
    assert row["timed"] == same["timed"] == "graph" and "not_captured" not in same
    assert len(script.shown(row).splitlines()) == 4


def test_a_peer_that_refuses_says_why_and_the_other_is_measured(script):
    row = script.row(SHAPE, {"fla": refuses, "flashqla": script.our_rule}, "cpu")
    assert row["peers"]["fla"] == {"failure": "RuntimeError: no such head size"}
    assert row["peers"]["flashqla"]["ms"] == 3.0 and row["difference_of_peers"] == {}
    assert "no such head size" in script.shown(row)


def test_what_cannot_be_captured_is_queued_and_says_why(script, monkeypatch):
    def refuse(*_):
        raise RuntimeError("not while capturing")

    monkeypatch.setattr(script, "backward_graph", refuse)
    entry = script.row(SHAPE, {"fla": script.our_rule}, "cpu")["peers"]["fla"]
    assert entry["not_captured"] == "RuntimeError: not while capturing" and entry["difference"]["q"] == 0


def test_fla_keeps_its_own_kernels(script, monkeypatch):
    def rule(q):
        return q, os.environ["FLA_FLASH_QLA"]

    for name in ("fla", "fla.ops", "fla.ops.gated_delta_rule"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    importlib.import_module("fla.ops.gated_delta_rule").chunk_gated_delta_rule = rule
    assert script.rule_of("fla")(1) == (1, "0")


def test_record(script, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "none")
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(script, "compile_at_once", lambda: None)
    monkeypatch.setattr(script.problem, "__defaults__", ("cpu",))
    monkeypatch.setattr(script.row, "__defaults__", ("cpu",))
    monkeypatch.setitem(script.PEERS, "flashqla", "a_package_that_is_not_here")
    out = tmp_path / "backward.json"
    script.main(["--shapes", f"{SHAPE},1x8x3x4", "--peers", "flashqla", "--commit", "abc", "--out", str(out)])
    record = json.loads(out.read_text())
    assert record["commit"] == "abc" and record["switches"] == {"FLA_FLASH_QLA": "0"}
    first, second = record["rows"]
    assert first["peers"]["flashqla"]["failure"].startswith("ModuleNotFoundError")
    assert "failure" in second and second["shape"] == "1x8x3x4"
    assert "ModuleNotFoundError" in capsys.readouterr().out


def drops_a_state(*inputs):
    half = inputs[0].shape[1] // 2
    first, _ = long_rows.ours(*(x[:, :half] for x in inputs))
    second, state = long_rows.ours(*(x[:, half:] for x in inputs))
    return torch.cat([first, second], dim=1), state


def test_errors_of_both_are_those_of_the_heads_compared():
    contenders = {"sluice": long_rows.ours, "drops": drops_a_state, "fails": refuses}
    row = long_rows.measure(256, (1, 2), "slow", "cpu", contenders, 2)
    assert row["heads"] == [0, 1] and row["kernel"].startswith("cpu.chunk_forward")
    near, far = row["errors"]["sluice"], row["errors"]["drops"]
    assert near["o"]["relative_l2"] < 1e-2 and near["state"]["relative_l2"] < 1e-2
    assert far["o"]["relative_l2"] > 0.1 and far["state"]["max_abs"] > 10 * near["state"]["max_abs"]
    assert row["errors"]["fails"] == {"failed": "RuntimeError: no such head size"}
    assert len(long_rows.text(row).splitlines()) == 3


def test_grouped_heads_read_their_key_heads():
    tensors = long_rows.inputs(64, (2, 6), "easy", "cpu")
    found = long_rows.errors(long_rows.ours(*tensors), long_rows.truth(tensors, (2, 6), [0, 5]), [0, 5])
    assert found["o"]["relative_l2"] < 1e-2 and found["state"]["relative_l2"] < 1e-2


def test_record_of_long_rows(tmp_path, capsys):
    out = tmp_path / "errors.json"
    arguments = ["--rows", "65x1/2", "--gates", "easy", "--device", "cpu", "--rival", "none", "--out", str(out)]
    assert long_rows.main(arguments) == 0
    [row] = json.loads(out.read_text())["rows"]
    assert row["tokens"] == 65 and set(row["errors"]) == {"sluice"}
    assert "sluice" in capsys.readouterr().out


def test_a_rival_that_is_not_here_is_a_row_that_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("FLA_FLASH_QLA", "1")
    monkeypatch.setitem(long_rows.RIVALS, "flashqla", ("a_package_that_is_not_here", "rule"))
    out = tmp_path / "errors.json"
    long_rows.main(["--rows", "65x1/1", "--device", "cpu", "--rival", "flashqla", "--out", str(out)])
    rows = json.loads(out.read_text())["rows"]
    assert [row["gates"] for row in rows] == ["easy", "slow"]
    for row in rows:
        assert row["errors"]["flashqla"]["failed"].startswith("ModuleNotFoundError")
        assert row["errors"]["sluice"]["o"]["relative_l2"] < 1e-2
    # FLA would hand its calls to FlashQLA, and one rival's errors would stand for both.
    assert os.environ["FLA_FLASH_QLA"] == "0"


def test_gates_differ_and_share_the_other_inputs():
    easy, slow = (long_rows.inputs(32, (1, 2), gates, "cpu") for gates in ("easy", "slow"))
    for i in (0, 1, 2, 4):
        assert torch.equal(easy[i], slow[i])
    assert easy[3].min() < -0.5 and -0.002 <= slow[3].min() < 0


def test_an_unknown_rival_is_refused(capsys):
    with pytest.raises(SystemExit):
        long_rows.main(["--rows", "65x1/1", "--device", "cpu", "--rival", "fla,none,other"])
    assert "other is none of fla, flashqla, transformers" in capsys.readouterr().err


def run(name, *options):
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), *options]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=240).stdout


def record_of(name, out, *options):
    run(name, *options, "--commit", "none", "--out", str(out))
    record = json.loads(out.read_text())
    assert record["schema"] == f"sluice.bench.{name}/1" and record["commit"] == "none"
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


@pytest.mark.parametrize("name, device", [("host_time", "cuda"), ("host_time_peers", "cpu")])
def test_help_has_examples(name, device):
    told = run(name, "--help")
    assert "examples:" in told and f"--device {device}" in told
