# SPDX-License-Identifier: Apache-2.0
"""Measures fla's functions as Sluice runs them, and Sluice as a backend of fla's dispatch.
Compares with the float64 recurrence; dispatch runs in a stub of fla's registry as of 0.6 and 0.5,
and in the installed fla where there is one."""

import functools
import importlib.util
import logging
import os
import sys

import pytest

torch = pytest.importorskip("torch")

import sluice
from engine_reference import L2, Rows, check_sequences, close, log_gate, relative_error
from engine_stubs import stub_module
from sluice.engines import fla

H, HV, K, V = 2, 4, 16, 24
RAW, KEYS = dict(raw=True), dict(raw=True, keys=True)
BOUNDED = dict(KEYS, bound=-5.0)


def rows_of(tokens, seed, **made):
    return Rows(tokens, H, HV, K, V, seed, **made)


def on_gpu():
    return torch.get_default_device().type == "cuda"


def rows_for_the_backend(tokens, seed, keys=False):
    """Rows that the backend takes: on a GPU the generic kernel's are left to fla."""
    if on_gpu():
        return Rows(tokens, H, HV, 128, 128, seed, keys=keys, dtype=torch.bfloat16)
    return rows_of(tokens, seed, keys=keys)


def near(found, expected):
    """On a GPU, whose rows are bfloat16 there, by the cap of o and states (docs/math.md, 7)."""
    if on_gpu():
        assert relative_error(found, expected) <= 5e-3
    else:
        close(found, expected)


@pytest.mark.parametrize("name, made", [
    ("chunk_gated_delta_rule", RAW),
    ("fused_recurrent_gated_delta_rule", RAW),
    ("chunk_kda", KEYS),
    ("chunk_kda", BOUNDED),
    ("fused_recurrent_kda", KEYS),
    ("fused_recurrent_kda", BOUNDED),
])
@pytest.mark.parametrize("v_first", [False, True])
def test_raw_gates_and_layouts(name, made, v_first):
    rows, S0 = rows_of(9, 1, **made), torch.randn(1, HV, V, K)
    rows.beta = 2 * rows.beta
    *given, a, b = rows.packed()
    o, final = getattr(fla, name)(
        *given,
        g=a,
        beta=b,
        initial_state=S0 if v_first else S0.mT.contiguous(),
        output_final_state=True,
        use_gate_in_kernel=True,
        A_log=rows.A_log,
        dt_bias=rows.dt_bias,
        use_beta_sigmoid_in_kernel=True,
        allow_neg_eigval=True,
        state_v_first=v_first,
        **({"lower_bound": rows.bound} if "kda" in name else {}),
        **L2,
    )
    check_sequences(rows, [0, 9], o[0], S0, final if v_first else final.mT, [0])


@pytest.mark.parametrize("bound", [None, -5.0])
def test_gate_of_kda(bound):
    rows = rows_of(9, 2, **KEYS, bound=bound)
    gate = sluice.fused_kda_gate(rows.a, rows.A_log, rows.dt_bias, bound, output_dtype=torch.float32)
    close(gate, rows.g)


def test_no_bias_of_the_gate():
    rows = rows_of(5, 3, raw=True)
    rows.k, rows.g, rows.beta = rows.k / 8, log_gate(rows.a, rows.A_log, torch.zeros(HV)), rows.b.sigmoid()
    q, k, v, a, _ = rows.packed()
    o, none = fla.chunk_gated_delta_rule(q, k, v, a, rows.beta[None], use_gate_in_kernel=True, A_log=rows.A_log)
    assert none is None
    close(o[0], rows.truth(l2=False)[0])


def test_gla():
    q, k, v, g, _ = rows_of(70, 3, keys=True).packed()
    o, final = fla.chunk_gla(q, k, v, g, output_final_state=True)
    expected, state = sluice.fused_recurrent_gla(q, k, v, g, output_final_state=True)
    close(o, expected)
    close(final, state)


