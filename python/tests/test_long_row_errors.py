# SPDX-License-Identifier: Apache-2.0
"""Measures benchmarks/long_row_errors.py on short rows of a CPU: ours is near, a rival that drops a state is seen under
slow gates, and one that fails says so."""

import json
import os

import pytest
from conftest import benchmark

torch = pytest.importorskip("torch")
script = benchmark("long_row_errors")


def drops_a_state(*inputs):
    half = inputs[0].shape[1] // 2
    first, _ = script.ours(*(x[:, :half] for x in inputs))
    second, state = script.ours(*(x[:, half:] for x in inputs))
    return torch.cat([first, second], dim=1), state


def fails(*_):
    raise RuntimeError("no kernel image")


def test_errors_of_both_are_those_of_the_heads_compared():
    contenders = {"sluice": script.ours, "drops": drops_a_state, "fails": fails}
    row = script.measure(256, (1, 2), "slow", "cpu", contenders, 2)
    assert row["heads"] == [0, 1] and row["kernel"].startswith("cpu.chunk_forward")
    near, far = row["errors"]["sluice"], row["errors"]["drops"]
    assert near["o"]["relative_l2"] < 1e-2 and near["state"]["relative_l2"] < 1e-2
    assert far["o"]["relative_l2"] > 0.1 and far["state"]["max_abs"] > 10 * near["state"]["max_abs"]
    assert row["errors"]["fails"] == {"failed": "RuntimeError: no kernel image"}
    assert len(script.text(row).splitlines()) == 3


def test_grouped_heads_read_their_key_heads():
    tensors = script.inputs(64, (2, 6), "easy", "cpu")
    found = script.errors(script.ours(*tensors), script.truth(tensors, (2, 6), [0, 5]), [0, 5])
    assert found["o"]["relative_l2"] < 1e-2 and found["state"]["relative_l2"] < 1e-2


def test_record(tmp_path, capsys):
    out = tmp_path / "errors.json"
    arguments = ["--rows", "65x1/2", "--gates", "easy", "--device", "cpu", "--rival", "none", "--out", str(out)]
    assert script.main(arguments) == 0
    [row] = json.loads(out.read_text())["rows"]
    assert row["tokens"] == 65 and set(row["errors"]) == {"sluice"}
    assert "sluice" in capsys.readouterr().out


def test_a_rival_that_is_not_here_is_a_row_that_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("FLA_FLASH_QLA", "1")
    monkeypatch.setitem(script.RIVALS, "flashqla", ("a_package_that_is_not_here", "rule"))
    out = tmp_path / "errors.json"
    script.main(["--rows", "65x1/1", "--device", "cpu", "--rival", "flashqla", "--out", str(out)])
    rows = json.loads(out.read_text())["rows"]
    assert [row["gates"] for row in rows] == ["easy", "slow"]
    for row in rows:
        assert row["errors"]["flashqla"]["failed"].startswith("ModuleNotFoundError")
        assert row["errors"]["sluice"]["o"]["relative_l2"] < 1e-2
    # FLA would hand its calls to FlashQLA, and one rival's errors would stand for both.
    assert os.environ["FLA_FLASH_QLA"] == "0"


def test_gates_differ_and_share_the_other_inputs():
    easy, slow = (script.inputs(32, (1, 2), gates, "cpu") for gates in ("easy", "slow"))
    for i in (0, 1, 2, 4):
        assert torch.equal(easy[i], slow[i])
    assert easy[3].min() < -0.5 and -0.002 <= slow[3].min() < 0


def test_an_unknown_rival_is_refused(capsys):
    with pytest.raises(SystemExit):
        script.main(["--rows", "65x1/1", "--device", "cpu", "--rival", "fla,none,other"])
    assert "other is none of fla, flashqla, transformers" in capsys.readouterr().err
