# SPDX-License-Identifier: Apache-2.0
"""Measures whether sluice.engines.vllm computes what vLLM's operators promise: state layout, null
block, strided pages, speculation, and what is refused. Decode of one token is in test_engine_decode.py.
Compares with the float64 recurrence of engine_reference.py, token by token and slot by slot."""

import pytest

torch = pytest.importorskip("torch")

import sluice
from engine_reference import (
    L2,
    Rows,
    check_convolution,
    check_others,
    check_sequences,
    close,
    convolution,
    gated_norm,
    int32,
    poisoned,
)
from sluice.engines import vllm
from sluice.engines.vllm import kimi
from test_engine_decode import vllm_raw

H, HV, K, V = 2, 4, 16, 24
RAW, KEYS = dict(raw=True), dict(raw=True, keys=True)


def rows_of(tokens, seed, **made):
    return Rows(tokens, H, HV, K, V, seed, **made)


def pages(slots):
    """A pool whose slots lie apart in memory, as vLLM's pages do: every second row of a larger
    one."""
    return torch.randn(2 * slots, HV, V, K)[::2]


def chunk(rows, out, **states):
    return vllm.chunk_gated_delta_rule(*rows.packed(), core_attn_out=out, **states)


def chunk_kda(rows, _, **states):
    return vllm.chunk_kda(*rows.packed(), **states)


def chunk_kda_raw(rows, _, **states):
    q, k, v, a, _ = rows.packed()
    A_log = rows.A_log.view(1, 1, HV, 1)
    return vllm.chunk_kda_with_fused_gate(
        q, k, v, a, rows.beta.float()[None], A_log, rows.dt_bias, lower_bound=rows.bound, **states)


def chunk_kimi(rows, out, **states):
    gates = dict(A_log=rows.A_log, g_bias=rows.dt_bias, lower_bound=rows.bound)
    return kimi.chunk_kda_with_fused_gate(*rows.packed(), **gates, out=out, **states)


@pytest.mark.parametrize("call, made, out", [
    (chunk, {}, None),
    (chunk, {}, (139 * HV * V + 7,)),
    (chunk_kda, dict(keys=True), None),
    (chunk_kda_raw, KEYS, None),
    (chunk_kda_raw, KEYS | dict(bound=-5.0), None),
    (chunk_kimi, KEYS, None),
    (chunk_kimi, KEYS, (1, 139, HV, V)),
    (chunk_kimi, KEYS | dict(bound=-5.0), None),
    (chunk_kimi, KEYS | dict(bound=-5.0), (1, 139, HV, V)),
])
@pytest.mark.parametrize("starts", [(0, 70, 70, 75, 139), (0, 139)], ids=["packed", "one"])
def test_chunk_of_packed_rows_with_states(call, made, out, starts):
    N = len(starts) - 1
    rows, S0 = rows_of(139, 1, **made), torch.randn(N, HV, V, K)
    out = out and poisoned(*out)
    ends = int32(*starts) if N > 1 else None
    o, final = call(rows, out, initial_state=S0, output_final_state=True, cu_seqlens=ends, **L2)
    assert out is None or o.data_ptr() == out.data_ptr()
    check_sequences(rows, starts, o[0], S0, final, range(N))


def update_kimi(rows, pool, slots, ends, **more):
    q, k, v, a, b = rows.packed()
    out = poisoned(*v.shape)
    o, state = kimi.fused_recurrent_kda(
        q=q, k=k, v=v, raw_g=a, raw_beta=b, A_log=rows.A_log, dt_bias=rows.dt_bias, lower_bound=rows.bound,
        initial_state=pool, cu_seqlens=ends, ssm_state_indices=slots, out=out, **more)
    assert o.data_ptr() == out.data_ptr()
    return o, state


@pytest.mark.parametrize("call, made", [(vllm_raw, RAW), (update_kimi, KEYS | dict(bound=-5.0))])
def test_speculation_reads_the_accepted_column_and_writes_every_token(call, made):
    starts, slots, accepted = [0, 3, 5], int32(1, 2, 3, 4, 5, 6).view(2, 3), int32(2, 1)
    rows, pool = rows_of(5, 4, **made), pages(8)
    before = pool.clone()
    o, _ = call(rows, pool, slots, int32(*starts), num_accepted_tokens=accepted)
    written = []
    for n in range(2):
        part = slice(starts[n], starts[n + 1])
        expected, states = rows.truth(part, before[slots[n, accepted[n] - 1]].mT)
        close(o[0, part], expected)
        for slot, state in zip(slots[n].tolist(), states):
            close(pool[slot], state.mT)
            written.append(slot)
    check_others(before, pool, written)


@pytest.mark.parametrize("columns", [None, 2])
def test_decode_takes_the_first_of_a_whole_batch_s_slots(columns):
    """A batch in which some decode and others prefill: vLLM 0.26.0 gives all slots, and lengths of the former."""
    rows, pool = rows_of(2, 16, raw=True), pages(7)
    slots, accepted = int32(3, 5, 2, 6), None
    if columns:  # drafts: the state after the only token goes to the first column
        slots = torch.stack([slots, torch.zeros_like(slots)], dim=1)
        accepted = torch.ones(4, dtype=torch.int32)
    before = pool.clone()
    o, _ = vllm_raw(rows, pool, slots, int32(0, 1, 2), num_accepted_tokens=accepted)
    check_sequences(rows, range(3), o[0], before, pool, [3, 5])


