# SPDX-License-Identifier: Apache-2.0
"""Finds out about a call what the shims need: lengths of packed sequences, without waiting for a GPU, and norms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import ops
from ..functional._arguments import run_by_chunks
from .refusal import unsupported

if TYPE_CHECKING:
    import torch

# Tokens per sequence that a recurrent step takes (sluice_recurrent_step_args).
kMaxStepTokens = 16


def longest(cu_seqlens: torch.Tensor, tokens: int, columns: int | None = None) -> int:
    """An upper bound on one sequence's tokens.

    columns: how many state slots a sequence has, where the caller's slots are [N, columns]. Without
    it a batch of as many tokens as sequences is a decode batch of one token each, the engines'
    rule; on the CPU the lengths themselves are read.
    """
    if columns is not None:
        return columns
    if cu_seqlens.device.type == "cpu":
        return max(int((cu_seqlens[1:] - cu_seqlens[:-1]).max()), 1) if len(cu_seqlens) > 1 else 1
    return 1 if tokens == len(cu_seqlens) - 1 else tokens


def qk_norm(use_l2norm: bool) -> str:
    """The operators' word for an engine's flag."""
    return "l2" if use_l2norm else "none"


def count(q: torch.Tensor, cu_seqlens: torch.Tensor) -> int:
    """N: the sequences of a call."""
    return q.shape[0] if cu_seqlens is None else len(cu_seqlens) - 1


def decode(
    op: str,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    gate: torch.Tensor,
    beta: torch.Tensor,
    *,
    columns: int | None = None,
    cu_seqlens: torch.Tensor | None = None,
    **arguments: Any,
) -> torch.Tensor:
    """A recurrent step where sequences are short enough, else the chunk form in float32, as the
    engines' kernels compute: both update the pool `initial_state` in place, or write `final_state`.
    Arguments of `ops.recurrent_step`."""
    tokens = q.shape[1]
    bound = tokens if cu_seqlens is None else longest(cu_seqlens, tokens, columns)
    if bound <= kMaxStepTokens:
        max_tokens = 0 if cu_seqlens is None else max(bound, 1)
        return ops.recurrent_step(
            q, k, v, gate, beta, cu_seqlens=cu_seqlens, max_tokens=max_tokens, **arguments
        )
    writes = arguments.pop("state_writes", "last")
    if writes == "per_token" or arguments.pop("num_accepted", None) is not None:
        rule = "states per token and rollback"
        unsupported(op, "tokens per sequence", bound, f"<= {kMaxStepTokens}", rule)
    if writes == "last":
        arguments.setdefault("final_state", arguments["initial_state"])
    out = arguments.pop("o", None)
    arguments.update(gate=gate, beta=beta, cu_seqlens=cu_seqlens, stream=None)
    return run_by_chunks(op, (q, k, v), out, False, arguments)
