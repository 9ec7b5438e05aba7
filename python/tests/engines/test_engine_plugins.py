# SPDX-License-Identifier: Apache-2.0
"""Measures the vLLM plug-in: what it replaces, what it leaves, what it hands back; and both entry points.
Runs register() in stub modules with the paths and signatures of vllm 0.33.0 and 0.26.0."""

import importlib
import logging
import pathlib
import sys
import tomllib

import pytest

torch = pytest.importorskip("torch")

from engine_reference import L2, Rows, check_convolution, check_sequences, close, gated_norm, int32
from engine_stubs import HV, RECORDED, H, K, V, call_chunk, stub_function, stub_module, unimport
from sluice.engines import sglang, vllm
from sluice.engines.vllm import plugin as vllm_plugin


def stub_vllm(monkeypatch, change=("", ""), release="vllm"):
    """A release's modules, and Sluice switched on; returns the model's module, which imported its operators by name."""
    monkeypatch.setenv("SLUICE_VLLM", "1")
    model = stub_module(monkeypatch, "vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn")
    for path, ours in vllm_plugin.kTargets + vllm_plugin.kCpuTargets:
        name, engine = ours.__name__, path.partition(".")[0].replace("vllm", release)
        if "kimi" in path:
            engine = f"{engine}.kimi"
        if engine not in RECORDED or name not in RECORDED[engine]["functions"]:
            continue
        function = stub_function(engine, name, change)
        stub_module(monkeypatch, path, **{name: function})
        if path.startswith("vllm") and (path, ours) not in vllm_plugin.kCpuTargets:
            setattr(model, "fla_" + name if name == "chunk_gated_delta_rule" else name, function)
    return model


@pytest.fixture(autouse=True)
def restored():
    yield
    vllm.unregister()


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
    before = dict(vars(model))
    with caplog.at_level("INFO", logger="sluice.engines"):
        places = vllm.register()
        expected, (o, final) = call_chunk(model.fla_chunk_gated_delta_rule)
    assert vllm.register() == [], "loading twice changes nothing"
    assert f"{model.__name__}.fla_chunk_gated_delta_rule" in places
    assert "flashinfer.gdn_prefill.chunk_gated_delta_rule" in places
    assert final is None
    close(o[0], expected)
    assert "vllm.chunk_gated_delta_rule runs on Sluice" in caplog.text
    vllm.unregister()
    assert dict(vars(model)) == before


def test_vllm_operators_are_replaced_when_vllm_imports_them(monkeypatch, tmp_path, caplog):
    """Importing vLLM's kernels makes a CUDA context, which its API server does without."""
    stub_vllm(monkeypatch)
    path = "vllm.third_party.flash_linear_attention.ops"
    unimport(monkeypatch, tmp_path, path, "vllm", "chunk_gated_delta_rule")
    with caplog.at_level("INFO", logger="sluice.engines"):
        assert not [place for place in vllm.register() if place.startswith(f"{path}.chunk")]
        assert path not in sys.modules
        module = importlib.import_module(path)
        expected, (o, _) = call_chunk(module.chunk_gated_delta_rule)
    assert f"vLLM operators replaced: {path}.chunk_gated_delta_rule" in caplog.text
    close(o[0], expected)
    vllm.unregister()
    assert call_chunk(module.chunk_gated_delta_rule)[1] == "engine"
    sys.modules.pop(path)


def test_vllm_that_never_imports_its_operators_keeps_them(monkeypatch):
    stub_vllm(monkeypatch)
    finders = list(sys.meta_path)
    monkeypatch.delitem(sys.modules, "flashinfer.gdn_prefill")
    vllm.register()
    assert len(sys.meta_path) == len(finders) + 1
    assert vllm.register() == [], "loading twice changes nothing"
    vllm.unregister()
    assert sys.meta_path == finders


