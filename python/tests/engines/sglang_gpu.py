# SPDX-License-Identifier: Apache-2.0
"""Measures SGLang's server on a GPU with and without Sluice: whether greedy tokens are equal, and times to the
first and between further tokens. Starts one server for each way over one random-weight Qwen3-Next or Kimi Linear,
asks them over HTTP in turns, and writes answers, times, versions, commands and log lines as JSON.

    python sglang_gpu.py --out FILE [--layers 8] [--servers heads.sglang,heads.sluice,..]   (docs/engines/sglang.md)
"""

import json
import shlex
import time

import serving_measure

DRAFTS = ("--speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 1 "
          "--speculative-num-draft-tokens 4").split()


class Server(serving_measure.Server):
    """One `sglang.launch_server` and its log."""

    telling = ("Sluice|handed back|hooks registered|GDN|attention backend|Capture.*graph|Mamba Cache|KV Cache|"
               "accept len|kernel dispatcher|Traceback")
    packages = ("sglang", "sglang-kernel", "flashinfer-python", "sgl-deep-gemm", *serving_measure.Server.packages)
    environment_prefixes = ("SGLANG_", "TRITON_", "FLASHINFER_")
    # Experts in every layer: SGLang knows no others.
    dense, first_port = False, 8200
    setups = {"heads": ((16, 32, 1000, 1.5), []), "drafts": ((16, 32, 1000, 1.5), DRAFTS),
              "kda": (("kimi", 1000, 1.5), [])}

    def words(self, arguments):
        requests = arguments.requests
        self.asked = {"cached tokens": 0, "verifications": 0, "tokens": 0}
        self.options = [
            "--port", str(self.port), "--attention-backend", "triton", "--linear-attn-backend", "triton",
            "--linear-attn-prefill-backend", self.prefill,
            "--sampling-backend", "pytorch", "--grammar-backend", "none", "--context-length", "70000",
            "--max-running-requests", str(requests), "--stream-interval", "8", "--skip-server-warmup",
            # Several servers share the GPU, so each is told how much it has. A server's pools come out of the fraction
            # of what was free when it started, less what others have taken since.
            "--mem-fraction-static", "0.8", "--max-total-tokens", str(80000 + 4096 * requests),
            "--max-mamba-cache-size", str(60 + 5 * requests),
            "--cuda-graph-bs-decode", *(str(size) for size in self.captured if size <= requests),
            "--cuda-graph-backend-prefill", "disabled",
            "--disable-custom-all-reduce", *self.more,
        ]
        return ["sglang.launch_server", "--model-path", self.model, *self.options]

    def environment(self, _):
        return dict(SLUICE_SGLANG=self.switch, HF_HUB_OFFLINE="1")

    def command(self):
        return (f"SLUICE_SGLANG={self.switch} python -m sglang.launch_server --model-path MODEL "
                f"{shlex.join(self.options)}")

    def counts(self):
        """What its answers said of drafts and of the prefix cache."""
        return self.asked


class Client(serving_measure.Client):
    """Asks a server for greedy tokens."""

    async def one(self, server, ids, tokens, logprobs=None):
        body = dict(input_ids=ids, stream=True, return_logprob=bool(logprobs), top_logprobs_num=logprobs or 0,
                    sampling_params=dict(temperature=0, max_new_tokens=tokens, ignore_eos=True))
        start, first, last, early, answer = time.monotonic(), None, None, 0, None
        async for answer in self.lines(server, "/generate", body):
            last = time.monotonic()
            if first is None:
                first, early = last, json.loads(answer)["meta_info"]["completion_tokens"]
        answer = json.loads(answer)
        meta = answer.get("meta_info", {})
        if meta.get("completion_tokens", 0) < tokens:
            raise RuntimeError(f"{server.name}: {str(answer)[:300]}")
        for name, key in (("cached tokens", "cached_tokens"), ("verifications", "spec_verify_ct"),
                          ("tokens", "completion_tokens")):
            server.asked[name] += meta.get(key) or 0
        best = [{f"t{token}": value for value, token, _ in (chosen, *others)} for chosen, others in
                zip(meta.get("output_token_logprobs") or (), meta.get("output_top_logprobs") or ())]
        return answer["output_ids"][-tokens:], best, first - start, (last - first) / max(tokens - early, 1)


def main():
    made = serving_measure.parser(__doc__, servers="heads.sglang,heads.sluice",
                                  timed="heads.sglang,heads.sluice,drafts.sglang,drafts.sluice")
    made.add_argument("--requests", type=int, default=128, help="how many each server runs at once")
    serving_measure.run(made.parse_args(), Server, Client)


if __name__ == "__main__":
    main()
