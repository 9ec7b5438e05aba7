# SPDX-License-Identifier: Apache-2.0
"""Measures `python -m sluice report`: that an interrupted run goes on, that no number of a record
looks measured here, that the page needs nothing else, and what the JSON holds. Parts are replaced by
small ones; the whole command runs once, quick, on the host."""

import json
import pathlib
import re

import pytest
from sluice import ops
from sluice_tools import command as tool_main
from sluice_tools.report import (
    build,
    charts,
    command,
    ladder,
    manifest,
    page,
    records,
    speed_sections,
    tool,
)
from sluice_tools.report.progress import Progress, State

ROOT = pathlib.Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks/results/h200"
needs_tree = pytest.mark.skipif(not RESULTS.exists(), reason="tests are not in the source tree")
FINGERPRINT = {"version": "1", "commit": "a", "device": "x", "quick": True, "tool": "none"}


class Plan:
    """A plan of parts that count their calls."""

    def __init__(self, names, failing=()):
        self.calls = []
        self.failing = failing
        self.names = names

    def parts(self):
        return [(name, self.part(name)) for name in self.names]

    def part(self, name):
        def function(step):
            self.calls.append(name)
            if name in self.failing:
                raise self.failing[name]
            return {"of": name}

        return function


def test_an_interrupted_report_goes_on(tmp_path):
    path = tmp_path / "state.json"
    plan = Plan(["a", "b", "c"], {"b": KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        build.run(plan, State(path, FINGERPRINT), Progress(3))
    plan = Plan(["a", "b", "c"])
    state = State(path, FINGERPRINT)
    results = build.run(plan, state, Progress(3))
    assert plan.calls == ["b", "c"] and state.resumed == 1
    assert results["a"]["resumed"] and "resumed" not in results["b"]
    assert results["a"]["data"] == {"of": "a"}
    state.remove()
    assert not path.exists()


def test_the_summary_names_rows_outside_their_limit():
    row = {"case": "150, 300", "stage": "cumsum_kkt", "tensor": "A", "whole": 3e-5, "passed": False}
    data = {"limit": 1e-5, "rows": [{**row, "stage": "wy_fast", "passed": True}, row]}
    summary = build.summary({"stages float32": {"status": "done", "data": data}})
    words = "stages float32: cumsum_kkt, 150, 300, A: error 3.0e-05, limit 1.0e-05"
    assert summary["failing"] == [words] and summary["wrong"] == 1
    assert build.verdict(summary) == "1 of 2 tensors are outside their limit."
    row["whole"] = None  # what JSON has for an infinite error
    assert "A: error not a number, limit" in build.summary({"a": {"status": "done", "data": data}})["failing"][0]
    assert build.verdict({"wrong": 0, "tensors": 2}) == "All 2 tensors are within their limits."


def test_a_failed_part_is_a_result_and_tried_again(tmp_path):
    path = tmp_path / "state.json"
    plan = Plan(["a", "b"], {"a": RuntimeError("no kernel")})
    results = build.run(plan, State(path, FINGERPRINT), Progress(2))
    assert results["a"]["status"] == "failed" and "no kernel" in results["a"]["reason"]
    assert build.summary(results)["parts failed"] == ["a"]
    plan = Plan(["a", "b"])
    assert build.run(plan, State(path, FINGERPRINT), Progress(2))["a"]["status"] == "done"
    assert plan.calls == ["a"]


def test_nothing_begins_after_its_time(tmp_path):
    plan = Plan(["a", "b"])
    results = build.run(plan, State(tmp_path / "state", FINGERPRINT), Progress(2), seconds=-1)
    assert plan.calls == [] and "not begun within -1 s" in results["b"]["reason"]


@pytest.mark.parametrize("key", list(FINGERPRINT))
def test_parts_of_another_machine_or_version_are_dropped(tmp_path, key):
    path = tmp_path / "state.json"
    State(path, FINGERPRINT).put("a", {"status": "done"})
    other = State(path, {**FINGERPRINT, key: "other"})
    assert other.get("a") is None and key in other.dropped
    assert State(path, FINGERPRINT).get("a") == {"status": "done"}


NO_FINGERPRINT = '{"schema": "sluice.report.state/1", "parts": {}}'
NO_PARTS = '{"schema": "sluice.report.state/1", "fingerprint": {}}'


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": "x"}', NO_FINGERPRINT, NO_PARTS])
def test_broken_state_files_are_dropped(tmp_path, content):
    path = tmp_path / "state.json"
    path.write_text(content)
    state = State(path, FINGERPRINT)
    assert state.dropped and state.get("a") is None


@needs_tree
def test_records_become_rows_with_the_tools_own_costs():
    content = manifest.load()
    found = dict(records.read_folder(RESULTS))
    assert "stages.json" in found and not {"report.json", "simple_gla_fla.json"} & set(found)
    rows = records.rows_of(found["prefill_marks.json"], 3, content)
    raw = found["prefill_marks.json"]["rows"][0]
    assert rows[0]["source"] == 3 and rows[0]["seconds"] == pytest.approx(1e-3 * raw["ms"])
    assert rows[0]["flops"] == pytest.approx(raw["tflops"] * raw["ms"] * 1e9)
    assert rows[0]["bytes"] == pytest.approx(raw["gb_per_s"] * raw["ms"] * 1e6)
    rows = records.rows_of(found["decode.json"], 0, content)
    assert [row["bytes"] for row in rows] == [row["bytes"] for row in found["decode.json"]["rows"]]
    with pytest.raises(ValueError, match="schema = 'other'"):
        records.rows_of({"schema": "other", "rows": [{}]}, 0, content)


@needs_tree
def test_rows_that_are_not_what_they_look_like():
    """A replay ring's bytes are the tool's; a layer, or one thread beside two, is no decode row."""
    content = manifest.load()
    found = dict(records.read_folder(RESULTS))
    record = {**found["decode.json"], "rows": [dict(found["decode.json"]["rows"][0])]}
    record["rows"][0].update(bytes=123.0, ring={"entries": 16}, writes="ring 16 fp32")
    assert records.rows_of(record, 0, content)[0]["bytes"] == 123.0
    path = RESULTS.parent / "zen4-2vcpu/2026-11-21-cpu-decode.json"
    record = json.loads(path.read_text())
    before = len(records.rows_of(record, 0, content))
    for extra in (", layer", ", 1 thread"):
        copy = dict(record["rows"][0]["measurements"][0], name="sluice 0.1.0" + extra)
        record["rows"][0]["measurements"].append(copy)
    assert len(records.rows_of(record, 0, content)) == before > 0


def test_rows_of_stages():
    cell = dict(shape="1x1024", B=1, T=1024, H=16, HV=16, K=128, V=128, C=64, kernel="cuda.x",
                ms=0.1, ms_min=0.1, ms_p90=0.1, share_of_floor=None, difference=None, failure="")  # fmt: skip
    flops, moved = 64 * 64 * 128 * 256, (2 * 64 * 128 + 4 * 64 * 64 + 8 * 64) * 256
    one = dict(cell, what="scaled_dot_kkt", tflop_per_s=flops / 1e8, gb_per_s=moved / 1e5)
    chain = dict(cell, what="chain", tflop_per_s=None, gb_per_s=None)
    record = dict(schema="sluice.bench.stages/1", dtype="bf16", rows=[one, chain])
    content = manifest.load()
    rows = records.rows_of(record, 0, content)
    symbols = dict(tokens=1024, N=1, H=16, HV=16, K=128, V=128, e=2, C=64)
    for what in ("flops", "bytes"):
        expected = manifest.cost(content, "chunk_stage", "scaled_dot_kkt", what, **symbols)
        assert rows[0][what] == pytest.approx(expected)
    source = records.source_of({**record, "machine": {"name": "GPU"}}, False, "x/stages.json")
    text = speed_sections.stages({"rows": rows, "sources": [source]}, draw=False)
    assert "scaled_dot_kkt" in text and "record, not measured here" in text


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """A quick report of this machine without the tool, H200 records beside."""
    output = tmp_path_factory.mktemp("report") / "report.html"
    patch = pytest.MonkeyPatch()
    patch.setattr(tool, "find", lambda given: None)
    patch.setattr("sluice_tools.report.peers.installed", lambda device: {})
    small = manifest.load()
    small["ladder"]["lengths"] = [{"name": "70", "lengths": [70, 3], "quick": True}]
    small["workloads"][0]["quick tokens"] = [64]
    patch.setattr(manifest, "load", lambda: small)
    arguments = ["report", "--quick", "--device", "cpu", "-o", str(output), "--commit", "c0ffee"]
    more = ["--results", str(RESULTS)] if RESULTS.exists() else ["--no-results"]
    try:
        assert tool_main.main(arguments + more) == 0
    finally:
        patch.undo()
    return output, json.loads(output.with_suffix(".json").read_text())


def test_the_json_has_what_it_should(quick):
    output, report = quick
    assert report["schema"] == "sluice.report/1" and report["quick"] is True
    assert report["summary"]["wrong"] == 0 and report["summary"]["tensors"] >= 4
    assert report["summary"]["parts failed"] == [] or "ml_dtypes" in str(report)
    for row in report["rows"]:
        assert row["seconds"] > 0 and (row["op"] == "chunk_stage" or row["flops"] > 0)
        assert 0 <= row["source"] < len(report["sources"])
    ladder = report["parts"]["accuracy float32"]["data"]
    assert {"whole", "head", "window", "passed", "tensor"} <= set(ladder["rows"][0])
    gradients = report["parts"]["gradients float32"]["data"]["rows"]
    assert {row["tensor"] for row in gradients} >= {"dq", "dk", "dv", "dbeta", "d_initial_state"}
    assert all(row["passed"] and row["whole"] <= row["limit"] for row in gradients)
    assert not output.with_name(output.name + ".state.json").exists()


def test_the_verdict_is_on_top_of_the_page_and_in_the_terminal(quick, tmp_path, monkeypatch, capsys):
    row = "stages float32: cumsum_kkt, 150, 300, A: error 3.0e-05, limit 1.0e-05"
    wrong = {**quick[1], "summary": {**quick[1]["summary"], "tensors": 2, "wrong": 1, "failing": [row]}}
    monkeypatch.setattr(build, "run", lambda *rest: {})
    monkeypatch.setattr(build, "assemble", lambda *rest: wrong)
    output = tmp_path / "wrong.html"
    assert tool_main.main(["report", "--device", "cpu", "--no-charts", "-o", str(output)]) == 1
    words = "1 of 2 tensors are outside their limit."
    assert capsys.readouterr().out.splitlines()[-2:] == [f"outside its limit: {row}", words]
    text = output.read_text()
    assert text.index(words) < text.index(f"Outside its limit: {row}.") < text.index("<h2")
    right = quick[0].read_text()
    assert right.index(" tensors are within their limits.") < right.index("<h2")


@needs_tree
def test_no_record_looks_measured_here(quick):
    output, report = quick
    here = [source for source in report["sources"] if source["here"]]
    other = [source for source in report["sources"] if not source["here"]]
    assert here and other
    assert all(s["commit"] == "c0ffee" and s["device"] == report["device"] for s in here)
    assert all(s["device"] == "NVIDIA H200" and s["file"].startswith("h200/") for s in other)
    text = output.read_text()
    labels = re.findall(r'<p class="source (here|record)"><b>(.*?)</b> (.*?)</p>', text)
    assert {kind for kind, _, _ in labels} == {"here", "record"}
    for kind, words, rest in labels:
        assert words == ("measured here" if kind == "here" else "record, not measured here")
        assert ("NVIDIA H200" in rest) == (kind == "record")
        assert ("c0ffee" in rest) == (kind == "here")


@needs_tree
def test_times_of_the_backward_pass_are_shown(quick):
    rows = [row for row in quick[1]["rows"] if row["op"] == "chunk_backward"]
    assert rows and all(row["flops"] > 0 and row["times_forward"] > 1 for row in rows)
    text = quick[0].read_text()
    section = text[text.index('id="gradients"') :]
    assert "Backward pass" in section and "cuda.chunk_backward" in section and "The worst of each gradient" in section


def assert_self_contained(text):
    assert "<script" not in text and "<link" not in text and "@import" not in text
    assert not re.search(r"\b(src|href|srcset|action|poster)=[\"']?[^\"'#]", text)
    assert not re.search(r"url\((?!#)", text)
    assert "://" not in re.sub(r"<td[^>]*>.*?</td>", "", text)
    idents = re.findall(r'\sid="([^"]+)"', text)
    assert len(idents) == len(set(idents))
    targets = set(re.findall(r'href="#([^"]+)"', text)) | set(re.findall(r"url\(#([^)]+)\)", text))
    assert targets <= set(idents)


def test_the_page_needs_nothing_else(quick):
    text = quick[0].read_text()
    assert_self_contained(text)
    assert "prefers-color-scheme: dark" in text and 'name="viewport"' in text
    for heading in ("Accuracy", "Gradients", "Roofline", "First call", "Environment", "Sources"):
        assert f">{heading}</h2>" in text
    assert text.count("<caption>") == text.count("<table>") > 5


def test_charts_are_inline_and_follow_the_theme(quick):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pages have tables alone")
    text = command.html_of(quick[1], draw=True)
    assert_self_contained(text)
    assert text.count('<svg role="img"') == text.count("<figcaption>") >= 2
    assert "currentColor" in text and "var(--c1)" in text
    assert charts.INK not in text and not any(color in text for color in charts.SERIES)


def test_without_matplotlib_the_page_says_so(quick, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(charts, "available", lambda: "no charts: matplotlib is not installed")
    again = tmp_path / "again.html"
    source = quick[0].with_suffix(".json")
    assert tool_main.main(["report", "--from", str(source), "-o", str(again)]) == 0
    assert "tables alone" in capsys.readouterr().err
    text = again.read_text()
    assert "matplotlib is not installed" in text and "<svg" not in text
    assert_self_contained(text)


def test_what_comes_from_outside_is_escaped():
    evil = "<script>alert(1)</script>"
    entry = dict(here=False, file=evil, device=evil, version="", commit="", date="", command=evil)
    for text in (page.table(evil, {evil: evil}, [{evil: evil}]), page.source(entry), page.note(evil)):
        assert "<script" not in text and "&lt;script" in text


def test_wrong_options(tmp_path, capsys):
    other = tmp_path / "other.json"
    other.write_text("{}")
    assert tool_main.main(["report", "--from", str(other)]) == 1
    assert "no report of schema" in capsys.readouterr().err
    assert tool_main.main(["report", "--tool", str(tmp_path / "none")]) == 1
    assert "no tool at" in capsys.readouterr().err


def test_formulas_are_arithmetic_alone():
    assert manifest.evaluate("2*(a + b) % 5 == 0 and a < b", {"a": 2, "b": 3}) is True
    for formula in ("__import__('os')", "a.b", "'a' * 9", "[1]", "2 ** 9"):
        with pytest.raises(ValueError, match="no arithmetic"):
            manifest.evaluate(formula, {"a": 1})
    with pytest.raises(KeyError):
        manifest.evaluate("unknown + 1", {})


@needs_tree
def test_workloads_are_commands_of_the_tool():
    for workload in manifest.load()["workloads"]:
        for quickly in (True, False):
            for arguments in tool.arguments_of(workload, quickly):
                assert arguments[0] in ("prefill", "cpu", "decode", "layer", "parts", "stages")
                assert ("--backend" in arguments or arguments[0] == "cpu") == (
                    workload["backend"] == "cpu"
                )


def test_a_wrong_stage_is_found(monkeypatch):
    small = manifest.load()
    small["ladder"]["lengths"] = [{"name": "70", "lengths": [70, 3], "quick": True}]
    right = ladder.measure("stages", small, "float32", "cpu", True)["rows"]
    assert [row["stage"] for row in right][:2] == ["chunk_cumsum", "scaled_dot_kkt"]
    assert len(right) == 12 and all(row["passed"] for row in right)
    run = ops.chunk_stage

    def wrong(stage, **arguments):
        run(stage, **arguments)
        if stage == "solve_tril" and arguments["implementation"] == "auto":
            arguments["A_inverse"][0, 72] = 0

    monkeypatch.setattr(ops, "chunk_stage", wrong)
    rows = ladder.measure("stages", small, "float32", "cpu", True)["rows"]
    assert [row["tensor"] for row in rows if not row["passed"]] == ["A_inverse"]
