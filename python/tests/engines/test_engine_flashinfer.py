# SPDX-License-Identifier: Apache-2.0
"""Measures whether sluice.engines.flashinfer computes what FlashInfer's gated delta rule promises:
linear gates, value-first pools, checkpoints, buffers, return forms, and what is refused.
Compares with the float64 recurrence of engine_reference.py, token by token and slot by slot."""

import pytest

torch = pytest.importorskip("torch")

import sluice
from engine_reference import (
    close,
    log_gate,
    poisoned,
    random_rows,
    raw_gates,
    recurrence,
)
from sluice.engines import flashinfer

H, HV, D = 2, 4, 16


def test_prefill_takes_alpha_and_returns_a_pair():
    starts = [0, 50, 50, 53]
    q, k, v, g, beta = random_rows(53, H, HV, D, D, 1)
    S0 = torch.randn(3, HV, D, D)
    o, final = flashinfer.chunk_gated_delta_rule(
        q,
        k,
        v,
        g.exp(),
        beta,
        initial_state=S0,
        output_final_state=True,
        cu_seqlens=torch.tensor(starts),
        use_qk_l2norm_in_kernel=True,
        max_seqlen=50,
    )
    for n in range(3):
        part = slice(starts[n], starts[n + 1])
        expected, states = recurrence(
            q[part], k[part], v[part], g[part], beta[part], S=S0[n].mT, l2=True
        )
        close(o[part], expected)
        close(final[n], states[-1].mT if len(states) else S0[n])


def test_prefill_defaults():
    q, k, v, _, _ = random_rows(5, H, HV, D, D, 2)
    k = k / 8
    out = poisoned((5, HV, D))
    o = flashinfer.chunk_gated_delta_rule(
        q, k, v, scale=0.0, cu_seqlens=torch.tensor([0, 5]), output=out
    )
    assert o is out, "a lone tensor, the given one"
    close(o, recurrence(q, k, v, None, None)[0])


def test_prefill_reads_and_writes_a_pool_and_stores_checkpoints():
    starts = [0, 200, 230, 358]
    q, k, v, g, beta = random_rows(358, H, HV, D, D, 3)
    pool, checkpoints = torch.randn(6, HV, D, D), poisoned((6, HV, D, D))
    before = pool.clone()
    slots = torch.tensor([5, 0, 2], dtype=torch.int32)
    o, state = flashinfer.chunk_gated_delta_rule(
        q,
        k,
        v,
        g.exp(),
        beta,
        initial_state=pool,
        output_final_state=True,
        cu_seqlens=torch.tensor(starts, dtype=torch.int32),
        use_qk_l2norm_in_kernel=True,
        output_state=pool,
        state_checkpoints=checkpoints,
        checkpoint_cu_starts=torch.tensor([0, 3, 3, 5]),
        checkpoint_every_n_tokens=64,
        state_indices=slots,
    )
    assert state is pool
    rows = []
    for n, slot in enumerate(slots.tolist()):
        part = slice(starts[n], starts[n + 1])
        expected, states = recurrence(
            q[part], k[part], v[part], g[part], beta[part], S=before[slot].mT, l2=True
        )
        close(o[part], expected)
        close(pool[slot], states[-1].mT)
        rows += [states[t - 1].mT for t in range(64, len(states) + 1, 64)]
    close(checkpoints[:5], torch.stack(rows))
    assert checkpoints[5].isnan().all()
    assert torch.equal(pool[[1, 3, 4]], before[[1, 3, 4]])


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
    q, k, v, g, beta = random_rows(3, H, HV, D, D, 4)
    arguments = dict(q=q, k=k, v=v, g=g.exp(), beta=beta, cu_seqlens=torch.tensor([0, 3]))
    arguments.update(change)
    with pytest.raises(sluice.Unsupported, match=name):
        flashinfer.chunk_gated_delta_rule(**arguments)


def decode_case(B, T, seed):
    q, k, v, _, _ = random_rows(B * T, H, HV, D, D, seed)
    a, b, A_log, dt_bias = raw_gates(B * T, HV, seed + 1)
    rows = [t.unflatten(0, (B, T)) for t in (q, k, v, a, b)]
    return rows, log_gate(rows[3], A_log, dt_bias), rows[4].double().sigmoid(), A_log, dt_bias


