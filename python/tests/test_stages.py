# SPDX-License-Identifier: Apache-2.0
"""Measures the stages of a prefill from Python: the chain against the float64 recurrence, single stages
against NumPy's definitions, and names of operators that there are not."""

import numpy as np
import pytest
import sluice
from conftest import Inputs, delta_rule, error
from fla_functions import key_gates
from sluice import ops
from sluice_tools.cases import Case, execute, judge

C = 64


def chain_of(x, **options):
    """Every tensor of the chunk form, zeros where a stage writes."""
    B, T, H, K = x.q.shape
    HV, V = x.v.shape[2:]
    chunks = -(-T // C)
    shapes = dict(g_cumsum=x.g.shape, A=(B, T, HV, C), A_inverse=(B, T, HV, C), w=(B, T, HV, K),
                  u=(B, T, HV, V), v_new=(B, T, HV, V), h=(B, chunks, HV, K, V), o=(B, T, HV, V),
                  final_state=(B, HV, K, V))  # fmt: skip
    made = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    given = dict(q=x.q, k=x.k, v=x.v, gate=x.g, beta=x.beta, initial_state=x.state)
    return {**made, **given, **options}


STAGES = ("chunk_cumsum", "scaled_dot_kkt", "solve_tril", "wy_fast", "chunk_h", "chunk_o")
PAIRS = ("cumsum_kkt", "solve_wy", "chunk_h", "chunk_o")


def unit_keys(x):
    x.k /= np.linalg.norm(x.k, axis=-1, keepdims=True)
    return x


@pytest.mark.parametrize("implementation", ["auto", "reference"])
@pytest.mark.parametrize("stages", [STAGES, PAIRS])
@pytest.mark.parametrize("key_wise", [False, True])
def test_the_chain_is_the_recurrence(stages, implementation, key_wise):
    x = unit_keys(Inputs(T=150))
    x.g = key_gates(x) if key_wise else x.g
    chain = chain_of(x, implementation=implementation)
    if stages == PAIRS:
        chain["A_inverse"] = None
    for stage in stages:
        assert ops.chunk_stage(stage, **chain) is None
        assert sluice.last_kernel().split(".")[1] == stage
    o, state = delta_rule(x.q, x.k, x.v, x.g, x.beta, state=x.state)
    assert error(chain["o"], o) < 1e-5 and error(chain["final_state"], state) < 1e-5


def test_single_stages_are_their_definitions():
    x = unit_keys(Inputs(B=1, T=64, H=1, HV=1))
    chain = chain_of(x)
    for stage in STAGES[:4]:
        ops.chunk_stage(stage, **chain)
    G = np.cumsum(x.g[0, :, 0].astype(np.float64))
    k, beta = x.k[0, :, 0].astype(np.float64), x.beta[0, :, 0].astype(np.float64)
    A = np.tril(beta[:, None] * np.exp(np.minimum(G[:, None] - G, 0)) * (k @ k.T), -1)
    inverse = np.linalg.inv(np.eye(64) + A)
    assert error(chain["g_cumsum"][0, :, 0], G) < 1e-6
    assert error(chain["A"][0, :, 0], A) < 1e-5
    assert error(chain["A_inverse"][0, :, 0], inverse) < 1e-5
    assert error(chain["u"][0, :, 0], inverse @ (beta[:, None] * x.v[0, :, 0])) < 1e-5
    assert error(chain["w"][0, :, 0], inverse @ ((beta * np.exp(G))[:, None] * k)) < 1e-5


@pytest.mark.parametrize("n", [16, 32, 64, 128])
def test_batched_triangles(n):
    A = np.random.default_rng(n).standard_normal((3, n, n), np.float32) / n
    out = np.empty_like(A)
    ops.chunk_stage("solve_tril", A=A, A_inverse=out, matrices="batched", triangle="upper")
    assert error(out, np.linalg.inv(np.eye(n) + np.triu(A.astype(np.float64), 1))) < 1e-5


def test_simple_gla_in_one_call():
    x = Inputs(T=100)
    o, state = np.empty_like(x.v), np.empty_like(x.state)
    rule = dict(rule="linear_attention", initial_state=x.state, final_state=state)
    ops.chunk_stage("chunk_o", q=x.q, k=x.k, v=x.v, gate=x.g, o=o, **rule)
    expected, final = delta_rule(x.q, x.k, x.v, x.g, state=x.state, linear=True)
    assert error(o, expected) < 1e-5 and error(state, final) < 1e-5


def test_a_stage_that_there_is_not():
    with pytest.raises(sluice.InvalidArgument, match="stage = 'chunk_p', expected one of chunk_cu"):
        ops.chunk_stage("chunk_p", **chain_of(Inputs(T=64)))


def case_of(chain, **fields):
    renamed = {"g" if name == "gate" else name: array for name, array in chain.items()}
    named = {f"c.{name}": array for name, array in renamed.items()}
    return Case("c", {"op": "stages", "chunk_size": C, **fields}, named)


@pytest.mark.parametrize("wrong", [None, "A_inverse", "w", "h", "final_state"])
def test_recorded_stages_are_judged_alone(wrong):
    chain = chain_of(unit_keys(Inputs(T=150)), implementation="reference")
    for stage in STAGES:
        ops.chunk_stage(stage, **chain)
    chain.pop("implementation")
    case = case_of(chain)
    assert len(case.expected()) == 9
    results, kernel = execute(case, "cpu", "auto")
    assert kernel.startswith("cpu.chunk_o") and set(results) == set(case.expected())
    if wrong:
        results[wrong][..., -1] *= 1.01
    assert [v.tensor for v in judge(case, results) if not v.passed] == ([wrong] if wrong else [])


def test_recorded_simple_gla_without_states_of_chunks():
    x = Inputs(T=100)
    o, state = delta_rule(x.q, x.k, x.v, x.g, state=x.state, linear=True)
    given = dict(q=x.q, k=x.k, v=x.v, gate=x.g, initial_state=x.state, o=o, final_state=state)
    case = case_of(given, rule="linear_attention")
    verdicts = judge(case, execute(case, "cpu", "auto")[0])
    assert [v.tensor for v in verdicts] == ["final_state", "o"] and all(v.passed for v in verdicts)


def test_operators_that_there_are_not():
    kernel, refusal = sluice.supported("chunk_stage", **chain_of(Inputs(T=64)), stage="chunk_o")
    assert refusal is None and kernel.split(".")[1] == "chunk_o"
    kernel, refusal = sluice.supported("attention", q=np.zeros(1))
    assert kernel is None and "attention, expected chunk_forward" in str(refusal)


def test_torch_has_the_same_bits_and_a_right_schema():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    chain = chain_of(unit_keys(Inputs(T=150)))
    tensors = {name: torch.from_numpy(array.copy()) for name, array in chain.items()}
    for stage in STAGES + PAIRS[:2]:
        ops.chunk_stage(stage, **chain)
        ops.chunk_stage(stage, **tensors)
        call = torch.ops.sluice.chunk_stage.default
        torch.library.opcheck(call, (), {**tensors, "stage": stage})
    for name, array in chain.items():
        assert (tensors[name].numpy() == array).all(), name
    compiled = torch.compile(
        lambda t: ops.chunk_stage("chunk_o", **t), fullgraph=True, backend="eager"
    )
    tensors["o"].zero_()
    compiled(tensors)
    assert (tensors["o"].numpy() == chain["o"]).all()
    tensors["k"].requires_grad_()
    with pytest.raises(sluice.Unsupported, match="k.requires_grad = True"):
        ops.chunk_stage("wy_fast", **tensors)
