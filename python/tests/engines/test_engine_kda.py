# SPDX-License-Identifier: Apache-2.0
"""Measures KDA as fla, vLLM and SGLang call it: raw and bounded gates, layouts, pools in place, chunk
states, and Sluice as the backend of fla's chunk_kda. Compares with the float64 recurrence."""

import inspect
import sys
import types

import pytest

torch = pytest.importorskip("torch")

import sluice
from engine_reference import close, random_rows, recurrence
from sluice.engines import fla, sglang, vllm
from test_engine_fla import StubBase, StubRegistry, near, on_gpu, stub_modules

H, HV, K, V = 2, 4, 16, 24
L2 = dict(use_qk_l2norm_in_kernel=True)


def packed(*tensors):
    return [t.unsqueeze(0) for t in tensors]


def key_rows(tokens, seed, K=K, V=V, dtype=torch.float32):
    """q, k, v, log gates [T,HV,K], beta."""
    q, k, v, _, beta = random_rows(tokens, H, HV, K, V, seed, dtype)
    g = -torch.rand(tokens, HV, K)
    g[:, :, 1], g[1:2, :, 2] = 0, -float("inf")
    return q, k, v, g, beta


def raw_rows(tokens, seed):
    """Raw gates [T,HV,K], logits, A_log [HV], dt_bias [HV K]."""
    torch.manual_seed(seed)
    a, b = torch.randn(tokens, HV, K), torch.randn(tokens, HV)
    return a, b, torch.randn(HV), torch.randn(HV * K)


def gates_of(a, A_log, dt_bias, bound=None):
    x = a.double() + dt_bias.double().view(HV, K)
    rate = A_log.double().exp()[:, None]
    if bound is not None:
        return bound * torch.sigmoid(rate * x)
    return -rate * torch.nn.functional.softplus(x)


@pytest.mark.parametrize("bound", [None, -5.0])
@pytest.mark.parametrize("v_first", [False, True])
def test_fla_with_raw_gates(v_first, bound):
    q, k, v, _, _ = key_rows(9, 1)
    a, b, A_log, dt_bias = raw_rows(9, 2)
    S0 = torch.randn(1, HV, K, V)
    g, beta = gates_of(a, A_log, dt_bias, bound), 2 * b.double().sigmoid()
    expected, states = recurrence(q, k, v, g, beta, S=S0[0], l2=True)
    for kda in (fla.chunk_kda, fla.fused_recurrent_kda):
        o, final = kda(
            *packed(q, k, v, a, b),
            initial_state=S0.mT.contiguous() if v_first else S0,
            output_final_state=True,
            use_gate_in_kernel=True,
            A_log=A_log,
            dt_bias=dt_bias,
            lower_bound=bound,
            use_beta_sigmoid_in_kernel=True,
            allow_neg_eigval=True,
            state_v_first=v_first,
            **L2,
        )
        close(o[0], expected)
        close(final[0].mT if v_first else final[0], states[-1])
    gate = sluice.fused_kda_gate(a, A_log, dt_bias, bound, output_dtype=torch.float32)
    close(gate, gates_of(a, A_log, dt_bias, bound))


def test_fla_gla():
    q, k, v, g, _ = key_rows(70, 3)
    o, final = fla.chunk_gla(*packed(q, k, v, g), output_final_state=True)
    expected, state = sluice.fused_recurrent_gla(*packed(q, k, v, g), output_final_state=True)
    close(o, expected)
    close(final, state)


def test_fla_refuses_by_name():
    rows = packed(*key_rows(2, 4))
    with pytest.raises(sluice.Unsupported, match="fla.chunk_kda: cp_context = "):
        fla.chunk_kda(*rows, cp_context=object())
    wide = rows[4].unsqueeze(3).expand(1, 2, HV, V)
    with pytest.raises(sluice.InvalidArgument, match="fla.fused_recurrent_kda: beta = "):
        fla.fused_recurrent_kda(*rows[:4], wide)
    with pytest.raises(sluice.InvalidArgument, match="transpose_state_layout"):
        fla.chunk_kda(*rows, state_v_first=True, transpose_state_layout=True)
    with pytest.warns(DeprecationWarning, match="renamed to state_v_first"):
        fla.chunk_kda(*rows, transpose_state_layout=True)


