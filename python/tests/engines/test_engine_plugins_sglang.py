# SPDX-License-Identifier: Apache-2.0
"""Measures the SGLang plug-in: what it hooks, what it leaves, what it hands back.
Runs register() in stub modules with the paths and signatures of sglang 0.5.23."""

import enum
import importlib
import sys

import pytest

torch = pytest.importorskip("torch")

from engine_reference import Rows, check_sequences, close, int32
from engine_stubs import HV, RECORDED, H, K, V, call_chunk, stub_function, stub_module, unimport
from sluice.engines import sglang
from sluice.engines.sglang import plugin as sglang_plugin
from sluice.engines.swap import Tally


@pytest.fixture(autouse=True)
def restored():
    yield
    sglang_plugin._imports.forget()


class StubHooks:
    """sglang.srt.plugins.hook_registry: register() collects, apply_hooks() wraps what is not yet, as SGLang does."""

    class HookType(enum.Enum):
        AROUND = "around"

    def __init__(self):
        self.hooks, self.patched = {}, set()
        self.HookRegistry = self

    def register(self, target, hook, hook_type):
        assert hook_type is self.HookType.AROUND
        self.hooks[target] = hook

    def apply_hooks(self):
        for target in self.hooks.keys() - self.patched:
            self.patched.add(target)
            around = self.hooks[target]
            path, _, name = target.rpartition(".")
            path, _, owner = path.rpartition(".") if path not in sys.modules else (path, "", "")
            place = getattr(sys.modules[path], owner) if owner else sys.modules[path]
            original = getattr(place, name)

            def wrapper(*args, _hook=around, _original=original, **kwargs):
                return _hook(_original, *args, **kwargs)

            setattr(place, name, wrapper)


class StubDispatcher:
    """sglang 0.5.23's GDNKernelDispatcher: its methods' parameters."""

    supports_packed_decode = True

    def decode(self, q, k, v, a, b, *, A_log, dt_bias, ssm_states, cache_indices, query_start_loc,
               **kwargs):
        return "engine"

    def packed_decode(self, mixed_qkv, a, b, *, A_log, dt_bias, scale, ssm_states, cache_indices,
                      num_v_heads, head_v_dim, **kwargs):
        return "engine"

    def extend(self, q, k, v, g, beta, *, ssm_states, cache_indices, query_start_loc, **kwargs):
        return "engine"

    def target_verify(self, A_log, dt_bias, q, k, v, a, b, *, ssm_states, cache_indices,
                      query_start_loc, **kwargs):
        return "engine"


def stub_sglang(monkeypatch):
    """SGLang's modules, and Sluice switched on; returns the hooks."""
    monkeypatch.setenv("SLUICE_SGLANG", "1")
    for path, ours in sglang_plugin.kTargets:
        name = ours.__name__
        stub_module(monkeypatch, path, **{name: stub_function("sglang", name)})
    fresh = type("GDNKernelDispatcher", (StubDispatcher,), {})
    stub_module(monkeypatch, sglang_plugin.kDispatcher, GDNKernelDispatcher=fresh)
    hooks = StubHooks()
    path = "sglang.srt.plugins.hook_registry"
    stub_module(monkeypatch, path, HookRegistry=hooks, HookType=StubHooks.HookType)
    return hooks


def test_sglang_is_opt_in(monkeypatch):
    hooks = stub_sglang(monkeypatch)
    monkeypatch.delenv("SLUICE_SGLANG", raising=False)
    assert sglang.register() == [] and not hooks.hooks


def test_sglang_operators_are_hooked(monkeypatch):
    hooks = stub_sglang(monkeypatch)
    count = len(sglang_plugin.kTargets) + len(sglang_plugin.kMethods)
    assert len(sglang.register()) == count == len(hooks.hooks)
    hooks.apply_hooks()
    chunk = sys.modules["sglang.kernels.ops.attention.fla.chunk"].chunk_gated_delta_rule
    expected, (o, none, h) = call_chunk(chunk)
    assert none is None and h.shape == (1, 1, HV, V, K)
    close(o[0], expected)
    update = sys.modules["sglang.kernels.ops.mamba.causal_conv1d_triton"].causal_conv1d_update
    answer = update(
        torch.randn(1, 4),
        torch.zeros(1, 4, 3),
        torch.randn(4, 4),
        retrieve_next_token=torch.ones(1),
    )
    assert answer == "engine", "trees go back to SGLang"


def test_sglang_operators_are_hooked_when_sglang_imports_them(monkeypatch, tmp_path):
    """Importing SGLang's kernels makes a CUDA context, which its launcher does without."""
    hooks = stub_sglang(monkeypatch)
    path, name = "sglang.kernels.ops.attention.fla.chunk", "chunk_gated_delta_rule"
    unimport(monkeypatch, tmp_path, path, "sglang", name)
    assert f"{path}.{name}" not in sglang.register()
    hooks.apply_hooks()
    assert path not in sys.modules
    module = importlib.import_module(path)
    expected, (o, *_) = call_chunk(module.chunk_gated_delta_rule)
    sys.modules.pop(path)
    close(o[0], expected)


