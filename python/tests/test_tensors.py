# SPDX-License-Identifier: Apache-2.0
"""Measures how tensors come in and go out: strides, dtypes, DLPack producers, read-only memory, and DLPack's own
structs, written here field by field: an offset into the memory, absent strides, vectors as elements, many dimensions,
which NumPy's exports have not. Results for unusual views are compared bit for bit with those for compact copies."""

import ctypes
import subprocess
import sys

import numpy as np
import pytest
import sluice
from conftest import Inputs, delta_rule, error


def run(q, k, v, g, beta, **kwargs):
    return sluice.chunk_gated_delta_rule(q, k, v, g, beta, use_qk_l2norm_in_kernel=True, **kwargs)[0]


class Producer:
    """A DLPack producer and nothing else; `versioned` chooses the newer capsule."""

    def __init__(self, array, versioned):
        self.array, self.versioned = array, versioned
        self.calls = 0

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **kwargs):
        self.calls += 1
        if not self.versioned and "max_version" in kwargs:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        return self.array.__dlpack__(**kwargs)


def test_head_first_and_sliced_views_are_read_in_place(inputs):
    expected = run(*inputs.arguments())
    head_first = [np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2) for a in inputs.arguments()]
    assert not head_first[0].flags.c_contiguous
    assert np.array_equal(run(*head_first), expected)
    fused = np.concatenate([inputs.q, inputs.k], axis=-1)  # rows of a wider projection
    K = inputs.q.shape[-1]
    assert np.array_equal(run(fused[..., :K], fused[..., K:], *inputs.arguments()[2:]), expected)


def test_output_into_a_strided_view(inputs):
    expected = run(*inputs.arguments())
    wide = np.full((*expected.shape[:3], 80), 7, np.float32)
    view = wide[..., 8:40]
    assert run(*inputs.arguments(), out=view) is view
    assert np.array_equal(view, expected)
    assert (wide[..., :8] == 7).all() and (wide[..., 40:] == 7).all()


def test_negative_strides_of_inputs(inputs):
    backward = inputs.beta[:, ::-1]
    assert np.array_equal(
        run(*inputs.arguments()[:4], backward), run(*inputs.arguments()[:4], backward.copy())
    )


@pytest.mark.parametrize("versioned", [False, True])
def test_dlpack_producers(inputs, versioned):
    producers = [Producer(a, versioned) for a in inputs.arguments()]
    out = np.empty_like(inputs.v)
    sluice.ops.chunk_forward(*producers, o=Producer(out, versioned), qk_norm="l2")
    assert np.array_equal(out, run(*inputs.arguments()))
    assert all(p.calls for p in producers)


def test_outputs_of_a_bare_producer_must_be_given(inputs):
    with pytest.raises(TypeError, match="pass the outputs"):
        run(*[Producer(a, True) for a in inputs.arguments()])


def test_capsules_are_released(inputs):
    before = sys.getrefcount(inputs.q)
    out = np.empty_like(inputs.v)
    for _ in range(3):
        sluice.ops.chunk_forward(Producer(inputs.q, True), inputs.k, inputs.v, o=out, qk_norm="l2")
    after = sys.getrefcount(inputs.q)
    assert after == before


def test_read_only_inputs_and_outputs(inputs):
    expected = run(*inputs.arguments())
    for array in inputs.arguments():
        array.setflags(write=False)
    assert np.array_equal(run(*inputs.arguments()), expected)
    out = np.empty_like(expected)
    out.setflags(write=False)
    with pytest.raises(sluice.InvalidArgument, match="chunk_gated_delta_rule: out = read-only tensor"):
        run(*inputs.arguments(), out=out)


def test_read_only_producers_are_no_outputs(inputs):
    out = np.empty_like(inputs.v)
    out.setflags(write=False)
    with pytest.raises(sluice.InvalidArgument, match="o = read-only tensor"):
        sluice.ops.chunk_forward(inputs.q, inputs.k, inputs.v, o=Producer(out, True))


def test_buffers_are_released(inputs):
    memory = bytearray(inputs.q.nbytes)
    q = np.frombuffer(memory, np.float32).reshape(inputs.q.shape)
    run(q, *inputs.arguments()[1:])
    del q
    memory.append(0)  # BufferError where somebody still has it


