#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a small GGUF model of random weights: Qwen3.5's architecture, every fourth layer full attention.

    make_gguf.py OUT [--hidden 64 --heads 4 --key-heads 2 --value-heads 4 --head-dim 32 --layers 4 ..]

It has no tokenizer: programs feed token numbers. Equal options give equal bytes. Needs numpy alone.
"""

import argparse
import pathlib
import struct

import numpy as np

ALIGNMENT = 32
UINT32, FLOAT32, STRING, ARRAY = 4, 6, 8, 9
CONV_WIDTH = 4


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def entry(key, value):
    """A key and its value, of the type that llama.cpp expects: str, int, float or a list of int."""
    if isinstance(value, str):
        return text(key) + struct.pack("<I", STRING) + text(value)
    if isinstance(value, list):
        numbers = struct.pack(f"<{len(value)}I", *value)
        return text(key) + struct.pack("<IIQ", ARRAY, UINT32, len(value)) + numbers
    kind, form = (FLOAT32, "<If") if isinstance(value, float) else (UINT32, "<II")
    return text(key) + struct.pack(form, kind, value)


def metadata(o):
    arch = "qwen35"
    rope = o.head_dim // 2
    values = {
        "block_count": o.layers, "context_length": 8192, "embedding_length": o.hidden,
        "feed_forward_length": o.feed_forward, "vocab_size": o.vocabulary,
        "attention.head_count": o.heads, "attention.head_count_kv": max(1, o.heads // 4),
        "attention.key_length": o.head_dim, "attention.value_length": o.head_dim,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.dimension_count": rope, "rope.freq_base": 1e7,
        "rope.dimension_sections": [rope // 2 - rope // 8 * 2, rope // 8, rope // 8, 0],
        "ssm.conv_kernel": CONV_WIDTH, "ssm.state_size": o.state_dim,
        "ssm.inner_size": o.value_heads * o.state_dim, "ssm.time_step_rank": o.value_heads,
        "ssm.group_count": o.key_heads, "full_attention_interval": 4,
    }
    return {"general.architecture": arch, "general.name": "random weights",
            "tokenizer.ggml.model": "no_vocab", **{f"{arch}.{k}": v for k, v in values.items()}}


def shapes(o):
    """Name -> shape as numpy has it, outermost first (GGUF lists the innermost first)."""
    kv = max(1, o.heads // 4) * o.head_dim
    inner, keys = o.value_heads * o.state_dim, o.key_heads * o.state_dim
    found = {"token_embd.weight": (o.vocabulary, o.hidden), "output_norm.weight": (o.hidden,),
             "output.weight": (o.vocabulary, o.hidden)}
    for i in range(o.layers):
        layer = {
            "attn_norm.weight": (o.hidden,), "post_attention_norm.weight": (o.hidden,),
            "ffn_gate.weight": (o.feed_forward, o.hidden), "ffn_up.weight": (o.feed_forward, o.hidden),
            "ffn_down.weight": (o.hidden, o.feed_forward),
        }
        if (i + 1) % 4 == 0:
            layer |= {
                "attn_q.weight": (2 * o.heads * o.head_dim, o.hidden), "attn_k.weight": (kv, o.hidden),
                "attn_v.weight": (kv, o.hidden), "attn_output.weight": (o.hidden, o.heads * o.head_dim),
                "attn_q_norm.weight": (o.head_dim,), "attn_k_norm.weight": (o.head_dim,),
            }
        else:
            layer |= {
                "attn_qkv.weight": (2 * keys + inner, o.hidden), "attn_gate.weight": (inner, o.hidden),
                "ssm_conv1d.weight": (2 * keys + inner, CONV_WIDTH), "ssm_dt.bias": (o.value_heads,),
                "ssm_a": (o.value_heads,), "ssm_beta.weight": (o.value_heads, o.hidden),
                "ssm_alpha.weight": (o.value_heads, o.hidden), "ssm_norm.weight": (o.state_dim,),
                "ssm_out.weight": (o.hidden, inner),
            }
        found |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
    return found


def values(name, shape, random):
    """Norms near one, decays -A from -1 to -0.02, other weights of the usual size."""
    if name.endswith("norm.weight"):
        return 1 + 0.1 * random.standard_normal(shape)
    if name.endswith("ssm_a"):
        return -np.exp(random.uniform(np.log(0.02), 0, shape))
    return random.standard_normal(shape) * (2.0 if name == "output.weight" else 1.0) * shape[-1] ** -0.5


def write(path, o):
    random = np.random.default_rng(o.seed)
    pairs, tensors = metadata(o), shapes(o)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    head += b"".join(entry(key, value) for key, value in pairs.items())
    offset = 0
    for name, shape in tensors.items():
        head += text(name) + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", 0, offset)
        offset += -(-4 * int(np.prod(shape)) // ALIGNMENT) * ALIGNMENT
    with open(path, "wb") as out:
        out.write(head + bytes(-len(head) % ALIGNMENT))
        for name, shape in tensors.items():
            data = values(name, shape, random).astype("<f4").tobytes()
            out.write(data + bytes(-len(data) % ALIGNMENT))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    for name, value in {"hidden": 64, "heads": 4, "head-dim": 32, "key-heads": 2, "value-heads": 4,
                        "state-dim": 32, "layers": 4, "feed-forward": 128, "vocabulary": 512, "seed": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    write(options.out, options)


if __name__ == "__main__":
    main()