@pytest.mark.parametrize("version", ["0.6", "0.5"])
def test_backend_of_chunk_kda_in_a_stub_of_fla(monkeypatch, version):
    _, modules = stub_modules(monkeypatch, version)
    registry = StubRegistry()

    def chunk_kda(*args, **kwargs):
        return "fla"

    def fused_recurrent_kda(*args, **kwargs):
        return "fla"

    for name in ("fla.ops.kda", "fla.ops.kda.backends", "fla.layers.kda"):
        modules[name] = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, modules[name])
    kda, layer = modules["fla.ops.kda"], modules["fla.layers.kda"]
    kda.chunk_kda, kda.fused_recurrent_kda = chunk_kda, fused_recurrent_kda
    layer.fused_recurrent_kda = fused_recurrent_kda
    if version == "0.6":
        modules["fla.backends"]._function_registries = {chunk_kda: registry}
    else:
        modules["fla.ops.kda.backends"].kda_registry = registry
    monkeypatch.delenv("FLA_SLUICE", raising=False)
    try:
        assert fla.register() and isinstance(registry._backends["sluice"], StubBase)
        check_dispatch(registry, layer)
    finally:
        fla.unregister()
    assert layer.fused_recurrent_kda is fused_recurrent_kda and not registry._backends


def check_dispatch(registry, layer):
    size = dict(K=128, V=128, dtype=torch.bfloat16) if on_gpu() else {}
    rows = packed(*key_rows(5, 5, **size))
    q, k, v, g, beta = (t[0] for t in rows)

    def call(*args, **kwargs):
        return registry.call("chunk_kda", lambda *a, **k: "fla", *args, **kwargs)

    near(call(*rows, **L2)[0][0], recurrence(q, k, v, g, beta, l2=True)[0])
    a, A_log = torch.randn(g.shape), torch.randn(HV)
    raw = dict(use_gate_in_kernel=True, lower_bound=-5.0, A_log=A_log, safe_gate=True, **L2)
    bounded = -5 * torch.sigmoid(A_log.double().exp()[:, None] * a.double())
    near(
        call(*rows[:3], a.unsqueeze(0), rows[4], **raw)[0][0],
        recurrence(q, k, v, bounded, beta, l2=True)[0],
    )
    assert call(*rows, use_gate_in_kernel=True) == "fla"
    assert call(*rows, cp_context=object()) == "fla"
    needs_gradient = [rows[0].clone().requires_grad_(), *rows[1:]]
    # On a GPU gradients of key-wise gates have no kernel on tensor cores.
    if torch.get_default_device().type == "cuda":
        assert call(*needs_gradient) == "fla"
    else:
        call(*needs_gradient, **L2)[0].sum().backward()
        assert needs_gradient[0].grad.abs().max() > 0
    o, _ = layer.fused_recurrent_kda(*rows)
    assert o.shape == rows[2].shape
    wide = rows[4].unsqueeze(3).expand(*rows[4].shape, v.shape[-1])
    assert layer.fused_recurrent_kda(*rows[:4], wide) == "fla"


@pytest.mark.parametrize("bound", [None, -5.0])
def test_sglang_prefill_updates_the_pool_and_returns_chunk_states(bound):
    lengths, starts = [70, 0, 3], torch.tensor([0, 70, 70, 73], dtype=torch.int32)
    q, k, v, g, beta = key_rows(73, 6)
    a, b, A_log, dt_bias = raw_rows(73, 7)
    pool = torch.randn(5, HV, V, K)
    for raw in (False, True):
        before, found = pool.clone(), pool.clone()
        gates = dict(A_log=A_log, dt_bias=dt_bias, lower_bound=bound, beta_is_raw=True)
        o, h = sglang.chunk_kda(
            *packed(q, k, v, a if raw else g, b if raw else beta),
            initial_state=found,
            initial_state_indices=torch.tensor([4, 1, 0], dtype=torch.int32),
            cu_seqlens=starts,
            output_intermediate_states=True,
            **(gates if raw else {}),
            **L2,
        )
        log = gates_of(a, A_log, dt_bias, bound) if raw else g
        strengths = b.double().sigmoid() if raw else beta
        row = 0
        for n, slot in ((0, 4), (2, 0)):
            part = slice(int(starts[n]), int(starts[n + 1]))
            expected, states = recurrence(
                *(x[part] for x in (q, k, v, log, strengths)), S=before[slot].mT, l2=True
            )
            close(o[0, part], expected)
            close(found[slot], states[-1].mT)
            close(h[0, row], before[slot])
            row += (lengths[n] + 63) // 64
        assert torch.equal(found[[1, 2, 3]], before[[1, 2, 3]])
    with pytest.raises(sluice.Unsupported, match="track_state = "):
        sglang.chunk_kda(*packed(q, k, v, g, beta), track_state=pool)


