# SPDX-License-Identifier: Apache-2.0
"""Measures key-wise gates [B,T,HV,K] on NumPy arrays: fla's KDA and GLA functions, the operators and
the stages against the float64 recurrence of conftest.py, and what is refused."""

import numpy as np
import pytest
import sluice
from conftest import Inputs, delta_rule, error, sigmoid, softplus

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
    expected_o, expected_s = delta_rule(q, k, v, g, state=x.state, linear=True)
    for gla in (sluice.chunk_gla, sluice.fused_recurrent_gla):
        o, s = gla(q, k, v, g, initial_state=x.state, output_final_state=True)
        assert error(o, expected_o) < TOLERANCE and error(s, expected_s) < TOLERANCE


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


def test_chunk_kda_of_packed_sequences():
    x = Inputs(B=1, T=50, N=3)
    q, k, v, _, beta = x.arguments()
    g, ends = key_gates(x), np.array([0, 20, 20, 45], np.int32)
    state = np.ascontiguousarray(x.state.swapaxes(2, 3))
    o, s = sluice.chunk_kda(
        q, k, v, g, beta, initial_state=state, output_final_state=True, cu_seqlens=ends,
        cu_seqlens_cpu=ends, transpose_state_layout=True, chunk_size=32, safe_gate=True,
        disable_recompute=True,
    )
    for n, (first, end) in enumerate(zip(ends, ends[1:])):
        rows = (y[:, first:end] for y in (q, k, v, g, beta))
        expected_o, expected_s = delta_rule(*rows, state=x.state[n : n + 1])
        assert error(s[n].swapaxes(1, 2), expected_s[0]) < TOLERANCE
        assert end == first or error(o[:, first:end], expected_o) < TOLERANCE


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


@pytest.mark.parametrize("pairs", [False, True])
def test_stages_are_kda(pairs):
    x = Inputs(B=1, T=100)
    q, k, v, _, beta = x.arguments()
    k = k / 8  # about of length 1: the stages have no norm, and longer keys make states grow
    g = key_gates(x)
    (B, T, HV, V), K = v.shape, k.shape[3]
    sums, A, inverse, w, u, new, o = (
        np.zeros((B, T, HV, width), np.float32) for width in (K, 64, 64, K, V, V, V)
    )
    h, final = np.zeros((1, 2, *x.state.shape[1:]), np.float32), np.zeros_like(x.state)
    run = sluice.ops.chunk_stage
    if pairs:
        run("cumsum_kkt", k=k, gate=g, beta=beta, g_cumsum=sums, A=A)
        run("solve_wy", k=k, v=v, beta=beta, g_cumsum=sums, A=A, w=w, u=u)
    else:
        run("chunk_cumsum", gate=g, g_cumsum=sums)
        run("scaled_dot_kkt", k=k, beta=beta, g_cumsum=sums, A=A)
        run("solve_tril", A=A, A_inverse=inverse)
        run("wy_fast", k=k, v=v, beta=beta, g_cumsum=sums, A_inverse=inverse, w=w, u=u)
    states = dict(initial_state=x.state, final_state=final)
    run("chunk_h", k=k, u=u, w=w, g_cumsum=sums, v_new=new, h=h, **states)
    run("chunk_o", q=q, k=k, v_new=new, g_cumsum=sums, h=h, o=o)
    expected_o, expected = delta_rule(q, k, v, g, beta, state=x.state)
    assert error(o, expected_o) < TOLERANCE
    assert error(final, expected) < TOLERANCE


def test_refusals():
    x = Inputs(T=4)
    q, k, v, g, beta = x.arguments()
    keys = key_gates(x)
    call = (q, k, v, keys, beta)
    for kda in (sluice.chunk_kda, sluice.fused_recurrent_kda):
        with pytest.raises(sluice.InvalidArgument, match="A_log = None, expected a tensor"):
            kda(*call, use_gate_in_kernel=True)
        with pytest.raises(sluice.InvalidArgument, match="allow_neg_eigval = True"):
            kda(*call, allow_neg_eigval=True)
        with pytest.raises(sluice.InvalidArgument, match="transpose_state_layout = False"):
            kda(*call, state_v_first=True, transpose_state_layout=False)
        for bound in (3, 0, 0.0, float("-inf"), float("nan")):
            message = f"kda: lower_bound = {bound:g}, expected None or a finite number < 0"
            with pytest.raises(sluice.InvalidArgument, match=message):
                kda(*call, use_gate_in_kernel=True, lower_bound=bound)
    with pytest.raises(sluice.InvalidArgument, match="lower_bound = None, expected a number < 0"):
        sluice.chunk_kda(*call, use_gate_in_kernel=True, safe_gate=True, A_log=g[0, 0])
    with pytest.raises(sluice.InvalidArgument, match="chunk_size = 128, expected 32 or 64"):
        sluice.chunk_kda(*call, chunk_size=128)
    with pytest.raises(sluice.Unsupported, match="cp_context = given"):
        sluice.chunk_kda(*call, cp_context=g)
    with pytest.raises(sluice.Unsupported, match="return_intermediate_states = True"):
        sluice.chunk_kda(*call, return_intermediate_states=True)
    with pytest.raises(sluice.InvalidArgument, match="A_log = None"):
        sluice.fused_kda_gate(keys)
    with pytest.raises(sluice.Unsupported, match="gv = given"):
        sluice.fused_recurrent_gla(q, k, v, gv=v)
    with pytest.raises(sluice.Unsupported, match="reverse = True"):
        sluice.fused_recurrent_gla(q, k, v, keys, reverse=True)
    with pytest.raises(sluice.InvalidArgument, match=r"fused_recurrent_gla: gk.shape\[3\] = 3, expected"):
        sluice.fused_recurrent_gla(q, k, v, np.ascontiguousarray(keys[..., :3]))
