# SPDX-License-Identifier: Apache-2.0
"""Measures gradients: those of the package's functions by torch's autograd against autograd of the
recurrence written in torch in float64, where a GPU is there on it too; and chunk_backward on NumPy
arrays against central differences of the float64 recurrence. And the float64 gradients that long sequences are judged
by on a GPU (backward_model.py, test_backward_cuda.py): against the library's reference token by token, and their two
ways against each other."""

from functools import partial

import numpy as np
import pytest
import sluice
from conftest import L2, Inputs, delta_rule, error
from sluice_tools.cases import Case, execute, judge


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("key_wise", [False, True])
def test_numpy_gradients_are_slopes(linear, key_wise):
    x = Inputs(B=1, T=9, H=1, HV=2, K=6, V=5)
    if key_wise:
        x.g = -np.random.default_rng(5).random((*x.g.shape, 6), np.float32)
    inputs = dict(q=x.q, k=x.k, v=x.v, g=x.g, beta=None if linear else x.beta, state=x.state)
    inputs = {name: value for name, value in inputs.items() if value is not None}
    r = np.random.default_rng(1)
    d_o, d_final = (r.standard_normal(a.shape).astype(np.float32) for a in (x.v, x.state))
    found = sluice.ops.chunk_backward(
        x.q, x.k, x.v, x.g, inputs.get("beta"), initial_state=x.state, d_o=d_o,
        d_final_state=d_final, rule="linear_attention" if linear else "gated_delta",
    )
    names = dict(q="q", k="k", v="v", g="gate", beta="beta", state="initial_state")

    def loss(**values):
        o, final = delta_rule(**values, linear=linear)
        return (o * d_o).sum() + (final * d_final).sum()

    for name, value in inputs.items():
        step = 1e-5 * r.standard_normal(value.shape)
        wide = value.astype(np.float64)
        slope = loss(**{**inputs, name: wide + step}) - loss(**{**inputs, name: wide - step})
        gradient = getattr(found, names[name])
        assert gradient.shape == value.shape and gradient.dtype == value.dtype
        assert abs(slope / 2 - (gradient * step).sum()) < 1e-4 * np.linalg.norm(gradient) * 1e-5


def gradient_case(**changes):
    """A case of op gradients whose answers are the float64 reference's."""
    x = Inputs(B=2, T=70, H=1, HV=2, K=12, V=10)
    r = np.random.default_rng(2)
    tensors = dict(q=x.q, k=x.k, v=x.v, g=x.g, beta=x.beta, initial_state=x.state)
    tensors["d_o"], tensors["d_final_state"] = (
        r.standard_normal(a.shape).astype(np.float32) for a in (x.v, x.state)
    )
    for name, array in list(tensors.items())[:5]:
        tensors["d" + name] = np.zeros_like(array)
    tensors["d_initial_state"] = np.zeros_like(x.state)
    fields = dict(op="gradients", use_qk_l2norm=True, **changes)
    if fields.get("layout") == "bhtd":
        states = ("initial_state", "d_final_state", "d_initial_state")
        tensors = {n: a if n in states else a.swapaxes(1, 2).copy() for n, a in tensors.items()}
    case = Case("c", fields, {f"c.{name}": array for name, array in tensors.items()})
    for name, array in execute(case, "cpu", "reference")[0].items():
        case.get(name)[...] = array
    return case


@pytest.mark.parametrize("layout", ["bthd", "bhtd"])
def test_cases_of_gradients_are_run_and_judged(layout):
    case = gradient_case(layout=layout)
    results, kernel = execute(case, "cpu", "cpu")
    assert kernel.startswith("cpu.chunk_backward")
    assert sorted(results) == ["d_initial_state", "dbeta", "dg", "dk", "dq", "dv"]
    assert all(np.any(case.get(name)) for name in results)
    assert all(v.passed for v in judge(case, results))
    for name in results:
        spoilt = {**results, name: results[name] * np.float32(1.001)}
        assert [v.tensor for v in judge(case, spoilt) if not v.passed] == [name]


