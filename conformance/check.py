#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks results of the gated delta rule against a case file, with NumPy and nothing else.

Usage: check.py CASES.safetensors [--against RESULTS.safetensors] [--filter TEXT]

With --against, the tensors of RESULTS are compared with the expected ones of CASES by name.
Without, recurrence.py beside this script computes prefill, decode and gradient cases (token by token)
and stages, in float64: a second opinion on the recorded answers; its gradients must also be the
slopes of its forward pass. The format is described in docs/case-format.md. Python's
`python -m sluice verify` judges by this module too.
Exit status 1 if a result is wrong.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import sys

import numpy as np

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4"}
LARGEST_HEADER = 100_000_000
WINDOW = 64
ANSWERS = ("o", "out", "core_out", "norm_out", "output", "final_state", "final_conv_state")
STAGE_ROWS = ("g_cumsum", "A", "A_inverse", "u", "w", "v_new")
GRADIENT_ROWS = ("dq", "dk", "dv", "dg", "dbeta")


def read_header(path, data):
    """The JSON object at the start of a safetensors file, and the bytes behind it."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(LARGEST_HEADER, len(data) - 8):
        raise ValueError(
            f"{path}: header of {length} bytes, expected it within the file's {len(data)}"
        )
    try:
        header = json.loads(data[8 : 8 + length])
    except ValueError as error:
        raise ValueError(f"{path}: header is no JSON ({error})") from None
    if not isinstance(header, dict):
        raise ValueError(f"{path}: header = {type(header).__name__}, expected an object")
    return header, data[8 + length :]


def read_tensor(path, name, entry, data):
    """One tensor: float64 if it is a floating one, else int64."""
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
    return array.reshape(shape).astype(np.int64 if kind[0] == "I" else np.float64)


def read_safetensors(path):
    """(tensors by name, metadata) of a file. ValueError where it is no safetensors file."""
    header, data = read_header(path, pathlib.Path(path).read_bytes())
    metadata = header.pop("__metadata__", {})
    return {name: read_tensor(path, name, entry, data) for name, entry in header.items()}, metadata


class Case:
    """A description and its tensors; token tensors are token-first."""

    HEAD_FIRST = ("q", "k", "v", "g", "beta", "o", "d_o") + STAGE_ROWS + GRADIENT_ROWS

    def __init__(self, name, fields, tensors):
        self.name, self.fields, self.tensors = name, fields, tensors

    def get(self, tensor, source=None):
        """A tensor (of `source`, results in the case's layout), None where it is absent."""
        array = (self.tensors if source is None else source).get(f"{self.name}.{tensor}")
        exchanged = self.fields.get("layout", "bthd") == "bhtd" and tensor in self.HEAD_FIRST
        return array.swapaxes(1, 2) if exchanged and array is not None else array

    def expected(self):
        """Names of the expected tensors, without the case's name."""
        known = ANSWERS
        if self.fields["op"] == "stages":
            # A that was made up for the solve is an input.
            made_up = () if self.get("k") is not None else ("A",)
            known += ("h",) + tuple(name for name in STAGE_ROWS if name not in made_up)
        if self.fields["op"] == "gradients":
            known = GRADIENT_ROWS + ("dA_log", "ddt_bias", "d_initial_state")
        prefix = self.name + "."
        names = [name[len(prefix) :] for name in self.tensors if name.startswith(prefix)]
        return sorted(name for name in names if name.split(".")[-1] in known)

    def sequences(self, batch, tokens):
        """(batch entry, first row, end) of each sequence."""
        cu_seqlens = self.get("cu_seqlens")
        if cu_seqlens is not None:
            return [(0, int(a), int(b)) for a, b in zip(cu_seqlens[:-1], cu_seqlens[1:])]
        return [(b, 0, tokens) for b in range(batch)]


def read_cases(path):
    """The cases of a file, in its order. ValueError where it is no case file."""
    tensors, metadata = read_safetensors(path)
    if "sluice.cases" not in metadata:
        raise ValueError(f"{path}: metadata sluice.cases is missing: not a case file")
    described = json.loads(metadata["sluice.cases"])
    return [Case(name, fields, tensors) for name, fields in described.items()]


def norm(x):
    # PERF: without BLAS, whose threads spin on blocks as small as a window.
    return np.sqrt(np.sum(np.square(x)))


def relative(x, reference):
    """||x - reference|| / ||reference||; infinite on NaN, or if only the reference is 0."""
    size, distance = norm(reference), norm(x - reference)
    if size == 0:
        return np.inf if np.any(x) else 0.0
    return float(distance / size) if np.isfinite(distance) else np.inf


def worst(pairs):
    return max((relative(*pair) for pair in pairs), default=0.0)


def errors(case, tensor, x, reference):
    """Relative L2 of the whole, the worst head and the worst window; 0 where there is none."""
    last = tensor.split(".")[-1]
    if last in ("final_state", "d_initial_state") and reference.ndim == 4:
        slots = np.ndindex(*reference.shape[:2])
        return relative(x, reference), worst((x[i], reference[i]) for i in slots), 0.0
    rows_of_tokens = last in ("o", "core_out", "norm_out") + STAGE_ROWS + GRADIENT_ROWS
    if not rows_of_tokens and not (case.fields["op"] == "conv1d" and last == "out"):
        return relative(x, reference), 0.0, 0.0
    if x.ndim == 3:
        x, reference = x[:, :, None], reference[:, :, None]
    rows = case.sequences(*reference.shape[:2])
    pieces = [(x[b, s:e], reference[b, s:e]) for b, s, e in rows if e > s]
    if not pieces:
        return 0.0, 0.0, 0.0
    columns = [(a[:, h], r[:, h]) for a, r in pieces for h in range(r.shape[1])]
    windows = [
        (a[w : w + WINDOW], r[w : w + WINDOW]) for a, r in columns for w in range(0, len(r), WINDOW)
    ]
    whole = relative(*(np.concatenate([p[i].ravel() for p in pieces]) for i in (0, 1)))
    return whole, worst(columns), worst(windows)


def limits(case, tensor, size):
    """Largest errors of the whole, a head and a window that pass; those of gradients are explained in
    docs/case-format.md."""
    tolerance = float(case.fields.get("tolerance_rel_l2", 1e-5))
    if case.fields["op"] != "gradients":
        return tolerance, 2 * tolerance, 2 * tolerance
    few = (10 if tensor in ("dA_log", "ddt_bias") else 2) * tolerance
    whole = few if size < 256 else tolerance
    return (whole, np.inf, np.inf) if tensor in ("dg", "dbeta") else (whole, few, 2 * few)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One tensor of one case: relative L2 errors of the whole, of the worst head and of the worst
    window of 64 tokens, and the largest of each that pass."""

    case: str
    tensor: str
    errors: tuple[float, float, float]
    limits: tuple[float, float, float]
    problem: str = ""

    @property
    def passed(self):
        within = all(error <= limit for error, limit in zip(self.errors, self.limits))
        return within and not self.problem

    def __str__(self):
        if self.problem:
            return f"{self.tensor:18} FAIL: {self.problem}"
        whole, head, window = self.errors
        return (
            f"{self.tensor:18} {'PASS' if self.passed else 'FAIL'}  whole {whole:.1e}  "
            f"head {head:.1e}  window {window:.1e}  (limit {self.limits[0]:.0e})"
        )


def judge(case, results):
    """A verdict for each expected tensor of the case on `results`, token-first and by name."""
    verdicts = []
    for tensor in case.expected():
        reference, x = case.get(tensor), results.get(tensor)
        problem, found = "", (np.inf, np.inf, np.inf)
        if x is None:
            problem = "missing"
        elif x.shape != reference.shape:
            problem = f"shape {x.shape}, expected {reference.shape}"
        else:
            found = errors(case, tensor, x.astype(np.float64), reference.astype(np.float64))
        allowed = limits(case, tensor, reference.size)
        verdicts.append(Verdict(case.name, tensor, found, allowed, problem))
    return verdicts


def results_of(case, others):
    """Somebody's results of a case: those of its expected tensors that there are."""
    found = {tensor: case.get(tensor, others) for tensor in case.expected()}
    return {tensor: array for tensor, array in found.items() if array is not None}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases")
    parser.add_argument("--against", help="results to check (safetensors)")
    parser.add_argument("--filter", default="", help="only cases whose name contains this")
    arguments = parser.parse_args()
    others = read_safetensors(arguments.against)[0] if arguments.against else None
    checked = failed = 0
    for case in read_cases(arguments.cases):
        if arguments.filter not in case.name:
            continue
        if others is not None:
            results = results_of(case, others)
        else:
            import recurrence

            results, wrong = recurrence.answers(case)
            failed += wrong
        if results is None:
            print(f"{case.name}  skipped: op {case.fields['op']} needs --against")
            continue
        checked += 1
        for verdict in judge(case, results):
            failed += not verdict.passed
            print(f"{case.name}.{verdict}")
    print(f"{checked} cases checked, {failed} tensors failed")
    return 1 if failed or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
