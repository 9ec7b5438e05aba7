# SPDX-License-Identifier: Apache-2.0
"""Measures whether sluice.engines.vllm computes what vLLM's operators promise: state layout, null
block, strided pages, speculation, and what is refused.
Compares with the float64 recurrence of engine_reference.py, token by token and slot by slot."""

import pytest

torch = pytest.importorskip("torch")

import sluice
from engine_reference import (
    close,
    convolution,
    log_gate,
    poisoned,
    random_rows,
    raw_gates,
    recurrence,
)
from sluice.engines import vllm

H, HV, K, V = 2, 4, 16, 24


def pages(slots, seed):
    """A pool whose slots lie apart in memory, as vLLM's pages do: every second row of a larger
    one."""
    torch.manual_seed(seed)
    return torch.randn(2 * slots, HV, V, K)[::2]


def packed(*tensors):
    return [t.unsqueeze(0) for t in tensors]


@pytest.mark.parametrize("flat_output", [False, True])
def test_chunk_of_packed_rows_with_states(flat_output):
    lengths, starts = [70, 0, 5, 64], [0, 70, 70, 75, 139]
    rows = random_rows(139, H, HV, K, V, 1)
    S0 = torch.randn(4, HV, V, K)
    out = poisoned((139 * HV * V + 7,)) if flat_output else None
    o, final = vllm.chunk_gated_delta_rule(
        *packed(*rows),
        initial_state=S0,
        output_final_state=True,
        cu_seqlens=torch.tensor(starts, dtype=torch.int32),
        use_qk_l2norm_in_kernel=True,
        core_attn_out=out,
    )
    if flat_output:
        assert o.data_ptr() == out.data_ptr()
    for n, T in enumerate(lengths):
        part = slice(starts[n], starts[n] + T)
        expected, states = recurrence(*(t[part] for t in rows), S=S0[n].mT, l2=True)
        close(o[0, part], expected)
        close(final[n], states[-1].mT if T else S0[n])


def assert_steps(o, pool, before, slots, rows):
    """One token a sequence: outputs and states of `slots`, zeros for padding, and no other page written."""
    for n, slot in enumerate(slots):
        if slot <= 0:
            assert (o[0, n] == 0).all()
            continue
        expected, states = recurrence(*(t[n : n + 1] for t in rows), S=before[slot].mT, l2=True)
        close(o[0, n : n + 1], expected)
        close(pool[slot], states[-1].mT)
    untouched = [page for page in range(len(pool)) if page not in slots]
    assert torch.equal(pool[untouched], before[untouched])


def test_decode_updates_pages_and_leaves_padding():
    slots = torch.tensor([3, 0, 5, -1], dtype=torch.int32)
    q, k, v, g, beta = random_rows(4, H, HV, K, V, 2)
    pool = pages(7, 3)
    before = pool.clone()
    o, state = vllm.fused_recurrent_gated_delta_rule(
        *packed(q, k, v, g, beta),
        initial_state=pool,
        cu_seqlens=torch.arange(5, dtype=torch.int32),
        ssm_state_indices=slots,
        use_qk_l2norm_in_kernel=True,
    )
    assert state is pool
    assert_steps(o, pool, before, slots.tolist(), (q, k, v, g, beta))


def test_speculation_reads_the_accepted_column_and_writes_every_token():
    lengths, starts = [3, 2], [0, 3, 5]
    slots = torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=torch.int32)
    accepted = torch.tensor([2, 1], dtype=torch.int32)
    q, k, v, _, _ = random_rows(5, H, HV, K, V, 4)
    a, b, A_log, dt_bias = raw_gates(5, HV, 5)
    pool = pages(8, 6)
    before = pool.clone()
    o, _ = vllm.fused_sigmoid_gating_delta_rule_update(
        A_log,
        a,
        b,
        dt_bias,
        *packed(q, k, v),
        initial_state=pool,
        cu_seqlens=torch.tensor(starts, dtype=torch.int32),
        ssm_state_indices=slots,
        num_accepted_tokens=accepted,
        use_qk_l2norm_in_kernel=True,
    )
    g, beta = log_gate(a, A_log, dt_bias), b.double().sigmoid()
    written = []
    for n, T in enumerate(lengths):
        part = slice(starts[n], starts[n] + T)
        S = before[slots[n, accepted[n] - 1]].mT
        expected, states = recurrence(q[part], k[part], v[part], g[part], beta[part], S=S, l2=True)
        close(o[0, part], expected)
        for t in range(T):
            close(pool[slots[n, t]], states[t].mT)
            written.append(int(slots[n, t]))
    untouched = [s for s in range(8) if s not in written]
    assert torch.equal(pool[untouched], before[untouched])