torch = pytest.importorskip("torch", reason="torch is not installed: its tests are skipped")

import backward_model as model
from fla_functions import call, is_delta, rows_of
from torch_checks import DEVICES, LIMITS, check

recurrence = partial(delta_rule, xp=torch)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bound", [None, -5.0])
@pytest.mark.parametrize("parameters", [True, False])
def test_kda_from_raw_gates(device, bound, parameters):
    x = Inputs(B=2, T=40, H=2, HV=4, K=16, V=24)
    r = np.random.default_rng(6)
    a, A_log, dt_bias = (r.standard_normal(s).astype("f4") for s in ((2, 40, 4, 16), 4, 64))
    arrays = [x.q, x.k, x.v, a, x.beta, x.state] + ([A_log, dt_bias] if parameters else [])
    if bound is None and not parameters:
        arrays.append(A_log)

    def ours(q, k, v, a, beta, state, *rest):
        return sluice.chunk_kda(
            q, k, v, a, beta, initial_state=state, output_final_state=True,
            use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, lower_bound=bound,
            **dict(zip(("A_log", "dt_bias"), rest)),
        )

    def theirs(q, k, v, a, beta, state, *rest):
        raw = a + rest[1].view(4, 16) if len(rest) > 1 else a
        rate = rest[0].exp()[:, None] if rest else 1.0
        gate = bound * torch.sigmoid(rate * raw) if bound else -rate * torch.nn.functional.softplus(raw)
        return recurrence(q, k, v, gate, beta, state=state, l2=True)

    check(arrays, ours, theirs, device)


