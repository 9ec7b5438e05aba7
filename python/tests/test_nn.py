# SPDX-License-Identifier: Apache-2.0
"""Measures sluice.nn against transformers' own layers with the same weights, and its operators against what
torch.compile and torch's opcheck ask of operators."""

import copy

import pytest
from conftest import error
from operator_checks import check_operators

torch = pytest.importorskip("torch", reason="torch is not installed: its tests are skipped")

import sluice.nn

SIZES = dict(
    hidden_size=32, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
    linear_value_head_dim=24, linear_conv_kernel_dim=4, num_hidden_layers=1, layer_types=["linear_attention"],
)  # fmt: skip


def layer_of_transformers(kind):
    torch.manual_seed(3)
    if kind == "qwen3_next":
        found = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
        config = pytest.importorskip("transformers").Qwen3NextConfig(**SIZES)
        layer = found.Qwen3NextGatedDeltaNet(config, 0)
    else:
        found = pytest.importorskip("transformers.models.qwen3_5.modeling_qwen3_5")
        configs = pytest.importorskip("transformers.models.qwen3_5.configuration_qwen3_5")
        layer = found.Qwen3_5GatedDeltaNet(configs.Qwen3_5TextConfig(**SIZES), 0)
    with torch.no_grad():
        layer.dt_bias.copy_(torch.randn(4))
        layer.norm.weight.copy_(torch.randn(24))
    return layer


@pytest.mark.parametrize("kind", ["qwen3_next", "qwen3_5"])
def test_module_is_transformers_layer(kind):
    theirs = layer_of_transformers(kind)
    ours = sluice.nn.GatedDeltaNet.from_transformers(copy.deepcopy(theirs))
    assert sorted(ours.state_dict()) == sorted(theirs.state_dict())
    x = torch.randn(2, 70, 32)
    mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    weight = torch.randn(2, 70, 32)
    found, expected = ours(mine), theirs(other)
    assert error(found.detach().numpy(), expected.detach().numpy()) < 1e-5
    (found * weight).sum().backward()
    (expected * weight).sum().backward()
    assert error(mine.grad.numpy(), other.grad.numpy()) < 2e-5
    wanted = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        assert error(parameter.grad.numpy(), wanted[name].grad.numpy()) < 5e-5, name


def small(packing):
    torch.manual_seed(4)
    return sluice.nn.GatedDeltaNet(32, 2, 4, 16, 24, packing=packing)


def test_packed_documents_are_documents():
    layer, x = small("flat"), torch.randn(1, 50, 32)
    packed = layer(x, torch.tensor([0, 20, 50]))
    apart = torch.cat([layer(x[:, :20]), layer(x[:, 20:])], 1)
    assert error(packed.detach().numpy(), apart.detach().numpy()) < 1e-5


@pytest.mark.parametrize("packing", ["interleaved", "flat"])
def test_compiled_whole(packing):
    layer, x = small(packing), torch.randn(2, 40, 32)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    layer(x).square().sum().backward()
    expected = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    compiled(x).square().sum().backward()
    for parameter, gradient in zip(layer.parameters(), expected):
        assert error(parameter.grad.numpy(), gradient.numpy()) < 1e-6


def test_operators_are_in_order():
    check_operators("cpu")


def test_activation_checkpointing():
    layer, x = small("flat"), torch.randn(2, 30, 32)
    layer(x).sum().backward()
    expected = layer.conv1d.weight.grad.clone()
    layer.zero_grad()
    torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum().backward()
    assert torch.equal(layer.conv1d.weight.grad, expected)
