# SPDX-License-Identifier: Apache-2.0
"""Measures the vLLM and SGLang plug-ins: what they replace, what they leave, what they hand back.
Runs register() in stub modules with the paths and signatures of vllm 0.33.0 and 0.26.0 and of sglang 0.5.23."""

import enum
import importlib
import json
import logging
import pathlib
import sys
import tomllib
import types

import pytest

torch = pytest.importorskip("torch")

from engine_reference import close, random_rows, recurrence
from sluice.engines import sglang, vllm
from sluice.engines.sglang import plugin as sglang_plugin
from sluice.engines.swap import Tally
from sluice.engines.vllm import plugin as vllm_plugin

RECORDED = json.loads(pathlib.Path(__file__).with_name("signatures.json").read_text())
H, HV, K, V = 2, 4, 16, 24


def stub_function(engine, name, change=("", "")):
    """A function of the engine's recorded signature that returns its own name."""
    text = RECORDED[engine]["functions"][name]["parameters"].replace(*change)
    space = {}
    exec(f"def {name}({text}): return 'engine'", space)
    return space[name]


def stub_module(monkeypatch, path, **contents):
    """Puts module `path` and its packages into sys.modules."""
    for end in range(1, path.count(".") + 2):
        name = ".".join(path.split(".")[:end])
        if name not in sys.modules or not hasattr(sys.modules[name], "stub"):
            module = types.ModuleType(name)
            module.stub, module.__path__ = True, []
            monkeypatch.setitem(sys.modules, name, module)
    vars(sys.modules[path]).update(contents)
    return sys.modules[path]


def stub_vllm(monkeypatch, change=("", ""), release="vllm"):
    """A release's modules; returns the model's module, which imported its operators by name."""
    targets = []
    for path, ours in vllm_plugin.kTargets + vllm_plugin.kCpuTargets:
        engine = path.partition(".")[0].replace("vllm", release)
        if "kimi" in path:
            engine = f"{engine}.kimi"
        if engine not in RECORDED:
            continue
        name = ours.__name__
        if name not in RECORDED[engine]["functions"]:
            continue
        if ours not in [cpu for _, cpu in vllm_plugin.kCpuTargets]:
            targets.append((path, ours))
        stub_module(monkeypatch, path, **{name: stub_function(engine, name, change)})
    model = stub_module(monkeypatch, "vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn")
    for path, ours in targets:
        name = ours.__name__
        alias = "fla_" + name if name == "chunk_gated_delta_rule" else name
        if path.startswith("vllm"):
            setattr(model, alias, getattr(sys.modules[path], name))
    return model


@pytest.fixture(autouse=True)
def restored():
    yield
    vllm.unregister()
    sglang_plugin._imports.forget()


def call_chunk(function, dtype=torch.float32, **more):
    rows = [t.unsqueeze(0) for t in random_rows(5, H, HV, K, V, 1)]
    rows[0] = rows[0].to(dtype)
    return rows, function(*rows, use_qk_l2norm_in_kernel=True, **more)


def test_entry_points_name_the_plugins():
    project = pathlib.Path(__file__).parents[3] / "pyproject.toml"
    if not project.exists():
        pytest.skip("tests are not in the source tree")
    groups = tomllib.loads(project.read_text())["project"]["entry-points"]
    for group, register in (
        ("vllm.general_plugins", vllm.register),
        ("sglang.srt.plugins", sglang.register),
    ):
        module, _, name = groups[group]["sluice"].partition(":")
        assert getattr(importlib.import_module(module), name) is register


def test_vllm_is_opt_in(monkeypatch):
    model = stub_vllm(monkeypatch)
    monkeypatch.delenv("SLUICE_VLLM", raising=False)
    assert vllm.register() == []
    assert call_chunk(model.fla_chunk_gated_delta_rule)[1] == "engine"


def test_vllm_operators_are_replaced_where_they_are_looked_up(monkeypatch, caplog):
    model = stub_vllm(monkeypatch)
    monkeypatch.setenv("SLUICE_VLLM", "1")
    before = dict(vars(model))
    with caplog.at_level("INFO", logger="sluice.engines"):
        places = vllm.register()
        rows, (o, final) = call_chunk(model.fla_chunk_gated_delta_rule)
    assert vllm.register() == [], "loading twice changes nothing"
    assert f"{model.__name__}.fla_chunk_gated_delta_rule" in places
    assert "flashinfer.gdn_prefill.chunk_gated_delta_rule" in places
    assert final is None
    close(o[0], recurrence(*(t[0] for t in rows), l2=True)[0])
    assert "vllm.chunk_gated_delta_rule runs on Sluice" in caplog.text
    vllm.unregister()
    assert dict(vars(model)) == before


