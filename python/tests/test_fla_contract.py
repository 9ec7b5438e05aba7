# SPDX-License-Identifier: Apache-2.0
"""Measures what the functions named as fla's promise beyond their formulas: as many states as
sequences, zeros behind the last packed row, float32 in the recurrent ones, a bias that may be left out."""

import numpy as np
import pytest
import sluice
from conftest import Inputs, delta_rule, error

ml_dtypes = pytest.importorskip("ml_dtypes")

L2 = dict(use_qk_l2norm_in_kernel=True)
HALVES = [np.float16, ml_dtypes.bfloat16]
ENDS = np.array([0, 20, 20, 45], np.int32)  # of 50 rows


def calls(x, state, cu=None):
    """Functions named as fla's that take states, on the rows of `x`."""
    keys = np.repeat(x.g[..., None], x.q.shape[3], 3)
    given = dict(initial_state=state, cu_seqlens=cu)
    return {
        "chunk_gated_delta_rule": lambda: sluice.chunk_gated_delta_rule(*x.arguments(), **given),
        "chunk_simple_gla": lambda: sluice.chunk_simple_gla(x.q, x.k, x.v, x.g, **given),
        "fused_recurrent_gated_delta_rule": lambda: sluice.fused_recurrent_gated_delta_rule(
            x.q, x.k, x.v, x.g, beta=x.beta, **given
        ),
        "fused_recurrent_simple_gla": lambda: sluice.fused_recurrent_simple_gla(
            x.q, x.k, x.v, x.g, **given
        ),
        "fused_recurrent_kda": lambda: sluice.fused_recurrent_kda(
            x.q, x.k, x.v, keys, x.beta, **given
        ),
        "chunk_kda": lambda: sluice.chunk_kda(x.q, x.k, x.v, keys, x.beta, **given),
        "chunk_gla": lambda: sluice.chunk_gla(x.q, x.k, x.v, keys, **given),
        "fused_recurrent_gla": lambda: sluice.fused_recurrent_gla(x.q, x.k, x.v, keys, **given),
    }


NAMES = list(calls(Inputs(T=1), None))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tokens", [3, 40])
@pytest.mark.parametrize("states", [1, 3])
def test_another_number_of_states_is_refused(name, tokens, states):
    x = Inputs(B=2, T=tokens, N=states)
    with pytest.raises(
        sluice.InvalidArgument, match=rf"initial_state.shape\[0\] = {states}, expected N = 2 \(one"
    ):
        calls(x, x.state)[name]()


@pytest.mark.parametrize("name", NAMES)
def test_another_number_of_states_than_packed_sequences_is_refused(name):
    x = Inputs(B=1, T=50, N=4)
    with pytest.raises(sluice.InvalidArgument, match=r"shape\[0\] = 4, expected N = 3"):
        calls(x, x.state, ENDS)[name]()
    calls(x, x.state[:3], ENDS)[name]()


def test_states_of_the_convolution_are_counted_too_and_pools_are_not():
    x, weight, states = np.ones((2, 5, 8), "f4"), np.ones((8, 4), "f4"), np.zeros((3, 8, 3), "f4")
    with pytest.raises(sluice.InvalidArgument, match=r"causal_conv1d: .* = 3, expected N = 2"):
        sluice.causal_conv1d(x, weight, initial_state=states)
    slots = np.array([2, 0])
    sluice.causal_conv1d(x, weight, initial_state=states, final_state=states, read_slots=slots)
    y = Inputs(N=5)
    sluice.chunk_gated_delta_rule(
        *y.arguments(), initial_state=y.state, final_state=y.state, read_slots=slots
    )


@pytest.fixture
def dirty(monkeypatch):
    """np.empty gives memory that held something before."""
    monkeypatch.setattr(np, "empty", lambda shape, dtype=float: np.full(shape, 7, dtype))


@pytest.mark.usefixtures("dirty")
@pytest.mark.parametrize("name", NAMES)
def test_rows_behind_the_last_sequence_are_zeros(name):
    x = Inputs(B=1, T=50, N=3)
    o, _ = calls(x, x.state, ENDS)[name]()
    assert o[:, :45].all() and not o[:, 45:].any()


@pytest.mark.usefixtures("dirty")
def test_outputs_of_operators_have_zeros_there_too():
    x = Inputs(B=1, T=50, H=1, HV=2, K=8, V=8)
    rows = np.ones((1, 50, 32), "f4")
    weight = np.ones((32, 4), "f4")
    gradients = sluice.ops.chunk_backward(*x.arguments(), d_o=x.v, cu_seqlens=ENDS)
    step = [a[:, :4] for a in x.arguments()]
    outputs = {
        "conv": sluice.causal_conv1d(rows, weight, cu_seqlens=ENDS)[0],
        "layer": sluice.gdn_layer_prefill(
            rows, np.ones((1, 50, 16), "f4"), x.g, x.beta, conv_weight=weight,
            A_log=np.zeros(2, "f4"), dt_bias=np.zeros(2, "f4"), norm_weight=np.ones(8, "f4"),
            num_k_heads=1, num_v_heads=2, head_k_dim=8, head_v_dim=8, cu_seqlens=ENDS,
        )[0],
        **{name: a for name, a in gradients._asdict().items() if a is not None},
    }
    for name, a in outputs.items():
        assert a[:, :45].any() and not a[:, 45:].any(), name
    ends = np.array([0, 2, 3])
    o = sluice.ops.recurrent_step(*step, cu_seqlens=ends, max_tokens=2, state_writes="none")
    assert o[:, :3].any() and not o[:, 3:].any()
    update = sluice.causal_conv1d_update(rows[:, :4], np.zeros((2, 32, 3), "f4"), weight, cu_seqlens=ends)
    assert update[:, :3].any() and not update[:, 3:].any()


