# SPDX-License-Identifier: Apache-2.0
"""Makes random-weight models of transformers with gated delta rule layers, small ones unless sizes are given, for the
tests and the benchmark of sluice.engines.transformers and for serving engines (serving_model.py)."""

import contextlib

import torch
import transformers

# Sizes that all of the configurations share; linear attention with r = 2 value heads a key head.
_SIZES = dict(
    vocab_size=256,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=32,
    linear_value_head_dim=32,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)
_EXPERTS = dict(
    num_experts=4,
    num_experts_per_tok=2,
    moe_intermediate_size=32,
    shared_expert_intermediate_size=32,
)
# Kimi delta attention, beside latent attention of which only these sizes matter.
_KDA = dict(
    num_local_experts=4,
    num_experts_per_tok=2,
    moe_intermediate_size=32,
    n_group=1,
    topk_group=1,
    kv_lora_rank=32,
    qk_nope_head_dim=16,
    qk_rope_head_dim=16,
    v_head_dim=16,
    num_key_value_heads=4,
    linear_num_heads=4,
    linear_head_dim=32,
)
# Model: (configuration class, model class, its own sizes).
MODELS = {
    "qwen3_next": ("Qwen3NextConfig", "Qwen3NextForCausalLM", _EXPERTS),
    "qwen3_5": ("Qwen3_5TextConfig", "Qwen3_5ForCausalLM", {}),
    "qwen3_5_moe": ("Qwen3_5MoeTextConfig", "Qwen3_5MoeForCausalLM", _EXPERTS),
    "qwen4_exp": (
        "Qwen4ExpTextConfig",
        "Qwen4ExpForCausalLM",
        {
            **_EXPERTS,
            "hc_lowrank": 16,
            "output_gate_type": "sigmoid",
            "indexer_n_heads": 2,
            "indexer_kv_heads": 1,
            "indexer_head_dim": 16,
            # More than the tests' tokens: every block is selected, nothing jumps.
            "indexer_budget": 512,
            "indexer_compress_ratio": 4,
        },
    ),
    "olmo_hybrid": ("OlmoHybridConfig", "OlmoHybridForCausalLM", {}),
    "kimi_linear": ("KimiLinearConfig", "KimiLinearForCausalLM", {**_KDA, "num_hidden_layers": 5}),
    "bailing_hybrid": (
        "BailingHybridConfig",
        "BailingHybridForCausalLM",
        {**_KDA, "head_dim": 16, "layer_group_size": 4, "num_mtp_layers": 0},
    ),
    "glm5_next": (
        "Glm5NextConfig",
        "Glm5NextForConditionalGeneration",
        {
            **_KDA,
            "head_dim": 0,
            "qk_rope_head_dim": 0,
            "q_lora_rank": 32,
            "n_routed_experts": 4,
            # More than the tests' tokens: every block is selected, nothing jumps.
            "index_topk": 512,
            "index_n_heads": 2,
            "index_head_dim": 16,
            "index_kpool": 4,
        },
    ),
}
# Of models whose text is one part of them: the other one's sizes.
_VISION = {
    "glm5_next": dict(
        depth=1, hidden_size=32, num_heads=2, intermediate_size=32, out_hidden_size=64
    ),
}


def installed():
    """The models that the installed transformers has."""
    return [m for m, (_, name, _) in MODELS.items() if hasattr(transformers, name)]


def build(name, factor=lambda parameter: 3, **sizes):
    """The model with random weights, float32, in evaluation mode. Weights are the same every time;
    they are larger than the initialiser's, so that logits differ clearly between tokens: `factor` times,
    given a matrix's name."""
    config_class, model_class, own = MODELS[name]
    sizes = {**_SIZES, **own, **sizes}
    if name in _VISION:
        sizes = dict(text_config=sizes, vision_config=_VISION[name])
    config = getattr(transformers, config_class)(**sizes)
    torch.manual_seed(0)
    model = getattr(transformers, model_class)(config).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.dim() >= 2 and "conv1d" not in parameter_name:
                parameter.mul_(factor(parameter_name))
    return model


def left_padded(lengths, seed, vocabulary=256):
    """Token ids [B, longest] padded on the left, and their mask. Padding is any token, not the
    model's padding token, whose embedding is zero: only the mask says what it is."""
    torch.manual_seed(seed)
    longest = max(lengths)
    ids = torch.randint(3, vocabulary, (len(lengths), longest))
    mask = torch.ones_like(ids)
    for row, length in enumerate(lengths):
        mask[row, : longest - length] = 0
    return ids, mask


@contextlib.contextmanager
def quiet():
    """transformers' warning that its fallback runs, once a function, is expected here."""
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(verbosity)


@contextlib.contextmanager
def one_thread():
    """For tests: the models are too small for more threads, and tests run beside others."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with quiet():
        yield
    torch.set_num_threads(threads)
