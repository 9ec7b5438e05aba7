# SPDX-License-Identifier: Apache-2.0
"""Measures whether the shims of vLLM's CPU operators compute what its attention core expects: pools
[slots,HV,K,V] in place, packed prefills, one-token decode with raw gates, shapes of the results.
Compares with the float64 recurrence of engine_reference.py, slot by slot."""

import pytest

torch = pytest.importorskip("torch")

import sluice
from engine_reference import close, log_gate, random_rows, raw_gates, recurrence
from sluice.engines import vllm

H, HV, K, V = 2, 4, 32, 16


def normalised(x):
    """As vLLM's kernels do: x / sqrt(sum x^2 + 1e-5)."""
    return x / (x.pow(2).sum(-1, keepdim=True) + 1e-5).sqrt()


def test_prefill_of_packed_rows_updates_its_slots():
    starts, slots = [0, 70, 70, 139], [3, 1, 0]
    rows = [t.unsqueeze(0) for t in random_rows(139, H, HV, K, V, 1)]
    rows[0], rows[1] = rows[0] * 1e-2, rows[1] * 1e-2  # so small that eps counts
    pool = torch.randn(5, HV, K, V)
    before = pool.clone()
    o, state = vllm.chunk_gated_delta_rule_cpu(
        *rows, pool, True, torch.tensor(starts, dtype=torch.int32), False, True,
        torch.tensor(slots, dtype=torch.int32),
    )
    assert state is pool
    q, k, v, g, beta = (t[0] for t in rows)
    for n, slot in enumerate(slots):
        part = slice(starts[n], starts[n + 1])
        expected, states = recurrence(
            normalised(q[part]), normalised(k[part]), v[part], g[part], beta[part], S=before[slot]
        )
        close(o[0, part], expected)
        close(pool[slot], states[-1] if len(states) else before[slot])
    assert torch.equal(pool[[2, 4]], before[[2, 4]])


def decode(tokens, cu_seqlens, **more):
    q, k, v, _, _ = (t.unsqueeze(0) for t in random_rows(tokens, H, HV, K, V, 2))
    a, b, A_log, dt_bias = raw_gates(tokens, HV, 3)
    pool = torch.randn(6, HV, K, V)
    before = pool.clone()
    slots = torch.tensor([4, 0, 2], dtype=torch.int32)
    o = vllm.fused_sigmoid_gating_delta_rule_update_cpu(
        A_log, dt_bias, q * 1e-2, k * 1e-2, v, a, b, pool, slots, cu_seqlens, True, **more
    )
    return q * 1e-2, k * 1e-2, v, log_gate(a, A_log, dt_bias), b.sigmoid(), slots, before, pool, o


def test_decode_of_one_token_a_sequence():
    found = decode(3, torch.arange(4, dtype=torch.int32))
    q, k, v, g, beta, slots, before, pool, o = found
    assert o.shape == (3, 1, HV, V)
    for n, slot in enumerate(slots.tolist()):
        part = slice(n, n + 1)
        expected, states = recurrence(
            normalised(q[0, part]), normalised(k[0, part]), v[0, part], g[part], beta[part],
            S=before[slot],
        )
        close(o[n], expected)
        close(pool[slot], states[-1])
    assert torch.equal(pool[[1, 3, 5]], before[[1, 3, 5]])


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
        decode(tokens, torch.tensor(starts, dtype=torch.int32), **more)


def test_prefill_refuses_head_first():
    with pytest.raises(sluice.Unsupported, match="head_first = True"):
        vllm.chunk_gated_delta_rule_cpu(*[None] * 6, True, None, True, True, None)
