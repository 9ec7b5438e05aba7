# SPDX-License-Identifier: Apache-2.0
"""Writes a random-weight Qwen3-Next that serving engines load: bfloat16 weights, one draft layer (MTP) and a
tokenizer whose token 17 is the word "t17"."""

import pathlib
import sys

import torch
import transformers
from small_models import build
from tokenizers import Tokenizer, models, pre_tokenizers

VOCABULARY = 32768
# Qwen3-Next-80B-A3B's width, attention and heads; the feed-forward layer is as wide as its active experts.
SIZES = dict(
    vocab_size=VOCABULARY,
    hidden_size=2048,
    intermediate_size=5632,
    num_attention_heads=16,
    num_key_value_heads=2,
    head_dim=256,
    linear_key_head_dim=128,
    linear_value_head_dim=128,
    max_position_embeddings=131072,
    # vLLM asks for a layer with experts. All of them are taken: which ones a token goes to is a jump,
    # not a rounding error.
    num_experts=4,
    num_experts_per_tok=4,
    moe_intermediate_size=512,
    shared_expert_intermediate_size=512,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)


def add_drafts(folder, layers):
    """Adds a draft layer: the last layer's attention and the first one's experts, fed mostly by the embedding, so that
    drafts are often right where the model's own embedding is large."""
    from safetensors.torch import load_file, save_file

    path = pathlib.Path(folder) / "model.safetensors"
    tensors = load_file(path)
    first, last = "model.layers.0.mlp.", f"model.layers.{layers - 1}."
    for name in list(tensors):
        if name.startswith(first):
            tensors[name.replace(first, "mtp.layers.0.mlp.")] = tensors[name].clone()
        elif name.startswith(last) and ".mlp." not in name:
            tensors[name.replace(last, "mtp.layers.0.")] = tensors[name].clone()
    width = SIZES["hidden_size"]
    mix = torch.cat([10 * torch.eye(width), torch.eye(width)], dim=1)
    tensors["mtp.fc.weight"] = mix.to(torch.bfloat16)
    # These norms multiply by 1 + weight.
    for name in ("norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding"):
        tensors[f"mtp.{name}.weight"] = torch.zeros(width, dtype=torch.bfloat16)
    save_file(tensors, path, metadata={"format": "pt"})


def write(folder, layers=4, key_heads=16, value_heads=32, embedding=3, others=3, dense=True, device="cuda"):
    """Weights are larger than the initialiser's: `embedding` times, `others` times in all layers. A large embedding
    makes tokens easy to draft. The first layer has the experts, as vLLM gives them to draft layers by its number; all
    others are dense, or have experts too, as SGLang knows no others."""
    with torch.device(device):
        model = build(
            "qwen3_next",
            lambda name: embedding if "embed_tokens" in name else 3 if "lm_head" in name else others,
            num_hidden_layers=layers,
            linear_num_key_heads=key_heads,
            linear_num_value_heads=value_heads,
            mlp_only_layers=list(range(1, layers)) if dense else [],
            **SIZES,
        )
    model.config.full_attention_interval = 4  # transformers' default, which SGLang reads
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="100GB")
    add_drafts(folder, layers)
    write_tokenizer(folder)


def write_tokenizer(folder):
    words = models.WordLevel({f"t{i}": i for i in range(VOCABULARY)}, unk_token="t0")
    tokenizer = Tokenizer(words)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="t1", eos_token="t2", pad_token="t0"
    ).save_pretrained(folder)


if __name__ == "__main__":  # python serving_model.py FOLDER [LAYERS [KEY_HEADS VALUE_HEADS [EMBEDDING OTHERS]]]
    write(sys.argv[1], *map(int, sys.argv[2:5]), *map(float, sys.argv[5:7]))
