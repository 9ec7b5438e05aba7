# SPDX-License-Identifier: Apache-2.0
"""Stands in for SGLang's gated delta rule and KDA: sglang.kernels.ops.attention.fla and .linear
(sglang.srt.layers.attention.fla in older trees)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import ops
from ...functional.kda import gate_arguments
from .. import sequences
from ..chunk_states import chunk_start_states
from ..refusal import check_scale, invalid, only_absent, only_value, unsupported

if TYPE_CHECKING:
    import torch


def chunk_gated_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    initial_state_indices: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    head_first: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    inplace_update: bool = True,
) -> Any:
    """Prefill: log gate g, beta [B,T,HV]; initial_state is the pool [slots,HV,V,K], read and (with
    inplace_update) written at initial_state_indices [N]. SGLang refuses float32, Sluice does not.

    Returns (o, None, h): h [1, chunks, HV, V, K] in q's dtype, the states at the start of every
    64-token chunk, sequence after sequence, which SGLang's prefix cache copies from. On CUDA h may
    end in unused rows, because the exact count is not known to the host.
    """
    op = "sglang.chunk_gated_delta_rule"
    only_absent(op, "token-first tensors", head_first=head_first)
    call = sequences.arguments(q, k, v, g, beta, cu_seqlens, scale, use_qk_l2norm_in_kernel)
    call["final_state"] = initial_state if inplace_update else None
    o, h = _prefill(op, call, initial_state, initial_state_indices, True)
    return o, None, h


def _prefill(op: str, call: dict[str, Any], pool: Any, slots: Any, with_states: bool) -> tuple[torch.Tensor, Any]:
    """chunk_forward of `call` on states of a pool. Returns (o, the states at the start of every chunk, or None)."""
    if len(call["beta"].shape) != 3:
        invalid(op, "beta", call["beta"], "[B,T,HV]", "one write strength a value head")
    h = None
    if with_states:
        h, checkpoints = chunk_start_states(call["q"], call["v"], call["cu_seqlens"], pool, slots, "vk")
        call.update(checkpoints)
    return ops.chunk_forward(**call, initial_state=pool, state_layout="vk", read_slots=slots), h


def _step_buffer(
    op: str, buffer: Any, slots: torch.Tensor, steps: torch.Tensor, tokens: int, count: int
) -> Any:
    """Per-token writes into a buffer [slots, steps, HV, V, K]: the state after token t of sequence
    n to [slots[n], t]. SGLang gives the slots of its whole pool: the first ones count."""
    import torch

    if slots is None:
        invalid(op, "intermediate_state_indices", None, "[N]", "with intermediate_states_buffer")
    if steps is not None:
        only_value(op, "cache_steps", steps, buffer.shape[1], "the buffer's second dimension")
    steps = buffer.shape[1]
    slots = slots[:count]
    first = slots.to(torch.int64)[:, None] * steps
    rows = first + torch.arange(min(steps, tokens), device=buffer.device)[None, :]
    return dict(
        final_state=buffer.view(-1, *buffer.shape[2:]),
        write_slots=torch.where(slots[:, None] >= 0, rows, -1),
        state_writes="per_token",
        columns=rows.shape[1],
    )


def _decode(
    op: str, call: dict[str, Any], states: tuple[Any, Any, bool], per_token: tuple[Any, Any, Any]
) -> torch.Tensor:
    """A step of `call`. states: the pool, slots, disable_state_update; per_token: the buffer of states after every
    token, its slots, steps."""
    pool, slots, disable_state_update = states
    buffer, buffer_slots, steps = per_token
    check_scale(op, call["scale"])
    call.update(initial_state=pool, state_layout="vk", read_slots=slots)
    if buffer is not None:
        if not disable_state_update:
            rule = "states of every token, or the last one"
            unsupported(op, "disable_state_update", False, "True with the buffer", rule)
        q = call["q"]
        count = sequences.count(q, call["cu_seqlens"])
        call.update(_step_buffer(op, buffer, buffer_slots, steps, q.shape[1], count))
    else:
        only_absent(op, "without a buffer", intermediate_state_indices=buffer_slots)
        if disable_state_update or pool is None:
            call["state_writes"] = "none"
    return sequences.decode(op, call)


def fused_sigmoid_gating_delta_rule_update(
    A_log: torch.Tensor,
    a: torch.Tensor,
    dt_bias: torch.Tensor,
    softplus_beta: float,
    softplus_threshold: float,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    b: torch.Tensor,
    initial_state_source: torch.Tensor,
    initial_state_indices: torch.Tensor,
    scale: float | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    is_kda: bool = False,
    lower_bound: float | None = None,
    disable_state_update: bool = False,
    intermediate_states_buffer: torch.Tensor | None = None,
    intermediate_state_indices: torch.Tensor | None = None,
    cache_steps: int | None = None,
    retrieve_parent_token: Any = None,
    cache_ring: bool = False,
    replayssm_rawv: torch.Tensor | None = None,
    replayssm_rawk: torch.Tensor | None = None,
    replayssm_g: torch.Tensor | None = None,
    replayssm_beta: torch.Tensor | None = None,
    match_cutedsl_decode: bool = False,
) -> Any:
    """Decode and verification with raw gates a, b [tokens,HV] or [B,T,HV]: the pool
    initial_state_source [slots,HV,V,K] is updated IN PLACE at initial_state_indices [N], unless
    disable_state_update; with it, intermediate_states_buffer [slots,steps,HV,V,K] can take the
    state after every token at intermediate_state_indices [N]. softplus_beta 1 and
    softplus_threshold 20 only. is_kda: key-wise gates [tokens, HV K], [tokens,HV,K] or [B,T,HV,K],
    dt_bias [HV K], which a lower_bound bounds. Trees and replay windows are refused. Returns o."""
    op = "sglang.fused_sigmoid_gating_delta_rule_update"
    if not is_kda:
        only_absent(op, "of key-wise gates", lower_bound=lower_bound)
    only_absent(
        op,
        "no trees, replay windows or CuTe DSL rounding",
        retrieve_parent_token=retrieve_parent_token,
        cache_ring=cache_ring,
        replayssm_rawv=replayssm_rawv,
        replayssm_rawk=replayssm_rawk,
        replayssm_g=replayssm_g,
        replayssm_beta=replayssm_beta,
        match_cutedsl_decode=match_cutedsl_decode,
    )
    only_value(op, "softplus_beta", softplus_beta, 1.0, "softplus(x)")
    only_value(op, "softplus_threshold", softplus_threshold, 20.0, "softplus(x) = x above it")
    b = sequences.token_rows(b, q)
    call = sequences.arguments(q, k, v, None, b, cu_seqlens, scale, use_qk_l2norm_in_kernel)
    call.update(sequences.raw_gate(op, is_kda, (a, A_log, dt_bias), q, v, lower_bound), beta_space="logit")
    states = (initial_state_source, initial_state_indices, disable_state_update)
    return _decode(op, call, states, (intermediate_states_buffer, intermediate_state_indices, cache_steps))


def fused_recurrent_gated_delta_rule_update(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor | None = None,
    scale: float | None = None,
    initial_state_source: torch.Tensor | None = None,
    initial_state_indices: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    disable_state_update: bool = False,
    disable_output_calculation: bool = False,
    intermediate_states_buffer: torch.Tensor | None = None,
    intermediate_state_indices: torch.Tensor | None = None,
    cache_steps: int | None = None,
    retrieve_parent_token: Any = None,
) -> Any:
    """fused_sigmoid_gating_delta_rule_update with log gates g and beta [B,T,HV] (None = 1).
    disable_output_calculation and trees are refused. Returns o."""
    op = "sglang.fused_recurrent_gated_delta_rule_update"
    only_absent(
        op,
        "outputs are always computed, and no trees",
        disable_output_calculation=disable_output_calculation,
        retrieve_parent_token=retrieve_parent_token,
    )
    if beta is not None and len(beta.shape) == 4:
        unsupported(op, "beta", beta, "[B,T,HV]", "one write strength a value head")
    call = sequences.arguments(q, k, v, g, beta, cu_seqlens, scale, use_qk_l2norm_in_kernel)
    states = (initial_state_source, initial_state_indices, disable_state_update)
    return _decode(op, call, states, (intermediate_states_buffer, intermediate_state_indices, cache_steps))


def fused_recurrent_gated_delta_rule_packed_decode(
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
) -> Any:
    """One token a row, as vLLM's, but here only negative slots are padding. Returns (out,
    initial_state)."""
    return sequences.packed_decode(
        "sglang.fused_recurrent_gated_delta_rule_packed_decode",
        mixed_qkv,
        (a, b),
        out,
        initial_state,
        ssm_state_indices,
        A_log=A_log,
        dt_bias=dt_bias,
        scale=scale,
        qk_norm=sequences.qk_norm(use_qk_l2norm_in_kernel),
    )


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
    call = sequences.arguments(q, k, v, g, beta, cu_seqlens, scale, use_qk_l2norm_in_kernel)
    call.update(gate_arguments(op, g, A_log is not None, A_log, dt_bias, lower_bound))
    call.update(beta_space="logit" if beta_is_raw else "value", final_state=initial_state)
    o, h = _prefill(op, call, initial_state, initial_state_indices, output_intermediate_states)
    return o if h is None else (o, h)


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
    rows = a.unflatten(1, (HV, K))
    return sequences.packed_decode(
        op,
        mixed_qkv,
        (rows, b),
        out,
        initial_state,
        ssm_state_indices,
        scale=scale,
        qk_norm=sequences.qk_norm(use_qk_l2norm_in_kernel),
        **gate_arguments(op, rows, True, A_log, dt_bias, lower_bound),
    )