def test_vllm_operators_are_replaced_when_vllm_imports_them(monkeypatch, tmp_path, caplog):
    """Importing vLLM's kernels makes a CUDA context, which its API server does without."""
    stub_vllm(monkeypatch)
    path = "vllm.third_party.flash_linear_attention.ops"
    text = RECORDED["vllm"]["functions"]["chunk_gated_delta_rule"]["parameters"]
    (tmp_path / "ops.py").write_text(f"def chunk_gated_delta_rule({text}): return 'engine'\n")
    monkeypatch.setattr(sys.modules["vllm.third_party.flash_linear_attention"], "__path__", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, path)
    monkeypatch.setenv("SLUICE_VLLM", "1")
    with caplog.at_level("INFO", logger="sluice.engines"):
        assert not [place for place in vllm.register() if place.startswith(f"{path}.chunk")]
        assert path not in sys.modules
        module = importlib.import_module(path)
        rows, (o, _) = call_chunk(module.chunk_gated_delta_rule)
    assert f"vLLM operators replaced: {path}.chunk_gated_delta_rule" in caplog.text
    close(o[0], recurrence(*(t[0] for t in rows), l2=True)[0])
    vllm.unregister()
    assert call_chunk(module.chunk_gated_delta_rule)[1] == "engine"
    sys.modules.pop(path)


def test_vllm_that_never_imports_its_operators_keeps_them(monkeypatch):
    stub_vllm(monkeypatch)
    finders = list(sys.meta_path)
    monkeypatch.setenv("SLUICE_VLLM", "1")
    monkeypatch.delitem(sys.modules, "flashinfer.gdn_prefill")
    vllm.register()
    assert len(sys.meta_path) == len(finders) + 1
    assert vllm.register() == [], "loading twice changes nothing"
    vllm.unregister()
    assert sys.meta_path == finders


def test_lines_come_out_where_vllms_do(monkeypatch):
    """A vLLM server sets up the logger "vllm" and no other: an INFO line of ours would be lost."""
    stub_vllm(monkeypatch)
    monkeypatch.setenv("SLUICE_VLLM", "1")
    heard, listener = [], logging.Handler()
    listener.emit = lambda record: heard.append(record.getMessage())
    ours = logging.getLogger("sluice.engines")
    for logger, handlers in ((logging.getLogger(), []), (ours, []), (logging.getLogger("vllm"), [listener])):
        monkeypatch.setattr(logger, "handlers", handlers)
    monkeypatch.setattr(logging.getLogger("vllm"), "level", logging.INFO)
    for name in ("level", "propagate"):
        monkeypatch.setattr(ours, name, getattr(ours, name))
    vllm.register()
    vllm.register()
    assert [line for line in heard if line.startswith("vLLM operators replaced: ")] == heard[-1:]
    assert ours.handlers == [listener], "not added twice"


def test_vllm_gets_back_what_sluice_does_not_take(monkeypatch, caplog):
    model = stub_vllm(monkeypatch)
    monkeypatch.setenv("SLUICE_VLLM", "1")
    vllm.register()
    with caplog.at_level("INFO", logger="sluice.engines"):
        answer = model.causal_conv1d_fn(
            torch.randn(4, 3), torch.randn(4, 4), None, None, None, activation="gelu"
        )
    assert answer == "engine" and "handed back to the engine" in caplog.text
    with pytest.raises(TypeError):
        model.causal_conv1d_fn(nonsense=1)


@pytest.mark.parametrize("release", ["vllm", "vllm.v0_26"])
def test_vllm_gated_norms_are_replaced_where_layers_import_them(monkeypatch, release):
    stub_vllm(monkeypatch, release=release)
    monkeypatch.setenv("SLUICE_VLLM", "1")
    places = vllm.register()
    guard = sys.modules["vllm.third_party.flash_linear_attention.ops.layernorm_guard"]
    assert {f"{guard.__name__}.{name}" for name in ("layer_norm_fwd", "rmsnorm_fn")} <= set(places)
    assert "vllm.third_party.flash_linear_attention.ops.kda.rms_norm_gated" in places
    x, z, weight = torch.randn(3, HV, V), torch.randn(3, HV, V), torch.ones(V)
    norm = torch.nn.functional.rms_norm(x, (V,), eps=1e-6)
    close(guard.rmsnorm_fn(x, weight, None, z=z), norm * torch.nn.functional.silu(z))
    assert guard.rmsnorm_fn(x, weight, None, z=z, norm_before_gate=False) == "engine"


