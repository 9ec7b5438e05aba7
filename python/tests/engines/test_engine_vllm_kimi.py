# SPDX-License-Identifier: Apache-2.0
"""Measures KDA as Kimi's layers of vllm 0.33.0 call it (sluice.engines.vllm.kimi): prefill, decode, packed rows and
drafts from raw gates and betas. Compares with the float64 recurrence, slot by slot."""

import pytest
import sluice

torch = pytest.importorskip("torch")

from engine_reference import close, recurrence
from sluice.engines import vllm
from sluice.engines.vllm import kimi

H, K, V = 3, 16, 24


def rows(tokens, seed):
    """q, k, v, raw gates, raw betas, A_log, dt_bias of packed tokens."""
    torch.manual_seed(seed)
    q, k = torch.randn(2, tokens, H, K)
    v, g = torch.randn(tokens, H, V), torch.randn(tokens, H, K)
    return q, k, v, g, torch.randn(tokens, H), torch.rand(H), torch.randn(H * K)


def truth(given, part, bound, S=None):
    q, k, v, g, beta, A_log, bias = given
    x = g[part].double() + bias.double().view(H, K)
    rate = A_log.double().exp()[:, None]
    gate = -rate * torch.nn.functional.softplus(x) if bound is None else bound * torch.sigmoid(rate * x)
    return recurrence(q[part], k[part], v[part], gate, torch.sigmoid(beta[part].double()), S=S, l2=True)


def call(given):
    q, k, v, g, beta, A_log, bias = given
    return dict(q=q[None], k=k[None], v=v[None], raw_g=g[None], raw_beta=beta[None], A_log=A_log)


def test_scale_must_be_positive():
    q, k, v, g, beta, A_log, bias = (x[None] for x in rows(5, 0))
    with pytest.raises(sluice.InvalidArgument, match=r"vllm.chunk_kda: scale = -1.0"):
        vllm.chunk_kda(q, k, v, -g.exp(), beta.sigmoid(), scale=-1.0)
    with pytest.raises(sluice.InvalidArgument, match=r"vllm.chunk_kda_with_fused_gate: scale = 0"):
        kimi.chunk_kda_with_fused_gate(q, k, v, g, beta, A_log[0], bias[0], scale=0)


@pytest.mark.parametrize("bound", [None, -5.0])
@pytest.mark.parametrize("given_out", [False, True])
def test_prefill_of_packed_prompts(bound, given_out):
    given, starts = rows(75, 1), [0, 70, 75]
    S0 = torch.randn(2, H, V, K)
    out = torch.full((1, 75, H, V), float("nan")) if given_out else None
    o, final = kimi.chunk_kda_with_fused_gate(
        **call(given), g_bias=given[-1], lower_bound=bound, initial_state=S0, output_final_state=True,
        use_qk_l2norm_in_kernel=True, cu_seqlens=torch.tensor(starts, dtype=torch.int32), out=out)
    assert not given_out or o.data_ptr() == out.data_ptr()
    for n in range(2):
        part = slice(starts[n], starts[n + 1])
        expected, states = truth(given, part, bound, S0[n].mT)
        close(o[0, part], expected)
        close(final[n], states[-1].mT)


@pytest.mark.parametrize("bound", [None, -5.0])
def test_packed_decode_leaves_padding(bound):
    given, slots = rows(3, 2), torch.tensor([2, 0, 4], dtype=torch.int32)
    pool = torch.randn(5, H, V, K)
    before = pool.clone()
    mixed = torch.cat([x.flatten(1) for x in given[:3]], dim=1)
    o, state = kimi.fused_recurrent_kda_packed_decode(
        mixed, given[3][None], given[4][None], given[5], given[6], bound, pool, slots)
    assert state is pool and o.shape == (1, 3, H, V)
    for n, slot in enumerate(slots.tolist()):
        if slot == 0:
            assert not o[0, n].any() and torch.equal(pool[0], before[0])
            continue
        expected, states = truth(given, slice(n, n + 1), bound, before[slot].mT)
        close(o[0, n], expected[0])
        close(pool[slot], states[-1].mT)


def test_drafts_keep_a_state_each_and_start_at_the_accepted_one():
    given = rows(4, 3)
    pool = torch.randn(6, H, V, K)
    before = pool.clone()
    slots = torch.tensor([[1, 2], [3, 4]], dtype=torch.int32)
    accepted = torch.tensor([2, 1], dtype=torch.int32)
    out = torch.empty(1, 4, H, V)
    o, _ = kimi.fused_recurrent_kda(
        **call(given), dt_bias=given[-1], lower_bound=-5.0, initial_state=pool,
        cu_seqlens=torch.tensor([0, 2, 4], dtype=torch.int32), ssm_state_indices=slots,
        num_accepted_tokens=accepted, out=out)
    assert o.data_ptr() == out.data_ptr()
    for n in range(2):
        start = before[slots[n, accepted[n] - 1]].mT
        expected, states = truth(given, slice(2 * n, 2 * n + 2), -5.0, start)
        close(o[0, 2 * n : 2 * n + 2], expected)
        for t in range(2):
            close(pool[slots[n, t]], states[t].mT)
