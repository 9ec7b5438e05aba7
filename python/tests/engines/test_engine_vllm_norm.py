# SPDX-License-Identifier: Apache-2.0
"""Measures whether the gated norms of sluice.engines.vllm compute what vLLM's promise, in place and on
rows that lie apart, and what is refused. Compares with the formula in float64."""

import pytest

torch = pytest.importorskip("torch")

import sluice
from engine_reference import close, gated_norm
from sluice.engines import vllm

T, HV, V = 9, 4, 24


def inputs(dtype=torch.float32):
    torch.manual_seed(5)
    return torch.randn(T, HV, V, dtype=dtype), torch.randn(T, HV, V, dtype=dtype), torch.rand(V) + 0.5


@pytest.mark.parametrize("activation", ["swish", "silu", "sigmoid"])
def test_norm_of_the_custom_operator(activation):
    x, z, weight = inputs()
    for group in (None, V):
        o = vllm.rmsnorm_fn(x, weight, None, z=z, eps=1e-5, group_size=group, activation=activation)
        close(o, gated_norm(x, z, weight, 1e-5, activation))


def test_bfloat16_is_rounded_once():
    x, z, weight = inputs(torch.bfloat16)
    o = vllm.rmsnorm_fn(x, weight, None, z=z)
    exact = gated_norm(x, z, weight, 1e-6)
    assert o.dtype == torch.bfloat16
    # Within one unit of the last place of what the exact values round to.
    assert ((o.double() - exact).abs() <= exact.abs() * 2.0**-8 + 1e-7).all()


def test_rows_in_place_with_gates_that_lie_apart():
    x, _, weight = inputs()
    gates = torch.randn(T, 3, HV * V)[:, 1].reshape(T, HV, V)
    x2, z2 = x.reshape(-1, V), gates.reshape(-1, V)
    expected = gated_norm(x2, z2, weight, 1e-6)
    out, mean, deviation = vllm.layer_norm_fwd(
        x2, weight, None, 1e-6, z=z2, out=x2, group_size=V, norm_before_gate=True, is_rms_norm=True
    )
    assert out.data_ptr() == x.data_ptr() and mean is None and deviation is None
    close(x2, expected)


def test_norm_of_kda_layers_takes_gates_of_another_rank():
    x, z, weight = inputs()
    o = vllm.rms_norm_gated(x[None], z, weight, None, activation="sigmoid", eps=1e-5)
    assert o.shape == (1, T, HV, V)
    close(o[0], gated_norm(x, z, weight, 1e-5, "sigmoid"))


def test_refusals_name_the_argument():
    x, z, weight = inputs()
    rows, gates = x.reshape(-1, V), z.reshape(-1, V)
    for name, call in {
        "bias": lambda: vllm.rmsnorm_fn(x, weight, weight, z=z),
        "group_size": lambda: vllm.rmsnorm_fn(x, weight, None, z=z, group_size=V // 2),
        "norm_before_gate": lambda: vllm.rmsnorm_fn(x, weight, None, z=z, norm_before_gate=False),
        "activation": lambda: vllm.rmsnorm_fn(x, weight, None, z=z, activation="gelu"),
        "z": lambda: vllm.rmsnorm_fn(x, weight, None),
        "is_rms_norm": lambda: vllm.layer_norm_fwd(rows, weight, None, 1e-6, z=gates),
        "residual": lambda: vllm.rms_norm_gated(x, z, weight, None, residual=x),
        "prenorm": lambda: vllm.rms_norm_gated(x, z, weight, None, prenorm=True),
        "weight": lambda: vllm.rms_norm_gated(x, z, None, None),
    }.items():
        with pytest.raises(sluice.Unsupported, match=rf"vllm\.\w+: {name} = "):
            call()
