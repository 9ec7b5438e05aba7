# SPDX-License-Identifier: Apache-2.0
"""Measures serving engines on a GPU with and without Sluice: whether greedy tokens are equal, and times to the first
and between further tokens. vllm_gpu.py and sglang_gpu.py say how their servers are started and asked."""

import argparse
import asyncio
import functools
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from importlib.metadata import PackageNotFoundError, version

import serving_trace

# Prompts of the equality test, and the tokens that follow each.
LENGTHS = (3, 64, 65, 130, 500, 1000, 2049, 4097)
NEW_TOKENS = 48
# What the traces may take after the times.
TRACE_SECONDS = 60
# (tokens of a prompt, prompts at once, new tokens)
LOADS = ((1024, 1, 64), (8192, 1, 64), (65536, 1, 32), (1024, 32, 64), (1024, 128, 64), (8192, 32, 32))


def prompt(length, seed):
    draw = random.Random(seed)
    return [draw.randrange(3, 32768) for _ in range(length)]


class Server:
    """One server and its log, named after its setup and its way: "heads.sluice". An engine's own class says how it is
    started, and has `setups`: by name, heads of the linear layers and factors of the weights (serving_model.py), or of
    a Kimi Linear (serving_kimi.py), and further options of the server."""

    # What of its log is told, and what stands before the telling part of a line.
    telling, before = "Sluice|handed back|Traceback", ""
    # Names of the installed packages that the record tells the versions of.
    packages = ("torch", "triton", "transformers", "sluice-gdn")
    environment_prefixes = ("TRITON_",)
    # Batches whose decoding is captured in a graph.
    captured = (1, 2, 4, 8, 16, 32, 64, 128)
    # Folder of the traces of an engine that has a profiler (serving_trace.py).
    traces = None

    def __init__(self, name, model, port, folder, arguments):
        self.name, self.model, self.folder, self.port = name, model, str(folder), port
        setup, way = name.split(".")
        self.more = self.setups[setup][1]
        # Sluice on or off, and the prefill of GDN that it replaces or that runs instead.
        ways = {self.packages[0]: ("0", "triton"), "flashinfer": ("0", "flashinfer"), "sluice": ("1", "triton")}
        self.switch, self.prefill = ways[way]
        self.log = pathlib.Path(arguments.out).parent / f"{name}.log"
        self.up, self.started = False, time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", *self.words(arguments)], env={**os.environ, **self.environment(arguments)},
            stdout=self.log.open("w"), stderr=subprocess.STDOUT, start_new_session=True,
        )

    @classmethod
    def write(cls, folder, layers, form):
        import serving_kimi
        import serving_model

        if form[0] == "kimi":
            serving_kimi.write(folder, layers, *form[1:])
        else:
            serving_model.write(folder, layers, *form, dense=cls.dense)

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
            return answer.read().decode()

    def wait(self, until):
        """Seconds of the start, or None where it did not come up."""
        while self.process.poll() is None:
            try:
                self.get("/health")
                self.up = True
                return time.monotonic() - self.started
            except (urllib.error.URLError, OSError):
                if time.monotonic() > until:
                    break
                time.sleep(0.3)
        return None

    def lines(self):
        """What the log says of Sluice and of the kernels chosen, each once; all of the end of one that is not up."""
        lines = self.log.read_text().replace(self.folder, "FOLDER").splitlines()
        kept = [line for line in lines if re.search(self.telling, line)] + ([] if self.up else lines[-25:])
        return list(dict.fromkeys(re.sub(self.before, "", line)[:400] for line in kept))

    def stop(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)


class Client:
    """Asks a server for greedy tokens. An engine's own class has `one`, which gives token ids, the best
    log-probabilities of each step if asked for, seconds to the first token, and seconds a further one."""

    def __init__(self, session):
        self.session = session

    async def lines(self, server, path, body):
        """The JSON of a streamed answer, line by line."""
        async with self.session.post(f"http://127.0.0.1:{server.port}{path}", json=body) as answer:
            if answer.status != 200:
                raise RuntimeError(f"{server.name}: {await answer.text()}")
            async for line in answer.content:
                if line.startswith(b"data: {"):
                    yield line[6:]

    async def post(self, server, path):
        async with self.session.post(f"http://127.0.0.1:{server.port}{path}") as answer:
            if answer.status != 200:
                raise RuntimeError(f"{server.name}: {path}: {await answer.text()}")

    async def together(self, server, prompts, tokens, logprobs=None):
        return await asyncio.gather(*(self.one(server, ids, tokens, logprobs) for ids in prompts))


