# SPDX-License-Identifier: Apache-2.0
"""Measures torch's bookkeeping: what a call writes gets its next version, so that autograd notices
that a saved tensor was changed; and views whose sign is not in memory are refused."""

import numpy as np
import pytest
from conftest import Inputs
from operator_scenes import as_tensors, layer_inputs, scenes

torch = pytest.importorskip("torch", reason="torch is not installed: its tests are skipped")

import sluice

B, T, H, HV, K, V, D, W = 2, 3, 1, 2, 8, 6, 12, 4
SCENES = scenes()


def rows():
    x = Inputs(B=B, T=T, H=H, HV=HV, K=K, V=V)
    return dict(zip(("q", "k", "v", "gate", "beta"), map(torch.from_numpy, x.arguments())))


def state():
    return torch.zeros(B, HV, K, V)


@pytest.mark.parametrize("op, written, arguments", [s[1:] for s in SCENES], ids=[s[0] for s in SCENES])
def test_what_is_written_has_its_next_version(op, written, arguments):
    given = as_tensors(arguments)
    before = {n: t._version for n, t in given.items() if isinstance(t, torch.Tensor)}
    getattr(sluice.ops, op)(**given)
    changed = [n for n, version in before.items() if given[n]._version != version]
    assert sorted(changed) == sorted(written)
    with torch.no_grad():  # where nothing is saved, nothing is paid
        getattr(sluice.ops, op)(**given)


def test_functions_that_update_pools():
    x, pool, columns = rows(), state(), torch.zeros(B, D, W - 1)
    sluice.fused_recurrent_gated_delta_rule(x["q"], x["k"], x["v"], initial_state=pool, final_state=pool)
    sluice.chunk_gated_delta_rule(x["q"], x["k"], x["v"], initial_state=pool, final_state=pool)
    sluice.chunk_simple_gla(x["q"], x["k"], x["v"], initial_state=pool, final_state=pool)
    assert pool._version == 3
    sluice.causal_conv1d_update(torch.randn(B, D), columns, torch.randn(D, W))
    assert columns._version == 1
    inputs = as_tensors(layer_inputs(B=B, T=1, H=H, HV=HV, K=K, V=V))
    columns, pool = torch.zeros(B, 2 * H * K + HV * V, W - 1), state()
    sluice.gdn_layer_decode(**inputs, conv_state=columns, state=pool)
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