def test_refused_by_name():
    rows = rows_of(2, 5).packed()
    for name, value in (("cp_context", object()), ("head_first", True)):
        with pytest.raises(sluice.Unsupported, match=name):
            fla.chunk_gated_delta_rule(*rows, **{name: value})
    with pytest.raises(sluice.InvalidArgument, match="chunk_size"):
        fla.chunk_gated_delta_rule(*rows, chunk_size=128)
    for name in ("gk", "gv"):
        with pytest.raises(sluice.Unsupported, match=name):
            fla.fused_recurrent_gated_delta_rule(*rows[:3], **{name: rows[2]})


def test_kda_refuses_by_name():
    rows = rows_of(2, 4, keys=True).packed()
    with pytest.raises(sluice.Unsupported, match="fla.chunk_kda: cp_context = "):
        fla.chunk_kda(*rows, cp_context=object())
    wide = rows[4].unsqueeze(3).expand(1, 2, HV, V)
    with pytest.raises(sluice.InvalidArgument, match="fla.fused_recurrent_kda: beta = "):
        fla.fused_recurrent_kda(*rows[:4], wide)
    with pytest.raises(sluice.InvalidArgument, match="transpose_state_layout"):
        fla.chunk_kda(*rows, state_v_first=True, transpose_state_layout=True)
    with pytest.warns(DeprecationWarning, match="renamed to state_v_first"):
        fla.chunk_kda(*rows, transpose_state_layout=True)


class StubRegistry:
    """fla's BackendRegistry, as far as an out-of-tree backend meets it."""

    def __init__(self):
        self._backends = {}

    def register(self, backend):
        self._backends[backend.backend_type] = backend

    def call(self, name, *args, **kwargs):
        """What fla's dispatch does for one call; fla's own function says "fla"."""
        for backend in sorted(self._backends.values(), key=lambda b: b.priority):
            if not (backend.is_available() and backend.is_enabled()):
                continue
            if getattr(backend, f"{name}_verifier")(*args, **kwargs)[0]:
                return getattr(backend, name)(*args, **kwargs)
        return "fla"


class StubBase:
    """fla's BaseBackend."""

    def is_available(self):
        return importlib.util.find_spec(self.package_name) is not None

    def is_enabled(self):
        return os.environ.get(self.env_var, "1") != "0"


def stub_fla(monkeypatch, version, kda=False):
    """Stub modules of fla 0.6 or 0.5; returns its registries, of the gated delta rule and of KDA."""
    monkeypatch.delenv("FLA_SLUICE", raising=False)
    homes = {"fused_recurrent_gated_delta_rule": "fla.ops.gated_delta_rule",
             "causal_conv1d": "fla.modules.convolution", "rms_norm_gated": "fla.modules.fused_norm_gate"}
    layers = {"fla.layers.gated_deltanet": ("fused_recurrent_gated_delta_rule", "causal_conv1d")}
    if kda:
        homes |= {"chunk_kda": "fla.ops.kda", "fused_recurrent_kda": "fla.ops.kda"}
        layers["fla.layers.kda"] = ("fused_recurrent_kda",)
    functions = {name: lambda *_, **__: "fla" for name in homes}
    for name, home in homes.items():
        stub_module(monkeypatch, home, **{name: functions[name]})
    for layer, names in layers.items():
        stub_module(monkeypatch, layer, **{name: functions[name] for name in names})
    rule_registry, kda_registry = StubRegistry(), StubRegistry()
    if version == "0.6":
        stub_module(monkeypatch, "fla.ops.gated_delta_rule.backends")
        stub_module(monkeypatch, "fla.backends", BaseBackend=StubBase,
                    _get_operation_registry=lambda operation: rule_registry,
                    _function_registries={functions.get("chunk_kda"): kda_registry})
    else:
        stub_module(monkeypatch, "fla.ops.backends", BaseBackend=StubBase)
        stub_module(monkeypatch, "fla.ops.gated_delta_rule.backends", gdr_registry=rule_registry)
        if kda:
            stub_module(monkeypatch, "fla.ops.kda.backends", kda_registry=kda_registry)
    return rule_registry, kda_registry


@pytest.fixture
def unregistered():
    yield
    fla.unregister()


