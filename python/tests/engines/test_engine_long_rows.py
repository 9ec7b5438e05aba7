# SPDX-License-Identifier: Apache-2.0
"""Measures that decode operators of the engines compute rows of more than a step in float32 too, as
the engines' own kernels do: bfloat16 rows, states against the float64 recurrence."""

import pytest

torch = pytest.importorskip("torch")

from engine_reference import log_gate, random_rows, raw_gates, recurrence, relative_error
from sluice.engines import flashinfer, sglang, vllm

T, H, HV, D = 90, 2, 4, 64  # sizes at which CPUs with bfloat16 products use them


def problem():
    """Rows [1,T,..], raw gates, a pool [3,HV,V,K] of which slot 1 is used, its o and new state."""
    q, k, v, _, _ = random_rows(T, H, HV, D, D, 1, torch.bfloat16)
    a, b, A_log, dt_bias = raw_gates(T, HV, 2)
    pool = torch.randn(3, HV, D, D)
    g, beta = log_gate(a, A_log, dt_bias), b.double().sigmoid()
    o, states = recurrence(q, k, v, g, beta, S=pool[1].mT, l2=True)
    rows = [x.unsqueeze(0) for x in (q, k, v, a, b)]
    return rows, A_log, dt_bias, pool, o, states[-1].mT


def by_vllm(rows, A_log, dt_bias, pool, slots):
    q, k, v, a, b = rows
    ends = torch.tensor([0, T], dtype=torch.int32)
    return vllm.fused_sigmoid_gating_delta_rule_update(
        A_log, a, b, dt_bias, q, k, v, initial_state=pool, cu_seqlens=ends, ssm_state_indices=slots,
        use_qk_l2norm_in_kernel=True,
    )[0]


def by_sglang(rows, A_log, dt_bias, pool, slots):
    q, k, v, a, b = rows
    return sglang.fused_sigmoid_gating_delta_rule_update(
        A_log, a, dt_bias, 1.0, 20.0, q, k, v, b, pool, slots, use_qk_l2norm_in_kernel=True
    )


def by_flashinfer(rows, A_log, dt_bias, pool, slots):
    q, k, v, a, b = rows
    out = torch.empty_like(v)
    o, _ = flashinfer.gated_delta_rule_decode_pretranspose(
        q, k, v, None, A_log, a, dt_bias, b, output=out, initial_state=pool,
        initial_state_indices=slots,
    )
    assert o is out
    return o


@pytest.mark.parametrize("run", [by_vllm, by_sglang, by_flashinfer])
def test_long_rows_of_16_bits_are_computed_in_float32(run):
    rows, A_log, dt_bias, pool, expected, state = problem()
    before = pool.clone()
    o = run(rows, A_log, dt_bias, pool, torch.tensor([1], dtype=torch.int32))
    assert o.dtype == torch.bfloat16
    assert relative_error(pool[1], state) < 1e-6
    # The best that bfloat16 can hold, and no more.
    assert relative_error(o[0], expected) < 1.05 * relative_error(expected.bfloat16(), expected)
    assert torch.equal(pool[[0, 2]], before[[0, 2]])
