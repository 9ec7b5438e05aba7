# SPDX-License-Identifier: Apache-2.0
"""Generates with a small Qwen3-Next of random weights, before and after its layers run on Sluice.
Needs sluice, torch and transformers >= 5.16: python examples/python/transformers_generate.py"""

import torch
from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

torch.manual_seed(0)
sizes = dict(vocab_size=512, hidden_size=256, num_hidden_layers=4)
heads = dict(num_attention_heads=4, head_dim=64, linear_num_key_heads=4, linear_num_value_heads=8)
experts = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=128)
model = Qwen3NextForCausalLM(Qwen3NextConfig(**sizes, **heads, **experts)).eval()
prompt = torch.randint(3, 512, (2, 300))
options = dict(max_new_tokens=16, do_sample=False, attention_mask=torch.ones_like(prompt))
before = model.generate(prompt, **options)

# [readme-transformers]
import sluice.engines.transformers as sluice_hf

with sluice_hf.patched(model) as handle:
    tokens = model.generate(prompt, **options)
# [readme-transformers]
print(f"same tokens: {torch.equal(before, tokens)}, ran {handle.report()['ran']}")
