# SPDX-License-Identifier: Apache-2.0
"""Measures `python -m sluice` and `verify`: exit statuses, what is printed, that wrong results
and broken files are found. Runs them on the tree's case files, on copies with single bytes or values
changed, and once as a process."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import sluice
from sluice_tools import cases
from sluice_tools import command as tool
from sluice_tools.cases import Case, execute, judge, read_cases, self_check_cases, verify

ROOT = pathlib.Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden/hf_prefill.safetensors"
LAYERS = [ROOT / f"examples/data/qwen3_{name}_layer.safetensors" for name in ("next", "5")]
needs_tree = pytest.mark.skipif(not GOLDEN.exists(), reason="tests are not in the source tree")


@needs_tree
@pytest.mark.parametrize("path", [GOLDEN, *LAYERS], ids=lambda path: path.stem)
def test_recorded_answers_hold(path):
    report = verify(path)
    assert report.passed, str(report)
    assert all(kernel.startswith("cpu.") for kernel in report.kernels.values())
    assert max(v.errors[0] for v in report.verdicts) < 1e-6


@needs_tree
def test_filter_and_implementation():
    report = verify(GOLDEN, filter="model.1x65", implementation="reference")
    assert report.passed and list(report.kernels.values()) == ["reference.chunk_forward"]
    assert str(report).endswith("\n1 case, 2 tensors, 0 failed")
    with pytest.raises(ValueError, match="no case's name contains 'nothing'"):
        verify(GOLDEN, filter="nothing")


def test_self_check_and_what_it_would_not_pass():
    report = cases.self_check()
    assert report.passed and len(report.kernels) == 7, str(report)
    refused = cases.self_check(implementation="cuda")
    assert not refused.passed and (refused.unsupported or "cuda" in str(refused.kernels))


@pytest.mark.parametrize("change", ["value", "head", "shift", "nan", "zeros"])
def test_wrong_results_are_found(change):
    case = next(c for c in self_check_cases() if c.name == "prefill.64")
    results, _ = execute(case, "cpu", "auto")
    o = results["o"]
    if change == "value":
        o[0, 3, 1, 5] += 0.5
    elif change == "head":
        o[:] = o[:, :, ::-1].copy()
    elif change == "shift":
        o[:, 1:] = o[:, :-1].copy()
    elif change == "nan":
        o[0, 199, 3, 63] = np.nan
    else:
        o[:] = 0
    failed = [v for v in judge(case, results) if not v.passed]
    assert [v.tensor for v in failed] == ["o"]


def write(path, header, data):
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def results_file(path, case, scale):
    """A file of results for `case`: the answers, o multiplied by `scale`."""
    header, data = {}, b""
    for tensor in case.expected():
        array = case.get(tensor) * (scale if tensor == "o" else 1)
        name = f"{case.name}.{tensor}"
        bits = array.astype("<f4").tobytes()
        span = [len(data), len(data) + len(bits)]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": span}
        data += bits
    return write(path, header, data)


@needs_tree
@pytest.mark.parametrize("scale, status", [(1.0, 0), (1.0001, 1)])
def test_somebody_elses_results(tmp_path, capsys, scale, status):
    case = next(c for c in read_cases(GOLDEN) if "1x65" in c.name)
    path = results_file(tmp_path / "results.safetensors", case, scale)
    arguments = ["verify", "--against", str(path), "--filter", case.name, str(GOLDEN)]
    assert tool.main(arguments) == status
    assert ("FAIL" in capsys.readouterr().out) == (status == 1)
    path = write(path, {}, b"")
    assert tool.main(arguments) == 1 and "FAIL: missing" in capsys.readouterr().out


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "header of 0 bytes"),
        ((1 << 40).to_bytes(8, "little") + b"{}", "expected it within the file's 10"),
        ((2).to_bytes(8, "little") + b"[]", "header = list, expected an object"),
        ((2).to_bytes(8, "little") + b"{x", "header is no JSON"),
        ((2).to_bytes(8, "little") + b"{}", "not a case file"),
    ],
)
def test_files_that_are_none(tmp_path, capsys, content, message):
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        verify(path)
    assert tool.main(["verify", str(path)]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "entry, message",
    [
        (dict(dtype="F32", shape=[2], data_offsets=[0, 4]), "expected 8 bytes within the 8"),
        (dict(dtype="F32", shape=[2], data_offsets=[4, 12]), "offsets 4 to 12"),
        (dict(dtype="F32", shape=[-2], data_offsets=[8, 0]), "offsets 8 to 0"),
        (dict(dtype="Q8", shape=[2], data_offsets=[0, 8]), "KeyError 'Q8'"),
        (dict(dtype="F32", shape="x", data_offsets=[0, 8]), "ValueError"),
        ([], "TypeError"),
    ],
)
def test_tensors_that_do_not_fit_their_file(tmp_path, entry, message):
    path = write(tmp_path / "x.safetensors", {"a": entry}, bytes(8))
    with pytest.raises(ValueError, match=message):
        verify(path)


def test_unknown_operators_are_named():
    with pytest.raises(ValueError, match="op = attention, expected one of prefill, decode"):
        execute(Case("c", {"op": "attention"}, {}), "cpu", "auto")


def test_info_and_bench(capsys):
    assert tool.main(["info"]) == 0
    assert sluice.__version__ in capsys.readouterr().out
    small = "--heads 1 --value-heads 2 --dim 16 --tokens 20 --batch 2".split()
    assert tool.main(["bench", *small]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("prefill") and "cpu.recurrent_step" in lines[2]
    assert lines[3].startswith("One such layer reads")


@pytest.mark.parametrize("command", ["doctor", "verify", "report"])
def test_commands_that_need_numpy_say_how_to_get_it(command):
    start = "import sys; sys.modules['numpy'] = None; from sluice_tools.command import main; "
    code = f"{start}sys.exit(main(['{command}']))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert told.returncode == 3
    assert told.stderr.startswith("sluice: numpy is not installed, which this command needs: ")
    assert "'sluice-gdn[numpy]'" in told.stderr and told.stdout == ""


def test_doctor_says_what_is_there_and_that_it_is_right(capsys, monkeypatch):
    monkeypatch.setenv("SLUICE_ANYTHING", "7")
    assert tool.main(["doctor"]) == 0
    page = capsys.readouterr().out
    assert "cpu " in page and "18 of 18 right" in page and "SLUICE_ANYTHING=7" in page
    assert page.endswith("Everything is right.\n")
    assert max(len(line) for line in page.splitlines() if "=" not in line) < 100


@pytest.mark.parametrize("driver, said", [
    (0, "none found"),
    (12080, "none found: the driver is for CUDA 12.8, this build needs one for CUDA 13"),
    (13010, "none found"),
])
def test_doctor_says_that_the_driver_is_for_an_older_cuda(capsys, monkeypatch, driver, said):
    found = {"cuda.devices": "0", "cuda.driver": str(driver), "cuda.runtime": "13000"}
    facts = {**sluice.info(), **found}
    monkeypatch.setattr(sluice, "info", lambda: facts)
    assert tool.main(["doctor"]) == 0
    assert f"gpu         {said}\n" in capsys.readouterr().out


def test_both_commands_take_the_same_backends():
    assert tool.main(["verify", "--backend", "reference"]) == 0
    assert tool.main(["bench", "--backend", "cpu", "--dim", "8", "--tokens", "3"]) == 0


def test_the_command_of_the_wheel_is_the_tool():
    def run(*words):
        program = "import sys; from sluice_tools.tool import main; sys.exit(main())"
        return subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)

    assert run("--version").stdout.strip().endswith(sluice.__version__)
    assert "--quick" in run("report", "--help").stdout
    wrong = run("bogus")
    assert wrong.returncode == 2 and "bogus" in wrong.stderr
    if hasattr(sluice._core, "tool"):
        assert "make-case" in run("--help").stdout
        found = run("bench", "--backend", "cpu", "--dim", "8", "--tokens", "3", "--batch", "1")
        assert found.returncode == 0 and "One such layer reads" in found.stdout


def test_as_a_process():
    command = [sys.executable, "-m", "sluice"]
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
    assert "examples:" in done.stdout and "python -m sluice verify" in done.stdout
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "COMMAND" in done.stderr