def compare(one, other):
    """Tokens of `other` equal to those of `one` up to the first difference, and how far apart one's two tokens were
    there (log-probability, sorted); the distance of the log-probabilities of the tokens that are equal."""
    equal, margins, squares = 0, [], []
    for (ours, best, *_), (theirs, found, *_) in zip(one, other, strict=True):
        same = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), len(ours))
        equal += same
        squares += [(best[i][f"t{ours[i]}"] - found[i][f"t{ours[i]}"]) ** 2 for i in range(same)]
        if same < len(ours):
            step = best[same]
            chosen, instead = step.get(f"t{ours[same]}"), step.get(f"t{theirs[same]}")
            margins.append(None if None in (chosen, instead) else round(chosen - instead, 4))
    return {
        "tokens": sum(len(ours) for ours, *_ in one), "equal": equal,
        "prompts": len(one), "prompts equal": len(one) - len(margins),
        "margins at the first differences": sorted(margins, key=lambda m: (m is None, m)),
        "log-probabilities of equal tokens, rms": round(statistics.fmean(squares or [0]) ** 0.5, 5),
    }


async def answers(client, server):
    """Answers of one server: each prompt alone, all at once, and again, when the prefix cache has them."""
    prompts = [prompt(length, length) for length in LENGTHS]
    alone = [await client.one(server, ids, NEW_TOKENS, 5) for ids in prompts]
    return {"alone": alone, "together": await client.together(server, prompts, NEW_TOKENS, 5),
            "again": [await client.one(server, ids, NEW_TOKENS, 5) for ids in prompts]}


def equality(servers, found):
    """Each server's tokens beside those of the first one of its model, and its own from one kind of batch beside
    another: what another order of sums alone changes."""
    rows = {}
    for server in servers:
        ours = found[server.name]
        for kind in ("together", "again"):
            rows[f"{server.name}: alone, {kind}"] = compare(ours["alone"], ours[kind])
        first = next(s for s in servers if s.model == server.model)
        for kind in ours if first is not server else ():
            rows[f"{first.name}, {server.name}: {kind}"] = compare(found[first.name][kind], ours[kind])
    return rows


@functools.lru_cache(maxsize=1)  # the GPU has the servers' memory too
def reference(model):
    import serving_kimi

    return serving_kimi.reference(model, "cuda")


def distances(model, alone):
    """Log-probabilities that a server gave for its own tokens, and the best tokens, beside those of float32."""
    import torch

    differences, best = [], 0
    for length, (got, steps, *_) in zip(LENGTHS, alone, strict=True):
        ids = torch.tensor(prompt(length, length) + got[:-1], device="cuda")
        with torch.no_grad():
            rows = reference(model)(ids, len(got)).log_softmax(-1)
        best += sum(row.argmax().item() == token for row, token in zip(rows, got))
        differences += [step[f"t{t}"] - row[t].item() for row, t, step in zip(rows, got, steps)]
    return {"tokens": len(differences), "best in float32": best,
            "log-probabilities, rms": round(statistics.fmean(d * d for d in differences) ** 0.5, 5)}


async def load(client, server, load, seed):
    """(milliseconds to the first token, a further token) of one load: means over its prompts."""
    tokens, batch, new = load
    got = await client.together(server, [prompt(tokens, f"{seed}.{i}") for i in range(batch)], new)
    return [statistics.fmean(row[column] for row in got) * 1e3 for column in (2, 3)]


async def times(client, servers, arguments, until, report):
    """One line a load, the times of each round; ways take turns, and the first round, in which both warm up
    together, is left out."""
    loads = LOADS[:arguments.loads]
    report.rows["times"] = rows = [dict(zip(("prompt", "batch", "new tokens"), row)) for row in loads]
    for row in loads:
        await asyncio.gather(*(load(client, server, row, "warm") for server in servers))
    for turn in range(arguments.rounds):
        for row, line in zip(loads, rows):
            for server in servers:
                if time.monotonic() > until:
                    return
                found = await load(client, server, row, turn)
                for name, value in zip(("ttft_ms", "tpot_ms"), found):
                    line.setdefault(f"{server.name} {name}", []).append(round(value, 3))
            report.save()


async def traces(client, servers, until, report):
    """Where the GPU's time goes, of each server that can say so, the others at rest."""
    for server in servers:
        for tokens, batch, new in serving_trace.TRACED if server.traces else ():
            if time.monotonic() > until:
                return
            row = await serving_trace.traced(
                client, server, lambda turn: [prompt(tokens, f"trace.{turn}.{i}") for i in range(batch)], new)
            report.rows["traces"].setdefault(server.name, []).append(
                dict(prompt=tokens, batch=batch) | {"new tokens": new} | row)
            print(server.name, tokens, batch, new, json.dumps(row["groups_ms"]), flush=True)
            report.save()


def installed(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None


class Report:
    """The record, written after every part, so that a run that is cut short leaves what it has."""

    def __init__(self, path, commit, kind):
        device = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True,
                                text=True, check=False).stdout.strip()
        versions = {name: installed(name) for name in kind.packages}
        versions |= {"device": device, "python": sys.version.split()[0]}
        self.path = pathlib.Path(path)
        environment = {key: value for key, value in os.environ.items()
                       if key.startswith(kind.environment_prefixes) and not key.endswith(("_DIR", "_BASE"))}
        self.rows = {"commit": commit, "versions": versions, "environment": environment, "servers": {}, "equal": {},
                     "distances": {}, "times": [], "traces": {}, "errors": {}}

    def save(self):
        self.path.write_text(json.dumps(self.rows, indent=1) + "\n")