@pytest.mark.parametrize("columns", [None, 2])
def test_decode_takes_the_first_of_a_whole_batch_s_slots(columns):
    """A batch in which some decode and others prefill: vLLM 0.26.0 gives all slots, and lengths of the former."""
    q, k, v, _, _ = random_rows(2, H, HV, K, V, 16)
    a, b, A_log, dt_bias = raw_gates(2, HV, 17)
    first = [3, 5]
    slots = torch.tensor([*first, 2, 6], dtype=torch.int32)
    accepted = None
    if columns:  # drafts: the state after the only token goes to the first column
        slots = torch.stack([slots, torch.zeros_like(slots)], dim=1)
        accepted = torch.ones(4, dtype=torch.int32)
    pool = pages(7, 18)
    before = pool.clone()
    o, _ = vllm.fused_sigmoid_gating_delta_rule_update(
        A_log, a, b, dt_bias, *packed(q, k, v), initial_state=pool,
        cu_seqlens=torch.arange(3, dtype=torch.int32), ssm_state_indices=slots,
        num_accepted_tokens=accepted, use_qk_l2norm_in_kernel=True,
    )
    g, beta = log_gate(a, A_log, dt_bias), b.double().sigmoid()
    assert_steps(o, pool, before, first, (q, k, v, g, beta))


def test_packed_decode_takes_rows_with_a_stride():
    q, k, v, _, _ = random_rows(3, H, HV, K, V, 7)
    a, b, A_log, dt_bias = raw_gates(3, HV, 8)
    wide = torch.randn(3, 2 * H * K + HV * V + 40)
    mixed = wide[:, 8 : 8 + 2 * H * K + HV * V]
    mixed.copy_(torch.cat([q.flatten(1), k.flatten(1), v.flatten(1)], 1))
    pool, out = pages(5, 9), poisoned((3, 1, HV, V))
    before = pool.clone()
    slots = torch.tensor([4, 0, 2], dtype=torch.int32)
    result, state = vllm.fused_recurrent_gated_delta_rule_packed_decode(
        mixed, a, b, A_log, dt_bias, K**-0.5, pool, out, slots, use_qk_l2norm_in_kernel=True
    )
    assert result is out and state is pool
    g, beta = log_gate(a, A_log, dt_bias), b.double().sigmoid()
    for n, slot in enumerate(slots.tolist()):
        part = slice(n, n + 1)
        if slot == 0:
            assert (out[n] == 0).all()
            continue
        expected, states = recurrence(
            q[part], k[part], v[part], g[part], beta[part], S=before[slot].mT, l2=True
        )
        close(out[n], expected)
        close(pool[slot], states[-1].mT)
    assert torch.equal(pool[0], before[0])


