# SPDX-License-Identifier: Apache-2.0
"""Measures whether sluice.engines.sglang and .sgl_npu compute what SGLang's operators promise:
pools in place with slot 0 live, chunk start states, verification buffers, and what is refused.
Decode of one token is in test_engine_decode.py.
Compares with the float64 recurrence of engine_reference.py, token by token and slot by slot."""

import pytest

torch = pytest.importorskip("torch")

import sluice
from engine_reference import L2, Rows, check_convolution, check_sequences, close, int32, poisoned, side_by_side
from sluice.engines import chunk_states, sgl_npu, sglang
from test_engine_decode import sglang_raw

H, HV, K, V = 2, 6, 16, 24


def rows_of(tokens, seed, **made):
    return Rows(tokens, H, HV, K, V, seed, **made)


def chunk_starts(S0, states, tokens):
    """States at the start of every 64-token chunk of one sequence."""
    at = [S0.double()] + [states[t - 1] for t in range(64, tokens, 64)]
    return torch.stack(at) if tokens else torch.zeros(0, *S0.shape).double()


@pytest.fixture(params=["counted", "bounded"])
def chunk_rows(request, monkeypatch):
    """Says how many rows h has for packed rows: as many as chunks, and on a GPU, where the host does
    not know those, T // 64 + N. The CPU runs that too."""
    counted = request.param == "counted"
    if counted and torch.get_default_device().type != "cpu":
        pytest.skip("chunks are not counted on a GPU")
    if not counted:
        monkeypatch.setattr(chunk_states, "_known_to_host", lambda counts: False)
    return lambda chunks, T, N: chunks if counted else T // 64 + N


def chunk(rows, inplace=True, **given):
    o, none, h = sglang.chunk_gated_delta_rule(*rows.packed(), inplace_update=inplace, **given)
    assert none is None
    return o, h


def chunk_not_in_place(rows, **given):
    return chunk(rows, False, **given)


def chunk_kda(rows, **given):
    return sglang.chunk_kda(*rows.packed(), output_intermediate_states=True, **given)


def chunk_kda_raw(rows, **given):
    gates = dict(A_log=rows.A_log, dt_bias=rows.dt_bias, lower_bound=rows.bound, beta_is_raw=True)
    return chunk_kda(rows, **gates, **given)


RAW_KEYS = dict(raw=True, keys=True)


@pytest.mark.parametrize("call, made", [
    (chunk, {}),
    (chunk_not_in_place, {}),
    (chunk_kda, dict(keys=True)),
    (chunk_kda_raw, RAW_KEYS),
    (chunk_kda_raw, RAW_KEYS | dict(bound=-5.0)),
])
def test_chunk_updates_the_pool_and_returns_chunk_states(call, made, chunk_rows):
    starts, slots = [0, 130, 130, 194, 197], [4, 1, 0, -1]
    rows, pool = rows_of(197, 1, **made), torch.randn(6, HV, V, K)
    before = pool.clone()
    o, h = call(rows, initial_state=pool, initial_state_indices=int32(*slots), cu_seqlens=int32(*starts), **L2)
    assert h.shape == (1, chunk_rows(3 + 0 + 1 + 1, 197, 4), HV, V, K)
    expected_h = []
    for begin, end, slot in zip(starts, starts[1:], slots[:3]):
        S0 = before[slot].mT
        expected_h.append(chunk_starts(S0, rows.truth(slice(begin, end), S0)[1], end - begin))
    close(h[0, :4].mT, torch.cat(expected_h))
    assert (h[0, 4:] == 0).all(), "of the padded sequence, and behind the last one"
    writes = [None] * 4 if call is chunk_not_in_place else slots
    check_sequences(rows, starts, o[0], before, pool, slots, writes)


def test_no_track_state_of_key_wise_gates():
    with pytest.raises(sluice.Unsupported, match="track_state = "):
        sglang.chunk_kda(*rows_of(73, 6, keys=True).packed(), track_state=torch.zeros(5, HV, V, K))


@pytest.mark.parametrize("packed_rows", [True, False])
def test_npu_returns_output_state_and_chunk_states(packed_rows, chunk_rows):
    B, T = 2, 100
    rows, S0 = rows_of(B * T, 2, dtype=torch.bfloat16), torch.randn(B, HV, K, V)
    before = S0.clone()
    cu = torch.tensor([0, T, 2 * T]) if packed_rows else None
    o, final, h = sgl_npu.chunk_gated_delta_rule_npu(
        *rows.packed(1 if packed_rows else B), initial_state=S0, cu_seqlens=cu, **L2)
    assert torch.equal(S0, before) and final.dtype == torch.float32
    rows_of_h = (1, chunk_rows(4, B * T, B)) if packed_rows else (2, 2)
    assert h.dtype == torch.bfloat16 and h.shape[:2] == rows_of_h
    for n in range(B):
        part = slice(n * T, n * T + T)
        expected, states = rows.truth(part, before[n])
        close(o.flatten(0, 1)[part], expected, 1e-2)
        close(final[n], states[-1], 1e-3)
        close(h.flatten(0, 1)[2 * n : 2 * n + 2], chunk_starts(before[n], states, T), 1e-2)
    assert (h.flatten(0, 1)[4:] == 0).all()


