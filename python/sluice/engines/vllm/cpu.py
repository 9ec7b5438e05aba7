# SPDX-License-Identifier: Apache-2.0
"""Stands in for vllm._custom_ops of vLLM's CPU build: what its attention core calls between the
convolutions.

Pools come as [slots, HV, K, V] and are updated in place. q and k are normalised with eps 1e-5,
which vLLM's decode kernel does not say but does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import ops
from .. import sequences
from ..refusal import only_absent, only_value, unsupported

if TYPE_CHECKING:
    import torch

_EPS = 1e-5


def chunk_gated_delta_rule_cpu(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    initial_state: torch.Tensor,
    output_final_state: bool,
    cu_seqlens: torch.Tensor,
    head_first: bool,
    use_qk_l2norm_in_kernel: bool,
    initial_state_indices: torch.Tensor,
    eps: float = 1e-5,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Prefill of packed rows: query, key [1,T,H,K], value [1,T,HV,V], log gate g float32 and beta
    [1,T,HV], cu_seqlens [N+1]; the pool initial_state is read and updated IN PLACE at
    initial_state_indices [N], whatever output_final_state says. Returns (o, pool)."""
    only_absent("vllm.chunk_gated_delta_rule_cpu", "token-first rows", head_first=head_first)
    o = ops.chunk_forward(
        query,
        key,
        value,
        g,
        beta,
        cu_seqlens=cu_seqlens,
        initial_state=initial_state,
        final_state=initial_state,
        read_slots=initial_state_indices,
        qk_norm=sequences.qk_norm(use_qk_l2norm_in_kernel),
        l2norm_eps=eps,
    )
    return o, initial_state


def fused_sigmoid_gating_delta_rule_update_cpu(
    A_log: torch.Tensor,
    dt_bias: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    initial_state_source: torch.Tensor,
    initial_state_indices: torch.Tensor,
    cu_seqlens: torch.Tensor,
    use_qk_l2norm_in_kernel: bool,
    softplus_beta: float = 1.0,
    softplus_threshold: float = 20.0,
) -> torch.Tensor:
    """One token a sequence: q, k [1,N,H,K], v [1,N,HV,V], raw a, b [N,HV]; the pool
    initial_state_source is updated IN PLACE at initial_state_indices [N]. Returns o [N,1,HV,V]."""
    op = "vllm.fused_sigmoid_gating_delta_rule_update_cpu"
    only_value(op, "softplus_beta", softplus_beta, 1.0, "softplus(x)")
    only_value(op, "softplus_threshold", softplus_threshold, 20.0, "softplus(x) = x above it")
    if q.shape[1] != len(cu_seqlens) - 1:
        rule = "one token a sequence"
        unsupported(op, "tokens", q.shape[1], f"{len(cu_seqlens) - 1}", rule)
    return ops.recurrent_step(
        q.transpose(0, 1),
        k.transpose(0, 1),
        v.transpose(0, 1),
        a.unsqueeze(1),
        b.unsqueeze(1),
        A_log=A_log,
        dt_bias=dt_bias,
        gate_space="raw",
        beta_space="logit",
        initial_state=initial_state_source,
        read_slots=initial_state_indices,
        qk_norm=sequences.qk_norm(use_qk_l2norm_in_kernel),
        l2norm_eps=_EPS,
    )
