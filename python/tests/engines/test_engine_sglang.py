# SPDX-License-Identifier: Apache-2.0
"""Measures whether sluice.engines.sglang and .sgl_npu compute what SGLang's operators promise:
pools in place with slot 0 live, chunk start states, verification buffers, and what is refused.
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
from sluice.engines import chunk_states, sgl_npu, sglang

H, HV, K, V = 2, 6, 16, 24


def packed(*tensors):
    return [t.unsqueeze(0) for t in tensors]


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


@pytest.mark.parametrize("inplace", [True, False])
def test_chunk_updates_the_pool_and_returns_chunk_states(inplace, chunk_rows):
    lengths, starts = [130, 0, 64, 3], [0, 130, 130, 194, 197]
    q, k, v, g, beta = random_rows(197, H, HV, K, V, 1)
    pool = torch.randn(6, HV, V, K)
    before = pool.clone()
    slots = torch.tensor([4, 1, 0, -1], dtype=torch.int32)
    o, none, h = sglang.chunk_gated_delta_rule(
        *packed(q, k, v, g, beta),
        initial_state=pool,
        initial_state_indices=slots,
        cu_seqlens=torch.tensor(starts, dtype=torch.int32),
        use_qk_l2norm_in_kernel=True,
        inplace_update=inplace,
    )
    assert none is None and h.shape == (1, chunk_rows(3 + 0 + 1 + 1, 197, 4), HV, V, K)
    row, written = 0, []
    for n, (T, slot) in enumerate(zip(lengths, slots.tolist(), strict=True)):
        part = slice(starts[n], starts[n] + T)
        if slot < 0:
            assert (o[0, part] == 0).all() and (h[0, row] == 0).all()
            row += 1
            continue
        S0 = before[slot].mT
        expected, states = recurrence(q[part], k[part], v[part], g[part], beta[part], S=S0, l2=True)
        close(o[0, part], expected)
        expected_h = chunk_starts(S0, states, T)
        close(h[0, row : row + len(expected_h)].mT, expected_h)
        row += len(expected_h)
        if inplace and T:
            close(pool[slot], states[-1].mT)
            written.append(slot)
    assert row == 3 + 0 + 1 + 1 and (h[0, row:] == 0).all()
    untouched = [s for s in range(6) if s not in written]
    assert torch.equal(pool[untouched], before[untouched])


@pytest.mark.parametrize("packed_rows", [True, False])
def test_npu_returns_output_state_and_chunk_states(packed_rows, chunk_rows):
    B, T = 2, 100
    q, k, v, g, beta = random_rows(B * T, H, HV, K, V, 2)
    q, k, v = (t.to(torch.bfloat16) for t in (q, k, v))
    S0 = torch.randn(B, HV, K, V)
    before = S0.clone()
    rows = [t.unflatten(0, (B, T)) for t in (q, k, v, g, beta)]
    cu = None
    if packed_rows:
        rows, cu = packed(q, k, v, g, beta), torch.tensor([0, T, 2 * T])
    o, final, h = sgl_npu.chunk_gated_delta_rule_npu(
        *rows, initial_state=S0, cu_seqlens=cu, use_qk_l2norm_in_kernel=True
    )
    assert torch.equal(S0, before) and final.dtype == torch.float32
    rows_of_h = (1, chunk_rows(4, B * T, B)) if packed_rows else (2, 2)
    assert h.dtype == torch.bfloat16 and h.shape[:2] == rows_of_h
    for n in range(B):
        part = slice(n * T, n * T + T)
        expected, states = recurrence(
            q[part], k[part], v[part], g[part], beta[part], S=before[n], l2=True
        )
        close(o.flatten(0, 1)[part], expected, 1e-2)
        close(final[n], states[-1], 1e-3)
        close(h.flatten(0, 1)[2 * n : 2 * n + 2], chunk_starts(before[n], states, T), 1e-2)
    assert (h.flatten(0, 1)[4:] == 0).all()


def test_npu_without_final_state_and_float32():
    rows = packed(*random_rows(3, H, HV, K, V, 3))
    half = [t.to(torch.bfloat16) for t in rows[:3]] + rows[3:]
    o, final, h = sgl_npu.chunk_gated_delta_rule_npu(*half, output_final_state=False)
    assert final is None and h.shape[1] == 1
    with pytest.raises(sluice.Unsupported, match="q.dtype"):
        sgl_npu.chunk_gated_delta_rule_npu(*rows)
    with pytest.raises(sluice.Unsupported, match="head_first"):
        sgl_npu.chunk_gated_delta_rule_npu(*half, head_first=True)


def test_decode_keeps_slot_zero_live():
    q, k, v, _, _ = random_rows(3, H, HV, K, V, 4)
    a, b, A_log, dt_bias = raw_gates(3, HV, 5)
    pool = torch.randn(4, HV, V, K)
    before = pool.clone()
    slots = torch.tensor([0, -1, 2], dtype=torch.int32)
    o = sglang.fused_sigmoid_gating_delta_rule_update(
        A_log,
        a,
        dt_bias,
        1.0,
        20.0,
        *packed(q, k, v),
        b,
        pool,
        slots,
        use_qk_l2norm_in_kernel=True,
        cu_seqlens=torch.arange(4, dtype=torch.int32),
    )
    g, beta = log_gate(a, A_log, dt_bias), b.double().sigmoid()
    for n, slot in enumerate(slots.tolist()):
        part = slice(n, n + 1)
        if slot < 0:
            assert (o[0, n] == 0).all()
            continue
        expected, states = recurrence(
            q[part], k[part], v[part], g[part], beta[part], S=before[slot].mT, l2=True
        )
        close(o[0, part], expected)
        close(pool[slot], states[-1].mT)
    assert torch.equal(pool[[1, 3]], before[[1, 3]])


def test_rows_longer_than_a_step_take_the_chunk_form():
    q, k, v, g, beta = random_rows(40, H, HV, K, V, 6)
    pool = torch.randn(2, HV, V, K)
    S0 = pool[1].mT.clone()
    o = sglang.fused_recurrent_gated_delta_rule_update(
        *packed(q, k, v, g, beta),
        initial_state_source=pool,
        initial_state_indices=torch.tensor([1]),
        cu_seqlens=torch.tensor([0, 40]),
    )
    expected, states = recurrence(q, k, v, g, beta, S=S0)
    close(o[0], expected)
    close(pool[1], states[-1].mT)


@pytest.mark.parametrize("spare", [[], [1, 2]], ids=["batch", "pool"])
def test_verification_fills_the_buffer_and_leaves_the_pool(spare):
    """Rows of the buffer are given for the batch, or (by SGLang's server) for the whole pool."""
    N, T, steps = 2, 3, 4
    q, k, v, _, _ = random_rows(N * T, H, HV, K, V, 7)
    a, b, A_log, dt_bias = raw_gates(N * T, HV, 8)
    pool, buffer = torch.randn(5, HV, V, K), poisoned((3, steps, HV, V, K))
    before = pool.clone()
    slots, rows = torch.tensor([3, 1]), torch.tensor([2, 0, *spare], dtype=torch.int32)
    o = sglang.fused_sigmoid_gating_delta_rule_update(
        A_log,
        a,
        dt_bias,
        1.0,
        20.0,
        *packed(q, k, v),
        b,
        pool,
        slots,
        use_qk_l2norm_in_kernel=True,
        cu_seqlens=torch.tensor([0, T, 2 * T]),
        disable_state_update=True,
        intermediate_states_buffer=buffer,
        intermediate_state_indices=rows,
        cache_steps=steps,
    )
    assert torch.equal(pool, before)
    g, beta = log_gate(a, A_log, dt_bias), b.double().sigmoid()
    for n in range(N):
        part = slice(n * T, n * T + T)
        expected, states = recurrence(
            q[part], k[part], v[part], g[part], beta[part], S=before[slots[n]].mT, l2=True
        )
        close(o[0, part], expected)
        close(buffer[rows[n], :T], states.mT)
    assert buffer[1].isnan().all() and buffer[:, T:].isnan().all()


def test_packed_decode():
    q, k, v, _, _ = random_rows(2, H, HV, K, V, 9)
    a, b, A_log, dt_bias = raw_gates(2, HV, 10)
    mixed = torch.cat([q.flatten(1), k.flatten(1), v.flatten(1)], 1)
    pool, out = torch.randn(3, HV, V, K), poisoned((2, 1, HV, V))
    before = pool.clone()
    sglang.fused_recurrent_gated_delta_rule_packed_decode(
        mixed, a, b, A_log, dt_bias, 0.5, pool, out, torch.tensor([0, 2]), True
    )
    g, beta = log_gate(a, A_log, dt_bias), b.double().sigmoid()
    for n, slot in enumerate((0, 2)):
        part = slice(n, n + 1)
        expected, states = recurrence(
            q[part], k[part], v[part], g[part], beta[part], before[slot].mT, scale=0.5, l2=True
        )
        close(out[n], expected)
        close(pool[slot], states[-1].mT)


@pytest.mark.parametrize(
    "change, name",
    [
        ({"lower_bound": -5.0}, "lower_bound"),
        ({"retrieve_parent_token": torch.zeros(1, 1)}, "retrieve_parent_token"),
        ({"cache_ring": True}, "cache_ring"),
        ({"match_cutedsl_decode": True}, "match_cutedsl_decode"),
        ({"softplus_beta": 2.0}, "softplus_beta"),
        ({"softplus_threshold": 1.0}, "softplus_threshold"),
        ({"intermediate_states_buffer": torch.zeros(1, 1, HV, V, K)}, "disable_state_update"),
        ({"intermediate_state_indices": torch.zeros(1)}, "intermediate_state_indices"),
    ],
)
def test_refused_by_name(change, name):
    q, k, v, _, _ = random_rows(1, H, HV, K, V, 11)
    a, b, A_log, dt_bias = raw_gates(1, HV, 12)
    arguments = dict(softplus_beta=1.0, softplus_threshold=20.0)
    arguments.update(change)
    q, k, v = packed(q, k, v)
    with pytest.raises(sluice.Unsupported, match=f"update: {name} = "):
        sglang.fused_sigmoid_gating_delta_rule_update(
            A_log=A_log,
            a=a,
            dt_bias=dt_bias,
            q=q,
            k=k,
            v=v,
            b=b,
            initial_state_source=torch.zeros(2, HV, V, K),
            initial_state_indices=torch.tensor([1]),
            **arguments,
        )


D, W = 10, 4


@pytest.mark.parametrize("packed_rows", [True, False])
def test_convolution_prefill(packed_rows):
    T = 6
    pool = torch.randn(4, D, W - 1)
    before = pool.clone()
    x, weight, bias = torch.randn(2, D, T), torch.randn(D, W), torch.randn(D)
    slots = torch.tensor([0, 3], dtype=torch.int32)
    out = sglang.causal_conv1d_fn(
        x.transpose(0, 1).flatten(1) if packed_rows else x,
        weight,
        bias,
        query_start_loc=torch.tensor([0, T, 2 * T]) if packed_rows else None,
        cache_indices=slots,
        has_initial_state=torch.tensor([True, False]),
        conv_states=pool,
        seq_lens_cpu=[T, T],
    )
    for n, slot in enumerate(slots.tolist()):
        history = before[slot] if n == 0 else torch.zeros(D, W - 1)
        found = out[:, n * T : n * T + T] if packed_rows else out[n]
        close(found.T, convolution(x[n].T, weight, bias, history))
        close(pool[slot], x[n][:, -(W - 1) :])
    assert torch.equal(pool[1:3], before[1:3])


def test_convolution_update_and_refusals():
    pool = torch.randn(3, D, W - 1)
    before = pool.clone()
    x, weight = torch.randn(2, D, 2), torch.randn(D, W)
    out = sglang.causal_conv1d_update(
        x, pool, weight, None, "silu", conv_state_indices=torch.tensor([2, -1])
    )
    close(out[0].T, convolution(x[0].T, weight, None, before[2]))
    close(pool[2], torch.cat([before[2][:, 2:], x[0]], 1))
    assert (out[1] == 0).all() and torch.equal(pool[:2], before[:2])
    for name in ("intermediate_conv_window", "retrieve_next_token", "retrieve_parent_token"):
        with pytest.raises(sluice.Unsupported, match=name):
            sglang.causal_conv1d_update(x, pool, weight, **{name: torch.zeros(1)})