def test_vllm_of_an_earlier_release_has_its_own_forms(monkeypatch):
    model = stub_vllm(monkeypatch, release="vllm.v0_26")
    monkeypatch.setenv("SLUICE_VLLM", "1")
    places = vllm.register()
    kda = ("chunk_kda", "chunk_kda_with_fused_gate", "fused_recurrent_kda")
    expected = ("fla_chunk_gated_delta_rule", "fused_sigmoid_gating_delta_rule_update",
                "fused_recurrent_gated_delta_rule_packed_decode", "causal_conv1d_fn",
                "causal_conv1d_update", *kda)
    assert {f"{model.__name__}.{name}" for name in expected} <= set(places)
    rows, (o, _) = call_chunk(model.fla_chunk_gated_delta_rule)
    close(o[0], recurrence(*(t[0] for t in rows), l2=True)[0])
    # The convolution by its own keywords; with blocks of a prefix cache it is vLLM's again.
    states = torch.zeros(3, 4, 3)
    call = dict(activation="silu", conv_states=states, has_initial_state=torch.tensor([False]),
                cache_indices=torch.tensor([1], dtype=torch.int32), block_size_to_align=0,
                query_start_loc=torch.tensor([0, 5], dtype=torch.int32), metadata=None)
    x, weight = torch.randn(4, 5), torch.randn(4, 4)
    out = model.causal_conv1d_fn(x, weight, None, **call)
    padded = torch.nn.functional.pad(x, (3, 0))
    truth = torch.nn.functional.conv1d(padded[None], weight[:, None], groups=4)[0]
    close(out, torch.nn.functional.silu(truth))
    close(states[1], x[:, -3:])
    blocks = torch.zeros(1, dtype=torch.int32)
    assert model.causal_conv1d_fn(x, weight, None, initial_state_idx=blocks, **call) == "engine"
    step = model.causal_conv1d_update(x[:, 0][None], states, weight,
                                      conv_state_indices=torch.tensor([1], dtype=torch.int32))
    assert step.shape == (1, 4)
    gates = torch.randn(1, 5, HV, K)
    q, k = (torch.randn(1, 5, HV, K) for _ in range(2))
    o, state = model.chunk_kda_with_fused_gate(
        q=q, k=k, v=torch.randn(1, 5, HV, V), raw_g=gates, beta=torch.rand(1, 5, HV),
        A_log=torch.zeros(1, 1, HV, 1), g_bias=torch.zeros(HV * K), output_final_state=True,
        use_qk_l2norm_in_kernel=True, cu_seqlens=torch.tensor([0, 5], dtype=torch.int32))
    assert o.shape == (1, 5, HV, V) and state.shape == (1, HV, V, K)
    assert vllm_plugin.tally.ran["vllm.chunk_kda_with_fused_gate"] == 1


def test_vllm_of_another_signature_is_left_alone(monkeypatch, caplog):
    model = stub_vllm(monkeypatch, ("core_attn_out", "other_name"))
    monkeypatch.setenv("SLUICE_VLLM", "1")
    places = vllm.register()
    assert not [p for p in places if p.endswith("fla_chunk_gated_delta_rule")]
    assert [p for p in places if p.endswith("causal_conv1d_update")]
    assert "its signature is not vllm 0.33.0's or 0.26.0's" in caplog.text
    assert call_chunk(model.fla_chunk_gated_delta_rule)[1] == "engine"


def test_vllm_without_null_block_gets_the_cpu_operators_alone(monkeypatch, caplog):
    stub_vllm(monkeypatch, ("null_block_id", "pad_block_id"))
    monkeypatch.setenv("SLUICE_VLLM", "1")
    assert vllm.register() == [
        "vllm._custom_ops.chunk_gated_delta_rule_cpu",
        "vllm._custom_ops.fused_sigmoid_gating_delta_rule_update_cpu",
    ]
    assert "no null block" in caplog.text


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
    monkeypatch.setenv("SLUICE_SGLANG", "1")
    count = len(sglang_plugin.kTargets) + len(sglang_plugin.kMethods)
    assert len(sglang.register()) == count == len(hooks.hooks)
    hooks.apply_hooks()
    chunk = sys.modules["sglang.kernels.ops.attention.fla.chunk"].chunk_gated_delta_rule
    rows, (o, none, h) = call_chunk(chunk)
    assert none is None and h.shape == (1, 1, HV, V, K)
    close(o[0], recurrence(*(t[0] for t in rows), l2=True)[0])
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
    text = RECORDED["sglang"]["functions"][name]["parameters"]
    (tmp_path / "chunk.py").write_text(f"def {name}({text}): return 'engine'\n")
    monkeypatch.setattr(sys.modules["sglang.kernels.ops.attention.fla"], "__path__", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, path)
    monkeypatch.setenv("SLUICE_SGLANG", "1")
    assert f"{path}.{name}" not in sglang.register()
    hooks.apply_hooks()
    assert path not in sys.modules
    module = importlib.import_module(path)
    rows, (o, *_) = call_chunk(module.chunk_gated_delta_rule)
    sys.modules.pop(path)
    close(o[0], recurrence(*(t[0] for t in rows), l2=True)[0])