COUNTED = """
import numpy as np
from sluice import _core

seen = []
_core.count_writes(seen.extend, seen.extend)
row, o, pool = np.ones((1, 1, 1, 4), "f4"), np.ones((1, 1, 1, 4), "f4"), np.zeros((1, 1, 4, 4), "f4")
step = dict(q=row, k=row, v=row, o=o, initial_state=pool)
_core.recurrent_step(**step)
assert not seen
_core.recurrent_step_recorded(**step)
assert {id(x) for x in seen} == {id(o), id(pool)}, seen
seen.clear()
_core.recurrent_step_recorded(**step, state_writes="none")
assert [id(x) for x in seen] == [id(o)], seen
"""


def test_what_a_recorded_call_writes_is_counted():
    """By a process of its own: torch's counters stay as they are."""
    subprocess.run([sys.executable, "-c", COUNTED], check=True)


def test_float16(inputs):
    halves = [a.astype(np.float16) for a in inputs.arguments()]
    out = run(*halves)
    assert out.dtype == np.float16
    assert error(out, delta_rule(*halves, l2=True)[0]) < 1e-3


def test_bfloat16_of_ml_dtypes(inputs):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    parts = [a.astype(ml_dtypes.bfloat16) for a in inputs.arguments()]
    out = run(*parts)
    assert out.dtype == ml_dtypes.bfloat16
    expected, _ = delta_rule(*[a.astype(np.float32) for a in parts], l2=True)
    assert error(out.astype(np.float32), expected) < 8e-3
    wide = np.concatenate([parts[0], parts[1]], axis=-1)
    assert np.array_equal(run(wide[..., :64], wide[..., 64:], *parts[2:]).view("u2"), out.view("u2"))


def test_empty_batches_and_rows():
    x = Inputs(T=0)
    o, s = sluice.chunk_gated_delta_rule(
        *x.arguments(), initial_state=x.state, output_final_state=True
    )
    assert o.shape == x.v.shape and np.array_equal(s, x.state)
    x = Inputs(B=1, T=0, N=1)
    o, s = sluice.chunk_gated_delta_rule(
        *x.arguments(), cu_seqlens=np.zeros(1, np.int32), output_final_state=True
    )
    assert o.shape == x.v.shape and s.shape[0] == 0


def test_array_api_namespace(inputs):
    strict = pytest.importorskip("array_api_strict", reason="array_api_strict is not installed")
    parts = [strict.asarray(a) for a in inputs.arguments()]
    o, s = sluice.chunk_gated_delta_rule(
        *parts, output_final_state=True, use_qk_l2norm_in_kernel=True
    )
    assert type(o) is type(parts[0]) and type(s) is type(parts[0])
    assert np.array_equal(np.from_dlpack(o), run(*inputs.arguments()))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_jax_arrays_are_inputs(inputs, dtype, monkeypatch):
    jax = pytest.importorskip("jax", reason="jax is not installed")
    with jax.default_device(jax.devices("cpu")[0]):
        parts = [jax.numpy.asarray(a).astype(dtype) for a in inputs.arguments()]
    # It would make a new array, and that where JAX computes by default: on a GPU that is there.
    monkeypatch.setattr(type(parts[0]), "view", None)
    o, s = sluice.chunk_gated_delta_rule(
        *parts, output_final_state=True, use_qk_l2norm_in_kernel=True
    )
    assert type(o) is np.ndarray and o.dtype == parts[2].dtype
    expected_o, expected_s = delta_rule(*[np.asarray(a, np.float32) for a in parts], l2=True)
    tolerance = 1e-5 if dtype == "float32" else 8e-3
    assert error(o.astype(np.float32), expected_o) < tolerance
    assert error(s, expected_s) < tolerance
    with pytest.raises(sluice.InvalidArgument, match="chunk_gated_delta_rule: out = read-only tensor"):
        run(*parts, out=parts[2])


