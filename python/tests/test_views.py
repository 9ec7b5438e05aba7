# SPDX-License-Identifier: Apache-2.0
"""Measures what every operator asks of the memory of every view: what is written overlaps nothing else and is
writable, any stride is taken or refused by name, and offsets of absurd length are refused unread."""

import re

import numpy as np
import pytest
import sluice
from operator_scenes import scenes
from sluice import _core

SCENES = scenes()
each_scene = pytest.mark.parametrize("op, written, arguments", [s[1:] for s in SCENES], ids=[s[0] for s in SCENES])
VIEWS = ("input", "output", "update")


def call(op, arguments):
    getattr(_core, op)(**arguments)


def views(arguments):
    return {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}


def copied(arguments):
    return {**arguments, **{name: value.copy() for name, value in views(arguments).items()}}


OTHER_NAMES = {"initial_state": "initial", "final_state": "final", "d_initial_state": "dinitial",
               "d_final_state": "d_final"}  # fmt: skip


def plain(name):
    """One name for what C and Python call differently."""
    name = name.replace("ring.", "replay_").removeprefix("state.")
    return OTHER_NAMES.get(name, name)


def sharing(first, last):
    """Both once more in one memory: `last` begins in the last bytes of `first`, whose content is whole."""
    begin = (first.nbytes - 1) // 8 * 8
    memory = np.zeros(begin + max(last.nbytes, 8), np.uint8)
    a, b = (memory[at : at + x.nbytes].view(x.dtype).reshape(x.shape) for at, x in ((0, first), (begin, last)))
    return a, b


def test_every_view_of_every_operator_is_in_a_scene():
    for op in sluice.ops.__all__:
        seen = {name for _, other, _, arguments in SCENES if other == op for name in views(arguments)}
        assert seen == {name for name, role, _, _ in _core.fields(op) if role in VIEWS}, op


@each_scene
def test_what_is_written_overlaps_nothing(op, written, arguments):
    call(op, copied(arguments))
    for name in written:
        for other in sorted(views(arguments).keys() - {name}):
            for order in ((name, other), (other, name)):
                given = copied(arguments)
                given.update(zip(order, sharing(*(given[n] for n in order))))
                given[name][...] = arguments[name]
                given[other][...] = arguments[other]  # offsets and slots stay right
                before = given[name].tobytes()
                with pytest.raises(sluice.InvalidArgument, match="expected (other memory|memory of its own)") as caught:
                    call(op, given)
                found = re.findall(r"(\S+)\.data\b", str(caught.value))
                assert set(map(plain, found)) == set(map(plain, order)), caught.value
                assert given[name].tobytes() == before


@each_scene
def test_what_is_written_must_be_writable_and_nothing_else(op, written, arguments):
    for wrong in (None, *written):
        given = copied(arguments)
        for name, value in views(given).items():
            value.setflags(write=name in written and name != wrong)
        if wrong is None:
            call(op, given)
            continue
        with pytest.raises(sluice.InvalidArgument, match=f"{op}: {wrong} = read-only tensor"):
            call(op, given)


IN_PLACE = [
    ("x", "out"),
    ("initial_state", "final_state"),
    *((f"{p}conv_initial", f"{p}conv_final") for p in ("", "k_", "v_")),
]


@each_scene
def test_pools_and_norms_work_in_place(op, written, arguments):
    apart = copied(arguments)
    call(op, apart)
    for source, target in IN_PLACE:
        if not {source, target} <= arguments.keys() or op == "causal_conv1d" and target == "out":
            continue
        given = copied(arguments)
        given[target] = given[source]
        call(op, given)
        for name in set(written) - {target}:
            assert np.array_equal(given[name], apart[name]), name
        changed = apart[target] != arguments[target]
        assert changed.any()
        assert np.array_equal(given[target], np.where(changed, apart[target], arguments[source]))


