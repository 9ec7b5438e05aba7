# SPDX-License-Identifier: Apache-2.0
"""Measures how DLPack's own structs are read, written here field by field: an offset into the memory,
absent strides, vectors as elements, many dimensions. NumPy's exports have none of these."""

import ctypes

import numpy as np
import pytest
import sluice


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
