# SPDX-License-Identifier: Apache-2.0
"""Measures key-wise gates [B,T,HV,K] on NumPy arrays: fla's KDA functions in their options and the stages
against the float64 recurrence of conftest.py."""

import numpy as np
import pytest
import sluice
from conftest import Inputs, delta_rule, error, sigmoid, softplus
from fla_functions import key_gates

TOLERANCE = 1e-5


def raw_gates(x, seed=4):
    """Raw gates, A_log [HV], dt_bias [HV,K]; one channel is reset."""
    rng = np.random.default_rng(seed)
    heads, keys = x.v.shape[2], x.k.shape[3]
    a = rng.standard_normal((*x.v.shape[:3], keys)).astype(np.float32)
    a[:, 1, :, 1] = np.inf
    return a, *(rng.standard_normal(n).astype(np.float32) for n in (heads, (heads, keys)))


def log_gates(a, A_log, dt_bias, bound):
    a = np.asarray(a, np.float64) + (0 if dt_bias is None else dt_bias)
    rate = 1 if A_log is None else np.exp(np.asarray(A_log, np.float64))[:, None]
    g = -rate * softplus(a) if bound is None else bound * sigmoid(rate * a)
    return np.maximum(g, -128)


@pytest.mark.parametrize("bound", [None, -5, -0.25, -1e4])
@pytest.mark.parametrize("tokens", [3, 40])
def test_raw_gates(tokens, bound):
    x = Inputs(T=tokens)
    q, k, v, _, logits = x.arguments()
    a, A_log, dt_bias = raw_gates(x)
    ways = [(A_log, dt_bias.reshape(-1)), (A_log, dt_bias), (A_log.reshape(1, 1, -1, 1), None)]
    for A, bias in ways + ([] if bound is None else [(None, dt_bias), (None, None)]):
        g = log_gates(a, None if A is None else A_log, None if bias is None else dt_bias, bound)
        expected_o, expected_s = delta_rule(
            q, k, v, g, 2 * sigmoid(logits), state=x.state, l2=True
        )
        for kda in (sluice.chunk_kda, sluice.fused_recurrent_kda):
            o, s = kda(
                q, k, v, a, logits, initial_state=x.state, output_final_state=True,
                use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, A_log=A, dt_bias=bias,
                lower_bound=bound, use_beta_sigmoid_in_kernel=True, allow_neg_eigval=True,
            )
            assert error(o, expected_o) < TOLERANCE and error(s, expected_s) < TOLERANCE
        gate = sluice.fused_kda_gate(a, A, bias, bound)
        assert gate.dtype == np.float32 and error(gate, g) < 1e-6


def test_gates_of_other_ranks_and_dtypes():
    a = np.linspace(-3, 3, 24, dtype=np.float16).reshape(2, 3, 4)
    A_log = np.array([0.5, -1, 2], np.float32)
    gate = sluice.fused_kda_gate(a, A_log)
    assert error(gate, log_gates(a, A_log, None, None)) < 1e-6


def test_intermediate_states():
    torch = pytest.importorskip("torch")
    x = Inputs(B=2, T=140)
    q, k, v, _, beta = x.arguments()
    g = key_gates(x)
    call = [torch.from_numpy(y) for y in (q, k, v, g, beta)]
    state = torch.from_numpy(x.state)
    with pytest.raises(sluice.InvalidArgument, match="outside inference mode"):
        sluice.chunk_kda(*call, return_intermediate_states=True)
    with torch.inference_mode():
        o, final, h = sluice.chunk_kda(
            *call, initial_state=state, use_qk_l2norm_in_kernel=True,
            return_intermediate_states=True,
        )
    assert final is None and h.dtype == torch.bfloat16
    assert h.shape == (2, 3, *x.state.shape[1:])
    for chunk in range(3):
        rows = (y[:, : 64 * chunk] for y in (q, k, v, g, beta))
        expected = delta_rule(*rows, state=x.state, l2=True)[1]
        assert error(h[:, chunk].float(), expected) < 4e-3


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
