# SPDX-License-Identifier: Apache-2.0
"""Measures the extension's half of a recorded chunk_forward's backward pass, with NumPy's arrays in the
place of torch's: what it hands back by argument, whose memory that is, and what it refuses. By processes of
their own, since the makers of memory are those of the whole process."""

import subprocess
import sys
import textwrap

COMMON = """
import numpy as np
from sluice import _core, ops

class Array(np.ndarray):
    def contiguous(self):
        return np.ascontiguousarray(self)

made = []
def like(x, fill):
    made.append("like")
    return np.full(x.shape, fill, np.float32)
def zeros_like(x, fill):
    made.append("zeros")
    return np.zeros(x.shape, np.float32)
_core.gradient_makers(like, zeros_like, {"fill": np.nan})

numbers = np.random.default_rng(1)
q, k, v, d_o = (numbers.standard_normal((1, 7, 2, 4), np.float32) for _ in range(4))
gate = -np.abs(numbers.standard_normal((1, 7, 2), np.float32))
beta = numbers.random((1, 7, 2), np.float32)
state = numbers.standard_normal((1, 2, 4, 4), np.float32)
names = ("q", "k", "v", "gate", "beta", "A_log", "dt_bias", "initial_state")
rows = (q, k, v, gate, beta)

def same(found, expected, which):
    for name, array in zip(names, found):
        assert (array is not None) == (name in which), name
        if name in which:
            np.testing.assert_array_equal(array, getattr(expected, name))
"""


def run(script):
    done = subprocess.run([sys.executable, "-c", COMMON + textwrap.dedent(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_gradients_stand_where_their_inputs_do():
    run("""
    expected = ops.chunk_backward(*rows, d_o=d_o)
    found = _core.chunk_gradients((*rows, None), (False, False) + (True,) * 5, (), d_o, None)
    assert found[:2] == (None, None) and len(found) == 7
    same(found[2:], expected, names[:5])
    assert made == ["like"] * 5
    """)


def test_nothing_is_made_for_what_nobody_wants():
    run("""
    expected = ops.chunk_backward(*rows, d_o=d_o)
    needed = (True, False, False, True, True, False)
    found = _core.chunk_gradients((*rows, None), needed, (), d_o, None)
    same(found[1:], expected, ("v", "gate"))
    assert found[0] is None and made == ["like"] * 2
    """)


def test_rows_past_the_last_sequence_have_zeros():
    run("""
    offsets = np.array([0, 3, 5], np.int32)
    found = _core.chunk_gradients((*rows, offsets), (True,) * 5, (), d_o, None)
    expected = ops.chunk_backward(*(x[:, :5] for x in rows), d_o=d_o[:, :5], cu_seqlens=offsets)
    for name, array in zip(names, found):
        np.testing.assert_array_equal(array[:, :5], getattr(expected, name))
        assert (array[:, 5:] == 0).all()
    assert made == ["zeros"] * 5
    """)


def test_states_and_options_go_with_it():
    run("""
    transposed = state.transpose(0, 1, 3, 2).copy().transpose(0, 1, 3, 2).view(Array)
    final = numbers.standard_normal(state.shape, np.float32)
    options = dict(initial_state=state, d_final_state=final, scale=0.3, l2norm_eps=1e-5, qk_norm="l2")
    expected = ops.chunk_backward(*rows, d_o=d_o, **options)
    order = [name for name, kind, _, _ in _core.fields("chunk_backward") if kind not in ("input", "output")]
    values = tuple(options.get(name) for name in order)
    saved = (*rows, None, None, transposed, None)
    found = _core.chunk_gradients(saved, (True,) * 8, values, d_o, final)
    same(found, expected, (*names[:5], "initial_state"))
    """)


def test_what_is_no_recorded_call_is_refused():
    run("""
    saved, needed = (*rows, None), (True,) * 5
    for wrong in (
        (saved, needed, (), d_o),
        (list(saved), needed, (), d_o, None),
        (saved[:5], needed, (), d_o, None),
        (saved, needed[:4], (), d_o, None),
        (saved, list(needed), (), d_o, None),
        (saved, needed, (None,) * 33, d_o, None),
        (saved, needed, {}, d_o, None),
    ):
        try:
            _core.chunk_gradients(*wrong)
            raise SystemExit(f"{len(wrong)} taken")
        except TypeError as error:
            assert "chunk_gradients" in str(error)
    try:
        _core.chunk_gradients(saved, needed, (), d_o[:, :3], None)
        raise SystemExit("another shape taken")
    except ValueError as error:
        assert "d_o" in str(error)
    """)
