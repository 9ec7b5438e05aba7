# SPDX-License-Identifier: Apache-2.0
"""Measures that weights of transformers' checkpoints and of fla's layers go in and out of sluice.nn.GatedDeltaNet, and
that it is transformers' own layers with the same weights."""

import copy
import importlib.util

import pytest
from conftest import error

torch = pytest.importorskip("torch", reason="torch is not installed: its tests are skipped")

import sluice.nn
from torch_checks import assert_near

# Names and shapes of the state dict of fla 0.6.0's GatedDeltaNet(hidden_size=32, expand_v=1.5, head_dim=16,
# num_heads=2, num_v_heads=4, conv_bias=True); the published models of fla have them behind model.layers.N.attn.
FLA = {
    "A_log": (4,),
    "dt_bias": (4,),
    "q_proj.weight": (32, 32),
    "k_proj.weight": (32, 32),
    "v_proj.weight": (96, 32),
    "a_proj.weight": (4, 32),
    "b_proj.weight": (4, 32),
    "q_conv1d.weight": (32, 1, 4),
    "q_conv1d.bias": (32,),
    "k_conv1d.weight": (32, 1, 4),
    "k_conv1d.bias": (32,),
    "v_conv1d.weight": (96, 1, 4),
    "v_conv1d.bias": (96,),
    "g_proj.weight": (96, 32),
    "o_norm.weight": (24,),
    "o_proj.weight": (32, 96),
}


def module(packing, bias=True):
    torch.manual_seed(5)
    return sluice.nn.GatedDeltaNet(32, 2, 4, 16, 24, packing=packing, conv_bias=bias, rounding="once")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("packing", ["interleaved", "flat"])
def test_names_of_fla_both_ways(packing, bias):
    torch.manual_seed(6)
    names = {name: shape for name, shape in FLA.items() if bias or "bias" not in name or name == "dt_bias"}
    given = {name: torch.randn(shape) for name, shape in names.items()}
    layer = module(packing, bias)
    layer.load_fla(given)
    found = layer.fla_state_dict()
    assert {name: tuple(t.shape) for name, t in found.items()} == names
    assert all(torch.equal(found[name], given[name]) for name in names)


def test_both_packings_of_one_layer_of_fla_agree():
    one, other, x = module("interleaved"), module("flat"), torch.randn(2, 20, 32)
    other.load_fla(one.fla_state_dict())
    assert error(one(x).detach().numpy(), other(x).detach().numpy()) < 1e-6


def test_what_is_missing_or_unknown_is_named():
    given = {name: torch.zeros(shape) for name, shape in FLA.items()}
    with pytest.raises(ValueError, match="state dict entry = f_proj.weight, expected those of fla's"):
        module("flat").load_fla({**given, "f_proj.weight": torch.zeros(1)})
    del given["g_proj.weight"]
    with pytest.raises(KeyError, match="g_proj.weight"):
        module("flat").load_fla(given)


def test_layer_of_the_installed_fla():
    pytest.importorskip("fla", reason="flash-linear-attention is not installed")
    layers = pytest.importorskip("fla.layers.gated_deltanet")
    theirs = layers.GatedDeltaNet(
        hidden_size=32, expand_v=1.5, head_dim=16, num_heads=2, num_v_heads=4, conv_bias=True, norm_eps=1e-4
    )
    assert {name: tuple(t.shape) for name, t in theirs.state_dict().items()} == FLA
    ours = sluice.nn.GatedDeltaNet.from_fla(theirs)
    assert ours.norm_eps == 1e-4 and all(p.requires_grad for p in ours.parameters())
    found = ours.fla_state_dict()
    assert all(torch.equal(found[name], t) for name, t in theirs.state_dict().items())
    with pytest.raises(ValueError, match="use_gate = False, expected True"):
        sluice.nn.GatedDeltaNet.from_fla(
            layers.GatedDeltaNet(hidden_size=32, head_dim=16, num_heads=2, use_gate=False)
        )


MODELS = {
    "qwen3_next": ("Qwen3NextConfig", "Qwen3NextForCausalLM", "interleaved"),
    "qwen3_5": ("Qwen3_5TextConfig", "Qwen3_5ForCausalLM", "flat"),
}
SIZES = dict(
    vocab_size=32, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=1, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
    linear_value_head_dim=24, num_experts=2, num_experts_per_tok=1, moe_intermediate_size=16,
    shared_expert_intermediate_size=16, layer_types=["linear_attention", "full_attention"],
)  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_from_pretrained(name, tmp_path):
    """The module is transformers' layer, with its gradients; from the layer and from the file alone, by names."""
    if importlib.util.find_spec("fla") is not None and not torch.cuda.is_available():
        pytest.skip("with fla installed, transformers' own path needs a GPU")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    safetensors = pytest.importorskip("safetensors.torch")
    config, kind, packing = MODELS[name]
    torch.manual_seed(3)
    model, prefix = getattr(transformers, kind)(getattr(transformers, config)(**SIZES)), "model.layers.0.linear_attn."
    with torch.no_grad():
        for parameter in ("dt_bias", "norm.weight"):
            model.get_parameter(prefix + parameter).normal_()
    model.save_pretrained(tmp_path)
    theirs = type(model).from_pretrained(tmp_path).model.layers[0].linear_attn
    given = safetensors.load_file(tmp_path / "model.safetensors")
    own = sluice.nn.GatedDeltaNet(32, 2, 4, 16, 24, packing=packing)
    own.load_state_dict({n.removeprefix(prefix): t for n, t in given.items() if n.startswith(prefix)})
    shared = sluice.nn.GatedDeltaNet.from_transformers(copy.deepcopy(theirs), save_core=True)
    assert sorted(shared.state_dict()) == sorted(theirs.state_dict())
    x, weight = torch.randn(2, 70, 32, requires_grad=True), torch.randn(2, 70, 32)
    expected, found = theirs(x), shared(x)
    assert_near([found, own(x)], [expected, expected], 1e-5)
    names, parameters = zip(*shared.named_parameters())
    wanted = dict(theirs.named_parameters())
    mine = torch.autograd.grad((found * weight).sum(), [x, *parameters])
    other = torch.autograd.grad((expected * weight).sum(), [x, *map(wanted.get, names)])
    assert_near(mine[:1], other[:1], 2e-5)
    assert_near(mine[1:], other[1:], 5e-5)