def on_a_device(shape, export, **interface):
    """An array as JAX's on a GPU: its type has buffers, and this one is refused; DLPack is answered by `export`."""
    methods = dict(__dlpack_device__=lambda self: (2, 0), __dlpack__=lambda self, **options: export(**options))
    kind = type("OnDevice", (np.ndarray,), methods | interface)
    return np.zeros(shape, "datetime64[s]").view(kind)  # NumPy refuses its buffer


def test_arrays_on_a_device_whose_type_has_buffers_too(inputs):
    """DLPack is asked, with the stream."""
    seen = []

    def export(**options):
        seen.append(options)
        raise BufferError("asked by DLPack")

    with pytest.raises(BufferError, match="asked by DLPack"):
        q = on_a_device(inputs.q.shape, export)
        sluice.ops.chunk_forward(q, *inputs.arguments()[1:], o=np.empty_like(inputs.v))
    assert seen[0]["stream"] == 1 and seen[0]["max_version"] == (1, 0)


@pytest.mark.parametrize("interface", [None, {"data": (0, True)}, {"data": (0, False)}])
def test_outputs_on_a_device_whose_type_has_buffers_too(inputs, interface):
    """Written where the array's CUDA array interface says that it may be, as CuPy's does and JAX's does not."""
    memory = np.zeros(inputs.v.shape, np.float32)
    cuda = {} if interface is None else {"__cuda_array_interface__": interface}
    o = on_a_device(memory.shape, lambda **_: memory.__dlpack__(), **cuda)
    if interface is None or interface["data"][1]:
        with pytest.raises(sluice.InvalidArgument, match="chunk_gated_delta_rule: out = read-only tensor"):
            run(*inputs.arguments(), out=o)
        assert not memory.any()
    else:
        run(*inputs.arguments(), out=o)
        assert np.array_equal(memory, run(*inputs.arguments()))


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("index", ctypes.c_int32)]


class DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Managed(ctypes.Structure):
    """DLManagedTensor, with the DLTensor's fields in it."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Exporter:
    """A compact float32 array as DLPack, without strides; `offset` bytes of the memory lie before it."""

    def __init__(self, array, offset=0, lanes=1):
        self.array = array  # keeps the memory
        self.shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        self.tensor = Managed(array.ctypes.data - offset, Device(1, 0), array.ndim, DType(2, 32, lanes))
        self.tensor.shape, self.tensor.byte_offset = self.shape, offset

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, stream=None):
        return new_capsule(ctypes.addressof(self.tensor), b"dltensor", None)


def norm(x, z, out):
    sluice.ops.gated_rms_norm(x, z, np.ones(4, "f4"), out=out)


@pytest.fixture
def rows():
    r = np.random.default_rng(8)
    return [r.standard_normal((3, 5, 4), np.float32) for _ in range(2)]


def test_absent_strides_are_those_of_a_compact_tensor(rows):
    expected, found = np.zeros((3, 5, 4), "f4"), np.zeros((3, 5, 4), "f4")
    norm(*rows, expected)
    norm(*map(Exporter, rows), Exporter(found))
    assert expected.any() and np.array_equal(found, expected)


def test_tensors_begin_behind_their_byte_offset(rows):
    expected, memory = np.zeros((3, 5, 4), "f4"), np.full((4, 5, 4), 7, "f4")
    norm(*rows, expected)
    behind = np.concatenate([np.full((1, 5, 4), 9, "f4"), rows[0]])
    norm(Exporter(behind[1:], offset=80), rows[1], Exporter(memory[1:], offset=80))
    assert np.array_equal(memory[1:], expected) and (memory[0] == 7).all()


@pytest.mark.parametrize("lanes", [0, 2, 4])
def test_vectors_as_elements_are_refused(rows, lanes):
    out = np.zeros((3, 5, 4), "f4")
    with pytest.raises(sluice.Unsupported, match=f"x dtype lanes = {lanes}, expected 1"):
        norm(Exporter(rows[0], lanes=lanes), rows[1], out)
    assert not out.any()


def test_more_dimensions_than_a_view_has_are_refused(rows):
    wide = rows[0].reshape(3, 1, 1, 5, 1, 4)
    with pytest.raises(sluice.InvalidArgument, match="x rank = 6, expected at most 5"):
        norm(Exporter(wide), rows[1], np.zeros((3, 5, 4), "f4"))
