# SPDX-License-Identifier: Apache-2.0
"""Measures vLLM's server on a GPU with and without Sluice: whether greedy tokens are equal, times to the first and
between further tokens, and on demand what the GPU's time goes to. Starts one server for each way over one
random-weight Qwen3-Next or Kimi Linear, asks them over HTTP in turns, and writes answers, times, versions, commands
and log lines as JSON.

    python vllm_gpu.py --out FILE [--layers 8] [--servers heads.vllm,heads.sluice,..]   (docs/engines/vllm.md)
"""

import json
import pathlib
import re
import shlex
import shutil
import time

import serving_measure

DRAFTS = {"method": "mtp", "num_speculative_tokens": 3}
# How the server runs the model: as vLLM does by default, or with graphs of decoding alone, for a quick start.
FORMS = {
    "compiled": {},
    "graphs": {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "custom_ops": ["none"]},
    "eager": {"mode": 0, "cudagraph_mode": "NONE", "custom_ops": ["none"]},
}


class Server(serving_measure.Server):
    """One `vllm serve` and its log."""

    telling = ("Sluice|handed back|operators replaced|GDN prefill kernel|attention backend|Graph capturing|"
               "torch.compile took|warmup run took|Triton autotuning|Traceback")
    before = "^.*?(?=INFO |WARNING |ERROR )"  # progress bars and process numbers
    packages = ("vllm", "flashinfer-python", "nvidia-cutlass-dsl", *serving_measure.Server.packages)
    environment_prefixes = ("VLLM_", "TRITON_")
    dense, first_port = True, 8100
    setups = {
        "heads": ((16, 32, 3, 3), []),
        "tp8": ((2, 8, 3, 3), []),
        "drafts": ((16, 32, 1000, 1.5), ["--speculative-config", json.dumps(DRAFTS)]),
        # The drafts' model without them: its layers do not multiply rounding errors.
        "steady": ((16, 32, 1000, 1.5), []),
        "kda": (("kimi", 1000, 1.5), []),
    }

    def words(self, arguments):
        compilation = {"cudagraph_capture_sizes": self.captured, **FORMS[arguments.form]}
        self.options = [
            "--port", str(self.port), "--served-model-name", "model", "--max-model-len", "70000",
            "--max-num-seqs", "128", "--enable-prefix-caching", "--gdn-prefill-backend", self.prefill,
            # Several servers share the GPU, so none may measure what is free.
            "--gpu-memory-utilization", "0.05", "--kv-cache-memory-bytes", str(arguments.kv_gib << 30),
            "--stream-interval", "8", "--no-enable-log-requests", "--disable-uvicorn-access-log",
            *self.more, "--compilation-config", json.dumps(compilation),
        ]
        if arguments.trace:
            self.traces = pathlib.Path(self.folder) / f"traces.{self.name}"
            self.options += ["--profiler-config", json.dumps(dict(
                profiler="torch", torch_profiler_dir=str(self.traces), torch_profiler_with_stack=False,
                torch_profiler_use_gzip=False, torch_profiler_dump_cuda_time_total=False, ignore_frontend=True))]
        return ["vllm.entrypoints.cli.main", "serve", self.model, *self.options]

    def environment(self, arguments):
        # Each compiles for itself. FlashInfer's sampler would be compiled first.
        cache = pathlib.Path(self.folder) / f"cache.{self.name}"
        if arguments.cache:
            shutil.copytree(arguments.cache, cache)
        return dict(SLUICE_VLLM=self.switch, VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1",
                    VLLM_USE_FLASHINFER_SAMPLER="0", VLLM_CACHE_ROOT=str(cache))

    def command(self):
        line = f"SLUICE_VLLM={self.switch} vllm serve MODEL {shlex.join(self.options)}"
        return line.replace(self.folder, "FOLDER")

    def counts(self):
        """Counters of drafts and of the prefix cache."""
        rows = re.findall(r"^vllm:((?:spec_decode|prefix_cache)\w*_total)\{[^}]*\} (\S+)$", self.get("/metrics"), re.M)
        return {name: float(value) for name, value in rows}


class Client(serving_measure.Client):
    """Asks a server for greedy tokens."""

    async def one(self, server, ids, tokens, logprobs=None):
        body = dict(model="model", prompt=ids, max_tokens=tokens, min_tokens=tokens, ignore_eos=True, temperature=0,
                    stream=True, return_token_ids=True, logprobs=logprobs)
        start, first, last = time.monotonic(), None, None
        got, best, early = [], [], 0
        async for line in self.lines(server, "/v1/completions", body):
            choices = json.loads(line).get("choices") or []
            if not choices or not choices[0].get("token_ids"):
                continue
            last = time.monotonic()
            got += choices[0]["token_ids"]
            if first is None:
                first, early = last, len(got)
            if logprobs:
                best += choices[0]["logprobs"]["top_logprobs"]
        if len(got) < tokens:
            raise RuntimeError(f"{server.name}: {len(got)} of {tokens} tokens")
        return got, best, first - start, (last - first) / max(len(got) - early, 1)


def main():
    made = serving_measure.parser(
        __doc__, servers="heads.vllm,heads.sluice,drafts.vllm,drafts.sluice,tp8.vllm,tp8.sluice",
        timed="heads.vllm,heads.sluice,drafts.vllm,drafts.sluice",
    )
    made.add_argument("--form", choices=FORMS, default="compiled")
    made.add_argument("--kv-gib", type=int, default=10, help="GiB of each server's keys, values and states")
    made.add_argument("--trace", action="store_true", help="also trace a step of each timed server (serving_trace.py)")
    made.add_argument("--cache", help="a VLLM_CACHE_ROOT that every server begins with")
    serving_measure.run(made.parse_args(), Server, Client)


if __name__ == "__main__":
    main()
