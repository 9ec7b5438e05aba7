# SPDX-License-Identifier: Apache-2.0
"""Measures whether the shims of vLLM's CPU operators compute what its attention core expects: pools
[slots,HV,K,V] in place, packed prefills, one-token decode with raw gates, shapes of the results.
Compares with the float64 recurrence of engine_reference.py, slot by slot."""

import pytest

torch = pytest.importorskip("torch")

import sluice
from engine_reference import Rows, check_sequences, int32
from sluice.engines import vllm

H, HV, K, V = 2, 4, 32, 16
# As vLLM's kernels normalise: x / sqrt(sum x^2 + 1e-5).
EPS = 1e-5


def small_rows(tokens, seed, raw=False):
    rows = Rows(tokens, H, HV, K, V, seed, raw)
    rows.q, rows.k = rows.q * 1e-2, rows.k * 1e-2  # so small that eps counts
    return rows


def test_prefill_of_packed_rows_updates_its_slots():
    starts, slots = [0, 70, 70, 139], [3, 1, 0]
    rows, pool = small_rows(139, 1), torch.randn(5, HV, K, V)
    before = pool.clone()
    o, state = vllm.chunk_gated_delta_rule_cpu(
        *rows.packed(), pool, True, int32(*starts), False, True, int32(*slots))
    assert state is pool
    check_sequences(rows, starts, o[0], before.mT, pool.mT, slots, eps=EPS)


def decode(rows, pool, slots, starts, **more):
    q, k, v, *_ = rows.packed()
    return vllm.fused_sigmoid_gating_delta_rule_update_cpu(
        rows.A_log, rows.dt_bias, q, k, v, rows.a, rows.b, pool, int32(*slots), int32(*starts), True, **more)


def test_decode_of_one_token_a_sequence():
    rows, pool, slots = small_rows(3, 2, raw=True), torch.randn(6, HV, K, V), [4, 0, 2]
    before = pool.clone()
    o = decode(rows, pool, slots, range(4))
    assert o.shape == (3, 1, HV, V)
    check_sequences(rows, range(4), o[:, 0], before.mT, pool.mT, slots, eps=EPS)


@pytest.mark.parametrize(
    "tokens, starts, more, message",
    [
        (4, [0, 1, 2, 4], {}, r"tokens = 4, expected 3 \(one token a sequence\)"),
        (3, [0, 1, 2, 3], {"softplus_beta": 2.0}, "softplus_beta = 2.0, expected 1.0"),
        (3, [0, 1, 2, 3], {"softplus_threshold": 9.0}, "softplus_threshold = 9.0, expected 20.0"),
    ],
)
def test_decode_refuses_by_name(tokens, starts, more, message):
    with pytest.raises(sluice.Unsupported, match=message):
        decode(small_rows(tokens, 2, raw=True), torch.randn(6, HV, K, V), [4, 0, 2], starts, **more)


def test_prefill_refuses_head_first():
    with pytest.raises(sluice.Unsupported, match="head_first = True"):
        vllm.chunk_gated_delta_rule_cpu(*[None] * 6, True, None, True, True, None)
