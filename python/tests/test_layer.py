# SPDX-License-Identifier: Apache-2.0
"""Measures that convolution, gated norm and the whole layer compute their formulas on NumPy arrays.
Each is compared with float64 formulas of conftest.py, the layer with the composition of its parts."""

import numpy as np
import pytest
import sluice
from conftest import causal_conv, delta_rule, error, norm_gated, sigmoid, softplus

TOLERANCE = 1e-5


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("width", [2, 3, 4])
@pytest.mark.parametrize("activation", [None, "silu", "swish"])
def test_conv(width, activation):
    x, weight, bias = normal(2, 9, 24), normal(24, width, seed=1), normal(24, seed=2)
    state = normal(2, 24, width - 1, seed=3)
    out, final = sluice.causal_conv1d(
        x, weight, bias, initial_state=state, output_final_state=True, activation=activation
    )
    expected, last = causal_conv(x, weight, bias, state, activation is not None)
    assert error(out, expected) < TOLERANCE and error(final, last) < TOLERANCE
    again, none = sluice.causal_conv1d(x, weight)
    assert none is None and error(again, causal_conv(x, weight)[0]) < TOLERANCE


@pytest.mark.parametrize("shape", [(2, 24), (2, 3, 24)])
@pytest.mark.parametrize("dim_last", [False, True])
def test_conv_update_in_place(shape, dim_last):
    x, weight = normal(*shape), normal(24, 4, seed=1)
    state = normal(2, 3, 24, seed=3).transpose(0, 2, 1) if dim_last else normal(2, 24, 3, seed=3)
    expected, last = causal_conv(x.reshape(2, -1, 24), weight, None, state.copy())
    out = sluice.causal_conv1d_update(x, state, weight)
    assert out.shape == x.shape and error(out.reshape(2, -1, 24), expected) < TOLERANCE
    assert error(state, last) < TOLERANCE


def test_conv_update_slots_and_ring():
    x, weight, pool = normal(2, 24), normal(24, 4, seed=1), normal(4, 24, 4, seed=3)
    before = pool.copy()
    position = np.array([7, 9], np.int32)
    slots = np.array([2, 0], np.int32)
    out = sluice.causal_conv1d_update(x, pool, weight, slots=slots, ring_position=position)
    for n in range(2):
        columns = [(position[n] - back) % 4 for back in (3, 2, 1)]
        history = before[slots[n]][:, columns][None]
        expected, _ = causal_conv(x[n : n + 1, None], weight, None, history)
        assert error(out[n], expected[0, 0]) < TOLERANCE
        assert np.array_equal(pool[slots[n]][:, position[n] % 4], x[n])


def test_norm():
    x, z, weight = normal(3, 4, 32), normal(3, 4, 32, seed=1), normal(32, seed=2)
    out = sluice.gated_rms_norm(x, z, weight, eps=1e-5)
    assert error(out, norm_gated(x, z, weight, 1e-5)) < TOLERANCE
    given = np.empty_like(x)
    assert sluice.gated_rms_norm(x, z, weight, 1e-5, out=given) is given
    assert np.array_equal(given, out)


class Layer:
    """A small layer: weights, inputs, and its float64 answer."""

    H, HV, K, V, W = 2, 4, 16, 8, 4
    D = 2 * H * K + HV * V

    def __init__(self, tokens):
        self.qkv = normal(2, tokens, self.D)
        self.z = normal(2, tokens, self.HV * self.V, seed=1)
        self.b, self.a = normal(2, tokens, self.HV, seed=2), normal(2, tokens, self.HV, seed=3)
        self.weights = dict(
            conv_weight=normal(self.D, self.W, seed=4), A_log=normal(self.HV, seed=5),
            dt_bias=normal(self.HV, seed=6), norm_weight=normal(self.V, seed=7),
        )
        self.sizes = dict(num_k_heads=self.H, num_v_heads=self.HV, head_k_dim=self.K,
                          head_v_dim=self.V)

    def expected(self, conv_state=None, state=None):
        w, batch = self.weights, self.qkv.shape[:2]
        mixed, conv = causal_conv(self.qkv, w["conv_weight"], None, conv_state, True)
        split = [self.H * self.K, 2 * self.H * self.K]
        q, k, v = np.split(mixed, split, axis=-1)
        q, k = (x.reshape(*batch, self.H, self.K) for x in (q, k))
        v = v.reshape(*batch, self.HV, self.V)
        g = -np.exp(w["A_log"].astype(np.float64)) * softplus(self.a.astype(np.float64) + w["dt_bias"])
        beta = sigmoid(self.b.astype(np.float64))
        o, s = delta_rule(q, k, v, g, beta, state=state, l2=True)
        z = self.z.reshape(*batch, self.HV, self.V)
        return norm_gated(o, z, w["norm_weight"]), conv, s


def test_layer_prefill_then_decode():
    x = Layer(20)
    out, conv, state = sluice.gdn_layer_prefill(
        x.qkv, x.z, x.b, x.a, output_final_state=True, **x.weights, **x.sizes
    )
    expected = x.expected()
    for value, wanted in zip((out, conv, state), expected):
        assert error(value, wanted) < TOLERANCE
    step = Layer(1)
    step.weights = x.weights
    expected, expected_conv, expected_state = step.expected(conv, state)
    out = sluice.gdn_layer_decode(
        step.qkv, step.z, step.b, step.a, conv_state=conv, state=state, **x.weights, **x.sizes
    )
    assert error(out, expected) < TOLERANCE
    assert error(conv, expected_conv) < TOLERANCE and error(state, expected_state) < TOLERANCE


def test_layer_interleaved_packing():
    x = Layer(5)
    r = x.HV // x.H
    heads = (2, 5, x.H)
    q, k = (x.qkv[..., i * 32 : (i + 1) * 32].reshape(*heads, x.K) for i in (0, 1))
    v, z = x.qkv[..., 64:].reshape(*heads, r * x.V), x.z.reshape(*heads, r * x.V)
    packed = np.concatenate([q, k, v, z], -1).reshape(2, 5, -1)
    ba = np.concatenate([x.b.reshape(*heads, r), x.a.reshape(*heads, r)], -1).reshape(2, 5, -1)
    out, _, _ = sluice.gdn_layer_prefill(packed, b=ba, packing="interleaved", **x.weights, **x.sizes)
    assert error(out, x.expected()[0]) < TOLERANCE
