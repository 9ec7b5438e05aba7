# SPDX-License-Identifier: Apache-2.0
"""Measures chunk_summary and state_fold on NumPy arrays: pieces and what they make of states give what
the uncut sequences give, which the float64 recurrence of conftest.py has. And the algebra of transitions
(conformance/transitions.py) alone, in float64: tokens against the recurrence, structured against dense, grouping, the
prefix scan, and that the library's states are those of composed pieces."""

import pathlib
import sys

import numpy as np
import pytest
import sluice
from conftest import Inputs, delta_rule, error

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "conformance"))
transitions = pytest.importorskip("transitions", reason="tests are not in the source tree")


def pieces_of(lengths, x, **options):
    """(M, N) of packed pieces; the rows of x are unit keys."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    count, (HV, V), K = len(lengths), x.v.shape[2:], x.k.shape[3]
    transition = np.zeros((count, HV, K, K), np.float32)
    addend = np.zeros((count, HV, K, V), np.float32)
    sluice.ops.chunk_summary(
        x.k, x.v, x.g, x.beta, cu_seqlens=offsets, transition=transition, addend=addend,
        qk_norm="l2", **options,
    )
    return offsets, transition, addend


@pytest.mark.parametrize("lengths", [[70], [33, 37], [1, 0, 64, 5]])
def test_pieces_make_the_whole(lengths):
    x = Inputs(B=1, T=70)
    offsets, transition, addend = pieces_of(lengths, x)
    count = len(lengths)
    entering, final = np.zeros_like(addend), np.zeros((1, *addend.shape[1:]), np.float32)
    sluice.ops.state_fold(
        transition, addend, np.array([0, count]), np.arange(count), np.arange(count),
        initial=x.state, entering=entering, final=final,
    )
    expected_o, expected_s = delta_rule(*x.arguments(), state=x.state, l2=True)
    assert error(final, expected_s) < 1e-5
    o = sluice.ops.chunk_forward(
        *x.arguments(), cu_seqlens=offsets, initial_state=entering, qk_norm="l2"
    )
    assert error(o, expected_o) < 1e-5


def test_what_is_forgotten_is_zero():
    x = Inputs(B=1, T=70)
    x.g[:, :, 1] = -5.0
    count = 1
    forgotten = np.full((count, 4), 7, np.uint8)
    transition = np.ones((count, 4, 64, 64), np.float32)
    sluice.ops.chunk_summary(
        x.k, x.v, x.g, x.beta, cu_seqlens=np.array([0, 70]), transition=transition,
        forgotten=forgotten, qk_norm="l2",
    )
    assert forgotten[0, 1] == 1 and not transition[0, 1].any()


def test_a_matrix_alone_and_an_addend_alone():
    x = Inputs(B=1, T=70)
    _, transition, addend = pieces_of([40, 30], x)
    _, some, others = pieces_of([40, 30], x, wanted=np.array([1, 2]))
    assert np.array_equal(others[0], addend[0]) and np.array_equal(some[1], transition[1])


K, V, T = 12, 7, 40
RULES = ["gated delta", "key-wise", "linear", "key-wise linear"]


class Run:
    """Random tokens of one head."""

    def __init__(self, rule, seed=0, tokens=T):
        rng = np.random.default_rng(seed)
        self.linear = "linear" in rule
        self.k = rng.standard_normal((tokens, K))
        self.k /= np.linalg.norm(self.k, axis=1, keepdims=True)
        self.v = rng.standard_normal((tokens, V))
        self.alpha = np.exp(-rng.random((tokens, K) if "key" in rule else tokens))
        self.beta = 2 * rng.random(tokens)
        self.S = rng.standard_normal((K, V))

    def transition(self, begin=0, end=None):
        rows = (x[begin:end] for x in (self.k, self.v, self.alpha, self.beta))
        return transitions.of_tokens(*rows, linear=self.linear)

    def recurrence(self, end=None):
        k, v, g, beta = (x[None, :end, None] for x in (self.k, self.v, np.log(self.alpha), self.beta))
        return delta_rule(k, k, v, g, beta, state=self.S[None, None], linear=self.linear)[1][0, 0]


@pytest.mark.parametrize("rule", RULES)
def test_a_run_is_the_recurrence(rule):
    run = Run(rule)
    for tokens in (0, 1, 2, 5, 6, T):
        np.testing.assert_allclose(run.transition(0, tokens).apply(run.S), run.recurrence(tokens), rtol=0, atol=1e-13)


@pytest.mark.parametrize("rule", RULES)
def test_structured_is_dense(rule):
    run = Run(rule)
    tokens = [transitions.of_token(*row, linear=run.linear) for row in zip(run.k, run.v, run.alpha, run.beta)]
    structured, dense = tokens[0], tokens[0].dense()
    for token in tokens[1:9]:
        structured, dense = token.after(structured), token.dense().after(dense)
    assert structured.U.shape[1] == (0 if run.linear else 9)
    np.testing.assert_allclose(structured.dense().A, dense.A, rtol=0, atol=1e-14)
    np.testing.assert_allclose(structured.B, dense.B, rtol=0, atol=1e-14)
    assert isinstance(run.transition(), transitions.Structured if run.linear else transitions.Dense)


@pytest.mark.parametrize("rule", RULES)
def test_any_grouping_gives_the_same(rule):
    run, c = Run(rule), transitions.compose
    parts = [run.transition(a, b) for a, b in ((0, 3), (3, 3), (3, 20), (20, T))]
    left = c(parts[3], c(parts[2], c(parts[1], parts[0])))
    right = c(c(c(parts[3], parts[2]), parts[1]), parts[0])
    for grouped in (left, right):
        np.testing.assert_allclose(grouped.apply(run.S), run.recurrence(), rtol=0, atol=1e-13)
    assert np.abs(c(parts[0], parts[3]).apply(run.S) - run.recurrence()).max() > 1e-3  # order matters


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("pieces", [1, 2, 5, 8])
def test_the_scan_gives_every_prefix(rule, pieces):
    run, size = Run(rule), T // 8
    scanned = transitions.scan([run.transition(i * size, (i + 1) * size) for i in range(pieces)])
    for i, prefix in enumerate(scanned):
        np.testing.assert_allclose(prefix.apply(run.S), run.recurrence((i + 1) * size), rtol=0, atol=1e-12)


def test_strong_decay_and_repeated_keys_stay_finite():
    run = Run("key-wise", tokens=200)
    run.alpha[:, ::2] = np.exp(-128.0)
    run.k[:] = run.k[0]
    run.beta[:] = 2
    whole = run.transition()
    assert np.isfinite(whole.dense().A if hasattr(whole, "U") else whole.A).all()
    np.testing.assert_allclose(whole.apply(run.S), run.recurrence(), rtol=1e-10, atol=1e-12)


def test_states_of_the_library_are_those_of_composed_pieces():
    run = Run("gated delta", tokens=128)
    f = [np.asarray(x, np.float32)[None, :, None] for x in (run.k, run.v, np.log(run.alpha), run.beta)]
    _, state = sluice.chunk_gated_delta_rule(f[0], f[0], f[1], f[2], f[3], output_final_state=True,
                                             initial_state=np.asarray(run.S, np.float32)[None, None])
    joined = transitions.compose(run.transition(64, 128), run.transition(0, 64)).apply(run.S)
    assert np.linalg.norm(state[0, 0] - joined) < 1e-5 * np.linalg.norm(joined)
