# SPDX-License-Identifier: Apache-2.0
"""Measures that convolution, gated norm and whole layers, GDN and KDA, compute their formulas on NumPy arrays, and
KDA's on torch tensors too where torch is installed. Each is compared with float64 formulas of conftest.py, a layer with
the composition of its parts: one projection or three, gates of heads or of channels, with a bound or without."""

import importlib.util

import numpy as np
import pytest
import sluice
from conftest import causal_conv, delta_rule, error, log_gates, norm_gated, sigmoid

TOLERANCE = 1e-5
B, H, HV, K, V, W = 2, 2, 4, 16, 8, 4
WIDTHS = [H * K, H * K, HV * V]
D = sum(WIDTHS)
SIZES = dict(num_k_heads=H, num_v_heads=HV, head_k_dim=K, head_v_dim=V)


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


def apart(x, axis):
    return tuple(np.ascontiguousarray(part) for part in np.split(x, np.cumsum(WIDTHS)[:2], axis=axis))


def one(states):
    return np.concatenate(states, 1) if isinstance(states, tuple) else states


def assert_near(found, expected):
    for value, wanted in zip(found, expected, strict=True):
        assert error(one(value), wanted) < TOLERANCE


class Layer:
    """A small layer: its constants, inputs and calls, and its float64 answers. `separate`: three projections."""

    def __init__(self, kda=False, bound=None, separate=False):
        self.kda, self.bound, self.separate = kda, bound, separate
        self.weights = dict(
            conv_weight=normal(D, W, seed=4), A_log=normal(HV, seed=5),
            dt_bias=normal(HV * K if kda else HV, seed=6), norm_weight=normal(V, seed=7),
        )
        self.arguments = dict(self.weights, **SIZES, **(dict(lower_bound=bound) if kda else {}))
        if separate:
            self.arguments["conv_weight"] = apart(self.weights["conv_weight"], 0)

    def tokens(self, count, seed=0):
        """qkv, z, b, and what gates are made of."""
        widths = (D, HV * V, HV, self.weights["dt_bias"].size)
        return [normal(B, count, width, seed=seed + i) for i, width in enumerate(widths)]

    def ordered(self, rows):
        """As the functions take them."""
        qkv, z, b, a = rows
        return [apart(qkv, 2) if self.separate else qkv, *((a, b, z) if self.kda else (z, b, a))]

    def call(self, kind, rows, **states):
        function = getattr(sluice, f"{'kda' if self.kda else 'gdn'}_layer_{kind}")
        return function(*self.ordered(rows), **states, **self.arguments)

    def expected(self, rows, conv_state=None, state=None):
        """(out, conv state, state) in float64."""
        qkv, z, b, a = (x.astype(np.float64) for x in rows)
        w, shape = self.weights, qkv.shape[:2]
        mixed, conv = causal_conv(qkv, w["conv_weight"], None, conv_state, True)
        q, k, v = (x.reshape(*shape, -1, size) for x, size in zip(apart(mixed, 2), (K, K, V)))
        a, dt_bias = a.reshape(*shape, HV, -1), w["dt_bias"].reshape(HV, -1)
        g = log_gates(a, w["A_log"][:, None], dt_bias, self.bound)
        o, s = delta_rule(q, k, v, g if self.kda else g[..., 0], sigmoid(b), state=state, l2=True)
        norm = dict(eps=1e-5, activation="sigmoid") if self.kda else {}
        return norm_gated(o, z.reshape(*shape, HV, V), w["norm_weight"], **norm), conv, s


KDA = [(True, bound, separate) for bound in (None, -5.0) for separate in (False, True)]


@pytest.mark.parametrize("kind", [(False, None, False), *KDA], ids=str)
def test_layer_prefill_then_decode(kind):
    layer = Layer(*kind)
    first, step = layer.tokens(20), layer.tokens(2 if layer.kda else 1, seed=10)
    out, conv, state = layer.call("prefill", first, output_final_state=True)
    assert_near((out, conv, state), layer.expected(first))
    expected = layer.expected(step, one(conv).copy(), state.copy())
    out = layer.call("decode", step, conv_state=conv, state=state)
    assert_near((out, conv, state), expected)


def test_layer_interleaved_packing():
    layer = Layer()
    qkv, z, b, a = rows = layer.tokens(5)
    parts = [x.reshape(B, 5, H, -1) for x in (*apart(qkv, 2), z)]
    packed = np.concatenate(parts, -1).reshape(B, 5, -1)
    ba = np.concatenate([b.reshape(B, 5, H, -1), a.reshape(B, 5, H, -1)], -1).reshape(B, 5, -1)
    out, _, _ = sluice.gdn_layer_prefill(packed, b=ba, packing="interleaved", **layer.arguments)
    assert error(out, layer.expected(rows)[0]) < TOLERANCE


def test_prefill_of_kda_goes_on_from_states():
    layer = Layer(kda=True, separate=True)
    whole, outs, conv, state = layer.tokens(9, seed=30), [], None, None
    for part in (slice(0, 4), slice(4, 9)):
        out, conv, state = layer.call(
            "prefill", [x[:, part] for x in whole], conv_state=conv, initial_state=state, output_final_state=True
        )
        outs.append(out)
    assert_near((np.concatenate(outs, 1), conv, state), layer.expected(whole))


def test_what_is_wrong_with_kda_is_named():
    layer = Layer(kda=True)
    qkv, *rest = layer.ordered(layer.tokens(2, seed=60))
    states = dict(conv_state=normal(B, D, W - 1), state=normal(B, HV, K, V))
    for call, more in ((sluice.kda_layer_prefill, {}), (sluice.kda_layer_decode, states)):
        for bound in (0, 0.0, 2.0, float("nan")):
            message = f"{call.__name__}: lower_bound = {bound:g}, expected None or a finite number < 0"
            with pytest.raises(sluice.InvalidArgument, match=message):
                call(qkv, *rest, **more, **dict(layer.arguments, lower_bound=bound))
        for name in ("qkv", "conv_weight", "conv_state"):
            wrong = {"qkv": qkv, **layer.arguments, **more, name: (qkv, qkv)}
            message = rf"{call.__name__}: {name} length = 2, expected 3 \(those of q, k and v\)"
            with pytest.raises(sluice.InvalidArgument, match=message):
                call(wrong.pop("qkv"), *rest, **wrong)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch")
def test_torch_updates_all_pools_in_place():
    import torch

    def torched(x):
        return tuple(map(torched, x)) if isinstance(x, tuple) else torch.from_numpy(x)

    layer = Layer(kda=True, separate=True)
    step, pools = layer.tokens(1, seed=40), tuple(normal(B, width, W - 1, seed=50) for width in WIDTHS)
    state = normal(B, HV, K, V, seed=51)
    expected = layer.expected(step, one(pools).copy(), state.copy())
    conv, state = torched(pools), torched(state)
    versions = [t._version for t in (*conv, state)]
    constants = {name: x if name in SIZES or x is None else torched(x) for name, x in layer.arguments.items()}
    out = sluice.kda_layer_decode(*map(torched, layer.ordered(step)), conv_state=conv, state=state, **constants)
    assert_near((out.numpy(), tuple(t.numpy() for t in conv), state.numpy()), expected)
    assert all(t._version > old for t, old in zip((*conv, state), versions))