def test_npu_without_final_state_and_float32():
    half = rows_of(3, 3, dtype=torch.bfloat16).packed()
    o, final, h = sgl_npu.chunk_gated_delta_rule_npu(*half, output_final_state=False)
    assert final is None and h.shape[1] == 1
    with pytest.raises(sluice.Unsupported, match="q.dtype"):
        sgl_npu.chunk_gated_delta_rule_npu(*rows_of(3, 3).packed())
    with pytest.raises(sluice.Unsupported, match="head_first"):
        sgl_npu.chunk_gated_delta_rule_npu(*half, head_first=True)


def test_rows_longer_than_a_step_take_the_chunk_form():
    rows, pool = rows_of(40, 6), torch.randn(2, HV, V, K)
    before = pool.clone()
    o = sglang.fused_recurrent_gated_delta_rule_update(
        *rows.packed(),
        initial_state_source=pool,
        initial_state_indices=torch.tensor([1]),
        cu_seqlens=torch.tensor([0, 40]),
    )
    check_sequences(rows, [0, 40], o[0], before, pool, [1], l2=False)


@pytest.mark.parametrize("spare", [[], [1, 2]], ids=["batch", "pool"])
def test_verification_fills_the_buffer_and_leaves_the_pool(spare):
    """Rows of the buffer are given for the batch, or (by SGLang's server) for the whole pool."""
    N, T, steps, slots = 2, 3, 4, [3, 1]
    rows, pool, buffer = rows_of(N * T, 7, raw=True), torch.randn(5, HV, V, K), poisoned(3, steps, HV, V, K)
    before = pool.clone()
    o = sglang_raw(
        rows, pool, torch.tensor(slots), torch.tensor([0, T, 2 * T]), disable_state_update=True,
        intermediate_states_buffer=buffer, intermediate_state_indices=int32(2, 0, *spare), cache_steps=steps,
    )
    assert torch.equal(pool, before)
    for n, place in enumerate((2, 0)):
        part = slice(n * T, n * T + T)
        expected, states = rows.truth(part, before[slots[n]].mT)
        close(o[0, part], expected)
        close(buffer[place, :T], states.mT)
    assert buffer[1].isnan().all() and buffer[:, T:].isnan().all()


@pytest.mark.parametrize(
    "name, value",
    [
        ("lower_bound", -5.0),
        ("retrieve_parent_token", torch.zeros(1, 1)),
        ("cache_ring", True),
        ("match_cutedsl_decode", True),
        ("softplus_beta", 2.0),
        ("softplus_threshold", 1.0),
        ("intermediate_state_indices", torch.zeros(1)),
        ("intermediate_states_buffer", torch.zeros(1, 1, HV, V, K)),
    ],
)
def test_refused_by_name(name, value):
    told = "disable_state_update" if name == "intermediate_states_buffer" else name
    with pytest.raises(sluice.Unsupported, match=f"update: {told} = "):
        sglang_raw(rows_of(1, 11, raw=True), torch.zeros(2, HV, V, K), int32(1), int32(0, 1), **{name: value})


D, W = 10, 4


@pytest.mark.parametrize("packed_rows", [True, False])
def test_convolution_prefill(packed_rows):
    T, slots, live = 6, [0, 3], [True, False]
    pool = torch.randn(4, D, W - 1)
    before = pool.clone()
    x, weight, bias = torch.randn(2, D, T), torch.randn(D, W), torch.randn(D)
    out = sglang.causal_conv1d_fn(
        side_by_side(x) if packed_rows else x,
        weight,
        bias,
        query_start_loc=torch.tensor([0, T, 2 * T]) if packed_rows else None,
        cache_indices=int32(*slots),
        has_initial_state=torch.tensor(live),
        conv_states=pool,
        seq_lens_cpu=[T, T],
    )
    out = out if packed_rows else side_by_side(out)
    check_convolution(side_by_side(x), weight, bias, (0, T, 2 * T), out, before, pool, slots, live)


def test_convolution_update_and_refusals():
    pool = torch.randn(3, D, W - 1)
    before = pool.clone()
    x, weight = torch.randn(2, D, 2), torch.randn(D, W)
    out = sglang.causal_conv1d_update(
        x, pool, weight, None, "silu", conv_state_indices=torch.tensor([2, -1])
    )
    check_convolution(side_by_side(x), weight, None, (0, 2, 4), side_by_side(out), before, pool, [2, -1])
    for name in ("intermediate_conv_window", "retrieve_next_token", "retrieve_parent_token"):
        with pytest.raises(sluice.Unsupported, match=name):
            sglang.causal_conv1d_update(x, pool, weight, **{name: torch.zeros(1)})
