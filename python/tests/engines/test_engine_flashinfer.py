# SPDX-License-Identifier: Apache-2.0
"""Measures whether sluice.engines.flashinfer computes what FlashInfer's gated delta rule promises:
linear gates, value-first pools, checkpoints, buffers, return forms, and what is refused.
Compares with the float64 recurrence of engine_reference.py, token by token and slot by slot."""

import pytest

torch = pytest.importorskip("torch")

import sluice
from engine_reference import L2, Rows, check_sequences, close, int32, poisoned
from sluice.engines import flashinfer

H, HV, D = 2, 4, 16


def rows_of(tokens, seed, raw=False):
    return Rows(tokens, H, HV, D, D, seed, raw)


def linear(rows):
    """What prefill is given: alpha in place of log gates."""
    return rows.q, rows.k, rows.v, rows.g.exp(), rows.beta


def test_prefill_takes_alpha_and_returns_a_pair():
    starts = [0, 50, 50, 53]
    rows, S0 = rows_of(53, 1), torch.randn(3, HV, D, D)
    o, final = flashinfer.chunk_gated_delta_rule(
        *linear(rows), initial_state=S0, output_final_state=True, cu_seqlens=torch.tensor(starts), max_seqlen=50, **L2)
    check_sequences(rows, starts, o, S0, final, range(3))


def test_prefill_defaults():
    rows, out = rows_of(5, 2), poisoned(5, HV, D)
    rows.k, rows.g, rows.beta = rows.k / 8, torch.zeros(5, HV), torch.ones(5, HV)
    o = flashinfer.chunk_gated_delta_rule(
        rows.q, rows.k, rows.v, scale=0.0, cu_seqlens=torch.tensor([0, 5]), output=out
    )
    assert o is out, "a lone tensor, the given one"
    close(o, rows.truth(l2=False)[0])


def test_prefill_reads_and_writes_a_pool_and_stores_checkpoints():
    starts, slots = [0, 200, 230, 358], [5, 0, 2]
    rows, pool, checkpoints = rows_of(358, 3), torch.randn(6, HV, D, D), poisoned(6, HV, D, D)
    before = pool.clone()
    o, state = flashinfer.chunk_gated_delta_rule(
        *linear(rows),
        initial_state=pool,
        output_final_state=True,
        cu_seqlens=int32(*starts),
        output_state=pool,
        state_checkpoints=checkpoints,
        checkpoint_cu_starts=torch.tensor([0, 3, 3, 5]),
        checkpoint_every_n_tokens=64,
        state_indices=int32(*slots),
        **L2,
    )
    assert state is pool
    check_sequences(rows, starts, o, before, pool, slots)
    expected = []
    for begin, end, slot in zip(starts, starts[1:], slots):
        _, states = rows.truth(slice(begin, end), before[slot].mT)
        expected += states[63::64].mT
    close(checkpoints[:5], torch.stack(expected))
    assert checkpoints[5].isnan().all()


@pytest.mark.parametrize(
    "change, name",
    [
        ({"use_cp": True}, "use_cp"),
        ({"backend": "cudnn"}, "backend"),
        ({"_cp_chunk_len": 64}, "_cp_chunk_len"),
        ({"q": torch.randn(3, 2 * HV, D)}, "q.shape"),
        ({"state_checkpoints": torch.zeros(1)}, "state_checkpoints"),
    ],
)
def test_prefill_refused_by_name(change, name):
    arguments = dict(zip("q k v g beta".split(), linear(rows_of(3, 4))), cu_seqlens=torch.tensor([0, 3]))
    with pytest.raises(sluice.Unsupported, match=name):
        flashinfer.chunk_gated_delta_rule(**arguments | change)


def decode(function, rows, B, state, *slots, **more):
    """o [tokens,HV,V] of B sequences of equally many tokens, and what the function returned beside it."""
    q, k, v, a, b = rows.packed(B)
    o, result = function(q, k, v, state, *slots, rows.A_log, a, rows.dt_bias, b, **more)
    return o.flatten(0, 1), result


@pytest.mark.parametrize("l2", [None, False])
def test_decode_of_states_per_row(l2):
    rows, state = rows_of(3, 5, raw=True), torch.randn(3, HV, D, D)
    before = state.clone()
    flags = {} if l2 is None else {"use_qk_l2norm": l2}
    o, result = decode(flashinfer.gated_delta_rule_decode_pretranspose, rows, 3, state, **flags)
    assert result is state
    check_sequences(rows, range(4), o, before, state, range(3), l2=l2 is None)


def test_decode_of_a_pool_writes_to_other_slots():
    rows, pool, out = rows_of(4, 6, raw=True), torch.randn(5, HV, D, D), poisoned(2, 2, HV, D)
    before = pool.clone()
    o, result = decode(
        flashinfer.gated_delta_rule_decode_pretranspose,
        rows,
        2,
        None,
        output=out,
        initial_state=pool,
        initial_state_indices=torch.tensor([1, -1]),
        output_state_indices=torch.tensor([4, 3]),
    )
    assert result is pool and o.data_ptr() == out.data_ptr()
    check_sequences(rows, [0, 2, 4], o, before, pool, [1, -1], writes=[4, 3])


def test_decode_with_the_key_first_state():
    rows, state = rows_of(2, 7, raw=True), torch.randn(2, HV, D, D)
    before = state.clone()
    o, _ = decode(flashinfer.gated_delta_rule_decode, rows, 2, state)
    check_sequences(rows, range(3), o, before.mT, state.mT, range(2))


@pytest.mark.parametrize("form", ["buffer", "slots", "last"])
def test_verification(form):
    B, T, reads = 2, 3, [0, 8]
    rows, pool, buffer = rows_of(B * T, 8, raw=True), torch.randn(9, HV, D, D), poisoned(B, T + 1, HV, D, D)
    before = pool.clone()
    slots = int32(2, 3, 4, 5, 6, 7).view(B, T)
    arguments = {
        "buffer": dict(intermediate_states_buffer=buffer, disable_state_update=True),
        "slots": dict(ssm_state_indices=slots, disable_state_update=False),
        "last": dict(disable_state_update=False),
    }[form]
    o, _ = decode(flashinfer.gated_delta_rule_mtp, rows, B, pool, torch.tensor(reads), **arguments)
    if form == "last":
        return check_sequences(rows, [0, T, 2 * T], o, before, pool, reads)
    for n in range(B):
        part = slice(n * T, n * T + T)
        expected, states = rows.truth(part, before[reads[n]].mT)
        close(o[part], expected)
        close(buffer[n, :T] if form == "buffer" else pool[slots[n].long()], states.mT)
    if form == "buffer":
        assert torch.equal(pool, before)


def test_verification_wants_to_know_whether_states_are_written():
    call = (flashinfer.gated_delta_rule_mtp, rows_of(2, 9, raw=True), 1, torch.zeros(2, HV, D, D), torch.tensor([1]))
    with pytest.raises(sluice.InvalidArgument, match="disable_state_update"):
        decode(*call)
    with pytest.raises(sluice.Unsupported, match="cache_replayssm"):
        decode(*call, cache_replayssm=True)
