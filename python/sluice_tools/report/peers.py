# SPDX-License-Identifier: Apache-2.0
"""Times peers that happen to be installed, in this process beside Sluice, in turns, on the same
inputs: transformers' layers (torch, or fla's kernels where it finds them), and flash-linear-attention on a GPU."""

import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
from sluice import functional

from .environment import package_versions

_ROUNDS = 5
_LENGTHS, _QUICK_LENGTHS = (512, 2048), (256,)
_HEADS, _DIM = 16, 128


def installed(device: str) -> dict[str, str]:
    """{peer: version} of those that could run here; empty without torch."""
    versions = package_versions()
    peers = {}
    if "torch" in versions and "transformers" in versions:
        peers["transformers"] = f"transformers {versions['transformers']}"
    if device == "cuda" and importlib.util.find_spec("fla") is not None:
        peers["fla"] = f"flash-linear-attention {versions.get('fla', '')}".strip()
    return peers


def _entry(name: str) -> Callable[..., Any]:
    if name == "fla":
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule

        return chunk_gated_delta_rule
    from transformers.models.qwen3_next import modeling_qwen3_next as model

    return model.torch_chunk_gated_delta_rule


def measure(device: str, quick: bool) -> list[dict[str, Any]]:
    """A row for each peer and length: times of both, and how far their outputs are apart."""
    import torch

    rows = []
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    for tokens in _QUICK_LENGTHS if quick else _LENGTHS:
        rng = np.random.default_rng(0)
        shape = (1, tokens, _HEADS, _DIM)
        tensors = [torch.from_numpy(rng.standard_normal(shape, np.float32)) for _ in range(3)]
        gate = torch.from_numpy(-0.1 * rng.random(shape[:3], np.float32))
        beta = torch.from_numpy(rng.random(shape[:3], np.float32))
        q, k, v = (t.to(device, dtype) for t in tensors)
        gate, beta = gate.to(device), beta.to(device)
        for name, label in installed(device).items():
            row: dict[str, Any] = {"peer": label, "tokens": tokens, "H": _HEADS, "HV": _HEADS, "dim": _DIM}
            row["dtype"] = str(dtype).rpartition(".")[2]
            try:
                # An installed Sluice is a backend of fla (docs/engines/fla.md): here it would race itself.
                with mock.patch.dict(os.environ, FLA_SLUICE="0"):
                    entry = _entry(name)
                    if name == "fla" and label.endswith("attention"):  # a folder, not installed
                        row["peer"] += f" {getattr(sys.modules['fla'], '__version__', '')}"
                    row.update(_race(entry, device, q, k, v, gate, beta))
            except Exception as error:  # a peer's failure is a row, not the end of the report
                row["failure"] = f"{type(error).__name__}: {error}"[:300]
            rows.append(row)
    return rows


def _race(peer: Callable[..., Any], device: str, *tensors: Any) -> dict[str, Any]:
    import torch

    q, k, v, gate, beta = tensors
    options: dict[str, Any] = {"output_final_state": True, "use_qk_l2norm_in_kernel": True}
    outputs: list[Any] = [None, None]

    def once(which: int) -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        call = peer if which else functional.chunk_gated_delta_rule
        outputs[which] = call(q, k, v, g=gate, beta=beta, **options)[0]
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    times: list[list[float]] = [[], []]
    with torch.no_grad():
        for which in (0, 1):
            once(which)
        for _ in range(_ROUNDS):
            for which in (0, 1):
                times[which].append(once(which))
    ours, theirs = (statistics.median(t) for t in times)
    a, b = (output.double() for output in outputs)
    return {
        "seconds": ours,
        "peer_seconds": theirs,
        "ratio": theirs / ours,
        "apart": float((a - b).norm() / b.norm()),
        "torch_threads": torch.get_num_threads(),
    }
