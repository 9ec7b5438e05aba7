# SPDX-License-Identifier: Apache-2.0
"""Holds Sluice, or somebody else's results, against the recorded answers of case files; without files,
against the reference on random cases of every operator."""

import dataclasses
import os
import pathlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from sluice import Unsupported

from ..check import Case, Verdict, judge, read_cases, read_safetensors, results_of
from ..counts import counted
from ..place import Array
from .execute import execute

_LENGTHS = (70, 0, 1, 129)  # of packed random cases


@dataclasses.dataclass
class Report:
    """What `verify` found. `passed`: every case ran and every tensor is within its limit."""

    verdicts: list[Verdict] = dataclasses.field(default_factory=list)
    kernels: dict[str, str] = dataclasses.field(default_factory=dict)
    unsupported: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def failed(self) -> list[Verdict]:
        return [v for v in self.verdicts if not v.passed]

    @property
    def passed(self) -> bool:
        return bool(self.verdicts) and not self.failed and not self.unsupported

    def __str__(self) -> str:
        lines = []
        for case, kernel in self.kernels.items():
            lines.append(f"{case} ({kernel})" if kernel else case)
            lines += [f"  {v}" for v in self.verdicts if v.case == case]
        lines += [f"{case}\n  not supported: {why}" for case, why in self.unsupported.items()]
        lines.append(
            f"{counted(len(self.kernels), 'case')}, {counted(len(self.verdicts), 'tensor')}, "
            f"{len(self.failed)} failed"
            + (
                f"; {counted(len(self.unsupported), 'case')} not supported"
                if self.unsupported
                else ""
            )
        )
        return "\n".join(lines)


def verify(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    device: str = "cpu",
    implementation: str = "auto",
    filter: str = "",
    against: str | os.PathLike[str] | None = None,
) -> Report:
    """Runs every case of the case files `paths` in float32 and compares with the recorded answers.

    Args:
      paths: one case file or several (docs/case-format.md).
      device: "cpu", or "cuda" (or "cuda:1") for torch tensors there.
      implementation: "auto", "cpu", "cuda", "reference" or "reference-chunked".
      filter: only cases whose name contains this.
      against: a safetensors file with somebody else's results under the expected tensors' names;
        nothing is computed then.

    Returns: a Report; `report.passed`, and `print(report)` for the table.
    Errors: ValueError for files that are no case files, or if no case's name contains `filter`;
      OSError for files that cannot be read. What a backend does not support is in
      `report.unsupported`. 16-bit inputs are for the C++ tool (`sluice verify --dtype bf16`),
      whose limits come from the reference.
    """
    others = None if against is None else read_safetensors(pathlib.Path(against))[0]
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    cases = [case for path in paths for case in read_cases(pathlib.Path(path))]
    chosen = [case for case in cases if filter in case.name]
    if not chosen:
        raise ValueError(f"no case's name contains '{filter}'")
    report = Report()
    for case in chosen:
        if others is None:
            _run(case, device, implementation, report)
        else:
            report.kernels[case.name] = ""
            report.verdicts += judge(case, results_of(case, others))
    return report


def self_check(device: str = "cpu", implementation: str = "auto") -> Report:
    """Every operator on random inputs against the reference, which computes in double: `verify`
    where there is no case file."""
    report = Report()
    for case in self_check_cases():
        _run(case, device, implementation, report)
    return report


def _run(case: Case, device: str, implementation: str, report: Report) -> None:
    try:
        results, kernel = execute(case, device, implementation)
    except Unsupported as refusal:
        report.unsupported[case.name] = str(refusal)
    else:
        report.kernels[case.name] = kernel
        report.verdicts += judge(case, results)


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
