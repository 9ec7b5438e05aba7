# SPDX-License-Identifier: Apache-2.0
"""Makes views of packed rows: q, k and v side by side in one row, and gates of one row per token."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..functional.kda import gate_arguments
from .refusal import invalid

if TYPE_CHECKING:
    import torch


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


def token_rows(gate: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """A view [B,T,HV] of gates [tokens,HV] (more rows than tokens are left out) or [B,T,HV]."""
    if len(gate.shape) == 3:
        return gate
    return token_rows_of(gate, q)


def key_rows(gate: torch.Tensor, q: torch.Tensor, heads: int) -> torch.Tensor:
    """A view [B,T,HV,K] of key-wise gates [tokens, HV K], [tokens,HV,K], [B,T,HV K] or that."""
    if len(gate.shape) == 4:
        return gate
    K = q.shape[3]
    if gate.shape[-1] == heads * K and not (len(gate.shape) == 3 and heads == 1):
        gate = gate.unflatten(-1, (heads, K))
    return gate if len(gate.shape) == 4 else token_rows_of(gate, q)


def token_rows_of(gate: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Rows [tokens, ..] as [B,T, ..]; more rows than tokens are left out."""
    return gate[: q.shape[0] * q.shape[1]].unflatten(0, (q.shape[0], q.shape[1]))


def raw_gate(
    op: str,
    key_wise: bool,
    given: tuple[Any, Any, Any],
    q: torch.Tensor,
    v: torch.Tensor,
    lower_bound: float | None = None,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Raw gates of the fused updates, (a, A_log, dt_bias), as the operators take them: the view, and
    what else they are told."""
    a, A_log, dt_bias = given
    if not key_wise:
        return token_rows(a, q), {"A_log": A_log, "dt_bias": dt_bias, "gate_space": "raw"}
    rows = key_rows(a, q, v.shape[2])
    return rows, gate_arguments(op, rows, True, A_log, dt_bias, lower_bound)


def packed_decode(
    op: str,
    decode: Callable[..., torch.Tensor],
    mixed_qkv: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    state: torch.Tensor,
    slots: torch.Tensor,
    **arguments: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One token a row: mixed_qkv [B, 2HK+HVV], a, b [B,HV], out [B,1,HV,V], state [slots,HV,V,K]
    updated in place at slots [B]. Returns (out, state), as the engines do."""
    HV, V, K = state.shape[-3:]
    q, k, v = (rows.unsqueeze(1) for rows in split_heads(op, mixed_qkv, HV, K, V))
    decode(
        op,
        q,
        k,
        v,
        a.unsqueeze(1),
        b.unsqueeze(1),
        o=out,
        initial_state=state,
        state_layout="vk",
        read_slots=slots,
        beta_space="logit",
        **{"gate_space": "raw", **arguments},
    )
    return out, state
