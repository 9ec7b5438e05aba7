# SPDX-License-Identifier: Apache-2.0
"""A reader of safetensors files that checks every offset before it reads."""

import json
import math
import pathlib
from typing import Any

import numpy as np

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4"}
_LARGEST_HEADER = 100_000_000

Arrays = dict[str, np.ndarray[Any, Any]]


def _header(path: pathlib.Path, data: bytes) -> dict[str, Any]:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(_LARGEST_HEADER, len(data) - 8):
        raise ValueError(
            f"{path}: header of {length} bytes, expected it within the file's {len(data)}"
        )
    try:
        header = json.loads(data[8 : 8 + length])
    except ValueError as error:
        raise ValueError(f"{path}: header is no JSON ({error})") from None
    if not isinstance(header, dict):
        raise ValueError(f"{path}: header = {type(header).__name__}, expected an object")
    return header


def _array(path: pathlib.Path, name: str, entry: Any, data: bytes) -> np.ndarray[Any, Any]:
    try:
        kind, shape = entry["dtype"], [int(n) for n in entry["shape"]]
        begin, end = (int(offset) for offset in entry["data_offsets"])
        dtype = np.dtype(DTYPES[kind])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: tensor {name}: {type(error).__name__} {error}") from None
    size = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or not 0 <= begin <= end <= len(data) or end - begin != size:
        raise ValueError(
            f"{path}: tensor {name}: offsets {begin} to {end}, expected {size} bytes within the "
            f"{len(data)} that there are"
        )
    array = np.frombuffer(data[begin:end], dtype)
    if kind == "BF16":
        array = (array.astype("<u4") << 16).view("<f4")
    return array.reshape(shape)


def read(path: str | pathlib.Path) -> tuple[Arrays, dict[str, str]]:
    """The tensors of a file by name (bfloat16 as float32, exactly) and its metadata.

    ValueError where the file is none, or its header does not fit its size."""
    path = pathlib.Path(path)
    data = path.read_bytes()
    header = _header(path, data)
    metadata = header.pop("__metadata__", {})
    body = data[8 + int.from_bytes(data[:8], "little") :]
    return {name: _array(path, name, entry, body) for name, entry in header.items()}, metadata
