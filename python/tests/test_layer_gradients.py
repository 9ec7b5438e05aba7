# SPDX-License-Identifier: Apache-2.0
"""Measures gradients of the convolution, of the gated norm and of a layer made of the three operators against torch's
own autograd in float64."""

import pytest
import sluice
from conftest import error

torch = pytest.importorskip("torch", reason="torch is not installed: its tests are skipped")

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
LIMITS = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
functional = torch.nn.functional


def leaves(shapes, device, dtype):
    """Tensors that ask for gradients, and the same in float64."""
    generator = torch.Generator().manual_seed(1)
    given = [torch.randn(s, generator=generator).to(device, dtype).requires_grad_() for s in shapes]
    return given, [t.detach().double().cpu().requires_grad_() for t in given]


def check(given, wide, ours, theirs, dtype):
    """Gradients of one random loss, near each other."""
    generator = torch.Generator().manual_seed(2)
    loss, expected = 0, 0
    for x, y in zip(ours, theirs):
        assert error(x.detach().double().cpu().numpy(), y.detach().numpy()) < LIMITS[dtype]
        weight = torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.dtype)
        loss = loss + (x * weight.to(x.device)).float().sum()
        expected = expected + (y * weight.double()).sum()
    loss.backward()
    expected.backward()
    for x, y in zip(given, wide):
        assert x.grad.dtype == x.dtype and x.grad.shape == x.shape
        assert error(x.grad.double().cpu().numpy(), y.grad.numpy()) < LIMITS[dtype]


def convolution(x, weight, bias=None, state=None):
    """causal_conv1d of [B,T,D] by torch's own: (out with SiLU, final state)."""
    state = x.new_zeros(x.shape[0], x.shape[2], weight.shape[1] - 1) if state is None else state
    rows = torch.cat([state, x.transpose(1, 2)], 2)
    kept = rows[:, :, state.shape[2] - weight.shape[1] + 1 :]
    out = functional.conv1d(kept, weight[:, None], bias, groups=weight.shape[0])
    return functional.silu(out).transpose(1, 2), rows[:, :, rows.shape[2] - state.shape[2] :]


def gated_norm(x, z, weight, activation):
    rstd = (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    return x * rstd * weight * (functional.silu(z) if activation == "silu" else z.sigmoid())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("width", [2, 3, 4])
def test_convolution(device, dtype, width):
    B, T, D, L = 2, 70, 40, width
    given, wide = leaves([(B, T, D), (D, width), (D,), (B, D, L)], device, dtype)
    x, weight, bias, state = given
    ours = sluice.causal_conv1d(x, weight, bias, state, output_final_state=True, activation="silu")
    check(given, wide, ours, convolution(*wide), dtype)


@pytest.mark.parametrize("device", DEVICES)
def test_convolution_of_packed_rows_and_of_a_module_s_weight(device):
    T, D, offsets = 60, 24, [0, 33, 33, 57]
    given, wide = leaves([(1, D, T), (D, 1, 4)], device, torch.float32)
    out, _ = sluice.causal_conv1d(
        given[0].transpose(1, 2), given[1].squeeze(1), activation="silu",
        cu_seqlens=torch.tensor(offsets, device=device),
    )
    x, weight = wide[0].transpose(1, 2), wide[1].squeeze(1)
    parts = [convolution(x[:, a:b], weight)[0] for a, b in zip(offsets, offsets[1:]) if a < b]
    check(given, wide, [out[:, :57]], [torch.cat(parts, 1)], torch.float32)
    assert not given[0].grad[:, :, 57:].any()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_gated_norm(device, dtype, activation):
    given, wide = leaves([(2, 30, 4, 64), (2, 30, 4, 64), (64,)], device, dtype)
    ours = sluice.gated_rms_norm(*given, activation=activation)
    check(given, wide, [ours], [gated_norm(*wide, activation)], dtype)


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_what_is_wanted_alone_and_of_sums(device):
    x, z, weight = (torch.randn(s, device=device) for s in ((6, 32), (6, 32), (32,)))
    weight.requires_grad_()
    sluice.gated_rms_norm(x, z, weight).sum().backward()  # a gradient of stride 0
    expected = gated_norm(x, z, weight.detach().requires_grad_(), "silu")
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
    B, T, H, r, K, V = 2, 70, 2, 3, 16, 8
    HV, D = H * r, 2 * H * K + H * r * V
    keys = (K,) if key_wise else ()
    shapes = [
        (B, T, D), (B, T, HV * V), (B, T, HV), (B, T, HV, *keys), (D, 4), (HV,), (HV, *keys), (V,), (B, HV, K, V),
    ]  # fmt: skip
    (qkv, z, b, a, weight, A_log, dt_bias, norm, state), _ = leaves(shapes, device, torch.float32)
    rows = sluice.causal_conv1d(qkv, weight, activation="silu")[0].split([H * K, H * K, HV * V], 2)
    q, k, v = (x.unflatten(2, (-1, size)) for x, size in zip(rows, (K, K, V)))
    core = torch.empty(B, T, HV, V, device=device)
    core = sluice.ops.chunk_forward(
        q, k, v, a, b, o=core, A_log=A_log, dt_bias=dt_bias, initial_state=state, gate_space="raw",
        beta_space="logit", qk_norm="l2",
    )
    out = sluice.gated_rms_norm(core, z.unflatten(2, (HV, V)), norm)
    d_out = torch.randn_like(out)
    out.backward(d_out)

    def by_key_head(*parts):
        return torch.cat([x.detach().unflatten(2, (H, -1)) for x in parts], 3).flatten(2)

    leaves_of = dict(
        qkv=qkv, z=z, b=b, a=a, conv_weight=weight, A_log=A_log, dt_bias=dt_bias, norm_weight=norm,
        initial_state=state,
    )  # fmt: skip
    given = {name: x.detach() for name, x in leaves_of.items()}
    wanted = {name: x.grad for name, x in leaves_of.items()}
    split = [H * K, H * K, HV * V]
    for tensors, (rows, gates, beta) in ((given, (qkv, z, b)), (wanted, (qkv.grad, z.grad, b.grad))):
        if packing == "interleaved":
            tensors["b"] = by_key_head(beta, tensors.pop("a"))
            tensors["qkv"] = by_key_head(*rows.split(split, 2), gates)
            del tensors["z"]
        elif packing == "separate":
            parts = dict(qkv=tensors.pop("qkv").split(split, 2), conv_weight=tensors["conv_weight"].split(split))
            tensors.update(zip(("qkv", "k", "v"), parts["qkv"]))
            tensors.update(zip(("conv_weight", "k_conv_weight", "v_conv_weight"), parts["conv_weight"]))
    found = sluice.ops.layer_backward(
        **given, d_out=d_out, num_k_heads=H, num_v_heads=HV, head_k_dim=K, head_v_dim=V, packing=packing
    )
    for name, x in zip(found._fields, found):
        assert (x is None) == (name not in wanted), name
        assert x is None or error(x.cpu().numpy(), wanted[name].cpu().numpy()) < LIMITS[torch.float32], name
