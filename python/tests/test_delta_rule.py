# SPDX-License-Identifier: Apache-2.0
"""Measures that the delta rule functions, with gates of heads [B,T,HV] and of key channels [B,T,HV,K], compute the
recurrence on NumPy arrays in every option that the Python layer translates. Each case is compared with the float64
recurrence of conftest.py, without options in test_fla_contract.py."""

import numpy as np
import pytest
import sluice
from conftest import Inputs, delta_rule, error, log_gates, sigmoid
from fla_functions import call, chunk, key_gates, steps

TOLERANCE = 1e-5


@pytest.mark.parametrize("scale", [None, 0.0, 0.25])
def test_scale_zero_is_not_the_default(inputs, scale):
    o, _ = chunk(inputs.arguments(), scale=scale)
    assert error(o, delta_rule(*inputs.arguments(), scale=scale, l2=True)[0]) < TOLERANCE
    if scale == 0.0:
        assert not o.any()


def test_raw_gates_and_logits(inputs):
    A_log = np.array([0.1, -0.5, 0.7, 0.0], np.float32)
    dt_bias = np.array([1.0, -1.0, 0.5, 0.0], np.float32)
    logits = inputs.beta * 4 - 2
    q, k, v, a, _ = inputs.arguments()
    raw = dict(use_gate_in_kernel=True, A_log=A_log, dt_bias=dt_bias)
    o, _ = chunk((q, k, v, a * 3, logits), **raw, use_beta_sigmoid_in_kernel=True, allow_neg_eigval=True)
    expected, _ = delta_rule(q, k, v, log_gates(a * 3, A_log, dt_bias), 2 * sigmoid(logits.astype(np.float64)), l2=True)
    assert error(o, expected) < TOLERANCE


def test_linear_gate_space(inputs):
    q, k, v, g, beta = inputs.arguments()
    linear, _ = chunk((q, k, v, np.exp(g), beta), gate_space="linear")
    assert error(linear, chunk(inputs.arguments())[0]) < TOLERANCE


@pytest.mark.parametrize(
    "offsets, expected",
    [(None, 0), ([0], 0), ([0, 20, 20, 50], 30), (np.array([0, 7, 9], np.int64), 7)],
)
def test_the_longest_of_offsets_in_host_memory(offsets, expected):
    from sluice.functional._arguments import longest

    assert longest(offsets) == expected


@pytest.mark.parametrize("told", [30, 50, 3])
def test_a_bound_on_lengths_changes_no_number(told):
    x = Inputs(B=1, T=50, N=3)
    cu = np.array([0, 20, 20, 50], np.int32)
    common = dict(initial_state=x.state, cu_seqlens=cu, qk_norm="l2")
    expected = sluice.ops.chunk_forward(*x.arguments(), **common)
    assert np.array_equal(sluice.ops.chunk_forward(*x.arguments(), max_tokens=told, **common), expected)
    with pytest.raises(sluice.InvalidArgument, match="max_tokens = -1, expected >= 0"):
        sluice.ops.chunk_forward(*x.arguments(), max_tokens=-1, **common)


@pytest.mark.parametrize("parameters", [True, False])
def test_bounded_gates(parameters):
    """gate_lower_bound sigmoid(exp(A_log) (a + dt_bias)), both parameters or neither."""
    x = Inputs(T=70)
    a = np.random.default_rng(5).standard_normal(x.g.shape).astype(np.float32)
    names = ("A_log", "dt_bias") if parameters else ()
    given = {name: np.full(a.shape[2], 0.3, np.float32) for name in names}
    log = log_gates(a, **given, bound=-2.5).astype(np.float32)
    bounded = sluice.ops.chunk_forward(
        x.q, x.k, x.v, a, x.beta, gate_space="raw_bounded", gate_lower_bound=-2.5, **given
    )
    assert np.allclose(bounded, sluice.ops.chunk_forward(x.q, x.k, x.v, log, x.beta), atol=2e-5)
    with pytest.raises(sluice.InvalidArgument, match="gate_lower_bound = 0, expected a finite"):
        sluice.ops.chunk_forward(x.q, x.k, x.v, a, x.beta, gate_space="raw_bounded")


def test_fused_recurrent_in_place_on_a_pool():
    x = Inputs(B=2, T=1, N=5)
    pool = x.state.copy()
    slots = np.array([3, -1], np.int64)
    o, s = steps(x.arguments(), initial_state=pool, final_state=pool, read_slots=slots)
    assert s is pool
    parts = [a[:1] for a in x.arguments()]
    expected_o, expected_s = delta_rule(*parts, state=x.state[3:4], l2=True)
    assert error(o[:1], expected_o) < TOLERANCE and error(pool[3:4], expected_s) < TOLERANCE
    assert not o[1].any(), "padded rows are zeros"
    untouched = [0, 1, 2, 4]
    assert np.array_equal(pool[untouched], x.state[untouched])


def test_packed_steps_with_a_bound():
    x = Inputs(B=1, T=6, N=2)
    pool = x.state.copy()
    cu = np.array([0, 4, 6], np.int32)
    o, _ = steps(x.arguments(), initial_state=pool, final_state=pool, max_tokens=4, cu_seqlens=cu)
    assert "recurrent_step" in sluice.last_kernel()
    parts = [a[:, 4:] for a in x.arguments()]
    expected_o, expected_s = delta_rule(*parts, state=x.state[1:], l2=True)
    assert error(o[:, 4:], expected_o) < TOLERANCE and error(pool[1:], expected_s) < TOLERANCE


