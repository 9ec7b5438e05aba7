# SPDX-License-Identifier: Apache-2.0
"""Measures whether decode operators of vLLM, SGLang and FlashInfer compute what the engines promise: slots in place,
padding and slot 0, raw gates, rows with a stride, and rows of more than a step, in float32 too.
Compares with the float64 recurrence of engine_reference.py, slot by slot."""

import pytest

torch = pytest.importorskip("torch")

from engine_reference import L2, Rows, check_sequences, int32, poisoned, relative_error
from sluice.engines import flashinfer, sglang, vllm
from sluice.engines.vllm import kimi


def vllm_log(rows, pool, slots, ends):
    operator = vllm.fused_recurrent_kda if rows.g.dim() == 3 else vllm.fused_recurrent_gated_delta_rule
    return operator(*rows.packed(), initial_state=pool, cu_seqlens=ends, ssm_state_indices=slots, **L2)


def vllm_raw(rows, pool, slots, ends, **more):
    q, k, v, *_ = rows.packed()
    return vllm.fused_sigmoid_gating_delta_rule_update(
        rows.A_log, rows.a, rows.b, rows.dt_bias, q, k, v, initial_state=pool, cu_seqlens=ends,
        ssm_state_indices=slots, is_kda=rows.g.dim() == 3, **more, **L2,
    )


def vllm_kimi(rows, pool, slots, _):
    *_, a, b = rows.packed()
    return kimi.fused_recurrent_kda_packed_decode(
        rows.mixed(), a, b, rows.A_log, rows.dt_bias, rows.bound, pool, slots)


def sglang_raw(rows, pool, slots, ends, **more):
    q, k, v, *_ = rows.packed()
    given = dict(softplus_beta=1.0, softplus_threshold=20.0, is_kda=rows.g.dim() == 3, lower_bound=rows.bound)
    return sglang.fused_sigmoid_gating_delta_rule_update(
        rows.A_log, rows.a, rows.dt_bias, q=q, k=k, v=v, b=rows.b, initial_state_source=pool,
        initial_state_indices=slots, cu_seqlens=ends, **given | more, **L2,
    )


def sglang_flat(rows, *states):
    rows.a = rows.a.flatten(1)
    return sglang_raw(rows, *states)


def from_the_convolution(operator, rows, pool, slots, **more):
    """A decode from the convolution's output, rows of a wider tensor, into a given o."""
    mixed, out = rows.mixed(), poisoned(len(slots), 1, *rows.v.shape[1:])
    wide = torch.randn(len(mixed), mixed.shape[1] + 40)
    wide[:, 8:-32] = mixed
    gates = (rows.a.flatten(1), rows.b, rows.A_log, rows.dt_bias)
    o, state = operator(wide[:, 8:-32], *gates, rows.scale, pool, out, slots, **more, **L2)
    assert o is out
    return o.transpose(0, 1), state


def vllm_mixed(rows, pool, slots, _):
    return from_the_convolution(vllm.fused_recurrent_gated_delta_rule_packed_decode, rows, pool, slots)


def sglang_mixed(rows, pool, slots, _):
    return from_the_convolution(sglang.fused_recurrent_gated_delta_rule_packed_decode, rows, pool, slots)


def sglang_mixed_kda(rows, pool, slots, _):
    operator = sglang.fused_recurrent_kda_packed_decode
    return from_the_convolution(operator, rows, pool, slots, lower_bound=rows.bound)


# Value heads a key head: two, three in SGLang's tests, one in Kimi's layers.
TWO, THREE, ONE = dict(H=2, HV=4), dict(H=2, HV=6), dict(H=3, HV=3)
RAW, KEYS = dict(raw=True), dict(raw=True, keys=True)
BOUNDED = dict(KEYS, bound=-5.0)
# How the rows are made, and the slots below which there is padding: block 0 is vLLM's null block, and SGLang's slot 0
# is live.
DECODES = [
    (vllm_log, TWO, 1),
    (vllm_log, TWO | dict(keys=True), 1),
    (vllm_raw, TWO | RAW, 1),
    (vllm_raw, TWO | KEYS, 1),
    (vllm_mixed, TWO | RAW, 1),
    (vllm_kimi, ONE | KEYS, 1),
    (vllm_kimi, ONE | BOUNDED, 1),
    (sglang_raw, THREE | RAW, 0),
    (sglang_raw, TWO | KEYS, 0),
    (sglang_raw, TWO | BOUNDED, 0),
    (sglang_flat, TWO | KEYS, 0),
    (sglang_flat, TWO | BOUNDED, 0),
    (sglang_mixed, THREE | RAW | dict(scale=0.5), 0),
    (sglang_mixed_kda, TWO | KEYS, 0),
    (sglang_mixed_kda, TWO | BOUNDED, 0),
]


@pytest.mark.parametrize("decode, made, pad_below", DECODES)
def test_decode_updates_its_slots_and_leaves_padding(decode, made, pad_below):
    rows, slots = Rows(4, K=16, V=24, seed=1, **made), [3, 0, 5, -1]
    # Slots lie apart in memory, as vLLM's pages do.
    pool = torch.randn(14, made["HV"], 24, 16)[::2]
    before = pool.clone()
    result = decode(rows, pool, int32(*slots), torch.arange(5, dtype=torch.int32))
    o, state = result if isinstance(result, tuple) else (result, pool)
    assert state is pool
    check_sequences(rows, range(5), o[0], before, pool, slots, pad_below=pad_below)


def flashinfer_raw(rows, pool, slots, _):
    q, k, v, a, b = rows.packed()
    out = torch.empty_like(v)
    o, state = flashinfer.gated_delta_rule_decode_pretranspose(
        q, k, v, None, rows.A_log, a, rows.dt_bias, b, output=out, initial_state=pool, initial_state_indices=slots)
    assert o is out
    return o, state


@pytest.mark.parametrize("decode", [vllm_raw, sglang_raw, flashinfer_raw])
def test_long_rows_of_16_bits_are_computed_in_float32(decode):
    """As the engines' own kernels do; CPUs that have bfloat16 products would use them at these sizes."""
    rows = Rows(90, **TWO, K=64, V=64, seed=1, raw=True, dtype=torch.bfloat16)
    pool = torch.randn(3, 4, 64, 64)
    before = pool.clone()
    expected, states = rows.truth(S=pool[1].mT)
    rows.a, rows.b = rows.a[None], rows.b[None]  # gates may have a batch too
    result = decode(rows, pool, int32(1), int32(0, 90))
    o = result[0] if isinstance(result, tuple) else result
    assert o.dtype == torch.bfloat16
    assert relative_error(pool[1], states[-1].mT) < 1e-6
    # The best that bfloat16 can hold, and no more.
    assert relative_error(o[0], expected) < 1.05 * relative_error(expected.bfloat16(), expected)
    assert torch.equal(pool[[0, 2]], before[[0, 2]])