async def up_and_answers(client, server, until, report):
    """Answers of a server as soon as it is up."""
    seconds = await asyncio.to_thread(server.wait, until)
    report.rows["servers"][server.name] = {"command": server.command(), "start_s": seconds and round(seconds, 1)}
    print(server.name, f"up after {seconds} s", flush=True)
    if seconds is None:
        raise RuntimeError("not up in time")
    first = await client.one(server, prompt(300, 0), 16)
    print(server.name, "first tokens", first[0], flush=True)
    report.rows["servers"][server.name]["first tokens"] = first[0]
    report.save()
    found = await answers(client, server)
    report.rows["servers"][server.name]["tokens"] = {kind: [row[0] for row in rows] for kind, rows in found.items()}
    report.save()
    return found


async def measure(servers, report, arguments, begin, asking):
    import aiohttp

    # The server closes connections that are idle for 5 s: none is used twice.
    options = dict(connector=aiohttp.TCPConnector(limit=0, force_close=True), timeout=aiohttp.ClientTimeout(total=120))
    async with aiohttp.ClientSession(read_bufsize=1 << 22, **options) as session:
        client, until = asking(session), begin + arguments.start_seconds
        asked = (up_and_answers(client, server, until, report) for server in servers)
        found = dict(zip((s.name for s in servers), await asyncio.gather(*asked, return_exceptions=True)))
        errors = {name: repr(f) for name, f in found.items() if isinstance(f, BaseException)}
        report.rows["errors"] |= errors
        servers = [server for server in servers if server.name not in errors]
        report.rows["equal"] = equality(servers, found)
        report.save()
        for name, row in report.rows["equal"].items():
            print(name, json.dumps(row), flush=True)
        timed = [server for server in servers if server.name in arguments.timed.split(",")]
        try:
            await times(client, timed, arguments, begin + arguments.seconds, report)
        except Exception as error:
            report.rows["errors"]["times"] = repr(error)
        for line in report.rows["times"]:
            print(json.dumps(line), flush=True)
        try:
            await traces(client, timed, begin + arguments.seconds + TRACE_SECONDS, report)
        except Exception as error:
            report.rows["errors"]["traces"] = repr(error)
    for server in servers:
        report.rows["servers"][server.name]["counters"] = server.counts()
        report.rows["distances"][server.name] = row = distances(server.model, found[server.name]["alone"])
        print(server.name, "to float32", json.dumps(row), flush=True)
        report.save()


def started(arguments, folder, kind):
    """All servers, over one model a shape of heads."""
    servers, models = [], {}
    if arguments.models:
        models = {form: f"{arguments.models}/{'_'.join(map(str, form))}" for form, _ in kind.setups.values()}
    for name in arguments.servers.split(","):
        form = kind.setups[name.split(".")[0]][0]
        if form not in models:
            models[form] = f"{folder}/{len(models)}"
            kind.write(models[form], arguments.layers, form)
        servers.append(kind(name, models[form], kind.first_port + 100 * len(servers), folder, arguments))
    return servers


def parser(description, servers, timed):
    made = argparse.ArgumentParser(description=description.split("\n")[0])
    made.add_argument("--out", required=True, help="the record, JSON; logs go beside it")
    made.add_argument("--layers", type=int, default=8)
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--servers", default=servers)
    made.add_argument("--timed", default=timed)
    made.add_argument("--loads", type=int, default=len(LOADS), help="only the first of LOADS")
    made.add_argument("--models", help="has folders 16_32_3_3 and so on that serving_model.py wrote")
    made.add_argument("--commit", help="what Sluice was built from")
    made.add_argument("--seconds", type=float, default=280, help="no round begins after these")
    made.add_argument("--start-seconds", type=float, default=170, help="a server that is not up by then is given up")
    return made


def run(arguments, kind, asking):
    """Starts servers of the class `kind`, asks them with one of the class `asking`, and writes the record."""
    begin = time.monotonic()
    report = Report(arguments.out, arguments.commit, kind)
    servers = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            servers = started(arguments, folder, kind)
            asyncio.run(measure(servers, report, arguments, begin, asking))
        except Exception as error:
            report.rows["errors"]["measuring"] = repr(error)
        finally:
            report.save()
            for server in servers:
                server.stop()
            for server in servers:
                report.rows["servers"].setdefault(server.name, {})["log"] = server.lines()
            report.save()
    print(report.rows["errors"] or "no errors", flush=True)
    print(f"finished after {time.monotonic() - begin:.0f} s", flush=True)
