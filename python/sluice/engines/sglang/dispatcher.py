# SPDX-License-Identifier: Apache-2.0
"""Stands in for the methods of SGLang's GDNKernelDispatcher (sglang.srt.layers.attention.linear.gdn_backend), which
sends a GDN layer's calls to the kernels of whatever backend was chosen: on Hopper prefill is FlashInfer's by
default, which the functions of `ops` would never see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..refusal import only_absent
from . import ops

if TYPE_CHECKING:
    import torch


_SOFTPLUS = (1.0, 20.0)  # beta and threshold


def decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    A_log: torch.Tensor,
    dt_bias: torch.Tensor,
    ssm_states: torch.Tensor,
    cache_indices: torch.Tensor,
    query_start_loc: torch.Tensor,
    **kwargs: Any,
) -> torch.Tensor:
    """A token of each sequence, states in place."""
    update = (A_log, a, dt_bias, *_SOFTPLUS, q, k, v, b, ssm_states, cache_indices)
    return ops.fused_sigmoid_gating_delta_rule_update(
        *update, use_qk_l2norm_in_kernel=True, cu_seqlens=query_start_loc
    )


def packed_decode(
    mixed_qkv: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    A_log: torch.Tensor,
    dt_bias: torch.Tensor,
    scale: float,
    ssm_states: torch.Tensor,
    cache_indices: torch.Tensor,
    num_v_heads: int,
    head_v_dim: int,
    **kwargs: Any,
) -> torch.Tensor:
    """The same from the convolution's output. Replay rings are refused. Returns [1,B,HV,V]."""
    rings = {name: value for name, value in kwargs.items() if name.startswith("replayssm")}
    only_absent("sglang.packed_decode", "SGLang's replay format", **rings)
    out = mixed_qkv.new_empty(mixed_qkv.shape[0], 1, num_v_heads, head_v_dim)
    ops.fused_recurrent_gated_delta_rule_packed_decode(
        mixed_qkv=mixed_qkv,
        a=a,
        b=b,
        A_log=A_log,
        dt_bias=dt_bias,
        scale=scale,
        initial_state=ssm_states,
        out=out,
        ssm_state_indices=cache_indices,
        use_qk_l2norm_in_kernel=True,
    )
    return out.transpose(0, 1)


def extend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    *,
    ssm_states: torch.Tensor,
    cache_indices: torch.Tensor,
    query_start_loc: torch.Tensor,
    **kwargs: Any,
) -> Any:
    """Prefill, states in place unless inplace_update=False: (o, None, states of chunks). Checkpoints in
    FlashInfer's numbering and snapshots are refused."""
    names = ("state_checkpoint_cu_starts", "track_state", "track_chunk_idx")
    only_absent("sglang.extend", "SGLang's checkpoints", **{n: kwargs.get(n) for n in names})
    return ops.chunk_gated_delta_rule(
        q,
        k,
        v,
        g,
        beta,
        initial_state=ssm_states,
        initial_state_indices=cache_indices,
        cu_seqlens=query_start_loc,
        use_qk_l2norm_in_kernel=True,
        inplace_update=kwargs.get("inplace_update", True),
    )


def target_verify(
    A_log: torch.Tensor,
    dt_bias: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    ssm_states: torch.Tensor,
    cache_indices: torch.Tensor,
    query_start_loc: torch.Tensor,
    **kwargs: Any,
) -> torch.Tensor:
    """Drafted tokens: the state after each goes to intermediate_states_buffer, the pool stays. Trees
    are refused."""
    only_absent(
        "sglang.target_verify",
        "drafts are chains",
        retrieve_parent_token=kwargs.get("retrieve_parent_token"),
    )
    update = (A_log, a, dt_bias, *_SOFTPLUS, q, k, v, b, ssm_states, cache_indices)
    names = ("intermediate_states_buffer", "intermediate_state_indices", "cache_steps")
    per_token: Any = {name: kwargs.get(name) for name in names}
    return ops.fused_sigmoid_gating_delta_rule_update(
        *update,
        use_qk_l2norm_in_kernel=True,
        cu_seqlens=query_start_loc,
        disable_state_update=True,
        **per_token,
    )
