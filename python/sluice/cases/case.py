# SPDX-License-Identifier: Apache-2.0
"""One case: a description and its tensors, token-first."""

import json
import pathlib
from typing import Any

import numpy as np

from . import safetensors

Array = np.ndarray[Any, Any]

STAGE_ROWS = ("g_cumsum", "A", "A_inverse", "u", "w", "v_new")
GRADIENT_ROWS = ("dq", "dk", "dv", "dg", "dbeta")
_HEAD_FIRST = ("q", "k", "v", "g", "beta", "o", "d_o", *STAGE_ROWS, *GRADIENT_ROWS)
_ANSWERS = ("o", "out", "core_out", "norm_out", "output", "final_state", "final_conv_state")


class Case:
    """A case of a file: `fields` is its description, defaults included where `field` reads them."""

    def __init__(self, name: str, fields: dict[str, Any], tensors: safetensors.Arrays) -> None:
        self.name = name
        self.fields = fields
        self.op: str = fields["op"]
        self._tensors = tensors

    def field(self, name: str, default: Any) -> Any:
        return self.fields.get(name, default)

    def get(self, tensor: str, source: safetensors.Arrays | None = None) -> Array | None:
        """A tensor of the case (of `source`, a file of results), None where it is absent."""
        array = (self._tensors if source is None else source).get(f"{self.name}.{tensor}")
        if array is not None and self.field("layout", "bthd") == "bhtd" and tensor in _HEAD_FIRST:
            return array.swapaxes(1, 2)
        return array

    def floats(self, tensor: str) -> Array | None:
        """A floating tensor as float32, compact."""
        array = self.get(tensor)
        return None if array is None else np.ascontiguousarray(array, np.float32)

    def answers(self) -> list[str]:
        """Names of the expected tensors, without the case's own."""
        known: tuple[str, ...] = _ANSWERS
        if self.op == "gradients":
            known = (*GRADIENT_ROWS, "dA_log", "ddt_bias", "d_initial_state")
        if self.op == "stages":
            # An A without keys was made up for the solve: an input; so are u and w with key-wise gates.
            made_up: tuple[str, ...] = ("A",) if self.get("k") is None else ()
            g = self.get("g")
            if g is not None and g.ndim == 4:
                made_up = ("u", "w")
            known += ("h", *(name for name in STAGE_ROWS if name not in made_up))
        prefix = self.name + "."
        names = [name[len(prefix) :] for name in self._tensors if name.startswith(prefix)]
        return sorted(name for name in names if name.split(".")[-1] in known)

    def rows(self, batch: int, tokens: int) -> list[tuple[int, int, int]]:
        """(batch entry, first token, end) of each sequence."""
        cu_seqlens = self.get("cu_seqlens")
        if cu_seqlens is None:
            return [(b, 0, tokens) for b in range(batch)]
        return [(0, int(a), int(b)) for a, b in zip(cu_seqlens[:-1], cu_seqlens[1:])]


def cases_of(path: str | pathlib.Path) -> list[Case]:
    """The cases of a file, in its order. ValueError where it is not a case file."""
    tensors, metadata = safetensors.read(path)
    if "sluice.cases" not in metadata:
        raise ValueError(f"{path}: metadata sluice.cases is missing: not a case file")
    return [Case(name, f, tensors) for name, f in json.loads(metadata["sluice.cases"]).items()]