def test_per_token_states_and_rollback():
    x = Inputs(B=1, T=3, N=4)
    pool = x.state.copy()
    columns = np.array([[1, 2, 3]], np.int32)
    common = dict(qk_norm="l2", initial_state=pool)
    sluice.ops.recurrent_step(
        *x.arguments(), read_slots=np.array([[0]], np.int32), write_slots=columns,
        state_writes="per_token", **common,
    )
    parts = [a[:, :2] for a in x.arguments()]
    _, expected = delta_rule(*parts, state=x.state[:1], l2=True)
    assert error(pool[2:3], expected) < TOLERANCE
    token = [a[:, 2:] for a in x.arguments()]
    o = sluice.ops.recurrent_step(
        *token, read_slots=columns, num_accepted=np.array([2], np.int32), state_writes="none",
        **common,
    )
    assert error(o, delta_rule(*token, state=pool[2:3], l2=True)[0]) < TOLERANCE


def test_checkpoints():
    x = Inputs(B=1, T=130)
    pool = np.zeros((2, 4, 64, 32), np.float32)
    sluice.ops.chunk_forward(
        *x.arguments(), qk_norm="l2", checkpoints=pool, checkpoint_every=64,
        checkpoint_slots=np.array([[1, 0]], np.int32),
    )
    for slot, tokens in ((1, 64), (0, 128)):
        parts = [a[:, :tokens] for a in x.arguments()]
        assert error(pool[slot : slot + 1], delta_rule(*parts, l2=True)[1]) < TOLERANCE


@pytest.mark.parametrize("implementation", ["reference", "reference-chunked"])
def test_implementation(inputs, implementation):
    o, _ = chunk(inputs.arguments(), implementation=implementation)
    assert "reference" in sluice.last_kernel()
    assert error(o, delta_rule(*inputs.arguments(), l2=True)[0]) < 1e-6


def raw_gates(x, seed=4):
    """Raw gates, A_log [HV], dt_bias [HV,K]; one channel is reset."""
    rng = np.random.default_rng(seed)
    heads, keys = x.v.shape[2], x.k.shape[3]
    a = rng.standard_normal((*x.v.shape[:3], keys)).astype(np.float32)
    a[:, 1, :, 1] = np.inf
    return a, *(rng.standard_normal(n).astype(np.float32) for n in (heads, (heads, keys)))


@pytest.mark.parametrize("bound", [None, -5, -0.25, -1e4])
@pytest.mark.parametrize("tokens", [3, 40])
def test_raw_gates_of_channels(tokens, bound):
    x = Inputs(T=tokens)
    q, k, v, _, logits = x.arguments()
    a, A_log, dt_bias = raw_gates(x)
    ways = [(A_log, dt_bias.reshape(-1)), (A_log, dt_bias), (A_log.reshape(1, 1, -1, 1), None)]
    for A, bias in ways + ([] if bound is None else [(None, dt_bias), (None, None)]):
        g = log_gates(a, None if A is None else A_log[:, None], None if bias is None else dt_bias, bound)
        expected_o, expected_s = delta_rule(q, k, v, g, 2 * sigmoid(logits), state=x.state, l2=True)
        raw = dict(use_gate_in_kernel=True, A_log=A, dt_bias=bias, lower_bound=bound)
        raw |= dict(use_beta_sigmoid_in_kernel=True, allow_neg_eigval=True)
        for kda in ("chunk_kda", "fused_recurrent_kda"):
            o, s = call(kda, (q, k, v, a, logits), initial_state=x.state, output_final_state=True, **raw)
            assert error(o, expected_o) < TOLERANCE and error(s, expected_s) < TOLERANCE
        gate = sluice.fused_kda_gate(a, A, bias, bound)
        assert gate.dtype == np.float32 and error(gate, g) < 1e-6


def test_gates_of_other_ranks_and_dtypes():
    a = np.linspace(-3, 3, 24, dtype=np.float16).reshape(2, 3, 4)
    A_log = np.array([0.5, -1, 2], np.float32)
    gate = sluice.fused_kda_gate(a, A_log)
    assert error(gate, log_gates(a, A_log[:, None])) < 1e-6


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
    for n in range(3):
        rows = (y[:, : 64 * n] for y in (q, k, v, g, beta))
        expected = delta_rule(*rows, state=x.state, l2=True)[1]
        assert error(h[:, n].float(), expected) < 4e-3


def test_gk_of_the_delta_rule_is_kda():
    x = Inputs(T=4)
    q, k, v, _, beta = x.arguments()
    g = key_gates(x)
    kwargs = dict(use_qk_l2norm_in_kernel=True)
    kda = sluice.fused_recurrent_kda(q, k, v, g, beta, **kwargs)[0]
    assert np.array_equal(
        kda, sluice.fused_recurrent_gated_delta_rule(q, k, v, gk=g, beta=beta, **kwargs)[0]
    )


def test_stages_with_gates_of_channels():
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
