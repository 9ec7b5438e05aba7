#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures a serving engine end to end, as its users see it: throughput, time to first token (TTFT), time per output
token (TPOT: the mean and the 99th percentile) and latency of requests, at stated lengths and concurrency; and how
far its greedy tokens agree with those of another run.

Any server with the OpenAI interface (`/v1/completions`, streamed) will do: vLLM and SGLang have it. The same
command runs once with Sluice switched off and once with it on; `--against` the first record then says from which
token on answers differ, and how often answers are equal. Two engines that are both right part company at the first
near-tie, so that the share of equal tokens is a fact, not a verdict; the verdict is `--scores`, two files of a
task's scores.

Nothing but the standard library is needed. A request's tokens are counted by the server's own `usage`.
"""

import argparse
import concurrent.futures
import json
import pathlib
import random
import statistics
import sys
import time
import urllib.request

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from sluice_tools import whole_file  # needs no sluice

EXAMPLES = """examples:
  vllm serve MODEL --port 8000 &                     SLUICE_VLLM=1 vllm serve MODEL --port 8001 &
  benchmarks/serve.py --url http://localhost:8000 --input 1024 --output 128 --concurrency 32 --out before.json
  benchmarks/serve.py --url http://localhost:8001 --input 1024 --output 128 --concurrency 32 --against before.json \\
      --out after.json
  benchmarks/serve.py --url http://localhost:8001 --profile        with vLLM's --profiler-config: a trace of one request
"""


def prompts(count, tokens, vocabulary, seed):
    """Prompts as lists of token numbers, so that their lengths are exact."""
    rng = random.Random(seed)
    return [[rng.randrange(10, vocabulary) for _ in range(tokens)] for _ in range(count)]


def post(url, body, timeout):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return urllib.request.urlopen(request, timeout=timeout)


def model_of(url, timeout):
    with urllib.request.urlopen(f"{url}/v1/models", timeout=timeout) as answer:
        return json.load(answer)["data"][0]["id"]


def events(answer):
    """Data of a stream of server-sent events."""
    for line in answer:
        text = line.decode().strip()
        if text.startswith("data: ") and text != "data: [DONE]":
            yield json.loads(text.removeprefix("data: "))


def ask(arguments, model, prompt):
    """One request: times of its tokens from its start, its text and how many tokens the server says it has."""
    body = {"model": model, "prompt": prompt, "max_tokens": arguments.output, "temperature": 0, "stream": True,
            "ignore_eos": True, "stream_options": {"include_usage": True}}
    start, times, text, tokens = time.perf_counter(), [], [], None
    with post(f"{arguments.url}/v1/completions", body, arguments.timeout) as answer:
        for event in events(answer):
            tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
            pieces = [choice.get("text", "") for choice in event.get("choices", [])]
            if pieces and pieces[0] is not None:
                times.append(time.perf_counter() - start)
                text.append(pieces[0])
    return {"times": times, "pieces": text, "tokens": tokens or len(times), "seconds": time.perf_counter() - start}


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def milliseconds(values):
    return {"mean": 1e3 * statistics.fmean(values), "median": 1e3 * statistics.median(values),
            "p99": 1e3 * percentile(values, 0.99)}


def measures(requests, seconds, input_tokens):
    """What is reported of a run. TPOT of a request is the time behind its first token over the tokens behind it."""
    done = [r for r in requests if r["times"]]
    per_token = [(r["times"][-1] - r["times"][0]) / (r["tokens"] - 1) for r in done if r["tokens"] > 1]
    output = sum(r["tokens"] for r in done)
    return {"requests": len(done), "failed": len(requests) - len(done), "seconds": seconds,
            "output_tokens_per_second": output / seconds,
            "total_tokens_per_second": (output + input_tokens * len(done)) / seconds,
            "ttft_ms": milliseconds([r["times"][0] for r in done]),
            "tpot_ms": milliseconds(per_token) if per_token else None,
            "latency_ms": milliseconds([r["seconds"] for r in done])}


def agreement(ours, theirs):
    """Of answers in pieces: the share that is equal, and of tokens up to the first difference."""
    equal, before, total = 0, 0, 0
    for a, b in zip(ours, theirs):
        same = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
        equal += a == b
        before += same
        total += max(len(a), len(b))
    return {"answers": len(ours), "equal_answers": equal / max(1, len(ours)),
            "tokens_before_first_difference": before / max(1, total)}


def run(arguments):
    model = arguments.model or model_of(arguments.url, arguments.timeout)
    wanted = prompts(arguments.requests, arguments.input, arguments.vocabulary, arguments.seed)
    for prompt in prompts(arguments.warm, arguments.input, arguments.vocabulary, arguments.seed + 1):
        ask(arguments, model, prompt)
    start = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(arguments.concurrency) as pool:
        requests = list(pool.map(lambda prompt: ask(arguments, model, prompt), wanted))
    seconds = time.perf_counter() - start
    record = {"schema": "sluice.bench.serve/1", "model": model, "note": arguments.note,
              "settings": {name: getattr(arguments, name)
                           for name in ("input", "output", "concurrency", "requests", "vocabulary", "seed", "warm")},
              **measures(requests, seconds, arguments.input), "answers": [r["pieces"] for r in requests]}
    if arguments.against:
        other = json.loads(pathlib.Path(arguments.against).read_text())
        if other["settings"] != record["settings"]:
            raise SystemExit(f"{arguments.against}: other settings; answers cannot be compared")
        record["agreement"] = agreement(record["answers"], other["answers"])
        record["before"] = {name: other[name] for name in ("note", "output_tokens_per_second", "ttft_ms", "tpot_ms")}
    return record


def profile(arguments):
    """A trace of one request by the engine's own profiler, which writes it where the engine was told to."""
    model = arguments.model or model_of(arguments.url, arguments.timeout)
    [prompt] = prompts(1, arguments.input, arguments.vocabulary, arguments.seed)
    post(f"{arguments.url}/start_profile", {}, arguments.timeout).close()
    try:
        return ask(arguments, model, prompt)["seconds"]
    finally:
        post(f"{arguments.url}/stop_profile", {}, arguments.timeout).close()


