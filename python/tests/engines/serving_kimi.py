# SPDX-License-Identifier: Apache-2.0
"""Writes a random-weight Kimi Linear that serving engines load, and computes its logits in float32: three layers of
Kimi delta attention (KDA), then one of latent attention, all with dense feed-forward layers, as which experts a token
goes to is a jump, not a rounding error.

    python serving_kimi.py FOLDER [LAYERS [EMBEDDING OTHERS]]
"""

import json
import pathlib
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from serving_model import VOCABULARY, write_tokenizer

# Kimi-Linear-48B-A3B's width and heads; the feed-forward layer is as wide as its active experts.
SIZES = dict(hidden_size=2304, intermediate_size=9216, heads=32, head_dim=128, kv_lora_rank=512, qk_nope_head_dim=128,
             qk_rope_head_dim=64, v_head_dim=128)
CONV = 4
PERIOD = 4
# SGLang 0.5.17 gives the norm after KDA this one, whatever the configuration says.
EPS = 1e-5


def configuration(layers, sizes):
    """The published checkpoint's fields. Layers are counted from 1 there."""
    full = list(range(PERIOD, layers + 1, PERIOD))
    linear = dict(full_attn_layers=full, kda_layers=[i for i in range(1, layers + 1) if i not in full],
                  head_dim=sizes["head_dim"], num_heads=sizes["heads"], short_conv_kernel_size=CONV)
    others = {name: size for name, size in sizes.items() if name not in ("heads", "head_dim")}
    return dict(
        architectures=["KimiLinearForCausalLM"], model_type="kimi_linear", dtype="bfloat16", vocab_size=VOCABULARY,
        num_hidden_layers=layers, num_attention_heads=sizes["heads"], num_key_value_heads=sizes["heads"],
        linear_attn_config=linear, q_lora_rank=None, mla_use_nope=True, rope_theta=10000.0, hidden_act="silu",
        rms_norm_eps=EPS, first_k_dense_replace=layers, moe_layer_freq=1, num_shared_experts=1,
        tie_word_embeddings=False, max_position_embeddings=131072, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    ) | others


def shapes(config):
    """The shape of every tensor of the checkpoint but its gates' constants."""
    width, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    linear = config["linear_attn_config"]
    size, nope, rope = linear["head_dim"], config["qk_nope_head_dim"], config["qk_rope_head_dim"]
    rank, value, whole = config["kv_lora_rank"], config["v_head_dim"], heads * linear["head_dim"]
    kda = {f"{name}_proj": (whole, width) for name in "qkv"} | {f"{name}_conv1d": (whole, 1, CONV) for name in "qkv"}
    kda |= dict(f_a_proj=(size, width), f_b_proj=(whole, size), g_a_proj=(size, width), g_b_proj=(whole, size),
                b_proj=(heads, width), o_norm=(size,), o_proj=(width, whole))
    latent = dict(q_proj=(heads * (nope + rope), width), kv_a_proj_with_mqa=(rank + rope, width),
                  kv_a_layernorm=(rank,), kv_b_proj=(heads * (nope + value), rank), o_proj=(width, heads * value))
    found = {"model.embed_tokens": (VOCABULARY, width), "model.norm": (width,), "lm_head": (VOCABULARY, width)}
    for layer in range(config["num_hidden_layers"]):
        parts = {f"self_attn.{name}": shape for name, shape in
                 (kda if layer + 1 in linear["kda_layers"] else latent).items()}
        parts |= {"mlp.gate_proj": (inner, width), "mlp.up_proj": (inner, width), "mlp.down_proj": (width, inner),
                  "input_layernorm": (width,), "post_attention_layernorm": (width,)}
        found |= {f"model.layers.{layer}.{name}": shape for name, shape in parts.items()}
    return {f"{name}.weight": shape for name, shape in found.items()}


def draw(name, shape, embedding, others):
    if len(shape) == 1:
        return torch.ones(shape)
    if "conv1d" in name:
        return torch.empty(shape).uniform_(-0.5, 0.5)
    return torch.randn(shape) * 0.02 * (embedding if "embed_tokens" in name else 3 if "lm_head" in name else others)


