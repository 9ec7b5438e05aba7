# SPDX-License-Identifier: Apache-2.0
"""Runs benchmarks/task_scores.py at a size that learns in seconds: tasks have the answers that they say, scores of
implementations are of the same prompts, and one that computes something else scores lower."""

import copy
import importlib.util
import json
import subprocess
import sys

import pytest
from conftest import BENCHMARKS, benchmark

torch = pytest.importorskip("torch", reason="torch is not installed: its tests are skipped")
pytest.importorskip("transformers", reason="transformers is not installed")
if importlib.util.find_spec("fla") is not None:
    pytest.skip("with fla installed, transformers' own path needs a GPU", allow_module_level=True)

TINY = dict(hidden=32, key_heads=1, value_heads=2, head=32, rate=1e-2, symbols=8, step_tokens=256, steps=80,
            trained=(12,), lengths=dict(recall=(24,), latest=(20,), copy=(12,)))


@pytest.fixture(scope="module")
def scripts():
    """The benchmark and its parts, with short answers of few letters."""
    tasks, model, script = map(benchmark, ("scored_tasks", "scored_model", "task_scores"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(script.SIZES, "toy", TINY)
        patch.setattr(tasks, "LETTERS", 4)
        for answers in (tasks.ANSWERS, tasks.TRAINED):
            for task in ("copy", "reverse"):
                patch.setitem(answers, task, 2 if answers is tasks.ANSWERS else (2, 2))
        yield tasks, model, script


@pytest.fixture(scope="module")
def learned(scripts):
    """(options, what is told of the training, float32 weights, bfloat16 weights, prompts)"""
    _, model, script = scripts
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    options = script.options_of(["--size", "toy", "--prompts", "64", "--tasks", "copy,reverse"])
    made = model.build(TINY, options.seed, "cpu")
    told = script.train(options, made)
    made.eval()
    yield options, told, made, copy.deepcopy(made).to(torch.bfloat16), script.prompts_of(options)
    torch.set_num_threads(before)


def score(found, prompts):
    return {name: (found[name] == wanted).all(1).float().mean().item() for name, (_, wanted) in prompts.items()}


def test_the_loss_falls_on_sluice(learned):
    _, told, *_ = learned
    losses = [row["loss"] for row in told["history"]]
    assert losses[-1] < 0.3 * losses[0] and told["steps"] == 80
    assert told["ran"] == {"layer": 3 * 80} and told["handed_back"] == []


def test_implementations_answer_the_same_prompts(scripts, learned):
    _, _, script = scripts
    options, _, exact, rounded, prompts = learned
    yardstick, *_ = script.evaluate(options, exact, "torch-float32", prompts)
    for way in ("torch", "sluice", "sluice-ops"):
        answers, seconds, did = script.evaluate(options, rounded, way, prompts)
        for row in script.rows_of(way, answers, seconds, prompts, yardstick):
            assert row["prompts"] == 64 and row["score"] > 0.7 and row["equal"] >= 60, row
            assert row["right_here_alone"] + row["right_there_alone"] <= 64 - row["equal"], row
        assert did["handed_back"] == [] and bool(did["ran"]) == (way != "torch")


def test_a_broken_implementation_scores_lower(scripts, learned):
    _, model, script = scripts
    options, _, _, rounded, prompts = learned
    good = score(script.evaluate(options, rounded, "sluice-ops", prompts)[0], prompts)

    def no_beta(name, keywords):
        return {**keywords, "beta": torch.zeros_like(keywords["beta"])}

    with model.running(rounded, "sluice-ops"), model.inputs_changed(rounded, no_beta):
        found = {name: script.generated(rounded, asked, 2, "cpu") for name, (asked, _) in prompts.items()}
    for name, share in score(found, prompts).items():
        assert share < good[name] - 0.2, (name, share, good)


def test_functions_are_given_back(scripts, learned):
    _, model, _ = scripts
    *_, rounded, _ = learned
    module = sys.modules[type(rounded).__module__]
    before = [getattr(module, name) for name in model.FUNCTIONS]
    for way in ("torch", "forgetful"):
        with model.running(rounded, way):
            assert getattr(module, model.FUNCTIONS[0]) is not before[0]
        assert [getattr(module, name) for name in model.FUNCTIONS] == before


def test_forgetting_is_at_every_64th_token_of_a_prompt(scripts):
    _, model, _ = scripts
    g = torch.zeros(1, 130, 2)
    emptied = model.forget("torch_chunk_gated_delta_rule", {"g": g, "beta": None})
    assert emptied["g"][0, :, 0].nonzero().flatten().tolist() == [0, 64, 128] and not g.any()
    assert not model.forget("torch_recurrent_gated_delta_rule", {"g": g})["g"].any()


def solved(tasks, task, prompt, count):
    """The answer of a prompt, found in another way than it was made."""
    equals = prompt.index(tasks.EQUALS) if tasks.EQUALS in prompt else None
    if task == "recall":
        follows = {a: b for mark, a, b in zip(prompt, prompt[1:], prompt[2:]) if mark == tasks.PAIR}
        path = [prompt[-1]]
        for _ in range(count):
            path.append(follows[path[-1]])
        return path[1:]
    if task == "latest":
        found = [prompt[n + 1:n + 3] for n, token in enumerate(prompt[:-2]) if token == prompt[-1]]
        return found[-1]
    if task == "copy":
        return [x for x in prompt if tasks.LETTER <= x < tasks.LETTER + tasks.LETTERS]
    if task == "reverse":
        return prompt[1:equals][::-1]
    plus = prompt.index(tasks.PLUS)
    a, b = (int("".join(str(x - tasks.DIGIT) for x in reversed(part)))
            for part in (prompt[1:plus], prompt[plus + 1:equals]))
    return [tasks.DIGIT + int(x) for x in reversed(f"{a + b:0{count}d}")]


@pytest.mark.parametrize("task", ["recall", "latest", "copy", "reverse", "add"])
def test_answers_are_right(scripts, task):
    tasks, *_ = scripts
    generator = torch.Generator().manual_seed(3)
    asked, wanted = tasks.evaluated(task, 20, 48, generator, 16)
    for prompt, answer in zip(asked.tolist(), wanted.tolist()):
        assert solved(tasks, task, prompt, len(answer)) == answer
    assert len(set(map(tuple, wanted.tolist()))) > 5


def test_batches_have_all_tasks_and_score_answers_alone(scripts):
    tasks, *_ = scripts
    generator = torch.Generator().manual_seed(3)
    ids, targets, owners = tasks.batch(list(tasks.TASKS), 11, 64, generator, 16)
    assert ids.shape == targets.shape == (11, 64) and sorted(set(owners.tolist())) == [0, 1, 2, 3, 4]
    scored = targets != -100
    assert scored.any(1).all() and not scored[:, -1].any()
    assert (targets[:, :-1][scored[:, :-1]] == ids[:, 1:][scored[:, :-1]]).all()


def test_the_program_and_its_files(tmp_path, scripts, capsys, monkeypatch):
    _, _, script = scripts
    monkeypatch.setitem(TINY, "trained", (32,))
    command = ["--size", "toy", "--steps", "2", "--prompts", "4", "--implementations", "sluice,torch-float32,torch"]
    out, folder = tmp_path / "record.json", tmp_path / "scores"
    script.main([*command, "--commit", "none", "--out", str(out), "--scores", str(folder)])
    shown = capsys.readouterr().out
    record = json.loads(out.read_text())
    assert record["schema"] == "sluice.bench.task_scores/1" and record["commit"] == "none"
    assert record["command"].startswith("benchmarks/task_scores.py --size toy") and len(record["rows"]) == 3 * 5
    assert all(row["equal"] == 4 for row in record["rows"] if row["implementation"] == "torch-float32")
    assert max(map(len, shown.splitlines())) <= 100 and len(shown.splitlines()) == 4 + 5
    script.main(["--from", str(out)])
    assert capsys.readouterr().out == shown
    files = [str(folder / f"{way}.json") for way in ("torch", "sluice")]
    said = subprocess.run([sys.executable, str(BENCHMARKS / "serve.py"), "--scores", *files], check=True,
                          capture_output=True, text=True).stdout
    assert len(said.splitlines()) == 5 and said.splitlines()[0].startswith("add 16 ")


def test_help_has_examples_and_unknown_words_are_refused(scripts, capsys):
    _, _, script = scripts
    with pytest.raises(SystemExit):
        script.options_of(["--help"])
    assert "examples:" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        script.options_of(["--tasks", "copy,sing"])
    assert "--tasks: sing is none of recall, latest" in capsys.readouterr().err
