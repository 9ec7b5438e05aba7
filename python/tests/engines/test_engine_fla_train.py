# SPDX-License-Identifier: Apache-2.0
"""Measures fla's layer in training on Sluice: its convolution, rule and gated norm, each with gradients, against the
same layer written down in float64; and what is left to fla."""

import math

import pytest

torch = pytest.importorskip("torch")

import sluice
from sluice.engines import fla
from sluice.engines.fla import backend, parts

functional = torch.nn.functional
LIMIT = 2e-5


def rule(q, k, v, g, beta):
    """The gated delta rule token by token: q, k [B,T,HV,K] normalised, v [B,T,HV,V]."""
    state, rows = v.new_zeros(*v.shape[:1], v.shape[2], k.shape[3], v.shape[3]), []
    for t in range(q.shape[1]):
        state = state * g[:, t, :, None, None].exp()
        write = beta[:, t, :, None] * (v[:, t] - torch.einsum("bhkv,bhk->bhv", state, k[:, t]))
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], write)
        rows.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]) / math.sqrt(k.shape[3]))
    return torch.stack(rows, 1)


def layer_in_float64(layer, x):
    """What fla.layers.GatedDeltaNet computes from its parameters, one equation a line."""
    r = layer.num_v_heads // layer.num_heads

    def convolved(name, heads):
        conv, rows = getattr(layer, f"{name}_conv1d"), getattr(layer, f"{name}_proj")(x).transpose(1, 2)
        padded = functional.pad(rows, (conv.weight.shape[2] - 1, 0))
        out = functional.conv1d(padded, conv.weight, conv.bias, groups=conv.weight.shape[0])
        return functional.silu(out).transpose(1, 2).unflatten(-1, (heads, -1))

    q, k = (convolved(name, layer.num_heads).repeat_interleave(r, 2) for name in "qk")
    q, k = (t / (t.square().sum(-1, keepdim=True) + 1e-6).sqrt() for t in (q, k))
    v = convolved("v", layer.num_v_heads)
    g = -layer.A_log.exp() * functional.softplus(layer.a_proj(x) + layer.dt_bias)
    o = rule(q, k, v, g, layer.b_proj(x).sigmoid())
    z = layer.g_proj(x).unflatten(-1, (layer.num_v_heads, -1))
    scale = (o.square().mean(-1, keepdim=True) + layer.o_norm.eps).rsqrt()
    return layer.o_proj((o * scale * layer.o_norm.weight * functional.silu(z)).flatten(2))


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
    scale = (x.double().square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    near(found, x.double() * scale * weight * z.double().sigmoid())
    for name in ("bias", "residual", "prenorm"):
        arguments = {"bias": None, name: x}
        with pytest.raises(sluice.Unsupported, match=f"fla.rms_norm_gated: {name} = "):
            parts.rms_norm_gated(x, z, weight, **arguments)
    with pytest.raises(sluice.Unsupported, match="fla.rms_norm_gated: weight = None"):
        parts.rms_norm_gated(x, z, None, None)