def scores(before, after):
    """Two files of task scores, {task: number} each, side by side."""
    first, second = (json.loads(pathlib.Path(path).read_text()) for path in (before, after))
    return [(task, first[task], second[task]) for task in sorted(first.keys() & second.keys())]


def table(record):
    def line(name, value):
        return f"{name:<22}{value}"

    def spread(values):
        return "-" if values is None else "mean {mean:.2f}, median {median:.2f}, 99 % {p99:.2f} ms".format(**values)

    settings = record["settings"]
    lines = ["{input} tokens in, {output} out, {concurrency} at a time, {requests} requests".format(**settings),
             line("throughput", f"{record['output_tokens_per_second']:.1f} tokens/s out, "
                                f"{record['total_tokens_per_second']:.1f} in and out"),
             line("time to first token", spread(record["ttft_ms"])),
             line("time per output token", spread(record["tpot_ms"])), line("latency", spread(record["latency_ms"]))]
    if record["failed"]:
        lines.append(line("failed", record["failed"]))
    if "agreement" in record:
        found, before = record["agreement"], record["before"]
        faster = record["output_tokens_per_second"] / before["output_tokens_per_second"]
        lines += [line("equal answers", f"{found['equal_answers']:.0%}; tokens before the first difference "
                                        f"{found['tokens_before_first_difference']:.1%}"),
                  line("times faster", f"{faster:.2f}")]
    return "\n".join(lines)


def parser():
    made = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--url", default="http://localhost:8000")
    made.add_argument("--model", help="default: the first that the server lists")
    for name, default, text in (("input", 1024, "tokens of a prompt"), ("output", 128, "tokens of an answer"),
                                ("concurrency", 8, "requests in flight"), ("requests", 64, "in all"),
                                ("vocabulary", 30000, "prompts are random tokens below it"), ("seed", 0, "of prompts"),
                                ("warm", 4, "requests before the first measured one"),
                                ("timeout", 600, "seconds of a request")):
        made.add_argument(f"--{name}", type=int, default=default, help=f"{text} ({default})")
    made.add_argument("--note", default="", help="what was switched on, for the record")
    made.add_argument("--against", help="a record of the same settings to compare answers with")
    made.add_argument("--profile", action="store_true", help="have the engine write a trace of one request instead")
    made.add_argument("--scores", nargs=2, metavar=("BEFORE", "AFTER"), help="compare two files of task scores instead")
    made.add_argument("--out", help="write the record as JSON")
    return made


def main(argv=None):
    arguments = parser().parse_args(argv)
    if arguments.scores:
        for task, before, after in scores(*arguments.scores):
            print(f"{task:<30}{before:>10.4f}{after:>10.4f}{after - before:>+10.4f}")
        return 0
    if arguments.profile:
        print(f"one request took {profile(arguments):.3f} s under the profiler")
        return 0
    record = run(arguments)
    if arguments.out:
        whole_file.write(pathlib.Path(arguments.out), json.dumps(record, indent=1) + "\n")
    print(table(record))
    return 1 if record["failed"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
