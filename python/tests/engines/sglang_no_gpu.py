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
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from unittest import mock

import serving_kimi
import serving_model
import torch
import transformers
from safetensors.torch import load_file, save_file

SMALL = dict(hidden_size=128, intermediate_size=64, moe_intermediate_size=64, shared_expert_intermediate_size=64,
             num_attention_heads=4, head_dim=32, linear_key_head_dim=32, linear_value_head_dim=32)
SMALL_KIMI = dict(hidden_size=128, intermediate_size=64, heads=4, head_dim=32, kv_lora_rank=256, qk_nope_head_dim=32,
                  qk_rope_head_dim=32, v_head_dim=32, dtype="float32")
# The third alone, then all at once, then all again, when the prefix cache has the beginnings of some.
LENGTHS = (3, 65, 130, 300)
ORDER = ((2,), range(4), range(4))
NEW_TOKENS = 6
# NUM: float32 with sums in other orders, through four layers; log-probabilities are about 10.
TOLERANCE = 2e-3
PORT = 8200
OPTIONS = (
    "--attention-backend triton --linear-attn-backend triton --sampling-backend pytorch --grammar-backend none "
    "--disable-cuda-graph --skip-server-warmup --disable-custom-all-reduce --dtype float32 --mamba-ssm-dtype float32 "
    "--max-total-tokens 4096 --max-mamba-cache-size 16 --max-running-requests 8 --context-length 2048 "
    "--mem-fraction-static 0.5"
).split()
DRAFTS = ("--speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 1 "
          "--speculative-num-draft-tokens 4").split()
# Without drafts and with: a larger embedding, so that some drafts are right.
EMBEDDING = (3, 20)


def write_model(folder, embedding, kda):
    if kda:
        return serving_kimi.write(folder, 4, embedding, sizes=SMALL_KIMI, device="cpu")
    with mock.patch.dict(serving_model.SIZES, SMALL):
        serving_model.write(folder, 4, 2, 4, embedding, dense=False, device="cpu")
    path = pathlib.Path(folder) / "model.safetensors"
    tensors = load_file(path)
    for name, tensor in tensors.items():
        if ".mlp." in name and "down_proj" in name:
            tensor.zero_()
    save_file(tensors, path, metadata={"format": "pt"})


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
    sampling = dict(temperature=0, max_new_tokens=NEW_TOKENS, ignore_eos=True)
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
    draw = random.Random(0)
    prompts = [[draw.randrange(3, serving_model.VOCABULARY) for _ in range(length)] for length in LENGTHS]
    with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
        return [row for group in ORDER for row in pool.map(answer, [prompts[i] for i in group])]


def reference(model):
    """Gives the logits of a model's last tokens in float32."""
    if serving_kimi.is_kimi(model):
        return serving_kimi.Reference(model, "cpu").logits
    truth = transformers.Qwen3NextForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    return lambda ids, last: truth(ids[None]).logits[0, -last:]


def compare(model, rows):
    """(tokens, how many are float32's best, the largest distance of their log-probabilities, tokens from the prefix
    cache, verifications of drafts)."""
    logits, best, distances = reference(model), 0, []
    for ids, got, logprobs, _ in rows:
        with torch.no_grad():
            steps = logits(torch.tensor(ids + got[:-1]), len(got)).log_softmax(-1)
        best += sum(step.argmax().item() == token for step, token in zip(steps, got))
        distances += [abs(step[token].item() - said) for step, token, said in zip(steps, got, logprobs)]
    return len(distances), best, max(distances), *(sum(row[3][i] for row in rows) for i in range(2))


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
        tokens, best, distance, cached, verified = compare(model, rows)
    for line in re.findall(r"sglang\.\w+ (?:runs on Sluice|handed back.*)", path.read_text()):
        print(line)
    print(f"{tokens} tokens, {best} of them float32's best; log-probabilities within {distance:.1e}; "
          f"{cached} tokens of prompts from the prefix cache; {verified} verifications of drafts")
    sys.exit(best < tokens or not distance < TOLERANCE)


if __name__ == "__main__":
    main()
