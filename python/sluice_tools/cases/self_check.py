# SPDX-License-Identifier: Apache-2.0
"""Draws random cases of every operator, with the reference's answers in double: what a machine
without case files can be checked with."""

from typing import Any

import numpy as np

from ..check import Case
from ..place import Array
from .execute import execute

_LENGTHS = (70, 0, 1, 129)


def _draw(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape, np.float32)


def _delta_rule(rng: np.random.Generator, batch: int, tokens: int, dim: int) -> dict[str, Array]:
    H, HV = 2, 4
    n = len(_LENGTHS) if batch == 1 else batch
    return dict(
        q=_draw(rng, batch, tokens, H, dim),
        k=_draw(rng, batch, tokens, H, dim),
        v=_draw(rng, batch, tokens, HV, dim),
        g=-rng.random((batch, tokens, HV), np.float32),
        beta=rng.random((batch, tokens, HV), np.float32),
        initial_state=_draw(rng, n, HV, dim, dim),
    )


def _layer(rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Array]]:
    H, HV, dim, B = 2, 4, 64, 2
    channels = 2 * H * dim + HV * dim
    tensors = dict(
        conv_weight=_draw(rng, channels, 4),
        A_log=rng.random(HV, np.float32),
        dt_bias=_draw(rng, HV),
        norm_weight=1 + 0.1 * _draw(rng, dim),
    )
    steps = (100, 1, 1)
    for i, tokens in enumerate(steps):
        tensors[f"step{i}.qkv"] = _draw(rng, B, tokens, channels)
        tensors[f"step{i}.z"] = _draw(rng, B, tokens, HV * dim)
        tensors[f"step{i}.b"] = _draw(rng, B, tokens, HV)
        tensors[f"step{i}.a"] = _draw(rng, B, tokens, HV)
    fields = dict(
        op="layer",
        packing="qwen3_5",
        num_k_heads=H,
        num_v_heads=HV,
        head_k_dim=dim,
        head_v_dim=dim,
        conv_width=4,
        steps=len(steps),
    )
    return fields, tensors


def self_check_cases() -> list[Case]:
    """The cases, inputs the same every time."""
    rng = np.random.default_rng(0)
    starts = np.concatenate([[0], np.cumsum(_LENGTHS)])
    drawn: list[tuple[str, dict[str, Any], dict[str, Array]]] = []
    for dim in (64, 128):
        packed = _delta_rule(rng, 1, int(starts[-1]), dim)
        packed["cu_seqlens"] = starts
        drawn.append((f"prefill.{dim}", dict(op="prefill", use_qk_l2norm=True), packed))
        steps = dict(op="decode", use_qk_l2norm=True, steps=4)
        drawn.append((f"decode.{dim}", steps, _delta_rule(rng, 3, 8, dim)))
    drawn.append(("layer", *_layer(rng)))
    conv = dict(x=_draw(rng, 2, 70, 24), weight=_draw(rng, 24, 4), bias=_draw(rng, 24))
    conv["initial_state"] = _draw(rng, 2, 24, 3)
    drawn.append(("conv1d", dict(op="conv1d"), conv))
    norm = dict(x=_draw(rng, 2, 9, 4, 64), z=_draw(rng, 2, 9, 4, 64), weight=_draw(rng, 64))
    drawn.append(("gated_norm", dict(op="gated_norm"), norm))
    return [answered(name, fields, tensors) for name, fields, tensors in drawn]


def answered(name: str, fields: dict[str, Any], tensors: dict[str, Array]) -> Case:
    """A case with the answers of the reference, which computes in double."""
    named = {f"{name}.{tensor}": array for tensor, array in tensors.items()}
    case = Case(name, fields, named)
    for tensor, array in execute(case, "cpu", "reference")[0].items():
        named[f"{name}.{tensor}"] = array
    return case
