# SPDX-License-Identifier: Apache-2.0
"""Measures torch's bookkeeping: what a call writes gets its next version, so that autograd notices
that a saved tensor was changed; and views whose sign is not in memory are refused."""

import numpy as np
import pytest
from conftest import Inputs

torch = pytest.importorskip("torch", reason="torch is not installed: its tests are skipped")

import sluice

B, T, H, HV, K, V, D, W = 2, 3, 1, 2, 8, 6, 12, 4


def rows():
    x = Inputs(B=B, T=T, H=H, HV=HV, K=K, V=V)
    return dict(zip(("q", "k", "v", "gate", "beta"), map(torch.from_numpy, x.arguments())))


def layer(tokens):
    width = 2 * H * K + HV * V
    return dict(
        qkv=torch.randn(B, tokens, width), z=torch.randn(B, tokens, HV * V),
        b=torch.randn(B, tokens, HV), a=torch.randn(B, tokens, HV),
        conv_weight=torch.randn(width, W), A_log=torch.zeros(HV), dt_bias=torch.zeros(HV),
        norm_weight=torch.ones(V), num_k_heads=H, num_v_heads=HV, head_k_dim=K, head_v_dim=V,
        conv_initial=torch.zeros(B, width, W - 1), initial_state=torch.zeros(B, HV, K, V),
        out=torch.empty(B, tokens, HV, V),
    )


def state(rank=4):
    return torch.zeros(B, HV, K, V) if rank == 4 else torch.zeros(B, D, W - 1)


def calls():
    """(operator, arguments, names of those that it writes)."""
    conv = dict(x=torch.randn(B, T, D), weight=torch.randn(D, W), out=torch.empty(B, T, D))
    trained = {name: t for name, t in layer(T).items() if name != "out"}
    step = dict(rows(), o=torch.empty(B, T, HV, V), initial_state=state())
    ring = dict(
        replay_k=torch.zeros(B, 16, H, K), replay_delta=torch.zeros(B, 16, HV, V),
        replay_decay=torch.zeros(B, 16, HV), replay_position=torch.zeros(B, dtype=torch.int32),
        replay_checkpoint=torch.zeros(B, dtype=torch.int32),
        replay_next_checkpoint=torch.zeros(B, dtype=torch.int32),
    )
    ringed = ["o", "initial_state", *(n for n in ring if n[7:] not in ("position", "checkpoint"))]
    x = rows()
    gate = x["gate"]
    return [
        ("chunk_forward", dict(step, final_state=state()), ["o", "final_state"]),
        ("recurrent_step", dict(step), ["o", "initial_state"]),
        ("recurrent_step", dict(step, final_state=state()), ["o", "final_state"]),
        ("recurrent_step", dict(step, state_writes="none"), ["o"]),
        ("recurrent_step", dict(step, qk_norm="l2", **ring), ringed),
        ("causal_conv1d", dict(conv, initial_state=state(3), final_state=state(3)),
         ["out", "final_state"]),
        ("gated_rms_norm", dict(x=conv["x"], z=torch.randn(B, T, D), weight=torch.ones(D),
                                out=conv["out"]), ["out"]),
        ("layer_prefill", dict(layer(T), final_state=state()), ["out", "final_state"]),
        ("layer_decode", layer(T), ["out", "conv_initial", "initial_state"]),
        ("layer_decode", dict(layer(T), state_writes="none"), ["out"]),
        ("chunk_stage", dict(stage="chunk_cumsum", gate=gate, g_cumsum=gate.clone()), ["g_cumsum"]),
        ("chunk_backward", dict(x, d_o=torch.randn(B, T, HV, V), dq=x["q"].clone(),
                                dgate=gate.clone()), ["dq", "dgate"]),
        ("chunk_summary", dict(k=x["k"], v=x["v"], addend=state()), ["addend"]),
        ("state_fold", dict(transition=torch.zeros(1, HV, K, K), addend=torch.zeros(1, HV, K, V),
                            cu_chains=torch.tensor([0, 1]), route_pieces=torch.tensor([0]),
                            route_states=torch.tensor([0]), entering=state()), ["entering"]),
        ("causal_conv1d_backward", dict(x=conv["x"], weight=conv["weight"], d_out=torch.ones(B, T, D),
                                        dx=conv["out"], dweight=torch.empty(D, W)),
         ["dx", "dweight"]),
        ("gated_rms_norm_backward", dict(x=conv["x"], z=torch.randn(B, T, D), weight=torch.ones(D),
                                         d_out=torch.ones(B, T, D), dz=conv["out"]), ["dz"]),
        ("layer_backward", dict(trained, d_out=torch.ones(B, T, HV, V), da=torch.empty(B, T, HV)), ["da"]),
    ]


def test_every_operator_is_here():
    assert {op for op, _, _ in calls()} == set(sluice.ops.__all__)