@pytest.mark.parametrize("version", ["0.6", "0.5"])
@pytest.mark.parametrize("rule", ["gated_delta_rule", "kda"])
def test_backend_in_a_stub_of_fla(monkeypatch, unregistered, caplog, rule, version):
    keys = rule == "kda"
    registry = stub_fla(monkeypatch, version, keys)[keys]
    layer = sys.modules["fla.layers.kda" if keys else "fla.layers.gated_deltanet"]
    theirs = getattr(layer, f"fused_recurrent_{rule}")
    with caplog.at_level(logging.INFO, logger="sluice.engines"):
        assert fla.register() is True and fla.register() is True
    assert "fla backend registered" in caplog.text and "fla.layers" in caplog.text
    assert isinstance(registry._backends["sluice"], StubBase)
    given = rows_for_the_backend(5, 6, keys)
    rows, call = given.packed(), functools.partial(registry.call, f"chunk_{rule}")

    near(call(*rows, **L2)[0][0], given.truth()[0])
    if on_gpu() and not keys:
        assert call(*rows_of(5, 6).packed()) == "fla"
    needs_gradient = [rows[0].clone().requires_grad_(), *rows[1:]]
    # On a GPU gradients of key-wise gates have no kernel on tensor cores.
    if on_gpu() and keys:
        assert call(*needs_gradient) == "fla"
    else:
        call(*needs_gradient, **L2)[0].float().sum().backward()
        assert needs_gradient[0].grad.abs().max() > 0
    assert call(*rows, cp_context=object()) == "fla"
    assert call(rows[0].to(torch.float64), *rows[1:]) == "fla"

    decode = getattr(layer, f"fused_recurrent_{rule}")
    o, _ = decode(*rows[:3], g=rows[3], beta=rows[4])
    assert o.shape == rows[2].shape
    wide = rows[4].unsqueeze(3).expand(*rows[4].shape, rows[2].shape[-1])
    assert decode(*rows[:3], **(dict(g=rows[3], beta=wide) if keys else dict(gk=rows[0]))) == "fla"
    monkeypatch.setenv("FLA_SLUICE", "0")
    assert call(*rows) == "fla"
    assert decode(*rows) == "fla"
    fla.unregister()
    assert getattr(layer, f"fused_recurrent_{rule}") is theirs and not registry._backends


def test_backend_of_raw_gates_in_a_stub_of_fla(monkeypatch, unregistered):
    _, registry = stub_fla(monkeypatch, "0.6", kda=True)
    fla.register()
    given, call = rows_for_the_backend(5, 5, keys=True), functools.partial(registry.call, "chunk_kda")
    rows, a, A_log = given.packed(), torch.randn(given.g.shape), torch.randn(HV)
    given.g = log_gate(a, A_log, torch.zeros(given.g[0].numel()), -5.0)
    raw = dict(use_gate_in_kernel=True, lower_bound=-5.0, A_log=A_log, safe_gate=True, **L2)
    near(call(*rows[:3], a[None], rows[4], **raw)[0][0], given.truth()[0])
    assert call(*rows, use_gate_in_kernel=True) == "fla", "no A_log"


def test_layers_in_a_stub_of_fla(monkeypatch, unregistered):
    stub_fla(monkeypatch, "0.6")
    assert fla.register(decode=False)
    layer, norms = sys.modules["fla.layers.gated_deltanet"], sys.modules["fla.modules.fused_norm_gate"]
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
    registry, _ = stub_fla(monkeypatch, "0.6")
    monkeypatch.setenv("FLA_SLUICE", "0")
    assert fla.register() is False and not registry._backends


def test_backend_in_the_installed_fla(monkeypatch, unregistered, caplog):
    pytest.importorskip("fla", reason="flash-linear-attention is not installed")
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    monkeypatch.delenv("FLA_SLUICE", raising=False)
    assert fla.register()
    rows = rows_for_the_backend(70, 7)
    with caplog.at_level(logging.INFO), torch.no_grad():
        o, final = chunk_gated_delta_rule(*rows.packed(), output_final_state=True, **L2)
    assert "-> sluice" in caplog.text
    expected, states = rows.truth()
    near(o[0], expected)
    near(final[0], states[-1])
    from fla.layers import gated_deltanet

    *given, beta = (x[:, :3] for x in rows.packed())
    o, _ = gated_deltanet.fused_recurrent_gated_delta_rule(*given, beta=beta, **L2)
    near(o[0], expected[:3])
