# SPDX-License-Identifier: Apache-2.0
"""Runs fla.ops.kda and fla.ops.gla on Sluice: fla's parameters, nothing of Sluice's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import functional
from ..refusal import invalid
from .ops import passed_on

if TYPE_CHECKING:
    import torch


def chunk_kda(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    safe_gate: bool = False,
    lower_bound: float | None = None,
    disable_recompute: bool = False,
    return_intermediate_states: bool = False,
    state_v_first: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    cu_seqlens_cpu: Any = None,
    cp_context: Any = None,
    use_graph: bool = False,
    max_num_seqs: int | None = None,
    A_log: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    chunk_size: int = 64,
    transpose_state_layout: bool | None = None,
) -> tuple[Any, ...]:
    """fla's prefill: q, k [B,T,H,K], v [B,T,HV,V], g [B,T,HV,K], beta [B,T,HV], state [N,HV,K,V]; see
    `sluice.chunk_kda`. cp_context is fla's; lower_bound may be any number < 0; use_graph and
    max_num_seqs are not read (launches depend on no contents).

    Returns (o, final state float32 or None), with return_intermediate_states (o, final, h).
    """
    return functional.chunk_kda(**passed_on("fla.chunk_kda", locals()))


def fused_recurrent_kda(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    A_log: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    lower_bound: float | None = None,
    state_v_first: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    transpose_state_layout: bool | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """fla's decode, shapes as in chunk_kda. A beta per channel [B,T,HV,V] is refused. Returns
    (o, final state or None)."""
    op = "fla.fused_recurrent_kda"
    if len(beta.shape) != 3:
        invalid(op, "beta", beta, "[B,T,HV]", "one write strength a value head")
    return functional.fused_recurrent_kda(**passed_on(op, locals()))


def chunk_gla(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    scale: int | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    cu_seqlens_cpu: Any = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """fla's gated linear attention by chunks: see `sluice.chunk_gla`."""
    return functional.chunk_gla(**locals())
