# SPDX-License-Identifier: Apache-2.0
"""Measures chunk_summary and state_fold on NumPy arrays: pieces and what they make of states give what
the uncut sequences give, which the float64 recurrence of conftest.py has."""

import numpy as np
import pytest
import sluice
from conftest import Inputs, delta_rule, error


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