@pytest.mark.parametrize("number", range(len(calls())))
def test_what_is_written_has_its_next_version(number):
    op, arguments, written = calls()[number]
    before = {n: t._version for n, t in arguments.items() if isinstance(t, torch.Tensor)}
    getattr(sluice.ops, op)(**arguments)
    changed = [n for n, version in before.items() if arguments[n]._version != version]
    assert sorted(changed) == sorted(written)
    with torch.no_grad():  # where nothing is saved, nothing is paid
        getattr(sluice.ops, op)(**arguments)


def test_functions_that_update_pools():
    x, pool, columns = rows(), state(), state(3)
    sluice.fused_recurrent_gated_delta_rule(x["q"], x["k"], x["v"], initial_state=pool, final_state=pool)
    sluice.chunk_gated_delta_rule(x["q"], x["k"], x["v"], initial_state=pool, final_state=pool)
    sluice.chunk_simple_gla(x["q"], x["k"], x["v"], initial_state=pool, final_state=pool)
    assert pool._version == 3
    sluice.causal_conv1d_update(torch.randn(B, D), columns, torch.randn(D, W))
    assert columns._version == 1
    once = layer(1)
    columns, pool = once.pop("conv_initial"), once.pop("initial_state")
    sluice.gdn_layer_decode(**once, conv_state=columns, state=pool)
    assert pool._version == 1 and columns._version == 1


def test_a_saved_tensor_that_was_overwritten_raises():
    x = rows()
    weight = torch.randn(B, T, HV, V, requires_grad=True)
    o = torch.zeros(B, T, HV, V)
    loss = (o * weight).sum()
    sluice.ops.chunk_forward(x["q"], x["k"], x["v"], o=o)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_where_gradients_are_recorded_too():
    x = rows()
    x["q"].requires_grad_()
    o, final = torch.zeros(B, T, HV, V), state()
    sluice.ops.chunk_forward(**x, o=o, final_state=final)
    assert o.requires_grad and o._version == 1 and final._version == 1
    loss = (o * o).sum()
    sluice.ops.chunk_forward(*(x[n].detach() for n in "qkv"), o=o.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_by_the_dispatcher():
    x, pool = rows(), state()
    o = torch.empty(B, T, HV, V)
    torch.ops.sluice.recurrent_step_(**x, o=o, initial_state=pool)
    assert o._version == 1 and pool._version == 1 and x["q"]._version == 0
    torch.ops.sluice.chunk_forward(**x, o=o, initial_state=pool)
    assert o._version == 2 and pool._version == 1


def test_tensors_of_inference_mode_and_arrays_have_no_version():
    x = rows()
    with torch.inference_mode():
        o, pool = torch.empty(B, T, HV, V), state()
    final = state()
    sluice.ops.chunk_forward(**x, o=o, initial_state=pool, final_state=final)
    assert final._version >= 1
    out = np.empty((B, T, HV, V), np.float32)
    sluice.ops.chunk_forward(**x, o=out)
    assert np.array_equal(out, o.numpy())


@pytest.mark.parametrize("name", ["q", "k", "v", "gate", "beta", "o", "initial_state"])
def test_a_lazily_negated_view_is_refused(name):
    x = dict(rows(), o=torch.empty(B, T, HV, V), initial_state=state())
    expected = x[name].clone()
    message = rf"chunk_forward: {name}.is_neg\(\) = True, expected False .*pass {name}.resolve_neg"
    with pytest.raises(sluice.Unsupported, match=message):
        sluice.ops.chunk_forward(**dict(x, **{name: torch._neg_view(x[name])}))
    assert torch.equal(x[name], expected)
    result = sluice.ops.chunk_forward(**dict(x, **{name: torch._neg_view(-x[name]).resolve_neg()}))
    assert torch.equal(result, sluice.ops.chunk_forward(**dict(x, o=None)))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_an_imaginary_part_of_a_conjugate_is_refused_without_gradients_too(mode):
    x = rows()
    beta = torch.complex(x["beta"], x["beta"]).conj().imag
    with mode(), pytest.raises(sluice.Unsupported, match=r"beta.is_neg\(\) = True"):
        sluice.ops.chunk_forward(**dict(x, beta=beta))
    with mode(), pytest.raises(sluice.Unsupported, match=r"beta.is_neg\(\) = True"):
        sluice.ops.chunk_forward(**dict(x, beta=beta[:, :, :1].expand_as(beta)))
    even = torch.complex(x["beta"], x["beta"]).imag
    with mode():
        assert torch.equal(sluice.ops.chunk_forward(**dict(x, beta=even)), sluice.ops.chunk_forward(**x))


def test_a_conjugate_is_refused_by_its_type():
    x = rows()
    with pytest.raises((sluice.Error, RuntimeError), match="v"):
        sluice.ops.chunk_forward(**dict(x, v=torch.complex(x["v"], x["v"]).conj()))