LARGE, SMALL = dict(B=2, T=80, H=2, HV=4, K=32, V=24), dict(B=1, T=70, H=3, HV=3, K=16, V=40)
CASES = [
    *((name, LARGE, dtype) for name in ("chunk_gated_delta_rule", "chunk_gla") for dtype in LIMITS),
    *((name, SMALL, torch.float32) for name in ("chunk_simple_gla", "fused_recurrent_gated_delta_rule")),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name, sizes, dtype", CASES, ids=str)
def test_functions_have_the_gradients_of_their_recurrences(device, name, sizes, dtype):
    x, states = Inputs(**sizes), sizes is LARGE
    q, k, v, g, beta = rows_of(name, x)

    def ours(*rows):
        *rows, state = rows
        return call(name, rows, initial_state=state if states else None, output_final_state=states)

    def theirs(*rows):
        *rows, state = rows
        return recurrence(*rows, state=state if states else None, l2=is_delta(name), linear=not is_delta(name))

    check([q, k, v, np.maximum(g, -3), beta, x.state], ours, theirs, device, dtype)


@pytest.mark.parametrize("device", DEVICES)
def test_raw_gates_and_logits(device):
    x = Inputs(B=2, T=66, H=1, HV=3, K=16, V=16)
    r = np.random.default_rng(5)
    A_log, dt_bias = (r.standard_normal(3).astype(np.float32) for _ in range(2))

    def ours(q, k, v, a, b, A_log, dt_bias):
        return sluice.chunk_gated_delta_rule(
            q, k, v, a, b, use_gate_in_kernel=True, A_log=A_log, dt_bias=dt_bias,
            use_beta_sigmoid_in_kernel=True, allow_neg_eigval=True, **L2,
        )

    def theirs(q, k, v, a, b, A_log, dt_bias):
        g = -A_log.exp() * torch.nn.functional.softplus(a + dt_bias)
        return recurrence(q, k, v, g, 2 * b.sigmoid(), l2=True)

    check([x.q, x.k, x.v, 3 * x.g, x.beta, A_log, dt_bias], ours, theirs, device)


@pytest.mark.parametrize("device", DEVICES)
def test_packed_sequences_are_sequences(device):
    x = Inputs(B=1, T=100, H=2, HV=2, K=16, V=16, N=3)
    offsets = [0, 33, 33, 97]

    def ours(*rows):
        *rows, state = rows
        o, final = sluice.chunk_gated_delta_rule(
            *rows, initial_state=state, output_final_state=True, cu_seqlens=torch.tensor(offsets, device=device), **L2
        )
        return o[:, :97], final

    def theirs(*rows):
        *rows, state = rows
        parts = [
            recurrence(*(t[:, a:b] for t in rows), state=state[n : n + 1], l2=True)
            for n, (a, b) in enumerate(zip(offsets, offsets[1:])) if a < b
        ]
        return torch.cat([p[0] for p in parts], 1), torch.cat([parts[0][1], state[1:2], parts[1][1]])

    q, *_ = check([*x.arguments(), x.state], ours, theirs, device)
    assert not q.grad[:, 97:].any()


def test_only_what_is_wanted_and_views():
    x = Inputs()
    q, k, g, beta = (torch.from_numpy(a) for a in (x.q, x.k, x.g, x.beta))
    v, wide = torch.from_numpy(x.v).requires_grad_(), torch.from_numpy(x.v).double().requires_grad_()
    o, _ = sluice.chunk_gated_delta_rule(q, k, v.transpose(1, 2).contiguous().transpose(1, 2), g, beta)
    o.sum().backward()  # its gradient has strides of zero
    expected, _ = recurrence(q.double(), k.double(), wide, g.double(), beta.double())
    expected.sum().backward()
    assert error(v.grad.numpy(), wide.grad.numpy()) < 2e-5 and q.grad is None


def test_what_has_no_backward_pass_is_refused_by_name():
    x = Inputs(B=2, T=3)
    q, k, v, g, beta = (torch.from_numpy(a) for a in x.arguments())
    wanted, state = q.clone().requires_grad_(), torch.from_numpy(x.state)
    refused = "fused_recurrent_gated_delta_rule: q.requires_grad = True.* no backward"
    with pytest.raises(sluice.Unsupported, match=refused):
        sluice.fused_recurrent_gated_delta_rule(wanted, k, v, g, beta=beta)
    with pytest.raises(sluice.Unsupported, match="final_state = initial_state, expected another"):
        sluice.chunk_gated_delta_rule(wanted, k, v, g, beta, initial_state=state, final_state=state)
    with pytest.raises(sluice.Unsupported, match="read_slots = given, expected None where an input"):
        sluice.chunk_gated_delta_rule(
            wanted, k, v, g, beta, initial_state=state, final_state=state.clone(),
            read_slots=torch.tensor([1, 0]),
        )
    with pytest.raises(sluice.Unsupported, match="o.requires_grad = True, expected an output"):
        sluice.chunk_gated_delta_rule(wanted, k, v, g, beta, out=v.clone().requires_grad_())
    with pytest.raises(sluice.Unsupported, match="under torch.compile and in torch.ops"):
        torch.ops.sluice.chunk_forward(q=wanted, k=k, v=v, o=torch.empty_like(v))
    assert torch.equal(state, torch.from_numpy(x.state))


TINY = Inputs(B=1, T=6, H=1, HV=2, K=8, V=8)


def leaves():
    return [torch.from_numpy(a.copy()).requires_grad_() for a in TINY.arguments()]


def gradients_of(run):
    """Gradients of a weighted sum of what run(leaves) returns."""
    given = leaves()
    o = run(*given)
    (o * torch.arange(o.numel(), dtype=o.dtype).view(o.shape)).sum().backward()
    return [t.grad for t in given]


def into_a_view(*given):
    """An output that is a view changes its base."""
    buffer = torch.ones(2, *given[2].shape)
    o, _ = sluice.chunk_gated_delta_rule(*given, out=buffer[1])
    assert o.requires_grad and buffer.requires_grad and buffer._version == 1
    return buffer[1]


def by_keywords(*given):
    o = torch.empty_like(given[2])
    sluice._kinds.entry("chunk_forward", o)(o=o, **dict(zip(("q", "k", "v", "gate", "beta"), given)))
    return o


@pytest.mark.parametrize("call", [into_a_view, by_keywords])
def test_calls_in_another_way_are_recorded_too(call):
    expected = gradients_of(lambda *given: sluice.ops.chunk_forward(*given))
    assert all(map(torch.equal, gradients_of(call), expected))


def test_an_output_that_is_given_is_the_result():
    given = leaves()
    out, final = torch.empty(TINY.v.shape), torch.empty(1, 2, 8, 8)
    o, state = sluice.chunk_gated_delta_rule(*given, out=out, final_state=final)
    assert o is out and state is final and out.grad_fn is final.grad_fn is not None
    assert out._version == final._version == 1
    with torch.no_grad():
        given[1].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()


def test_outputs_that_autograd_cannot_take_are_refused():
    given = leaves()
    with torch.inference_mode():
        out = torch.zeros(TINY.v.shape)
    with pytest.raises(sluice.Unsupported, match=r"o.is_inference\(\) = True, expected False"):
        sluice.chunk_gated_delta_rule(*given, out=out)
    with pytest.raises(sluice.Unsupported, match="o = ndarray, expected a torch tensor"):
        sluice.chunk_gated_delta_rule(*given, out=out.numpy())
    with pytest.raises(sluice.Unsupported, match="final_state = ndarray, expected a torch tensor"):
        sluice.ops.chunk_forward(*given, final_state=np.zeros((1, 2, 8, 8), np.float32))
    assert not out.any()


def test_gradients_have_no_gradients():
    given = leaves()
    o, _ = sluice.chunk_gated_delta_rule(*given)
    first = torch.autograd.grad(o.square().sum(), given, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first[0].sum().backward()


# ---------------------------------------------------------------- what long sequences are judged by ----


def draw(tokens, delta, K=32, H=2, HV=6):
    torch.manual_seed(tokens)
    q, k = (torch.randn(tokens, H, K) for _ in range(2))
    v, d_o = (torch.randn(tokens, HV, K) for _ in range(2))
    g, beta = -torch.rand(tokens, HV), torch.rand(tokens, HV) if delta else None
    return q, k, v, g, beta, d_o, *(torch.randn(HV, K, K) for _ in range(2))


def from_the_library(q, k, v, g, beta, d_o, initial, d_final):
    parts = [None if x is None else x[None] for x in (q, k, v, g, beta)]
    found = sluice.ops.chunk_backward(
        *parts, d_o=d_o[None], initial_state=initial[None], d_final_state=d_final[None], qk_norm="l2",
        rule="linear_attention" if beta is None else "gated_delta", implementation="reference",
    )  # fmt: skip
    rows = (found.q, found.k, found.v, found.gate, found.beta, found.initial_state)
    return {name: x[0] for name, x in zip(model.NAMES, rows) if x is not None}


def near_by_name(found, expected, limit):
    assert found.keys() == expected.keys()
    for name in expected:
        assert error(found[name].numpy(), expected[name].numpy()) < limit, name


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("tokens", [1, 64, 150])
def test_exact_gradients_are_the_reference_s(tokens, delta):
    given = draw(tokens, delta)
    near_by_name(model.exact(*given), from_the_library(*given), 1e-7)  # the reference stores float32


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("tokens", [1, 64, 150])
def test_without_rounding_both_ways_are_the_same(tokens, delta):
    given = draw(tokens, delta)
    near_by_name(model.rounded(*given, torch.float64), model.exact(*given), 1e-12)


@pytest.mark.parametrize("delta", [True, False])
def test_gradients_are_linear(delta):
    given = draw(150, delta)
    near_by_name(model.rounded_at(1.3, *given, torch.float64), model.exact(*given), 1e-12)


@pytest.mark.parametrize("factor", [1.0, 1.3])
def test_roundings_are_those_of_16_bits(factor):
    given = draw(200, True)
    expected = model.exact(*given)
    for io, low, high in ((torch.bfloat16, 1e-3, 8e-3), (torch.float16, 1e-4, 1e-3)):
        for name, found in model.rounded_at(factor, *given, io).items():
            assert low < error(found.numpy(), expected[name].numpy()) < high, (io, name)
