# SPDX-License-Identifier: Apache-2.0
"""Measures the package on torch tensors: eager, under torch.compile, in inference mode, by opcheck; test_cuda.py has
those on a GPU. Results are compared with NumPy's of the same values, bit for bit. And torch's bookkeeping: what a call
writes gets its next version, so that autograd notices that a saved tensor was changed; views whose sign is not in
memory are refused."""

import numpy as np
import pytest
from conftest import Inputs, delta_rule, error

torch = pytest.importorskip("torch", reason="torch is not installed: its tests are skipped")

import sluice
from fla_functions import chunk, steps
from operator_scenes import as_tensors, layer_inputs, scenes

SCENES = scenes()


def tensors(x):
    return [torch.from_numpy(a.copy()) for a in x.arguments()]


def test_same_bits_as_numpy(inputs):
    o, s = chunk(tensors(inputs), initial_state=torch.from_numpy(inputs.state), output_final_state=True)
    expected_o, expected_s = chunk(inputs.arguments(), initial_state=inputs.state, output_final_state=True)
    assert type(o) is torch.Tensor
    assert np.array_equal(o.numpy(), expected_o) and np.array_equal(s.numpy(), expected_s)


def test_strided_views_and_bfloat16(inputs):
    rows = [x.bfloat16() for x in tensors(inputs)]
    head_first = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in rows]
    o, _ = chunk(rows)
    assert o.dtype == torch.bfloat16 and o.is_contiguous()
    assert torch.equal(chunk(head_first)[0], o)
    expected, _ = delta_rule(*[x.float().numpy() for x in rows], l2=True)
    assert error(o.float().numpy(), expected) < 8e-3


def test_gradient_is_refused_and_parameters_without_it_are_not(inputs):
    q, *rest = tensors(inputs)
    weight = torch.nn.Parameter(q)
    with pytest.raises(sluice.Unsupported, match="q.requires_grad = True, expected .* no backward"):
        sluice.ops.recurrent_step(weight[:, :3], *(x[:, :3] for x in rest), state_writes="none")
    with torch.no_grad():
        o, _ = chunk((weight, *rest))
    assert torch.equal(o, chunk((q, *rest))[0])
    with torch.inference_mode():
        assert torch.equal(o, chunk((weight, *rest))[0])
    with pytest.raises(sluice.Unsupported, match="q.requires_grad = True"):
        torch.ops.sluice.chunk_forward(q=weight, k=rest[0], v=rest[1], o=torch.empty_like(rest[1]))


def prefill(q, k, v, g, beta, state):
    return chunk((q * 1.0, k, v, g, beta), initial_state=state, output_final_state=True)


def decode(q, k, v, g, beta, state):
    o, _ = steps((q, k, v, g, beta), initial_state=state, final_state=state)
    # Not the plain sum: it cancels, and compilers add in another order.
    return o * 2, state.abs().sum()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("function, tokens", [(prefill, 70), (decode, 2)])
def test_compile_fullgraph(backend, function, tokens):
    x = Inputs(T=tokens)
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            states = [torch.from_numpy(x.state.copy()) for _ in range(2)]
            expected = function(*tensors(x), states[0])
            found = compiled(*tensors(x), states[1])
            for a, b in zip(expected, found):
                assert torch.allclose(a, b, rtol=1e-5, atol=1e-5)
            assert torch.equal(*states)


def test_long_recurrent_rows_in_16_bits_are_float32_in_a_graph_and_have_gradients():
    x = Inputs(T=40)
    q, k, v, g, beta = (t.bfloat16() for t in tensors(x))

    def function(q, k, v, out=None):
        return steps((q, k, v, g, beta), out=out)[0]

    wide, _ = chunk((q.float(), k.float(), v.float(), g, beta))
    with torch.no_grad():
        found = torch.compile(function, fullgraph=True, backend="aot_eager")(q, k, v)
    assert torch.equal(found, wide.bfloat16()) and torch.equal(function(q, k, v), found)
    for out in (None, torch.empty_like(v)):
        leaf = q.clone().requires_grad_()
        o = function(leaf, k, v, out)
        assert torch.equal(o, found) and (out is None or o is out)
        o.float().sum().backward()
        assert leaf.grad.dtype == torch.bfloat16 and leaf.grad.any()


