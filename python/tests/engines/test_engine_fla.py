# SPDX-License-Identifier: Apache-2.0
"""Measures fla's functions as Sluice runs them, and Sluice as a backend of fla's dispatch.
Compares with the float64 recurrence; dispatch runs in a stub of fla's registry as of 0.6 and 0.5,
and in the installed fla where there is one."""

import importlib.util
import logging
import sys
import types

import pytest

torch = pytest.importorskip("torch")

import sluice
from engine_reference import (
    close,
    log_gate,
    random_rows,
    raw_gates,
    recurrence,
    relative_error,
)
from sluice.engines import fla

H, HV, K, V = 2, 4, 16, 24


def packed(*tensors):
    return [t.unsqueeze(0) for t in tensors]


def on_gpu():
    return torch.get_default_device().type == "cuda"


def rows_for_the_backend(tokens, seed):
    """Rows that the backend takes: on a GPU the generic kernel's are left to fla."""
    if on_gpu():
        return random_rows(tokens, H, HV, 128, 128, seed, torch.bfloat16)
    return random_rows(tokens, H, HV, K, V, seed)


def near(found, expected):
    """On a GPU, whose rows are bfloat16 there, by the cap of o and states (docs/math.md, 7)."""
    if on_gpu():
        assert relative_error(found, expected) <= 5e-3
    else:
        close(found, expected)


@pytest.mark.parametrize("name", ["chunk_gated_delta_rule", "fused_recurrent_gated_delta_rule"])
@pytest.mark.parametrize("v_first", [False, True])
def test_raw_gates_and_layouts(name, v_first):
    T = 9
    q, k, v, _, _ = random_rows(T, H, HV, K, V, 1)
    a, b, A_log, dt_bias = raw_gates(T, HV, 2)
    S0 = torch.randn(1, HV, K, V)
    o, final = getattr(fla, name)(
        *packed(q, k, v),
        g=a.unsqueeze(0),
        beta=b.unsqueeze(0),
        initial_state=S0.mT.contiguous() if v_first else S0,
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
        use_gate_in_kernel=True,
        A_log=A_log,
        dt_bias=dt_bias,
        use_beta_sigmoid_in_kernel=True,
        allow_neg_eigval=True,
        state_v_first=v_first,
    )
    g, beta = log_gate(a, A_log, dt_bias), 2 * b.double().sigmoid()
    expected, states = recurrence(q, k, v, g, beta, S=S0[0], l2=True)
    close(o[0], expected)
    close(final[0].mT if v_first else final[0], states[-1])


def test_no_bias_of_the_gate():
    q, k, v, _, beta = random_rows(5, H, HV, K, V, 3)
    a, _, A_log, _ = raw_gates(5, HV, 4)
    o, none = fla.chunk_gated_delta_rule(
        *packed(q, k / 8, v, a, beta), use_gate_in_kernel=True, A_log=A_log
    )
    assert none is None
    g = log_gate(a, A_log, torch.zeros(HV))
    close(o[0], recurrence(q, k / 8, v, g, beta)[0])


def test_refused_by_name():
    rows = packed(*random_rows(2, H, HV, K, V, 5))
    for name, value in (("cp_context", object()), ("head_first", True)):
        with pytest.raises(sluice.Unsupported, match=name):
            fla.chunk_gated_delta_rule(*rows, **{name: value})
    with pytest.raises(sluice.InvalidArgument, match="chunk_size"):
        fla.chunk_gated_delta_rule(*rows, chunk_size=128)
    for name in ("gk", "gv"):
        with pytest.raises(sluice.Unsupported, match=name):
            fla.fused_recurrent_gated_delta_rule(*rows[:3], **{name: rows[2]})


class StubRegistry:
    """fla's BackendRegistry, as far as an out-of-tree backend meets it."""

    def __init__(self):
        self._backends = {}

    def register(self, backend):
        self._backends[backend.backend_type] = backend

    def call(self, name, default, *args, **kwargs):
        """What fla's dispatch does for one call."""
        for backend in sorted(self._backends.values(), key=lambda b: b.priority):
            if not (backend.is_available() and backend.is_enabled()):
                continue
            if getattr(backend, f"{name}_verifier")(*args, **kwargs)[0]:
                return getattr(backend, name)(*args, **kwargs)
        return default(*args, **kwargs)


class StubBase:
    """fla's BaseBackend."""

    def is_available(self):
        return importlib.util.find_spec(self.package_name) is not None

    def is_enabled(self):
        import os

        return os.environ.get(self.env_var, "1") != "0"


def stub_modules(monkeypatch, version):
    """Stub modules of fla 0.6 or 0.5; returns (registry, the module with the operators)."""
    names = ["fla", "fla.ops", "fla.ops.gated_delta_rule", "fla.ops.gated_delta_rule.backends"]
    names += ["fla.layers", "fla.layers.gated_deltanet"]
    names += ["fla.modules", "fla.modules.convolution", "fla.modules.fused_norm_gate"]
    names.append("fla.backends" if version == "0.6" else "fla.ops.backends")
    modules = {name: types.ModuleType(name) for name in names}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(modules[parent], child, module)
    registry = StubRegistry()
    modules[names[-1]].BaseBackend = StubBase
    if version == "0.6":
        modules["fla.backends"]._get_operation_registry = lambda operation: registry
    else:
        modules["fla.ops.gated_delta_rule.backends"].gdr_registry = registry

    def fused_recurrent_gated_delta_rule(*args, **kwargs):
        return "fla"

    rule = modules["fla.ops.gated_delta_rule"]
    rule.fused_recurrent_gated_delta_rule = fused_recurrent_gated_delta_rule
    layer = modules["fla.layers.gated_deltanet"]
    layer.fused_recurrent_gated_delta_rule = fused_recurrent_gated_delta_rule

    def causal_conv1d(*args, **kwargs):
        return "fla"

    def rms_norm_gated(*args, **kwargs):
        return "fla"

    modules["fla.modules.convolution"].causal_conv1d = layer.causal_conv1d = causal_conv1d
    modules["fla.modules.fused_norm_gate"].rms_norm_gated = rms_norm_gated
    return registry, modules


