# SPDX-License-Identifier: Apache-2.0
"""Measures that the functions named as fla's are their recurrences, which conftest.py has in float64, and what they
promise beyond that: as many states as sequences, zeros behind the last packed row, float32 in the recurrent ones, a
bias that may be left out."""

import numpy as np
import pytest
import sluice
from conftest import Inputs, error
from fla_functions import NAMES, RECURRENT, call, recurrence, rows_of
from operator_scenes import layer_inputs

ml_dtypes = pytest.importorskip("ml_dtypes")

TOLERANCE = 1e-5
L2 = dict(use_qk_l2norm_in_kernel=True)
HALVES = [np.float16, ml_dtypes.bfloat16]
ENDS = np.array([0, 20, 20, 45], np.int32)  # of 50 rows


def turned(state):
    return np.ascontiguousarray(state.swapaxes(2, 3))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tokens", [1, 5, 16, 17, 70])
@pytest.mark.parametrize("states", [None, "kv", "vk"])
def test_functions_are_their_recurrences(name, tokens, states):
    x = Inputs(T=max(tokens, 3))
    rows = [a[:, :tokens] for a in rows_of(name, x)]
    expected_o, expected_s = recurrence(name, rows, x.state if states else None)
    given = dict(initial_state={None: None, "kv": x.state, "vk": turned(x.state)}[states], state_v_first=states == "vk")
    before = x.state.copy()
    o, s = call(name, rows, output_final_state=True, **given)
    assert type(o) is np.ndarray and error(o, expected_o) < TOLERANCE
    assert s.dtype == np.float32 and error(turned(s) if states == "vk" else s, expected_s) < TOLERANCE
    assert np.array_equal(x.state, before), "the initial state is not written"
    steps = name in RECURRENT and tokens <= 16
    assert sluice.last_kernel().startswith("cpu.recurrent_step" if steps else "cpu.chunk_forward")
    alone, none = call(name, rows, **given)
    assert none is None and error(alone, expected_o) < TOLERANCE


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(("delta_rule", "kda"))])
def test_both_names_of_the_layout_of_states(name):
    x, names = Inputs(T=20), ("transpose_state_layout", "state_v_first")
    given = dict(initial_state=turned(x.state), output_final_state=True)
    found, expected = (call(name, rows_of(name, x), **given, **{option: True}) for option in names)
    assert all(map(np.array_equal, found, expected))


PACKED = [(name, np.float32) for name in NAMES] + [(name, dtype) for name in RECURRENT for dtype in HALVES]


@pytest.mark.parametrize("name, dtype", PACKED)
@pytest.mark.parametrize("index, v_first", [(np.int32, False), (np.int64, True)])
def test_packed_rows(name, dtype, index, v_first):
    x = Inputs(B=1, T=50, K=64, V=64, N=3)
    rows = [a.astype(dtype) for a in rows_of(name, x)]
    state = turned(x.state) if v_first else x.state
    given = dict(initial_state=state, output_final_state=True, state_v_first=v_first)
    o, s = call(name, rows, cu_seqlens=ENDS.astype(index), **given)
    assert np.array_equal(s[1], state[1])
    s = turned(s) if v_first else s
    for n in (0, 2):
        part = [a[:, ENDS[n] : ENDS[n + 1]] for a in rows]
        expected, final = recurrence(name, part, x.state[n : n + 1])
        # In 16 bits the best that the dtype can hold, and no more.
        limit = TOLERANCE if dtype == np.float32 else 1.05 * error(expected.astype(dtype), expected)
        assert error(o[:, ENDS[n] : ENDS[n + 1]], expected) < limit
        assert error(s[n : n + 1], final) < (TOLERANCE if dtype == np.float32 else 1e-6)


def test_arguments_of_kda_that_choose_nothing():
    x = Inputs(B=1, T=50, N=3)
    rows, given = rows_of("chunk_kda", x), dict(initial_state=x.state, output_final_state=True, cu_seqlens=ENDS)
    nothing = dict(cu_seqlens_cpu=ENDS, chunk_size=32, safe_gate=True, disable_recompute=True)
    assert all(map(np.array_equal, sluice.chunk_kda(*rows, **given, **nothing), sluice.chunk_kda(*rows, **given)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tokens", [3, 40])
@pytest.mark.parametrize("states", [1, 3])
def test_another_number_of_states_is_refused(name, tokens, states):
    x = Inputs(B=2, T=tokens, N=states)
    message = rf"initial_state.shape\[0\] = {states}, expected N = 2 \(one"
    with pytest.raises(sluice.InvalidArgument, match=message):
        call(name, rows_of(name, x), initial_state=x.state)


@pytest.mark.parametrize("name", NAMES)
def test_another_number_of_states_than_packed_sequences_is_refused(name):
    x = Inputs(B=1, T=50, N=4)
    with pytest.raises(sluice.InvalidArgument, match=r"shape\[0\] = 4, expected N = 3"):
        call(name, rows_of(name, x), initial_state=x.state, cu_seqlens=ENDS)
    call(name, rows_of(name, x), initial_state=x.state[:3], cu_seqlens=ENDS)


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
    o, _ = call(name, rows_of(name, x), initial_state=x.state, cu_seqlens=ENDS)
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
        "layer": sluice.gdn_layer_prefill(**layer_inputs(T=50), cu_seqlens=ENDS)[0],
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


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("given", [False, True])
def test_recurrent_functions_compute_in_float32(name, dtype, given):
    x = Inputs(B=2, T=130, K=64, V=64)
    rows = [a.astype(dtype) for a in rows_of(name, x)]
    out = np.empty_like(rows[2]) if given else None
    expected, final = recurrence(name, rows, x.state)
    o, s = call(name, rows, initial_state=x.state, output_final_state=True, out=out)
    assert o.dtype == dtype and error(s, final) < 1e-6
    # The best that the dtype can hold, and no more.
    assert error(o, expected) < 1.05 * error(expected.astype(dtype), expected)


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