def test_rows_of_a_given_output_are_left_alone():
    x = Inputs(B=1, T=50, N=3)
    halves = [a.astype(np.float16) for a in x.arguments()]
    for rows, allowed in ((x.arguments(), False), (halves, False), (halves, True)):
        out = np.full_like(rows[2], 7)
        o, _ = sluice.fused_recurrent_gated_delta_rule(
            *rows[:4], beta=rows[4], cu_seqlens=ENDS, out=out, allow_chunks=allowed, **L2
        )
        assert o is out and (out[:, 45:] == 7).all() and not (out[:, :45] == 7).any()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("given", [False, True])
def test_recurrent_functions_compute_in_float32(dtype, given):
    x = Inputs(B=2, T=130, K=64, V=64)
    q, k, v, g, beta = (a.astype(dtype) for a in x.arguments())
    out = np.empty_like(v) if given else None
    expected, final = delta_rule(q, k, v, g, beta, state=x.state, l2=True)
    arguments = dict(beta=beta, initial_state=x.state, output_final_state=True, out=out, **L2)
    o, s = sluice.fused_recurrent_gated_delta_rule(q, k, v, g, **arguments)
    assert o.dtype == dtype and error(s, final) < 1e-6
    # The best that the dtype can hold, and no more.
    assert error(o, expected) < 1.05 * error(expected.astype(dtype), expected)
    keys = np.repeat(g[..., None], 64, 3)
    o, s = sluice.fused_recurrent_kda(
        q, k, v, keys, beta, initial_state=x.state, output_final_state=True, **L2
    )
    assert error(s, final) < 1e-6
    expected, final = delta_rule(q, k, v, g, state=x.state, linear=True)
    o, s = sluice.fused_recurrent_simple_gla(
        q, k, v, g, initial_state=x.state, output_final_state=True
    )
    assert o.dtype == dtype and error(s, final) < 1e-6


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", [name for name in NAMES if "recurrent" in name])
def test_recurrent_functions_compute_packed_rows_in_float32(name, dtype):
    x = Inputs(B=1, T=50, K=64, V=64, N=3)
    q, k, v, g, beta = (a.astype(dtype) for a in x.arguments())
    gate = np.repeat(g[..., None], 64, 3) if name.endswith(("kda", "_gla")) and "simple" not in name else g
    delta = {"beta": beta, **L2} if name.endswith(("delta_rule", "kda")) else {}
    o, s = getattr(sluice, name)(
        q, k, v, gate, initial_state=x.state, output_final_state=True, cu_seqlens=ENDS, **delta
    )
    assert np.array_equal(s[1], x.state[1])
    for n in (0, 2):
        part = [a[:, ENDS[n] : ENDS[n + 1]] for a in (q, k, v, g, beta)]
        rule = dict(l2=True) if delta else dict(linear=True)
        expected, final = delta_rule(*part, state=x.state[n : n + 1], **rule)
        assert error(s[n : n + 1], final) < 1e-6
        found = o[:, ENDS[n] : ENDS[n + 1]]
        assert error(found, expected) < 1.05 * error(expected.astype(dtype), expected)


def test_the_chunk_kernel_is_taken_where_it_is_allowed():
    x = Inputs(T=70)
    q, k, v, g, beta = (a.astype(ml_dtypes.bfloat16) for a in x.arguments())
    chunks, _ = sluice.chunk_gated_delta_rule(q, k, v, g, beta, **L2)
    o, _ = sluice.fused_recurrent_gated_delta_rule(q, k, v, g, beta=beta, allow_chunks=True, **L2)
    assert np.array_equal(o, chunks)
    with pytest.raises(sluice.Unsupported, match="stream = given, expected None .*allow_chunks=True"):
        sluice.fused_recurrent_gated_delta_rule(q, k, v, g, beta=beta, stream=1)


@pytest.mark.parametrize("tokens", [3, 40])
@pytest.mark.parametrize("recurrent", [False, True])
def test_raw_gates_without_a_bias(tokens, recurrent):
    x = Inputs(T=tokens)
    A_log = np.linspace(-1, 1, 4).astype(np.float32)

    def run(**bias):
        given = dict(use_gate_in_kernel=True, A_log=A_log, initial_state=x.state, **bias, **L2)
        if recurrent:
            return sluice.fused_recurrent_gated_delta_rule(x.q, x.k, x.v, x.g, beta=x.beta, **given)[0]
        return sluice.chunk_gated_delta_rule(*x.arguments(), **given)[0]

    assert np.array_equal(run(), run(dt_bias=np.zeros(4, np.float32)))
