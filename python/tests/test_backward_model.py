# SPDX-License-Identifier: Apache-2.0
"""Measures the float64 gradients that long sequences are judged by on a GPU (test_backward_cuda.py): against the
library's reference token by token, and their two ways against each other."""

import pytest
from conftest import error

torch = pytest.importorskip("torch", reason="torch is not installed: its tests are skipped")

import backward_model as model
from sluice import ops


def draw(tokens, delta, K=32, H=2, HV=6):
    torch.manual_seed(tokens)
    q, k = (torch.randn(tokens, H, K) for _ in range(2))
    v, d_o = (torch.randn(tokens, HV, K) for _ in range(2))
    g, beta = -torch.rand(tokens, HV), torch.rand(tokens, HV) if delta else None
    return q, k, v, g, beta, d_o, *(torch.randn(HV, K, K) for _ in range(2))


def from_the_library(q, k, v, g, beta, d_o, initial, d_final):
    parts = [None if x is None else x[None] for x in (q, k, v, g, beta)]
    found = ops.chunk_backward(
        *parts, d_o=d_o[None], initial_state=initial[None], d_final_state=d_final[None], qk_norm="l2",
        rule="linear_attention" if beta is None else "gated_delta", implementation="reference",
    )  # fmt: skip
    rows = (found.q, found.k, found.v, found.gate, found.beta, found.initial_state)
    return {name: x[0] for name, x in zip(model.NAMES, rows) if x is not None}


def near(found, expected, limit):
    assert found.keys() == expected.keys()
    for name in expected:
        assert error(found[name].numpy(), expected[name].numpy()) < limit, name


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("tokens", [1, 64, 150])
def test_exact_gradients_are_the_reference_s(tokens, delta):
    given = draw(tokens, delta)
    near(model.exact(*given), from_the_library(*given), 1e-7)  # the reference stores float32


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("tokens", [1, 64, 150])
def test_without_rounding_both_ways_are_the_same(tokens, delta):
    given = draw(tokens, delta)
    near(model.rounded(*given, torch.float64), model.exact(*given), 1e-12)


@pytest.mark.parametrize("delta", [True, False])
def test_gradients_are_linear(delta):
    given = draw(150, delta)
    near(model.rounded_at(1.3, *given, torch.float64), model.exact(*given), 1e-12)


@pytest.mark.parametrize("factor", [1.0, 1.3])
def test_roundings_are_those_of_16_bits(factor):
    given = draw(200, True)
    expected = model.exact(*given)
    for io, low, high in ((torch.bfloat16, 1e-3, 8e-3), (torch.float16, 1e-4, 1e-3)):
        for name, found in model.rounded_at(factor, *given, io).items():
            assert low < error(found.numpy(), expected[name].numpy()) < high, (io, name)