def test_verification_with_the_gated_norm():
    rows, pool = rows_of(4, 10, raw=True), pages(6)
    z, weight = torch.randn(4, HV, V), torch.rand(V)
    before = pool.clone()
    out = vllm.fused_gdn_decode_post_conv_mtp(
        rows.mixed(), rows.a, rows.b, rows.A_log, rows.dt_bias, int32(1, 2, 3, 4).view(2, 2), int32(0, 2, 4),
        int32(1, 0), pool, z, weight, scale=K**-0.5, norm_eps=1e-5,
    )
    core, states = rows.truth(slice(2), before[1].mT)
    close(out[:2], gated_norm(core, z[:2], weight, 1e-5))
    close(pool[2], states[1].mT)
    # num_accepted_tokens 0 is padding: nothing of the second sequence is written.
    assert (out[2:] == 0).all() and torch.equal(pool[3:], before[3:])


def test_a_state_per_token_without_slots():
    rows, S0 = rows_of(2, 13), torch.randn(2, HV, V, K)
    before = S0.clone()
    o, final = vllm.fused_recurrent_gated_delta_rule(
        *rows.packed(), initial_state=S0, inplace_final_state=False, cu_seqlens=torch.tensor([0, 1, 2]))
    assert torch.equal(S0, before)
    check_sequences(rows, range(3), o[0], before, final, range(2), l2=False)


def test_scale_must_be_positive():
    rows, keys = rows_of(1, 16).packed(), rows_of(5, 0, **KEYS)
    with pytest.raises(sluice.InvalidArgument, match="scale = 0.0"):
        vllm.fused_recurrent_gated_delta_rule(
            *rows, scale=0.0, initial_state=torch.zeros(2, HV, V, K), ssm_state_indices=torch.tensor([1]))
    with pytest.raises(sluice.InvalidArgument, match=r"vllm.chunk_kda: scale = -1.0"):
        vllm.chunk_kda(*rows_of(5, 0, keys=True).packed(), scale=-1.0)
    with pytest.raises(sluice.InvalidArgument, match=r"vllm.chunk_kda_with_fused_gate: scale = 0"):
        kimi.chunk_kda_with_fused_gate(*keys.packed(), keys.A_log, keys.dt_bias, scale=0)


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
    starts, slots, live = [0, 5, 7, 10], [2, 4, 0], [True, False, True]
    pool = conv_pool(6, columns, channel_last, 20)
    before = pool.clone()
    x, weight, bias = torch.randn(D, 10), torch.randn(D, W), torch.randn(D)
    out = vllm.causal_conv1d_fn(
        x, weight, bias, pool, int32(*starts), cache_indices=int32(*slots), has_initial_state=torch.tensor(live))
    check_convolution(x, weight, bias, starts, out, before, pool, slots, live, pad_below=1)


def test_convolution_without_initial_states_starts_from_zeros():
    pool = conv_pool(3, W - 1, True, 23)
    before = pool.clone()
    x, weight = torch.randn(D, 4), torch.randn(D, W)
    out = vllm.causal_conv1d_fn(x, weight, None, pool, torch.tensor([0, 4]), cache_indices=int32(2))
    check_convolution(x, weight, None, (0, 4), out, before, pool, [2], live=[False])


@pytest.mark.parametrize("channel_last", [False, True])
def test_convolution_of_one_token_a_row(channel_last):
    pool, slots = conv_pool(5, W - 1, channel_last, 21), [1, 0, 3]
    before = pool.clone()
    x, weight = torch.randn(3, D), torch.randn(D, W)
    kept = x.clone()
    out = vllm.causal_conv1d_update(
        x, pool, weight, None, "silu", conv_state_indices=int32(*slots), validate_data=True
    )
    assert torch.equal(x, kept), "x is not written"
    check_convolution(x.T, weight, None, range(4), out.T, before, pool, slots, pad_below=1)


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


def update_once(**more):
    return vllm_raw(rows_of(1, 14, raw=True), torch.zeros(2, HV, V, K), int32(1), int32(0, 1), **more)


def convolve(**more):
    pool = torch.zeros(2, D, W - 1)
    return vllm.causal_conv1d_fn(torch.randn(D, 2), torch.randn(D, W), None, pool, torch.tensor([0, 2]), **more)


@pytest.mark.parametrize(
    "call, name, value",
    [
        (update_once, "beta", 2.0),
        (update_once, "threshold", 10.0),
        (update_once, "inplace_final_state", False),
        (update_once, "num_accepted_tokens", torch.ones(1, dtype=torch.int32)),
        (convolve, "activation", "gelu"),
        (convolve, "cache_indices", torch.zeros(1, 2, dtype=torch.int32)),
        (convolve, "null_block_id", 3),
        (convolve, "pad_slot_id", 7),
    ],
)
def test_refused_by_name(call, name, value):
    with pytest.raises(sluice.Unsupported, match=rf"vllm\.\w+: {name}\b.* = "):
        call(**{name: value})