def test_verification_with_the_gated_norm():
    q, k, v, _, _ = random_rows(4, H, HV, K, V, 10)
    a, b, A_log, dt_bias = raw_gates(4, HV, 11)
    mixed = torch.cat([q.flatten(1), k.flatten(1), v.flatten(1)], 1)
    z, weight = torch.randn(4, HV, V), torch.rand(V)
    slots = torch.tensor([[1, 2], [3, 4]], dtype=torch.int32)
    accepted = torch.tensor([1, 0], dtype=torch.int32)
    pool = pages(6, 12)
    before = pool.clone()
    out = vllm.fused_gdn_decode_post_conv_mtp(
        mixed,
        a,
        b,
        A_log,
        dt_bias,
        slots,
        torch.tensor([0, 2, 4], dtype=torch.int32),
        accepted,
        pool,
        z,
        weight,
        scale=K**-0.5,
        norm_eps=1e-5,
    )
    g, beta = log_gate(a, A_log, dt_bias), b.double().sigmoid()
    core, states = recurrence(q[:2], k[:2], v[:2], g[:2], beta[:2], S=before[1].mT, l2=True)
    normed = core / (core.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    close(out[:2], normed * torch.nn.functional.silu(z[:2].double()))
    close(pool[2], states[1].mT)
    # num_accepted_tokens 0 is padding: nothing of the second sequence is written.
    assert (out[2:] == 0).all() and torch.equal(pool[3:], before[3:])


def test_a_state_per_token_without_slots():
    q, k, v, g, beta = random_rows(2, H, HV, K, V, 13)
    S0 = torch.randn(2, HV, V, K)
    before = S0.clone()
    o, final = vllm.fused_recurrent_gated_delta_rule(
        *packed(q, k, v, g, beta),
        initial_state=S0,
        inplace_final_state=False,
        cu_seqlens=torch.tensor([0, 1, 2]),
    )
    assert torch.equal(S0, before) and final.shape == (2, HV, V, K)
    for n in range(2):
        part = slice(n, n + 1)
        expected, states = recurrence(
            q[part], k[part], v[part], g[part], beta[part], S=before[n].mT
        )
        close(o[0, part], expected)
        close(final[n], states[-1].mT)


@pytest.mark.parametrize(
    "change, name",
    [
        ({"beta": 2.0}, "beta"),
        ({"threshold": 10.0}, "threshold"),
        ({"inplace_final_state": False}, "inplace_final_state"),
        ({"num_accepted_tokens": torch.ones(1, dtype=torch.int32)}, "num_accepted_tokens"),
    ],
)
def test_refused_by_name(change, name):
    q, k, v, _, _ = random_rows(1, H, HV, K, V, 14)
    a, b, A_log, dt_bias = raw_gates(1, HV, 15)
    arguments = dict(
        initial_state=torch.zeros(2, HV, V, K),
        cu_seqlens=torch.tensor([0, 1]),
        ssm_state_indices=torch.tensor([1]),
    )
    arguments.update(change)
    with pytest.raises(sluice.Unsupported, match=f"update: {name} = "):
        vllm.fused_sigmoid_gating_delta_rule_update(
            A_log, a, b, dt_bias, *packed(q, k, v), **arguments
        )


def test_scale_must_be_positive():
    q, k, v, g, beta = random_rows(1, H, HV, K, V, 16)
    with pytest.raises(sluice.InvalidArgument, match="scale = 0.0"):
        vllm.fused_recurrent_gated_delta_rule(
            *packed(q, k, v, g, beta),
            scale=0.0,
            initial_state=torch.zeros(2, HV, V, K),
            ssm_state_indices=torch.tensor([1]),
        )


D, W = 10, 4


def conv_pool(slots, columns, channel_last, seed):
    """[slots, D, columns] in either memory order."""
    torch.manual_seed(seed)
    if channel_last:
        return torch.randn(slots, columns, D).transpose(1, 2)
    return torch.randn(slots, D, columns)


@pytest.mark.parametrize("channel_last", [False, True])
@pytest.mark.parametrize("columns", [W - 1, W + 1])
def test_convolution_prefill_uses_the_first_columns(channel_last, columns):
    lengths, starts = [5, 2, 3], [0, 5, 7, 10]
    pool = conv_pool(6, columns, channel_last, 20)
    before = pool.clone()
    x, weight, bias = torch.randn(D, 10), torch.randn(D, W), torch.randn(D)
    slots = torch.tensor([2, 4, 0], dtype=torch.int32)
    live = torch.tensor([True, False, True])
    out = vllm.causal_conv1d_fn(
        x,
        weight,
        bias,
        pool,
        torch.tensor(starts, dtype=torch.int32),
        cache_indices=slots,
        has_initial_state=live,
    )
    assert out.shape == x.shape
    for n, slot in enumerate(slots.tolist()):
        part = slice(starts[n], starts[n] + lengths[n])
        if slot == 0:
            assert (out[:, part] == 0).all()
            continue
        history = before[slot, :, : W - 1] if live[n] else torch.zeros(D, W - 1)
        close(out[:, part].T, convolution(x[:, part].T, weight, bias, history))
        window = torch.cat([history, x[:, part]], 1)[:, -(W - 1) :]
        close(pool[slot, :, : W - 1], window)
        assert torch.equal(pool[slot, :, W - 1 :], before[slot, :, W - 1 :])
    assert torch.equal(pool[[0, 1, 3, 5]], before[[0, 1, 3, 5]])


def test_convolution_without_initial_states_starts_from_zeros():
    pool = conv_pool(3, W - 1, True, 23)
    x, weight = torch.randn(D, 4), torch.randn(D, W)
    slots = torch.tensor([2], dtype=torch.int32)
    out = vllm.causal_conv1d_fn(x, weight, None, pool, torch.tensor([0, 4]), cache_indices=slots)
    close(out.T, convolution(x.T, weight, None, torch.zeros(D, W - 1)))
    close(pool[2], x[:, -(W - 1) :])


@pytest.mark.parametrize("channel_last", [False, True])
def test_convolution_of_one_token_a_row(channel_last):
    pool = conv_pool(5, W - 1, channel_last, 21)
    before = pool.clone()
    x, weight = torch.randn(3, D), torch.randn(D, W)
    slots = torch.tensor([1, 0, 3], dtype=torch.int32)
    kept = x.clone()
    out = vllm.causal_conv1d_update(
        x, pool, weight, None, "silu", conv_state_indices=slots, validate_data=True
    )
    assert torch.equal(x, kept), "x is not written"
    for n, slot in enumerate(slots.tolist()):
        if slot == 0:
            assert (out[n] == 0).all()
            continue
        close(out[n : n + 1], convolution(x[n : n + 1], weight, None, before[slot]))
        close(pool[slot], torch.cat([before[slot][:, 1:], x[n][:, None]], 1))
    assert torch.equal(pool[[0, 2, 4]], before[[0, 2, 4]])


def test_convolution_with_speculation_slides_by_the_accepted_tokens():
    T, L = 3, W - 1 + 2
    pool = conv_pool(4, L, True, 22)
    before = pool.clone()
    x, weight = torch.randn(2 * T, D), torch.randn(D, W)
    slots, accepted = torch.tensor([1, 3]), torch.tensor([2, 1])
    out = torch.full_like(x, float("nan"))
    result = vllm.causal_conv1d_update(
        x,
        pool,
        weight,
        activation="silu",
        conv_state_indices=slots,
        num_accepted_tokens=accepted,
        query_start_loc=torch.tensor([0, T, 2 * T]),
        max_query_len=T,
        out=out,
    )
    assert result is out
    for n, slot in enumerate(slots.tolist()):
        part, first = slice(n * T, n * T + T), int(accepted[n]) - 1
        history = before[slot, :, first : first + W - 1]
        close(out[part], convolution(x[part], weight, None, history))
        close(pool[slot], torch.cat([history[:, 1:], x[part].T], 1))


@pytest.mark.parametrize(
    "change, name",
    [
        ({"activation": "gelu"}, "activation"),
        ({"cache_indices": torch.zeros(1, 2, dtype=torch.int32)}, "cache_indices"),
        ({"null_block_id": 3}, "null_block_id"),
        ({"pad_slot_id": 7}, "pad_slot_id"),
    ],
)
def test_convolution_refused_by_name(change, name):
    with pytest.raises(sluice.Unsupported, match=name):
        vllm.causal_conv1d_fn(
            torch.randn(D, 2),
            torch.randn(D, W),
            None,
            torch.zeros(2, D, W - 1),
            torch.tensor([0, 2]),
            **change,
        )
