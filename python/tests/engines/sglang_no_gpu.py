# SPDX-License-Identifier: Apache-2.0
"""Asks the server of SGLang 0.5.17 as it would serve on a Hopper (scheduler, prefix cache with states, batches) for
tokens without a GPU, and compares what it says with transformers.

Tensors lie in host memory (sglang_host.py), SGLang's own small Triton kernels are interpreted, experts give zero, the
gated delta rule and its convolution run on Sluice's CPU kernels through the plug-in. Everything is float32, and so is
the truth: log-probabilities of the generated tokens by transformers, or by serving_kimi.py, over the same weights. What
a GPU adds is not seen: kernels, streams, CUDA graphs.

    python sglang_no_gpu.py [--drafts | --kda] [--log FILE]

Wants sglang 0.5.17 and sglang-kernel 0.4.5 with torch 2.11.0, and Sluice; minutes of one processor.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import serving_kimi
import serving_no_gpu
from sglang_gpu import DRAFTS

SMALL_KIMI = dict(hidden_size=128, intermediate_size=64, heads=4, head_dim=32, kv_lora_rank=256, qk_nope_head_dim=32,
                  qk_rope_head_dim=32, v_head_dim=32, dtype="float32")
PORT = 8200
OPTIONS = (
    "--attention-backend triton --linear-attn-backend triton --sampling-backend pytorch --grammar-backend none "
    "--disable-cuda-graph --skip-server-warmup --disable-custom-all-reduce --dtype float32 --mamba-ssm-dtype float32 "
    "--max-total-tokens 4096 --max-mamba-cache-size 16 --max-running-requests 8 --context-length 2048 "
    "--mem-fraction-static 0.5"
).split()
# Without drafts and with: a larger embedding, so that some drafts are right.
EMBEDDING = (3, 20)


def write_model(folder, embedding, kda):
    if kda:
        return serving_kimi.write(folder, 4, embedding, sizes=SMALL_KIMI, device="cpu")
    serving_no_gpu.write_model(folder, embedding, dense=False)


def start(folder, model, log, more):
    """The server; every process of it imports sglang_host first."""
    here = str(pathlib.Path(__file__).parent)
    (pathlib.Path(folder) / "sitecustomize.py").write_text("import sglang_host\n")
    paths = [folder, here, os.environ.get("PYTHONPATH", "")]
    environment = dict(os.environ, SLUICE_SGLANG="1", TRITON_INTERPRET="1", SGLANG_MAMBA_CONV_DTYPE="float32",
                       SGLANG_DISABLE_CUDNN_CHECK="1", HF_HUB_OFFLINE="1", PYTHONPATH=os.pathsep.join(paths))
    words = [sys.executable, "-m", "sglang.launch_server", "--model-path", model, "--port", str(PORT), *OPTIONS, *more]
    return subprocess.Popen(words, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def ask(path, body=None):
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", body and json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=600) as answer:
        return answer.read()


def answer(ids):
    sampling = dict(temperature=0, max_new_tokens=serving_no_gpu.NEW_TOKENS, ignore_eos=True)
    got = json.loads(ask("/generate", dict(input_ids=ids, sampling_params=sampling, return_logprob=True)))
    meta = got["meta_info"]
    return ids, got["output_ids"], [row[0] for row in meta["output_token_logprobs"]], (
        meta["cached_tokens"], meta.get("spec_verify_ct", 0))


def answers(server):
    while server.poll() is None:
        try:
            ask("/health")
            break
        except (urllib.error.URLError, OSError):
            time.sleep(1)
    prompts = serving_no_gpu.prompts()
    with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
        return [row for group in serving_no_gpu.ORDER for row in pool.map(answer, [prompts[i] for i in group])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--drafts", action="store_true", help="with three MTP drafts a step")
    kind.add_argument("--kda", action="store_true", help="a Kimi Linear instead of a Qwen3-Next")
    parser.add_argument("--log", default="sglang_no_gpu.log")
    arguments = parser.parse_args()
    path = pathlib.Path(arguments.log)
    with tempfile.TemporaryDirectory() as folder, path.open("w") as log:
        model = f"{folder}/model"
        write_model(model, EMBEDDING[arguments.drafts], arguments.kda)
        server = start(folder, model, log, DRAFTS if arguments.drafts else ())
        try:
            rows = answers(server)
        finally:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGKILL)
        tokens, best, distance = serving_no_gpu.compare(model, [row[:3] for row in rows])
    cached, verified = (sum(row[3][i] for row in rows) for i in range(2))
    for line in re.findall(r"sglang\.\w+ (?:runs on Sluice|handed back.*)", path.read_text()):
        print(line)
    print(f"{tokens} tokens, {best} of them float32's best; log-probabilities within {distance:.1e}; "
          f"{cached} tokens of prompts from the prefix cache; {verified} verifications of drafts")
    sys.exit(best < tokens or not distance < serving_no_gpu.TOLERANCE)


if __name__ == "__main__":
    main()