def test_lines_come_out_once_sglang_has_set_up_its_log(monkeypatch, caplog):
    """Its scheduler loads plug-ins before that."""
    hooks = stub_sglang(monkeypatch)
    monkeypatch.setenv("SLUICE_SGLANG", "1")
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
    monkeypatch.setenv("SLUICE_SGLANG", "1")
    count = len(sglang_plugin.kTargets) + len(sglang_plugin.kMethods)
    assert len(sglang.register()) == count - 1
    assert "not hooked" in caplog.text


def test_sglang_on_torch_2_11_has_a_function_elsewhere(monkeypatch):
    """0.5.17 keeps one operator in another module, without its last parameter."""
    stub_sglang(monkeypatch)
    monkeypatch.setenv("SLUICE_SGLANG", "1")
    name = "fused_sigmoid_gating_delta_rule_update"
    [(now, before)] = sglang_plugin.kEarlierHomes.items()
    monkeypatch.delattr(sys.modules[now], name)
    last = ", match_cutedsl_decode"
    parameters = RECORDED["sglang"]["functions"][name]["parameters"]
    assert parameters.rpartition(last)[1] == last
    space = {}
    exec(f"def {name}({parameters.rpartition(last)[0]}): return 'engine'", space)
    stub_module(monkeypatch, before, **{name: space[name]})
    assert f"{before}.{name}" in sglang.register()


def test_sglang_dispatcher_sends_calls_whatever_the_backend(monkeypatch):
    hooks = stub_sglang(monkeypatch)
    monkeypatch.setenv("SLUICE_SGLANG", "1")
    sglang.register()
    hooks.apply_hooks()
    chosen = sys.modules[sglang_plugin.kDispatcher].GDNKernelDispatcher()
    offsets = torch.tensor([0, 5, 9], dtype=torch.int32)
    slots = torch.tensor([3, 1], dtype=torch.int32)
    rows = [t.unsqueeze(0) for t in random_rows(9, H, HV, K, V, 1)]
    pool = torch.zeros(5, HV, V, K)
    call = dict(ssm_states=pool, cache_indices=slots, query_start_loc=offsets)
    o, none, _ = chosen.extend(*rows, **call, state_checkpoint_cu_starts=None, layer_id=3)
    for n, (begin, end) in enumerate([(0, 5), (5, 9)]):
        truth, state = recurrence(*(t[0, begin:end] for t in rows), l2=True)
        close(o[0, begin:end], truth)
        close(pool[slots[n]], state[-1].transpose(-1, -2))
    assert none is None and not pool[0].any()
    before = pool.clone()
    assert chosen.extend(*rows, **call, state_checkpoint_cu_starts=offsets) == "engine"
    assert torch.equal(pool, before)
    gates = dict(A_log=torch.zeros(HV), dt_bias=torch.zeros(HV))
    q, k, v = (t[:, :2] for t in rows[:3])
    a, b = torch.randn(2, HV), torch.randn(2, HV)
    step = dict(call, query_start_loc=torch.tensor([0, 1, 2], dtype=torch.int32))
    o = chosen.decode(q, k, v, a, b, **gates, **step)
    decoded = pool.clone()
    assert o.shape == (1, 2, HV, V) and not torch.equal(decoded, before)
    # The same from the convolution's output, on the states of before.
    pool.copy_(before)
    mixed = torch.cat([x[0].flatten(1) for x in (q, k, v)], dim=1)
    packed = chosen.packed_decode(mixed, a, b, **gates, scale=K**-0.5, ssm_states=pool,
                                  cache_indices=slots, num_v_heads=HV, head_v_dim=V)
    close(packed, o)
    close(pool, decoded)
    ring = chosen.packed_decode(mixed, a, b, **gates, scale=K**-0.5, ssm_states=pool,
                                cache_indices=slots, num_v_heads=HV, head_v_dim=V,
                                replayssm_d=torch.zeros(1))
    assert ring == "engine"
    # Two drafts of one sequence: its pool stays, the state of each goes to the buffer.
    buffer = torch.zeros(4, 2, HV, V, K)
    verify = dict(ssm_states=pool, cache_indices=slots[:1],
                  query_start_loc=torch.tensor([0, 2], dtype=torch.int32),
                  intermediate_states_buffer=buffer, cache_steps=2,
                  intermediate_state_indices=torch.tensor([2], dtype=torch.int32))
    out = chosen.target_verify(**gates, q=q, k=k, v=v, a=a, b=b, retrieve_parent_token=None,
                               **verify)
    assert out.shape == (1, 2, HV, V) and buffer[2].any() and not buffer[0].any()
    close(pool, decoded)
    tree = chosen.target_verify(**gates, q=q, k=k, v=v, a=a, b=b,
                                retrieve_parent_token=torch.ones(1), **verify)
    assert tree == "engine"
