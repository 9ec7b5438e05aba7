# SPDX-License-Identifier: Apache-2.0
"""Stands in for SGLang's KDA: sglang.kernels.ops.attention.fla.kda and .fused_recurrent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import ops
from ...functional.kda import gate_arguments
from .. import sequences
from ..chunk_states import chunk_start_states
from ..packed import packed_decode
from ..refusal import invalid, only_absent

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
    initial_state_indices: torch.Tensor | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    A_log: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    lower_bound: float | None = None,
    output_intermediate_states: bool = False,
    track_state: torch.Tensor | None = None,
    track_chunk_idx: torch.Tensor | None = None,
    beta_is_raw: bool = False,
    chunk_indices: Any = None,
    chunk_offsets: Any = None,
) -> Any:
    """Prefill: g [B,T,HV,K], raw with A_log (bounded with lower_bound), else logarithms; beta
    [B,T,HV], logits with beta_is_raw; initial_state is the pool [slots,HV,V,K], read and written at
    initial_state_indices [N]. chunk_indices and chunk_offsets repeat cu_seqlens and are not read;
    tracked states are refused.

    Returns o, or with output_intermediate_states (o, h): h as `chunk_gated_delta_rule` has it.
    """
    op = "sglang.chunk_kda"
    only_absent(
        op, "no snapshots of single chunks", track_state=track_state, track_chunk_idx=track_chunk_idx
    )
    if len(beta.shape) != 3:
        invalid(op, "beta", beta, "[B,T,HV]", "one write strength a value head")
    h, checkpoints = None, {}
    if output_intermediate_states:
        h, checkpoints = chunk_start_states(
            q, v, cu_seqlens, initial_state, initial_state_indices, "vk"
        )
    o = ops.chunk_forward(
        q,
        k,
        v,
        g,
        beta,
        cu_seqlens=cu_seqlens,
        initial_state=initial_state,
        final_state=initial_state,
        state_layout="vk",
        read_slots=initial_state_indices,
        scale=scale,
        beta_space="logit" if beta_is_raw else "value",
        qk_norm=sequences.qk_norm(use_qk_l2norm_in_kernel),
        **gate_arguments(op, g, A_log is not None, A_log, dt_bias, lower_bound),
        **checkpoints,
    )
    return o if h is None else (o, h.view(q.shape[0], len(h) // q.shape[0], *h.shape[1:]))


def fused_recurrent_kda_packed_decode(
    mixed_qkv: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    A_log: torch.Tensor,
    dt_bias: torch.Tensor,
    scale: float,
    initial_state: torch.Tensor,
    out: torch.Tensor,
    ssm_state_indices: torch.Tensor,
    use_qk_l2norm_in_kernel: bool = False,
    lower_bound: float | None = None,
) -> Any:
    """One token a row: mixed_qkv [B, 2HK+HVV], raw gates a [B, HV K], logits b [B,HV]; negative slots
    are padding. Returns (out, initial_state)."""
    op = "sglang.fused_recurrent_kda_packed_decode"
    HV, K = initial_state.shape[1], initial_state.shape[3]
    gates = gate_arguments(
        op, a.unflatten(1, (HV, K)), True, A_log, dt_bias, lower_bound
    )
    return packed_decode(
        op,
        sequences.decode,
        mixed_qkv,
        a.unflatten(1, (HV, K)),
        b,
        out,
        initial_state,
        ssm_state_indices,
        scale=scale,
        qk_norm=sequences.qk_norm(use_qk_l2norm_in_kernel),
        **gates,
    )