@pytest.mark.parametrize("bound", [None, -5.0])
def test_sglang_decode(bound):
    q, k, v, _, _ = key_rows(3, 8)
    a, b, A_log, dt_bias = raw_rows(3, 9)
    pool = torch.randn(4, HV, V, K)
    slots = torch.tensor([0, -1, 2], dtype=torch.int32)
    g = gates_of(a, A_log, dt_bias, bound)
    rows = torch.cat([q.flatten(1), k.flatten(1), v.flatten(1)], 1)
    for way in ("update", "flat update", "packed"):
        found, out = pool.clone(), torch.zeros(3, 1, HV, V)
        if way == "packed":
            out, _ = sglang.fused_recurrent_kda_packed_decode(
                rows, a.flatten(1), b, A_log, dt_bias, K**-0.5, found, out, slots,
                lower_bound=bound, **L2,
            )
            out = out[:, 0]
        else:
            out = sglang.fused_sigmoid_gating_delta_rule_update(
                A_log, a.flatten(1) if way == "flat update" else a, dt_bias, 1.0, 20.0,
                *packed(q, k, v), b, found, slots, is_kda=True, lower_bound=bound,
                cu_seqlens=torch.arange(4, dtype=torch.int32), **L2,
            )[0]
        for n, slot in enumerate(slots.tolist()):
            if slot < 0:
                assert (out[n] == 0).all()
                continue
            one = (x[n : n + 1] for x in (q, k, v, g, b.double().sigmoid()))
            expected, states = recurrence(*one, S=pool[slot].mT, l2=True)
            close(out[n], expected[0])
            close(found[slot], states[-1].mT)


@pytest.mark.parametrize("bound", [None, -5.0])
def test_vllm(bound):
    q, k, v, g, beta = key_rows(40, 10)
    a, b, A_log, dt_bias = raw_rows(40, 11)
    S0 = torch.randn(1, HV, V, K)
    given = dict(initial_state=S0, output_final_state=True, **L2)
    fused = vllm.chunk_kda_with_fused_gate(
        *packed(q, k, v, a, beta), A_log.view(1, 1, HV, 1), dt_bias, lower_bound=bound, **given
    )
    plain = vllm.chunk_kda(*packed(q, k, v, g, beta), **given)
    for (o, final), log in ((fused, gates_of(a, A_log, dt_bias, bound)), (plain, g)):
        expected, states = recurrence(q, k, v, log, beta, S=S0[0].mT, l2=True)
        close(o[0], expected)
        close(final[0], states[-1].mT)


def test_vllm_decode():
    q, k, v, g, beta = key_rows(2, 12)
    a, b, A_log, dt_bias = raw_rows(2, 13)
    pool, slots = torch.randn(4, HV, V, K), torch.tensor([3, 1], dtype=torch.int32)
    ends = torch.arange(3, dtype=torch.int32)
    raw = gates_of(a, A_log, dt_bias)
    for log, strengths in ((g, beta), (raw, b.double().sigmoid())):
        found = pool.clone()
        given = dict(initial_state=found, ssm_state_indices=slots, cu_seqlens=ends, **L2)
        if log is g:
            o, _ = vllm.fused_recurrent_kda(*packed(q, k, v, g, beta), **given)
        else:
            o, _ = vllm.fused_sigmoid_gating_delta_rule_update(
                A_log, a, b, dt_bias, *packed(q, k, v), is_kda=True, **given
            )
        for n, slot in enumerate(slots.tolist()):
            one = (x[n : n + 1] for x in (q, k, v, log, strengths))
            expected, states = recurrence(*one, S=pool[slot].mT, l2=True)
            close(o[0, n], expected[0])
            close(found[slot], states[-1].mT)


def test_vllm_has_the_parameters_of_its_repository():
    """vllm-project/vllm 055e47c, vllm/third_party/flash_linear_attention/ops/kda.py."""
    bare = inspect.Parameter.empty
    for function, text in (
        (
            vllm.chunk_kda,
            "q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False, "
            "use_qk_l2norm_in_kernel=False, cu_seqlens=None",
        ),
        (
            vllm.chunk_kda_with_fused_gate,
            "q, k, v, raw_g, beta, A_log, g_bias, scale=None, initial_state=None, "
            "output_final_state=False, lower_bound=None, use_qk_l2norm_in_kernel=False, "
            "cu_seqlens=None",
        ),
        (
            vllm.fused_recurrent_kda,
            "q, k, v, g, beta=None, scale=None, initial_state=None, inplace_final_state=True, "
            "use_qk_l2norm_in_kernel=True, cu_seqlens=None, ssm_state_indices=None",
        ),
    ):
        found = inspect.signature(function).parameters.values()
        assert ", ".join(str(p.replace(annotation=bare)) for p in found) == text
