# SPDX-License-Identifier: Apache-2.0
"""Measures key-wise gates [B,T,HV,K] on NumPy arrays: fla's KDA and GLA functions, the operators and
the stages against the float64 recurrence of conftest.py, and what is refused."""

import numpy as np
import pytest
import sluice
from conftest import Inputs, delta_rule, error

TOLERANCE = 1e-5


def key_gates(x, seed=3):
    rng = np.random.default_rng(seed)
    g = -rng.random((*x.v.shape[:3], x.k.shape[3]), np.float32) * 0.2
    g[:, 2, :, 1] = -np.inf
    g[:, :, :, 2] = 0
    return g


@pytest.mark.parametrize("tokens", [1, 5, 16, 40])
@pytest.mark.parametrize("v_first", [False, True])
def test_kda(tokens, v_first):
    x = Inputs(T=max(tokens, 3))
    q, k, v, _, beta = (a[:, :tokens] for a in x.arguments())
    g = key_gates(x)[:, :tokens]
    state = np.ascontiguousarray(x.state.swapaxes(2, 3)) if v_first else x.state
    o, s = sluice.fused_recurrent_kda(
        q, k, v, g, beta, initial_state=state, output_final_state=True,
        use_qk_l2norm_in_kernel=True, state_v_first=v_first,
    )
    expected_o, expected_s = delta_rule(q, k, v, g, beta, state=x.state, l2=True)
    assert error(o, expected_o) < TOLERANCE
    assert error(s.swapaxes(2, 3) if v_first else s, expected_s) < TOLERANCE


@pytest.mark.parametrize("tokens", [4, 40])
def test_gla(tokens):
    x = Inputs(T=tokens)
    q, k, v, _, _ = x.arguments()
    g = key_gates(x)
    o, s = sluice.fused_recurrent_gla(q, k, v, g, initial_state=x.state, output_final_state=True)
    expected_o, expected_s = delta_rule(q, k, v, g, state=x.state, linear=True)
    assert error(o, expected_o) < TOLERANCE and error(s, expected_s) < TOLERANCE


def test_gk_of_the_delta_rule_is_kda():
    x = Inputs(T=4)
    q, k, v, _, beta = x.arguments()
    g = key_gates(x)
    kwargs = dict(use_qk_l2norm_in_kernel=True)
    kda = sluice.fused_recurrent_kda(q, k, v, g, beta, **kwargs)[0]
    assert np.array_equal(
        kda, sluice.fused_recurrent_gated_delta_rule(q, k, v, gk=g, beta=beta, **kwargs)[0]
    )


def test_stages():
    x = Inputs(B=1, T=100)
    q, k, v, _, _ = x.arguments()
    g = np.maximum(key_gates(x), -3)
    sums = np.zeros_like(g)
    sluice.ops.chunk_stage("chunk_cumsum", gate=g, g_cumsum=sums)
    assert error(sums[:, :64], np.cumsum(g[:, :64], 1)) < TOLERANCE
    assert error(sums[:, 64:], np.cumsum(g[:, 64:], 1)) < TOLERANCE
    expected = delta_rule(q, k, v, g, state=x.state, linear=True)[1]
    for gates in (dict(gate=g), dict(g_cumsum=sums)):
        final = np.zeros_like(x.state)
        h = np.zeros((1, 2, *x.state.shape[1:]), np.float32)
        sluice.ops.chunk_stage(
            "chunk_h", k=k, v=v, h=h, initial_state=x.state, final_state=final,
            rule="linear_attention", **gates,
        )
        assert np.array_equal(h[:, 0], x.state)
        assert error(final, expected) < TOLERANCE


def test_refusals():
    x = Inputs(T=4)
    q, k, v, g, beta = x.arguments()
    keys = key_gates(x)
    for name in ("A_log", "dt_bias", "lower_bound"):
        with pytest.raises(sluice.Unsupported, match=f"{name} = given"):
            sluice.fused_recurrent_kda(q, k, v, keys, beta, **{name: g[0, 0]})
    with pytest.raises(sluice.Unsupported, match="use_gate_in_kernel = True"):
        sluice.fused_recurrent_kda(q, k, v, keys, beta, use_gate_in_kernel=True)
    with pytest.raises(sluice.Unsupported, match="gv = given"):
        sluice.fused_recurrent_gla(q, k, v, gv=v)
    with pytest.raises(sluice.Unsupported, match="reverse = True"):
        sluice.fused_recurrent_gla(q, k, v, keys, reverse=True)
    with pytest.raises(sluice.InvalidArgument, match=r"gate.shape\[3\] = 3, expected"):
        sluice.fused_recurrent_gla(q, k, v, np.ascontiguousarray(keys[..., :3]))