def test_lines_come_out_where_vllms_do(monkeypatch):
    """A vLLM server sets up the logger "vllm" and no other: an INFO line of ours would be lost."""
    stub_vllm(monkeypatch)
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
    places = vllm.register()
    guard = sys.modules["vllm.third_party.flash_linear_attention.ops.layernorm_guard"]
    assert {f"{guard.__name__}.{name}" for name in ("layer_norm_fwd", "rmsnorm_fn")} <= set(places)
    assert "vllm.third_party.flash_linear_attention.ops.kda.rms_norm_gated" in places
    x, z, weight = torch.randn(3, HV, V), torch.randn(3, HV, V), torch.ones(V)
    close(guard.rmsnorm_fn(x, weight, None, z=z), gated_norm(x, z, weight, 1e-6))
    assert guard.rmsnorm_fn(x, weight, None, z=z, norm_before_gate=False) == "engine"


def test_vllm_of_an_earlier_release_has_its_own_forms(monkeypatch):
    model = stub_vllm(monkeypatch, release="vllm.v0_26")
    places = vllm.register()
    kda = ("chunk_kda", "chunk_kda_with_fused_gate", "fused_recurrent_kda")
    expected = ("fla_chunk_gated_delta_rule", "fused_sigmoid_gating_delta_rule_update",
                "fused_recurrent_gated_delta_rule_packed_decode", "causal_conv1d_fn",
                "causal_conv1d_update", *kda)
    assert {f"{model.__name__}.{name}" for name in expected} <= set(places)
    expected_o, (o, _) = call_chunk(model.fla_chunk_gated_delta_rule)
    close(o[0], expected_o)
    # The convolution by its own keywords; with blocks of a prefix cache it is vLLM's again.
    states = torch.zeros(3, 4, 3)
    call = dict(activation="silu", conv_states=states, has_initial_state=torch.tensor([False]), metadata=None,
                cache_indices=int32(1), block_size_to_align=0, query_start_loc=int32(0, 5))
    x, weight = torch.randn(4, 5), torch.randn(4, 4)
    out = model.causal_conv1d_fn(x, weight, None, **call)
    check_convolution(x, weight, None, (0, 5), out, torch.zeros(3, 4, 3), states, [1])
    assert model.causal_conv1d_fn(x, weight, None, initial_state_idx=int32(0), **call) == "engine"
    step = model.causal_conv1d_update(x[:, 0][None], states, weight, conv_state_indices=int32(1))
    assert step.shape == (1, 4)
    rows = Rows(5, H, HV, K, V, 2, raw=True, keys=True)
    q, k, v, a, _ = rows.packed()
    o, state = model.chunk_kda_with_fused_gate(
        q=q, k=k, v=v, raw_g=a, beta=rows.beta.float()[None], A_log=rows.A_log.view(1, 1, HV, 1), g_bias=rows.dt_bias,
        output_final_state=True, cu_seqlens=int32(0, 5), **L2)
    check_sequences(rows, (0, 5), o[0], torch.zeros(1, HV, V, K), state, [0])
    assert vllm_plugin.tally.ran["vllm.chunk_kda_with_fused_gate"] == 1


def test_vllm_of_another_signature_is_left_alone(monkeypatch, caplog):
    model = stub_vllm(monkeypatch, ("core_attn_out", "other_name"))
    places = vllm.register()
    assert not [p for p in places if p.endswith("fla_chunk_gated_delta_rule")]
    assert [p for p in places if p.endswith("causal_conv1d_update")]
    assert "its signature is not vllm 0.33.0's or 0.26.0's" in caplog.text
    assert call_chunk(model.fla_chunk_gated_delta_rule)[1] == "engine"


def test_vllm_without_null_block_gets_the_cpu_operators_alone(monkeypatch, caplog):
    stub_vllm(monkeypatch, ("null_block_id", "pad_block_id"))
    assert vllm.register() == [
        "vllm._custom_ops.chunk_gated_delta_rule_cpu",
        "vllm._custom_ops.fused_sigmoid_gating_delta_rule_update_cpu",
    ]
    assert "no null block" in caplog.text
