# SPDX-License-Identifier: Apache-2.0
"""Measures gradients of the convolution, of the gated norm and of a layer made of the three operators against torch's
own autograd in float64."""

from functools import partial

import numpy as np
import pytest
import sluice
from conftest import causal_conv, error, norm_gated

torch = pytest.importorskip("torch", reason="torch is not installed: its tests are skipped")

from operator_scenes import as_tensors, layer_inputs
from torch_checks import DEVICES, check

LIMITS = {torch.float32: 1e-5, torch.bfloat16: 1e-2}


def normal(*shapes):
    r = np.random.default_rng(1)
    return [r.standard_normal(shape, np.float32) for shape in shapes]


convolution = partial(causal_conv, silu=True, xp=torch)
gated_norm = partial(norm_gated, xp=torch)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("width", [2, 3, 4])
def test_convolution(device, dtype, width):
    B, T, D, L = 2, 70, 40, width
    ours = partial(sluice.causal_conv1d, output_final_state=True, activation="silu")
    check(normal((B, T, D), (D, width), D, (B, D, L)), ours, convolution, device, dtype, LIMITS[dtype])


@pytest.mark.parametrize("device", DEVICES)
def test_convolution_of_packed_rows_and_of_a_module_s_weight(device):
    T, D, offsets = 60, 24, [0, 33, 33, 57]

    def ours(x, weight):
        cu = torch.tensor(offsets, device=device)
        out, _ = sluice.causal_conv1d(x.transpose(1, 2), weight.squeeze(1), activation="silu", cu_seqlens=cu)
        return [out[:, :57]]

    def theirs(x, weight):
        x, weight = x.transpose(1, 2), weight.squeeze(1)
        return [torch.cat([convolution(x[:, a:b], weight)[0] for a, b in zip(offsets, offsets[1:]) if a < b], 1)]

    x, _ = check(normal((1, D, T), (D, 1, 4)), ours, theirs, device, limit=1e-5)
    assert not x.grad[:, :, 57:].any()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_gated_norm(device, dtype, activation):
    def ours(*given):
        return [sluice.gated_rms_norm(*given, activation=activation)]

    def theirs(*given):
        return [gated_norm(*given, activation=activation)]

    check(normal((2, 30, 4, 64), (2, 30, 4, 64), 64), ours, theirs, device, dtype, LIMITS[dtype])


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_what_is_wanted_alone_and_of_sums(device):
    x, z, weight = (torch.randn(s, device=device) for s in ((6, 32), (6, 32), (32,)))
    weight.requires_grad_()
    sluice.gated_rms_norm(x, z, weight).sum().backward()  # a gradient of stride 0
    expected = gated_norm(x, z, weight.detach())
    assert error(
        weight.grad.cpu().numpy(), (expected.detach() / weight.detach()).sum(0).cpu().numpy()
    ) < 1e-5


def test_what_has_no_backward_pass_is_refused_by_name():
    x, weight = torch.randn(2, 5, 8, requires_grad=True), torch.randn(8, 4)
    state = torch.zeros(2, 8, 3)
    with pytest.raises(sluice.Unsupported, match="final_state = initial_state, expected another"):
        sluice.causal_conv1d(x, weight, initial_state=state, final_state=state)
    with pytest.raises(sluice.Unsupported, match="read_slots = given, expected None where an input"):
        sluice.causal_conv1d(
            x, weight, initial_state=state, final_state=state.clone(), read_slots=torch.tensor([1, 0])
        )
    with pytest.raises(sluice.Unsupported, match="gated_rms_norm: out = z|gated_rms_norm: out = x"):
        rows = torch.randn(5, 8)
        sluice.gated_rms_norm(rows, rows, weight[:, 0].clone().requires_grad_(), out=rows)


def test_an_output_that_is_a_view_changes_its_base():
    x, weight = torch.randn(2, 5, 8, requires_grad=True), torch.randn(8, 4)
    buffer = torch.zeros(2, 2, 5, 8)
    sluice.causal_conv1d(x, weight, out=buffer[1])
    buffer.sum().backward()
    found, x.grad = x.grad, None
    sluice.causal_conv1d(x, weight)[0].sum().backward()
    assert torch.equal(found, x.grad)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("packing", ["flat", "interleaved", "separate", "separate, key-wise gates"])
def test_layer_backward_is_autograd_of_its_parts(device, packing):
    packing, _, key_wise = packing.partition(", ")
    sizes = dict(B=2, T=70, H=2, HV=6, K=16, V=8)
    H, K, V, split = 2, 16, 8, [2 * 16, 2 * 16, 6 * 8]
    x = as_tensors(layer_inputs(key_wise=bool(key_wise), **sizes), device)
    x["initial_state"] = torch.randn(2, 6, K, V, device=device)
    leaves = {name: t.requires_grad_() for name, t in x.items() if torch.is_tensor(t) and name != "conv_bias"}
    rows = sluice.causal_conv1d(x["qkv"], x["conv_weight"], activation="silu")[0].split(split, 2)
    q, k, v = (x.unflatten(2, (-1, size)) for x, size in zip(rows, (K, K, V)))
    core = sluice.ops.chunk_forward(
        q, k, v, x["a"], x["b"], o=torch.empty_like(v), A_log=x["A_log"], dt_bias=x["dt_bias"],
        initial_state=x["initial_state"], gate_space="raw", beta_space="logit", qk_norm="l2",
    )
    out = sluice.gated_rms_norm(core, x["z"].unflatten(2, (-1, V)), x["norm_weight"])
    d_out = torch.randn_like(out)
    out.backward(d_out)

    def by_key_head(*parts):
        return torch.cat([x.unflatten(2, (H, -1)) for x in parts], 3).flatten(2)

    given = {name: t.detach() for name, t in leaves.items()}
    wanted = {name: t.grad for name, t in leaves.items()}
    for tensors in (given, wanted):
        if packing == "interleaved":
            tensors["b"] = by_key_head(tensors["b"], tensors.pop("a"))
            tensors["qkv"] = by_key_head(*tensors["qkv"].split(split, 2), tensors.pop("z"))
        elif packing == "separate":
            parts = dict(qkv=tensors.pop("qkv").split(split, 2), conv_weight=tensors["conv_weight"].split(split))
            tensors.update(zip(("qkv", "k", "v"), parts["qkv"]))
            tensors.update(zip(("conv_weight", "k_conv_weight", "v_conv_weight"), parts["conv_weight"]))
    found = sluice.ops.layer_backward(
        **given, d_out=d_out, num_k_heads=H, num_v_heads=6, head_k_dim=K, head_v_dim=V, packing=packing
    )
    for name, x in zip(found._fields, found):
        assert (x is None) == (name not in wanted), name
        assert x is None or error(x.cpu().numpy(), wanted[name].cpu().numpy()) < LIMITS[torch.float32], name
