# SPDX-License-Identifier: Apache-2.0
"""Makes what vllm_no_gpu.py and sglang_no_gpu.py ask an engine without a GPU: a small random-weight Qwen3-Next and
prompts for it; and compares the answers with float32."""

import pathlib
import random
from unittest import mock

import serving_kimi
import serving_model
import torch
from safetensors.torch import load_file, save_file

SMALL = dict(hidden_size=128, intermediate_size=64, moe_intermediate_size=64, shared_expert_intermediate_size=64,
             num_attention_heads=4, head_dim=32, linear_key_head_dim=32, linear_value_head_dim=32)
# The third alone, then all at once, then all again, when the prefix cache has the beginnings of some.
LENGTHS = (3, 65, 130, 300)
ORDER = ((2,), range(4), range(4))
NEW_TOKENS = 6
# NUM: float32 with sums in other orders, through four layers; log-probabilities are about 10.
TOLERANCE = 2e-3


def write_model(folder, embedding=3, dense=True):
    """Experts give zero: an engine's own are kernels of CUDA alone, and left out there."""
    with mock.patch.dict(serving_model.SIZES, SMALL):
        serving_model.write(folder, 4, 2, 4, embedding, dense=dense, device="cpu")
    path = pathlib.Path(folder) / "model.safetensors"
    tensors = load_file(path)
    for name, tensor in tensors.items():
        if "expert" in name and "down_proj" in name:
            tensor.zero_()
    save_file(tensors, path, metadata={"format": "pt"})


def prompts():
    draw = random.Random(0)
    return [[draw.randrange(3, serving_model.VOCABULARY) for _ in range(length)] for length in LENGTHS]


def compare(model, rows):
    """(tokens, how many are float32's best, the largest distance of their log-probabilities) of rows (prompt, generated
    tokens, log-probabilities that the engine gave for those)."""
    logits, best, distances = serving_kimi.reference(model, "cpu"), 0, []
    for ids, got, logprobs in rows:
        with torch.no_grad():
            steps = logits(torch.tensor(ids + got[:-1]), len(got)).log_softmax(-1)
        best += sum(step.argmax().item() == token for step, token in zip(steps, got, strict=True))
        distances += [abs(step[token].item() - said) for step, token, said in zip(steps, got, logprobs, strict=True)]
    return len(distances), best, max(distances)