def write(folder, layers=4, embedding=3, others=3, sizes=None, device="cuda"):
    """Weights are the same every time; `embedding` and `others` are serving_model.write's."""
    config = configuration(layers, SIZES | (sizes or {}))
    linear = config["linear_attn_config"]
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    with torch.device(device):
        tensors = {name: draw(name, shape, embedding, others).bfloat16() for name, shape in shapes(config).items()}
        for layer in linear["kda_layers"]:
            attention = f"model.layers.{layer - 1}.self_attn"
            heads, size = linear["num_heads"], linear["head_dim"]
            tensors[f"{attention}.A_log"] = torch.empty(1, 1, heads, 1).uniform_(1, 16).log()
            # The inverse softplus of time steps from 0.001 to 0.1.
            steps = torch.empty(heads * size).uniform_(-6.9, -2.3).exp()
            tensors[f"{attention}.dt_bias"] = steps + torch.log(-torch.expm1(-steps))
    save_file({name: tensor.cpu() for name, tensor in tensors.items()}, folder / "model.safetensors",
              metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    write_tokenizer(folder)


class Reference:
    """The model in float32, token by token where it has states."""

    def __init__(self, folder, device):
        folder = pathlib.Path(folder)
        self.config = json.loads((folder / "config.json").read_text())
        self.tensors = {name: tensor.to(device).float() for name, tensor in
                        load_file(folder / "model.safetensors").items()}

    def linear(self, x, name):
        return F.linear(x, self.tensors[f"{name}.weight"])

    def norm(self, x, name):
        return F.rms_norm(x, x.shape[-1:], self.tensors[f"{name}.weight"], EPS)

    def kda(self, x, name):
        heads = self.config["linear_attn_config"]["num_heads"]
        rows = []
        for part in "qkv":
            line = F.pad(self.linear(x, f"{name}.{part}_proj").t(), (CONV - 1, 0))
            weight = self.tensors[f"{name}.{part}_conv1d.weight"]
            rows.append(F.silu(F.conv1d(line, weight, groups=len(weight))).t().unflatten(-1, (heads, -1)))
        q, k, v = rows
        q, k = (row * torch.rsqrt(row.square().sum(-1, keepdim=True) + 1e-6) for row in (q, k))
        q = q * q.shape[-1] ** -0.5
        raw = self.linear(self.linear(x, f"{name}.f_a_proj"), f"{name}.f_b_proj") + self.tensors[f"{name}.dt_bias"]
        speed = self.tensors[f"{name}.A_log"].view(heads, 1).exp()
        decay = torch.exp(-speed * F.softplus(raw.unflatten(-1, (heads, -1)), threshold=20)).unsqueeze(-1)
        beta = self.linear(x, f"{name}.b_proj").sigmoid().unsqueeze(-1)
        state, out = x.new_zeros(heads, k.shape[-1], v.shape[-1]), torch.empty_like(v)
        for t in range(len(x)):
            state = state * decay[t]
            wrong = beta[t] * (v[t] - torch.einsum("hk,hkv->hv", k[t], state))
            state = state + k[t].unsqueeze(-1) * wrong.unsqueeze(1)
            out[t] = torch.einsum("hk,hkv->hv", q[t], state)
        gate = self.linear(self.linear(x, f"{name}.g_a_proj"), f"{name}.g_b_proj").unflatten(-1, (heads, -1))
        return self.linear((self.norm(out, f"{name}.o_norm") * gate.sigmoid()).flatten(1), f"{name}.o_proj")

    def latent(self, x, name):
        """Latent attention without positions."""
        config = self.config
        heads, nope, rank = config["num_attention_heads"], config["qk_nope_head_dim"], config["kv_lora_rank"]
        q = self.linear(x, f"{name}.q_proj").unflatten(-1, (heads, -1))
        latent, shared = self.linear(x, f"{name}.kv_a_proj_with_mqa").tensor_split([rank], dim=-1)
        pairs = self.linear(self.norm(latent, f"{name}.kv_a_layernorm"), f"{name}.kv_b_proj")
        k, v = pairs.unflatten(-1, (heads, -1)).tensor_split([nope], dim=-1)
        k = torch.cat([k, shared.unsqueeze(1).expand(-1, heads, -1)], dim=-1)
        out = F.scaled_dot_product_attention(*(row.transpose(0, 1) for row in (q, k, v)), is_causal=True)
        return self.linear(out.transpose(0, 1).flatten(1), f"{name}.o_proj")

    @torch.no_grad()
    def logits(self, ids, last):
        """Logits [last, vocabulary] of the last tokens of `ids` [T]."""
        x = self.tensors["model.embed_tokens.weight"][ids]
        for layer in range(self.config["num_hidden_layers"]):
            name = f"model.layers.{layer}"
            mix = self.kda if layer + 1 in self.config["linear_attn_config"]["kda_layers"] else self.latent
            x = x + mix(self.norm(x, f"{name}.input_layernorm"), f"{name}.self_attn")
            y = self.norm(x, f"{name}.post_attention_layernorm")
            inner = F.silu(self.linear(y, f"{name}.mlp.gate_proj")) * self.linear(y, f"{name}.mlp.up_proj")
            x = x + self.linear(inner, f"{name}.mlp.down_proj")
        return self.linear(self.norm(x[-last:], "model.norm"), "lm_head")


def reference(folder, device):
    """Gives the logits of a model's last tokens in float32: of a Kimi Linear, or by transformers."""
    if json.loads((pathlib.Path(folder) / "config.json").read_text())["model_type"] == "kimi_linear":
        return Reference(folder, device).logits
    from transformers import Qwen3NextForCausalLM

    made = Qwen3NextForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device).eval()
    return lambda ids, last: made(ids[None], logits_to_keep=last).logits[0]


if __name__ == "__main__":
    write(sys.argv[1], *map(int, sys.argv[2:3]), *map(float, sys.argv[3:5]))
