# SPDX-License-Identifier: Apache-2.0
"""Finds out about a call what the shims need: lengths of packed sequences, without waiting for a GPU, norms, and views
of packed rows: q, k and v side by side in one row, gates of one row per token. Runs what all of them decode with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import ops
from ..functional._arguments import MAX_STEP_TOKENS, run_by_chunks
from ..functional.kda import gate_arguments
from .refusal import invalid, unsupported

if TYPE_CHECKING:
    import torch


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


def arguments(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gate: Any, beta: Any, cu_seqlens: Any, scale: Any, l2norm: bool
) -> dict[str, Any]:
    """What the operators are told of a call's rows, gates and norms: what it says of states is added to it."""
    return {
        "q": q,
        "k": k,
        "v": v,
        "gate": gate,
        "beta": beta,
        "cu_seqlens": cu_seqlens,
        "scale": scale,
        "qk_norm": "l2" if l2norm else "none",
    }


def decode(op: str, call: dict[str, Any]) -> torch.Tensor:
    """A recurrent step where sequences are short enough, else the chunk form in float32, as the
    engines' kernels compute: both update the pool `initial_state` in place, or write `final_state`.
    call: arguments of `ops.recurrent_step`, and `columns` of `longest`; it is used up."""
    q, cu_seqlens = call["q"], call.get("cu_seqlens")
    columns = call.pop("columns", None)
    tokens = q.shape[1]
    bound = tokens if cu_seqlens is None else longest(cu_seqlens, tokens, columns)
    if bound <= MAX_STEP_TOKENS:
        return ops.recurrent_step(**call, max_tokens=0 if cu_seqlens is None else max(bound, 1))
    writes = call.pop("state_writes", "last")
    if writes == "per_token" or call.pop("num_accepted", None) is not None:
        rule = "states per token and rollback"
        unsupported(op, "tokens per sequence", bound, f"<= {MAX_STEP_TOKENS}", rule)
    if writes == "last":
        call.setdefault("final_state", call["initial_state"])
    call = {"cu_seqlens": None, "stream": None, **call}
    rows = (call.pop("q"), call.pop("k"), call.pop("v"))
    return run_by_chunks(op, rows, call.pop("o", None), False, call)


def packed_decode(
    op: str,
    mixed_qkv: torch.Tensor,
    gates: tuple[torch.Tensor, torch.Tensor],
    out: torch.Tensor,
    state: torch.Tensor,
    slots: torch.Tensor,
    **call: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One token a row: mixed_qkv [B, 2HK+HVV], gates a, b [B,HV], out [B,1,HV,V], state [slots,HV,V,K]
    updated in place at slots [B]. Returns (out, state), as the engines do."""
    HV, V, K = state.shape[-3:]
    q, k, v = (rows.unsqueeze(1) for rows in split_heads(op, mixed_qkv, HV, K, V))
    a, b = gates
    call.setdefault("gate_space", "raw")
    call.update(q=q, k=k, v=v, gate=a.unsqueeze(1), beta=b.unsqueeze(1), beta_space="logit", o=out)
    call.update(initial_state=state, state_layout="vk", read_slots=slots)
    decode(op, call)
    return out, state


def split_heads(
    op: str, mixed_qkv: torch.Tensor, HV: int, K: int, V: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Views q, k [rows,H,K] and v [rows,HV,V] of mixed_qkv [rows, 2HK+HVV], H from its width; the
    row stride is free."""
    query_width = mixed_qkv.shape[1] - HV * V
    if query_width <= 0 or query_width % (2 * K) != 0:
        expected = f"2 H * {K} + {HV * V}"
        invalid(op, "mixed_qkv.shape[1]", mixed_qkv.shape[1], expected, "[q | k | v] heads")
    H = query_width // (2 * K)
    q, k, v = mixed_qkv.split([H * K, H * K, HV * V], dim=1)
    return q.unflatten(1, (H, K)), k.unflatten(1, (H, K)), v.unflatten(1, (HV, V))


def token_rows(gate: torch.Tensor, q: torch.Tensor, rank: int = 3) -> torch.Tensor:
    """A view [B,T,HV] of gates [tokens,HV] (more rows than tokens are left out) or [B,T,HV]; of rank 4 likewise."""
    if len(gate.shape) == rank:
        return gate
    return gate[: q.shape[0] * q.shape[1]].unflatten(0, (q.shape[0], q.shape[1]))


def key_rows(gate: torch.Tensor, q: torch.Tensor, heads: int) -> torch.Tensor:
    """A view [B,T,HV,K] of key-wise gates [tokens, HV K], [tokens,HV,K], [B,T,HV K] or that."""
    K = q.shape[3]
    if len(gate.shape) < 4 and gate.shape[-1] == heads * K and not (len(gate.shape) == 3 and heads == 1):
        gate = gate.unflatten(-1, (heads, K))
    return token_rows(gate, q, 4)


def raw_gate(
    op: str,
    key_wise: bool,
    given: tuple[Any, Any, Any],
    q: torch.Tensor,
    v: torch.Tensor,
    lower_bound: float | None = None,
) -> dict[str, Any]:
    """Raw gates of the fused updates, (a, A_log, dt_bias), as the operators take them."""
    a, A_log, dt_bias = given
    if not key_wise:
        return {"gate": token_rows(a, q), "A_log": A_log, "dt_bias": dt_bias, "gate_space": "raw"}
    rows = key_rows(a, q, v.shape[2])
    return {"gate": rows, **gate_arguments(op, rows, True, A_log, dt_bias, lower_bound)}
