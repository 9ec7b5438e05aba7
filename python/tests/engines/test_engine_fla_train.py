# SPDX-License-Identifier: Apache-2.0
"""Measures fla's layer in training on Sluice: its convolution, rule and gated norm, each with gradients, against the
same layer written down in float64; and what is left to fla."""

import pytest

torch = pytest.importorskip("torch")

import sluice
from engine_reference import gated_norm, recurrence
from sluice.engines import fla
from sluice.engines.fla import backend, parts

functional = torch.nn.functional
LIMIT = 2e-5


def layer_in_float64(layer, x):
    """What fla.layers.GatedDeltaNet computes from its parameters, one equation a line."""
    def convolved(name, heads):
        conv, rows = getattr(layer, f"{name}_conv1d"), getattr(layer, f"{name}_proj")(x).transpose(1, 2)
        padded = functional.pad(rows, (conv.weight.shape[2] - 1, 0))
        out = functional.conv1d(padded, conv.weight, conv.bias, groups=conv.weight.shape[0])
        return functional.silu(out).transpose(1, 2).unflatten(-1, (heads, -1))

    q, k = (convolved(name, layer.num_heads) for name in "qk")
    v = convolved("v", layer.num_v_heads)
    g = -layer.A_log.exp() * functional.softplus(layer.a_proj(x) + layer.dt_bias)
    o = torch.stack([recurrence(*row, l2=True)[0] for row in zip(q, k, v, g, layer.b_proj(x).sigmoid())])
    z = layer.g_proj(x).unflatten(-1, (layer.num_v_heads, -1))
    return layer.o_proj(gated_norm(o, z, layer.o_norm.weight, layer.o_norm.eps).flatten(2))


def near(found, expected):
    assert (found.double() - expected).norm() <= LIMIT * expected.norm()


@pytest.fixture
def registered(monkeypatch):
    pytest.importorskip("fla", reason="flash-linear-attention is not installed")
    layers = pytest.importorskip("fla.layers", reason="fla.layers needs transformers")
    monkeypatch.delenv("FLA_SLUICE", raising=False)
    backend.tally.ran.clear()
    backend.tally.handed_back.clear()
    assert fla.register()
    yield layers.GatedDeltaNet
    fla.unregister()


@pytest.mark.parametrize("bias", [False, True])
def test_gradients_of_fla_s_layer(registered, bias):
    torch.manual_seed(0)
    layer = registered(hidden_size=32, expand_v=1.5, head_dim=16, num_heads=2, num_v_heads=4, conv_bias=bias)
    x, weight = torch.randn(2, 40, 32), torch.randn(2, 40, 32)
    mine, other = x.clone().requires_grad_(), x.double().requires_grad_()
    out, _, _ = layer(mine)
    (out * weight).sum().backward()
    found = {name: p.grad for name, p in layer.named_parameters()}
    layer.double().zero_grad()
    expected = layer_in_float64(layer, other)
    (expected * weight).sum().backward()
    near(out, expected)
    near(mine.grad, other.grad)
    for name, parameter in layer.named_parameters():
        near(found[name], parameter.grad)
    names = {"fla.causal_conv1d", "fla.chunk_gated_delta_rule", "fla.rms_norm_gated"}
    assert set(backend.tally.ran) == names and not backend.tally.handed_back


def test_packed_rows_and_three_convolutions(registered):
    torch.manual_seed(1)
    layer = registered(hidden_size=32, expand_v=1.5, head_dim=16, num_heads=2, num_v_heads=4)
    x = torch.randn(1, 50, 32)
    packed, _, _ = layer(x, cu_seqlens=torch.tensor([0, 20, 50]))
    packed.square().sum().backward()
    found = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    apart = torch.cat([layer(x[:, :20])[0], layer(x[:, 20:])[0]], 1)
    apart.square().sum().backward()
    near(packed, apart.double())
    for gradient, parameter in zip(found, layer.parameters()):
        near(gradient, parameter.grad.double())


def test_unregistered_and_without_the_layers(registered):
    convolution = pytest.importorskip("fla.modules.convolution")
    ours = convolution.causal_conv1d
    fla.unregister()
    original = convolution.causal_conv1d
    assert original is not ours
    assert fla.register(layers=False) and convolution.causal_conv1d is original


def test_convolution_of_fla():
    torch.manual_seed(2)
    x, weight = torch.randn(2, 9, 8), torch.randn(8, 4)
    out, final = parts.causal_conv1d(x, weight, output_final_state=True, activation="swish", backend="triton")
    expected, _ = sluice.causal_conv1d(x, weight, activation="silu")
    assert torch.equal(out, expected) and torch.equal(final, x[:, -4:].transpose(1, 2))
    more, last = parts.causal_conv1d(x, weight, initial_state=final, output_final_state=True, activation="swish")
    assert torch.equal(more, sluice.causal_conv1d(torch.cat([x, x], 1), weight, activation="silu")[0][:, 9:])
    assert torch.equal(last, final)
    for name in ("residual", "cp_context"):
        with pytest.raises(sluice.Unsupported, match=f"fla.causal_conv1d: {name} = "):
            parts.causal_conv1d(x, weight, **{name: x})
    with pytest.raises(sluice.Unsupported, match="fla.causal_conv1d: x = tensor"):
        parts.causal_conv1d(x[0], weight)


def test_gated_norm_of_fla():
    torch.manual_seed(3)
    x, z, weight = torch.randn(2, 3, 4, 2, 16), torch.randn(2, 3, 4, 2, 16), torch.randn(16)
    found = parts.rms_norm_gated(x, z, weight, None, "sigmoid", eps=1e-5)
    near(found, gated_norm(x, z, weight, 1e-5, "sigmoid"))
    for name in ("bias", "residual", "prenorm"):
        arguments = {"bias": None, name: x}
        with pytest.raises(sluice.Unsupported, match=f"fla.rms_norm_gated: {name} = "):
            parts.rms_norm_gated(x, z, weight, **arguments)
    with pytest.raises(sluice.Unsupported, match="fla.rms_norm_gated: weight = None"):
        parts.rms_norm_gated(x, z, None, None)
