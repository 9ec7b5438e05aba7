# SPDX-License-Identifier: Apache-2.0
"""Stands in for the functions that transformers' GDN layers call, with the parameter names of
transformers 5.23.

Names matter: transformers passes a function only the keywords that its signature has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import functional, ops
from ...functional._arguments import MAX_STEP_TOKENS, new_state
from .. import sequences
from ..pool_conv import activation_name
from ..refusal import only_absent
from ..swap import needs_gradient

if TYPE_CHECKING:
    import torch


def chunk_gated_delta_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    chunk_size: int = 64,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """query, key [B,T,H,K], value [B,T,HV,V], log gate g and beta [B,T,HV], initial_state
    [N,HV,K,V]. chunk_size chooses nothing. cu_seq_lens_q: what KDA layers call cu_seqlens. Returns (o, final
    state float32 or None)."""
    cu_seqlens = cu_seq_lens_q if cu_seqlens is None else cu_seqlens
    final = new_state(query, value, cu_seqlens, False) if output_final_state else None
    o = ops.chunk_forward(
        query,
        key,
        value,
        g,
        beta,
        cu_seqlens=cu_seqlens,
        initial_state=initial_state,
        final_state=final,
        qk_norm="l2" if use_qk_l2norm_in_kernel else "none",
    )
    return o, final


def fused_recurrent_gated_delta_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """chunk_gated_delta_rule token by token, out of place; where an input needs a gradient by chunks, which have
    one. Returns (o, final state or None)."""
    cu_seqlens = cu_seq_lens_q if cu_seqlens is None else cu_seqlens
    if needs_gradient(query, key, value, g, beta, initial_state):
        return chunk_gated_delta_rule(
            query, key, value, g, beta, initial_state=initial_state, output_final_state=output_final_state,
            use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel, cu_seqlens=cu_seqlens,
        )  # fmt: skip
    bound = None
    if cu_seqlens is not None:
        bound = max(sequences.longest(cu_seqlens, query.shape[1]), 1)
    return functional.fused_recurrent_gated_delta_rule(
        query,
        key,
        value,
        g,
        beta=beta,
        initial_state=initial_state,
        output_final_state=output_final_state,
        use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
        cu_seqlens=cu_seqlens,
        max_tokens=bound if bound is not None and bound <= MAX_STEP_TOKENS else None,
    )


def causal_conv1d_fn(
    hidden_states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    seq_idx: torch.Tensor | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
) -> torch.Tensor:
    """hidden_states [B,D,L], weight [D,W]. Packed rows need cu_seq_lens_q, which transformers'
    layers pass along; seq_idx alone is refused. Returns [B,D,L]."""
    op = "transformers.causal_conv1d_fn"
    if cu_seq_lens_q is None:
        only_absent(op, "packed rows need cu_seq_lens_q", seq_idx=seq_idx)
    return ops.causal_conv1d(
        hidden_states.transpose(1, 2),
        weight,
        bias,
        cu_seqlens=cu_seq_lens_q,
        activation=activation_name(op, activation),
    ).transpose(1, 2)


def causal_conv1d_update(
    hidden_states: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
) -> torch.Tensor:
    """hidden_states [B,D,T], conv_state [B,D,W] (W columns, not W-1), updated IN PLACE. Returns
    [B,D,T]."""
    return ops.causal_conv1d(
        hidden_states.transpose(1, 2),
        weight,
        bias,
        initial_state=conv_state,
        final_state=conv_state,
        activation=activation_name("transformers.causal_conv1d_update", activation),
    ).transpose(1, 2)


def gated_rms_norm(
    hidden_states: torch.Tensor,
    gate: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    activation: str,
    rounding: str = "hf",
) -> torch.Tensor:
    """The forward of transformers' *RMSNormGated modules: hidden_states, gate [.., V]; with "hf" it
    rounds the normalised value to the input's dtype before weight and gate, as those of GDN do."""
    return ops.gated_rms_norm(
        hidden_states,
        gate,
        weight,
        eps=eps,
        activation="silu" if activation == "swish" else activation,
        rounding=rounding,
    )