def test_lines_come_out_once_sglang_has_set_up_its_log(monkeypatch, caplog):
    """Its scheduler loads plug-ins before that."""
    hooks = stub_sglang(monkeypatch)
    monkeypatch.setattr(sglang_plugin, "tally", Tally())
    caplog.set_level("WARNING")
    sglang.register()
    hooks.apply_hooks()
    assert not caplog.messages
    caplog.set_level("INFO")
    call_chunk(sys.modules["sglang.kernels.ops.attention.fla.chunk"].chunk_gated_delta_rule)
    assert caplog.messages[0].startswith("SGLang hooks registered: sglang.")
    assert caplog.messages[1:] == ["sglang.chunk_gated_delta_rule runs on Sluice"]


def test_sglang_without_the_module_is_left_alone(monkeypatch, caplog):
    stub_sglang(monkeypatch)
    monkeypatch.delattr(
        sys.modules["sglang.kernels.ops.attention.fla.chunk"], "chunk_gated_delta_rule"
    )
    count = len(sglang_plugin.kTargets) + len(sglang_plugin.kMethods)
    assert len(sglang.register()) == count - 1
    assert "not hooked" in caplog.text


def test_sglang_on_torch_2_11_has_a_function_elsewhere(monkeypatch):
    """0.5.17 keeps one operator in another module, without its last parameter."""
    stub_sglang(monkeypatch)
    name = "fused_sigmoid_gating_delta_rule_update"
    [(now, before)] = sglang_plugin.kEarlierHomes.items()
    monkeypatch.delattr(sys.modules[now], name)
    last = ", match_cutedsl_decode=False"
    assert RECORDED["sglang"]["functions"][name].endswith(last)
    stub_module(monkeypatch, before, **{name: stub_function("sglang", name, (last, ""))})
    assert f"{before}.{name}" in sglang.register()


def test_sglang_dispatcher_sends_calls_whatever_the_backend(monkeypatch):
    hooks = stub_sglang(monkeypatch)
    sglang.register()
    hooks.apply_hooks()
    chosen = sys.modules[sglang_plugin.kDispatcher].GDNKernelDispatcher()
    offsets, slots = int32(0, 5, 9), int32(3, 1)
    given, pool = Rows(9, H, HV, K, V, 1), torch.zeros(5, HV, V, K)
    rows = given.packed()
    call = dict(ssm_states=pool, cache_indices=slots, query_start_loc=offsets)
    o, none, _ = chosen.extend(*rows, **call, state_checkpoint_cu_starts=None, layer_id=3)
    check_sequences(given, [0, 5, 9], o[0], torch.zeros_like(pool), pool, slots.tolist())
    assert none is None
    before = pool.clone()
    assert chosen.extend(*rows, **call, state_checkpoint_cu_starts=offsets) == "engine"
    assert torch.equal(pool, before)
    steps = Rows(2, H, HV, K, V, 2, raw=True)
    q, k, v, *_ = steps.packed()
    raw = dict(a=steps.a, b=steps.b, A_log=steps.A_log, dt_bias=steps.dt_bias)
    o = chosen.decode(q, k, v, **raw, **call | dict(query_start_loc=int32(0, 1, 2)))
    check_sequences(steps, range(3), o[0], before, pool, slots.tolist())
    # The same from the convolution's output, on the states of before.
    decoded = pool.clone()
    pool.copy_(before)
    mixed = dict(mixed_qkv=steps.mixed(), scale=steps.scale, ssm_states=pool, cache_indices=slots, num_v_heads=HV,
                 head_v_dim=V)
    close(chosen.packed_decode(**mixed, **raw), o)
    close(pool, decoded)
    assert chosen.packed_decode(**mixed, **raw, replayssm_d=torch.zeros(1)) == "engine"
    # Two drafts of one sequence: its pool stays, the state of each goes to the buffer.
    buffer = torch.zeros(4, 2, HV, V, K)
    verify = dict(q=q, k=k, v=v, ssm_states=pool, cache_indices=slots[:1], query_start_loc=int32(0, 2),
                  intermediate_states_buffer=buffer, cache_steps=2, intermediate_state_indices=int32(2))
    out = chosen.target_verify(**raw, **verify, retrieve_parent_token=None)
    assert out.shape == (1, 2, HV, V) and buffer[2].any() and not buffer[0].any()
    close(pool, decoded)
    assert chosen.target_verify(**raw, **verify, retrieve_parent_token=torch.ones(1)) == "engine"