def test_compiled_conv_norm_and_layer():
    def function(x, weight, state, z, norm):
        out, final = sluice.causal_conv1d(
            x, weight, initial_state=state, output_final_state=True, activation="silu"
        )
        step = sluice.causal_conv1d_update(x[:, 0], state, weight)
        return sluice.gated_rms_norm(out, z, norm), final, step, state

    shapes = [(2, 9, 24), (24, 4), (2, 24, 3), (2, 9, 24), (24,)]
    values = [torch.randn(shape) for shape in shapes]
    expected = function(*[v.clone() for v in values])
    found = torch.compile(function, fullgraph=True, backend="aot_eager")(*[v.clone() for v in values])
    for a, b in zip(expected, found):
        assert torch.equal(a, b)


@pytest.mark.parametrize("strict", [False, True])
def test_export(inputs, strict):
    class Module(torch.nn.Module):
        def forward(self, *rows):
            return chunk(rows)[0]

    with torch.no_grad():
        exported = torch.export.export(Module(), tuple(tensors(inputs)), strict=strict)
        called = [str(node.target) for node in exported.graph.nodes if node.op == "call_function"]
        assert "sluice.chunk_forward.default" in called
        found = exported.module()(*tensors(inputs))
        assert torch.equal(found, Module()(*tensors(inputs)))


ONE_OF_EACH = {op: arguments for _, op, _, arguments in reversed(SCENES)}
IN_PLACE = ["chunk_forward", "recurrent_step", "causal_conv1d", "layer_prefill", "layer_decode"]


@pytest.mark.parametrize("op, in_place", [*((op, False) for op in ONE_OF_EACH), *((op, True) for op in IN_PLACE)])
def test_opcheck(op, in_place):
    given = as_tensors(ONE_OF_EACH[op])
    for name in [name for name in given if in_place and name.endswith(("final", "final_state"))]:
        del given[name]
        given[f"{name}_is_initial"] = True
    torch.library.opcheck(getattr(torch.ops.sluice, op + "_" * in_place).default, (), given)


def test_rows_behind_the_last_sequence_are_zeros(inputs):
    cu_seqlens = torch.tensor([0, 30, 60])
    q, k, v, g, beta = (t[:1] for t in tensors(inputs))

    def function(q, k, v):
        return chunk((q, k, v, g, beta), cu_seqlens=cu_seqlens)[0]

    torch.use_deterministic_algorithms(True)  # new memory is NaN then
    try:
        o = function(q, k, v)
    finally:
        torch.use_deterministic_algorithms(False)
    assert o[:, :60].all() and not o[:, 60:].any()
    with torch.no_grad():
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(q, k, v), o)


def test_fake_tensors_have_shapes_without_data(inputs):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q, k = torch.empty(1, 1000, 2, 64), torch.empty(1, 1000, 2, 64)
        v = torch.empty(1, 1000, 4, 32)
        o, s = sluice.chunk_gated_delta_rule(q, k, v, output_final_state=True)
        assert o.shape == v.shape and s.shape == (1, 4, 64, 32)


# ----------------------------------------------------------------------- versions and signs ----

B, T, H, HV, K, V, D, W = 2, 3, 1, 2, 8, 6, 12, 4


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


@pytest.mark.parametrize("op, written, arguments", [s[1:] for s in SCENES if s[1].endswith("_backward")])
def test_gradients_that_nobody_wants_are_not_written(op, written, arguments):
    for wanted in written:
        given = as_tensors({n: x for n, x in arguments.items() if n == wanted or n not in written})
        before = {n: t._version for n, t in given.items() if isinstance(t, torch.Tensor)}
        getattr(sluice.ops, op)(**given)
        assert [n for n, version in before.items() if given[n]._version != version] == [wanted]


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
