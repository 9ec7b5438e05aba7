# SPDX-License-Identifier: Apache-2.0
"""Measures kda_layer_prefill and kda_layer_decode on NumPy arrays, and their torch form where torch is
installed, against float64 formulas of conftest.py: one projection or three, gates with a bound or without."""

import importlib.util

import numpy as np
import pytest
import sluice
from conftest import causal_conv, delta_rule, error, norm_gated, sigmoid, softplus

TOLERANCE = 1e-5
B, H, HV, K, V, W = 2, 2, 4, 16, 8, 4
WIDTHS = [H * K, 2 * H * K]
SIZES = dict(num_k_heads=H, num_v_heads=HV, head_k_dim=K, head_v_dim=V)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def apart(x, axis):
    return tuple(np.ascontiguousarray(part) for part in np.split(x, WIDTHS, axis=axis))


def constants(separate):
    weight = normal(2 * H * K + HV * V, W, seed=4)
    return dict(
        conv_weight=apart(weight, 0) if separate else weight, A_log=normal(HV, seed=5),
        dt_bias=normal(HV * K, seed=6), norm_weight=normal(V, seed=7),
    )


def tokens(T, seed):
    """qkv, f, b, z."""
    widths = (2 * H * K + HV * V, HV * K, HV, HV * V)
    return [normal(B, T, width, seed=seed + i) for i, width in enumerate(widths)]


def expected(inputs, bound, conv_state=None, state=None):
    """(out, conv state, state) in float64."""
    qkv, f, b, z = inputs
    w, rows = constants(False), qkv.shape[:2]
    mixed, conv = causal_conv(qkv, w["conv_weight"], None, conv_state, True)
    q, k, v = np.split(mixed, WIDTHS, axis=-1)
    q, k, v = q.reshape(*rows, H, K), k.reshape(*rows, H, K), v.reshape(*rows, HV, V)
    raw = (f.astype(np.float64) + w["dt_bias"]).reshape(*rows, HV, K)
    rate = np.exp(w["A_log"].astype(np.float64))[:, None]
    g = -rate * softplus(raw) if bound is None else bound * sigmoid(rate * raw)
    o, s = delta_rule(q, k, v, g, sigmoid(b.astype(np.float64)), state=state, l2=True)
    gate = z.astype(np.float64).reshape(*rows, HV, V)
    return norm_gated(o, gate, w["norm_weight"], 1e-5) * sigmoid(gate) / silu(gate), conv, s


def silu(x):
    return x * sigmoid(x)


def one(states):
    return np.concatenate(states, 1) if isinstance(states, tuple) else states


@pytest.mark.parametrize("bound", [None, -5.0])
@pytest.mark.parametrize("separate", [False, True])
def test_prefill_then_decode(bound, separate):
    def given(inputs):
        qkv, *rest = inputs
        return [apart(qkv, 2) if separate else qkv, *rest]

    arguments = dict(lower_bound=bound, **constants(separate), **SIZES)
    first, step = tokens(20, 10), tokens(2, 20)
    out, conv, state = sluice.kda_layer_prefill(*given(first), output_final_state=True, **arguments)
    wanted, wanted_conv, wanted_state = expected(first, bound)
    assert error(out, wanted) < TOLERANCE and error(one(conv), wanted_conv) < TOLERANCE
    assert error(state, wanted_state) < TOLERANCE
    wanted, wanted_conv, wanted_state = expected(step, bound, one(conv).copy(), state.copy())
    out = sluice.kda_layer_decode(*given(step), conv_state=conv, state=state, **arguments)
    assert error(out, wanted) < TOLERANCE and error(one(conv), wanted_conv) < TOLERANCE
    assert error(state, wanted_state) < TOLERANCE


def test_prefill_goes_on_from_states():
    whole, arguments = tokens(9, 30), dict(**constants(True), **SIZES)
    parts = [[x[:, :4] for x in whole], [x[:, 4:] for x in whole]]
    outs, conv, state = [], None, None
    for part in parts:
        out, conv, state = sluice.kda_layer_prefill(
            apart(part[0], 2), *part[1:], conv_state=conv, initial_state=state,
            output_final_state=True, **arguments,
        )
        outs.append(out)
    wanted, _, wanted_state = expected(whole, None)
    assert error(np.concatenate(outs, 1), wanted) < TOLERANCE
    assert error(state, wanted_state) < TOLERANCE


def test_what_is_wrong_is_named():
    qkv, *rest = tokens(2, 60)
    arguments = dict(**constants(False), **SIZES)
    states = dict(conv_state=normal(B, 2 * H * K + HV * V, W - 1), state=normal(B, HV, K, V))
    for call, more in ((sluice.kda_layer_prefill, {}), (sluice.kda_layer_decode, states)):
        for bound in (0, 0.0, 2.0, float("nan")):
            message = f"{call.__name__}: lower_bound = {bound:g}, expected None or a finite number < 0"
            with pytest.raises(sluice.InvalidArgument, match=message):
                call(qkv, *rest, lower_bound=bound, **more, **arguments)
        for name in ("qkv", "conv_weight", "conv_state"):
            wrong = {"qkv": qkv, **arguments, **more, name: (qkv, qkv)}
            message = rf"{call.__name__}: {name} length = 2, expected 3 \(those of q, k and v\)"
            with pytest.raises(sluice.InvalidArgument, match=message):
                call(wrong.pop("qkv"), *rest, **wrong)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch")
def test_torch_updates_all_pools_in_place():
    import torch

    def torched(x):
        return tuple(map(torched, x)) if isinstance(x, tuple) else torch.from_numpy(x)

    weights = {name: torched(x) for name, x in constants(True).items()}
    step = tokens(1, 40)
    pools = tuple(normal(B, width, W - 1, seed=50) for width in (H * K, H * K, HV * V))
    state = normal(B, HV, K, V, seed=51)
    wanted, wanted_conv, wanted_state = expected(step, None, one(pools).copy(), state.copy())
    conv, state = torched(pools), torched(state)
    versions = [t._version for t in (*conv, state)]
    out = sluice.kda_layer_decode(
        torched(apart(step[0], 2)), *map(torched, step[1:]), conv_state=conv, state=state,
        **weights, **SIZES,
    )
    assert error(out.numpy(), wanted) < TOLERANCE
    assert error(one(tuple(t.numpy() for t in conv)), wanted_conv) < TOLERANCE
    assert error(state.numpy(), wanted_state) < TOLERANCE
    assert all(t._version > old for t, old in zip((*conv, state), versions))