@each_scene
def test_the_workspace_overlaps_nothing(op, written, arguments):
    for name, value in views(arguments).items():
        memory = np.zeros(value.nbytes + 4096, np.uint8)
        given = copied(arguments)
        given[name] = memory[2048 : 2048 + value.nbytes].view(value.dtype).reshape(value.shape)
        given[name][...] = value
        with pytest.raises(sluice.InvalidArgument, match=r"after workspace.data, expected memory of its own"):
            call(op, dict(given, workspace=memory))


def spread(value, inner):
    """The same numbers with gaps: between the elements of the last axis, else between rows, slots and the like."""
    gaps = [2 if inner and axis == value.ndim - 1 else 1 for axis in range(value.ndim)]
    outer = next((axis for axis, n in enumerate(value.shape) if n > 1), 0)
    gaps[outer] = gaps[outer] if inner else 2
    memory = np.zeros([n * gap for n, gap in zip(value.shape, gaps)], value.dtype)
    view = memory[tuple(slice(None, None, gap) for gap in gaps)]
    view[...] = value
    return view


@each_scene
def test_any_stride_is_taken_or_refused_by_name(op, written, arguments):
    expected = copied(arguments)
    call(op, expected)
    for name, value in views(arguments).items():
        for inner in (False, True):
            given = copied(arguments)
            given[name] = spread(value, inner)
            try:
                call(op, given)
            except sluice.Error as refused:
                assert inner and value.ndim > 1 and "stride" in str(refused), refused
                continue
            for other in written:
                assert np.array_equal(given[other], expected[other], equal_nan=True), (name, inner, other)


@each_scene
def test_offsets_of_absurd_length_are_refused_unread(op, written, arguments):
    for name in {"cu_seqlens", "cu_chains"}.intersection(arguments):
        absurd = np.lib.stride_tricks.as_strided(np.zeros(1, np.int32), (2**50,), (0,))
        message = rf"{name}.shape\[0\].* = {2**50}, .*expected at most 2\^31"
        with pytest.raises(sluice.Unsupported, match=message):
            call(op, dict(copied(arguments), **{name: absurd}))
        refusal = sluice.supported(op, **dict(arguments, **{name: absurd}))[1]
        assert re.search(message, str(refusal))


def huge(*shape, dense=False):
    """A view whose memory is not there: of one element, repeated, or as an output would lie."""
    strides = [4 * int(np.prod(shape[axis + 1 :], dtype=object)) if dense else 0 for axis in range(len(shape))]
    return np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), shape, [*strides[:-1], 4])


@pytest.mark.parametrize("op", ["chunk_forward", "recurrent_step", "chunk_backward", "causal_conv1d", "chunk_summary"])
@pytest.mark.parametrize("batch, heads, message", [
    (2**31, 1, r"shape\[0\] = 2147483648, expected at most 2\^31 - 1 sequences"),
    (2**22, 2**28, r"= \d+, 268435456, \d, expected a product \(with the last one squared\) below 2\^52"),
])  # fmt: skip
def test_batches_that_sizes_could_not_count_are_refused(op, batch, heads, message):
    rows, o = huge(batch, 1, heads, 4), huge(batch, 1, heads, 4, dense=True)
    arguments = {
        "chunk_forward": dict(q=rows, k=rows, v=rows, o=o),
        "recurrent_step": dict(q=rows, k=rows, v=rows, o=o, state_writes="none"),
        "chunk_backward": dict(q=rows, k=rows, v=rows, d_o=rows, dv=o),
        "causal_conv1d": dict(x=rows[..., 0], weight=huge(heads, 4), out=huge(batch, 1, heads, dense=True)),
        "chunk_summary": dict(k=rows, v=rows, addend=huge(batch, heads, 4, 4, dense=True)),
    }[op]
    kernel, refusal = sluice.supported(op, **arguments)
    assert kernel is None and isinstance(refusal, sluice.Unsupported) and re.search(message, str(refusal)), refusal