@pytest.mark.parametrize("l2", [None, False])
def test_decode_of_states_per_row(l2):
    (q, k, v, a, b), g, beta, A_log, dt_bias = decode_case(3, 1, 5)
    state = torch.randn(3, HV, D, D)
    before = state.clone()
    flags = {} if l2 is None else {"use_qk_l2norm": l2}
    o, result = flashinfer.gated_delta_rule_decode_pretranspose(
        q, k, v, state, A_log, a, dt_bias, b, **flags
    )
    assert result is state
    for n in range(3):
        expected, states = recurrence(
            q[n], k[n], v[n], g[n], beta[n], S=before[n].mT, l2=l2 is None
        )
        close(o[n], expected)
        close(state[n], states[-1].mT)


def test_decode_of_a_pool_writes_to_other_slots():
    (q, k, v, a, b), g, beta, A_log, dt_bias = decode_case(2, 2, 6)
    pool, out = torch.randn(5, HV, D, D), poisoned((2, 2, HV, D))
    before = pool.clone()
    o, result = flashinfer.gated_delta_rule_decode_pretranspose(
        q,
        k,
        v,
        None,
        A_log,
        a,
        dt_bias,
        b,
        output=out,
        initial_state=pool,
        initial_state_indices=torch.tensor([1, -1]),
        output_state_indices=torch.tensor([4, 3]),
    )
    assert result is pool and o is out
    expected, states = recurrence(q[0], k[0], v[0], g[0], beta[0], S=before[1].mT, l2=True)
    close(o[0], expected)
    close(pool[4], states[-1].mT)
    assert (o[1] == 0).all() and torch.equal(pool[:4], before[:4])


def test_decode_with_the_key_first_state():
    (q, k, v, a, b), g, beta, A_log, dt_bias = decode_case(2, 1, 7)
    state = torch.randn(2, HV, D, D)
    before = state.clone()
    o, _ = flashinfer.gated_delta_rule_decode(q, k, v, state, A_log, a, dt_bias, b)
    for n in range(2):
        expected, states = recurrence(q[n], k[n], v[n], g[n], beta[n], S=before[n], l2=True)
        close(o[n], expected)
        close(state[n], states[-1])


@pytest.mark.parametrize("form", ["buffer", "slots", "last"])
def test_verification(form):
    B, T = 2, 3
    (q, k, v, a, b), g, beta, A_log, dt_bias = decode_case(B, T, 8)
    pool, buffer = torch.randn(9, HV, D, D), poisoned((B, T + 1, HV, D, D))
    before = pool.clone()
    slots = torch.tensor([[2, 3, 4], [5, 6, 7]], dtype=torch.int32)
    arguments = {
        "buffer": dict(intermediate_states_buffer=buffer, disable_state_update=True),
        "slots": dict(ssm_state_indices=slots, disable_state_update=False),
        "last": dict(disable_state_update=False),
    }[form]
    reads = torch.tensor([0, 8])
    o, _ = flashinfer.gated_delta_rule_mtp(q, k, v, pool, reads, A_log, a, dt_bias, b, **arguments)
    for n in range(B):
        expected, states = recurrence(
            q[n], k[n], v[n], g[n], beta[n], S=before[reads[n]].mT, l2=True
        )
        close(o[n], expected)
        if form == "buffer":
            close(buffer[n, :T], states.mT)
        elif form == "slots":
            close(pool[slots[n].long()], states.mT)
        else:
            close(pool[reads[n]], states[-1].mT)
    if form == "buffer":
        assert torch.equal(pool, before)


def test_verification_wants_to_know_whether_states_are_written():
    (q, k, v, a, b), _, _, A_log, dt_bias = decode_case(1, 2, 9)
    pool, reads = torch.zeros(2, HV, D, D), torch.tensor([1])
    with pytest.raises(sluice.InvalidArgument, match="disable_state_update"):
        flashinfer.gated_delta_rule_mtp(q, k, v, pool, reads, A_log, a, dt_bias, b)
    with pytest.raises(sluice.Unsupported, match="cache_replayssm"):
        flashinfer.gated_delta_rule_mtp(
            q, k, v, pool, reads, A_log, a, dt_bias, b, cache_replayssm=True
        )