@pytest.fixture
def unregistered():
    yield
    fla.unregister()


@pytest.mark.parametrize("version", ["0.6", "0.5"])
def test_backend_in_a_stub_of_fla(monkeypatch, unregistered, caplog, version):
    registry, modules = stub_modules(monkeypatch, version)
    monkeypatch.delenv("FLA_SLUICE", raising=False)
    rows = packed(*rows_for_the_backend(5, 6))
    with caplog.at_level(logging.INFO, logger="sluice.engines"):
        assert fla.register() is True and fla.register() is True
    assert "fla backend registered" in caplog.text and "fla.layers" in caplog.text

    def call(*args, **kwargs):
        return registry.call("chunk_gated_delta_rule", lambda *a, **k: "fla", *args, **kwargs)

    o, _ = call(*rows, use_qk_l2norm_in_kernel=True)
    q, k, v, g, beta = (t[0] for t in rows)
    near(o[0], recurrence(q, k, v, g, beta, l2=True)[0])
    if on_gpu():
        assert call(*packed(*random_rows(5, H, HV, K, V, 6))) == "fla"
    needs_gradient = [rows[0].clone().requires_grad_(), *rows[1:]]
    o, _ = call(*needs_gradient, use_qk_l2norm_in_kernel=True)
    o.float().sum().backward()
    assert needs_gradient[0].grad.abs().max() > 0
    assert call(*rows, cp_context=object()) == "fla"
    assert call(rows[0].to(torch.float64), *rows[1:]) == "fla"

    layer = modules["fla.layers.gated_deltanet"]
    o, _ = layer.fused_recurrent_gated_delta_rule(*rows[:3], g=rows[3], beta=rows[4])
    assert o.shape == rows[2].shape
    assert layer.fused_recurrent_gated_delta_rule(*rows[:3], gk=rows[0]) == "fla"
    monkeypatch.setenv("FLA_SLUICE", "0")
    assert call(*rows) == "fla"
    assert layer.fused_recurrent_gated_delta_rule(*rows[:3]) == "fla"
    fla.unregister()
    assert layer.fused_recurrent_gated_delta_rule.__name__ == "fused_recurrent_gated_delta_rule"
    assert not registry._backends


def test_layers_in_a_stub_of_fla(monkeypatch, unregistered):
    _, modules = stub_modules(monkeypatch, "0.6")
    monkeypatch.delenv("FLA_SLUICE", raising=False)
    assert fla.register(decode=False)
    layer, norms = modules["fla.layers.gated_deltanet"], modules["fla.modules.fused_norm_gate"]
    assert layer.fused_recurrent_gated_delta_rule() == "fla"
    x, weight = torch.randn(2, 9, 8, requires_grad=True), torch.randn(8, 4)
    out, none = layer.causal_conv1d(x=x, weight=weight, activation="silu")
    out = norms.rms_norm_gated(x=out, g=x, weight=weight[:, 0], bias=None, activation="swish", eps=1e-5)
    out.sum().backward()
    assert none is None and x.grad.abs().max() > 0
    assert layer.causal_conv1d(x=x, weight=weight, residual=x) == "fla"
    assert norms.rms_norm_gated(x=out, g=x, weight=weight[:, 0], bias=None, prenorm=True) == "fla"
    reasons = [reason for _, reason in fla.backend.tally.handed_back]
    assert any("residual = tensor" in reason for reason in reasons)
    monkeypatch.setenv("FLA_SLUICE", "0")
    assert layer.causal_conv1d(x=x, weight=weight) == "fla"
    monkeypatch.delenv("FLA_SLUICE")
    fla.unregister()
    assert layer.causal_conv1d(x=x, weight=weight) == "fla"


def test_opt_out_before_registration(monkeypatch, unregistered):
    registry, _ = stub_modules(monkeypatch, "0.6")
    monkeypatch.setenv("FLA_SLUICE", "0")
    assert fla.register() is False and not registry._backends


def test_backend_in_the_installed_fla(monkeypatch, unregistered, caplog):
    pytest.importorskip("fla", reason="flash-linear-attention is not installed")
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    monkeypatch.delenv("FLA_SLUICE", raising=False)
    assert fla.register()
    q, k, v, g, beta = rows_for_the_backend(70, 7)
    with caplog.at_level(logging.INFO), torch.no_grad():
        o, final = chunk_gated_delta_rule(
            *packed(q, k, v, g, beta), use_qk_l2norm_in_kernel=True, output_final_state=True
        )
    assert "-> sluice" in caplog.text
    expected, states = recurrence(q, k, v, g, beta, l2=True)
    near(o[0], expected)
    near(final[0], states[-1])
    from fla.layers import gated_deltanet

    o, _ = gated_deltanet.fused_recurrent_gated_delta_rule(
        *packed(q[:3], k[:3], v[:3], g[:3]), beta=beta[None, :3], use_qk_l2norm_in_kernel=True
    )
    near(o[0], expected[:3])
