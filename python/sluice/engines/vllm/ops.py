# SPDX-License-Identifier: Apache-2.0
"""Stands in for vLLM's gated delta rule and KDA: vllm.third_party.flash_linear_attention.ops
(vllm.model_executor.layers.fla.ops in older trees) with .kda,
and vllm._custom_ops.fused_gdn_decode_post_conv_mtp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import ops
from ...functional._arguments import new_state
from ...functional.kda import gate_arguments
from .. import sequences
from ..refusal import check_scale, invalid, only_absent, only_value, unsupported

if TYPE_CHECKING:
    import torch

# Slots below this are padding: negative ones and vLLM's null block 0.
kPadBelow = 1


def chunk_gated_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    chunk_indices: Any = None,
    chunk_offsets: Any = None,
    use_qk_l2norm_in_kernel: bool = False,
    core_attn_out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Prefill: log gate g, beta [B,T,HV], state [N,HV,V,K] in, a new float32 one out.

    chunk_indices and chunk_offsets repeat cu_seqlens and are not read. core_attn_out: a flat buffer
    of at least B*T*HV*V elements in v's dtype; o is then a view of its start. Returns (o, state or
    None). vLLM refuses float32 here, Sluice does not.
    """
    if len(beta.shape) != 3:
        invalid("vllm.chunk_gated_delta_rule", "beta", beta, "[B,T,HV]", "a write strength a head")
    o = None if core_attn_out is None else core_attn_out[: v.numel()].view(v.shape)
    final = new_state(q, v, cu_seqlens, True) if output_final_state else None
    o = ops.chunk_forward(
        q,
        k,
        v,
        g,
        beta,
        o=o,
        cu_seqlens=cu_seqlens,
        initial_state=initial_state,
        final_state=final,
        state_layout="vk",
        scale=scale,
        qk_norm=sequences.qk_norm(use_qk_l2norm_in_kernel),
    )
    return o, final


def prefill(
    op: str, call: dict[str, Any], initial_state: Any, output_final_state: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """chunk_forward of `call`; a final state is a new float32 tensor."""
    if len(call["beta"].shape) != 3:
        invalid(op, "beta", call["beta"], "[B,T,HV]", "one write strength a value head")
    final = new_state(call["q"], call["v"], call["cu_seqlens"], True) if output_final_state else None
    call.update(initial_state=initial_state, final_state=final, state_layout="vk")
    return ops.chunk_forward(**call), final


def decode(
    op: str, call: dict[str, Any], state: torch.Tensor, slots: Any, num_accepted: Any = None, inplace: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """A step of `call` on states that are given as vLLM does. Returns (o, pool)."""
    check_scale(op, call["scale"])
    final = _add_states(op, call, state, slots, num_accepted, inplace)
    return sequences.decode(op, call), final


def _add_states(
    op: str, call: dict[str, Any], state: torch.Tensor, slots: Any, num_accepted: Any, inplace: bool
) -> torch.Tensor:
    """Tells `call` which states it reads and writes; returns the one that its caller is to have."""
    q, cu_seqlens = call["q"], call["cu_seqlens"]
    if state is None:
        invalid(op, "initial_state", None, "a pool [slots,HV,V,K]", "decode")
    call.update(initial_state=state, state_layout="vk")
    if slots is None:
        if inplace:
            invalid(op, "ssm_state_indices", None, "slots", "inplace_final_state writes to them")
        tokens = q.shape[0] * q.shape[1]
        only_value(op, "tokens", tokens, sequences.count(q, cu_seqlens), "one each, without slots")
        final = call["final_state"] = state.new_empty((tokens, *state.shape[1:]))
        return final
    if not inplace:
        rule = "states per token go to slots"
        unsupported(op, "inplace_final_state", False, "True with ssm_state_indices", rule)
    call["pad_below"] = kPadBelow
    # vLLM gives the slots of a whole batch with the lengths of its first sequences, those that decode.
    sequences_here = sequences.count(q, cu_seqlens)
    slots = slots[:sequences_here]
    if num_accepted is not None:
        num_accepted = num_accepted[:sequences_here]
    if len(slots.shape) == 1:
        only_absent(op, "needs ssm_state_indices [N,W]", num_accepted_tokens=num_accepted)
        call["read_slots"] = slots
        return state
    # The state after token t goes to column t; the start is in column accepted - 1, else 0.
    call.update(
        read_slots=slots[:, 0] if num_accepted is None else slots,
        write_slots=slots,
        num_accepted=num_accepted,
        state_writes="per_token",
        columns=slots.shape[1],
    )
    return state


def fused_recurrent_gated_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor | None = None,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    inplace_final_state: bool = True,
    cu_seqlens: torch.Tensor | None = None,
    ssm_state_indices: torch.Tensor | None = None,
    num_accepted_tokens: torch.Tensor | None = None,
    use_qk_l2norm_in_kernel: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Decode with log gates. initial_state is the pool [slots,HV,V,K], updated IN PLACE at
    ssm_state_indices: [N] (one token a sequence), or [N,W], the state after token t to column t and
    the start read from column num_accepted_tokens - 1. beta [B,T,HV] or None = 1. Returns (o,
    pool).

    inplace_final_state=False (a state per token) only without slots and with one token a sequence.
    """
    op = "vllm.fused_recurrent_gated_delta_rule"
    if beta is not None and len(beta.shape) == 4:
        unsupported(op, "beta", beta, "[B,T,HV]", "one write strength a value head")
    call = sequences.arguments(q, k, v, g, beta, cu_seqlens, scale, use_qk_l2norm_in_kernel)
    return decode(op, call, initial_state, ssm_state_indices, num_accepted_tokens, inplace_final_state)


def fused_sigmoid_gating_delta_rule_update(
    A_log: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    dt_bias: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    beta: float = 1.0,
    threshold: float = 20.0,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    inplace_final_state: bool = True,
    cu_seqlens: torch.Tensor | None = None,
    ssm_state_indices: torch.Tensor | None = None,
    num_accepted_tokens: torch.Tensor | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    is_kda: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """fused_recurrent_gated_delta_rule with raw gates: a, b [tokens,HV] or [B,T,HV]. `beta` and
    `threshold` are softplus's parameters, 1 and 20 only. is_kda: key-wise gates [tokens, HV K],
    [tokens,HV,K] or [B,T,HV,K], dt_bias [HV K]. Returns (o, pool)."""
    op = "vllm.fused_sigmoid_gating_delta_rule_update"
    only_value(op, "beta", beta, 1.0, "softplus(x)")
    only_value(op, "threshold", threshold, 20.0, "softplus(x) = x above it")
    b = sequences.token_rows(b, q)
    call = sequences.arguments(q, k, v, None, b, cu_seqlens, scale, use_qk_l2norm_in_kernel)
    call.update(sequences.raw_gate(op, is_kda, (a, A_log, dt_bias), q, v), beta_space="logit")
    return decode(op, call, initial_state, ssm_state_indices, num_accepted_tokens, inplace_final_state)


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
) -> tuple[torch.Tensor, torch.Tensor]:
    """One token a row: mixed_qkv [B, 2HK+HVV] with any row stride, a, b [B,HV], out [B,1,HV,V], the
    pool updated IN PLACE at ssm_state_indices [B]. Returns (out, initial_state)."""
    return sequences.packed_decode(
        "vllm.fused_recurrent_gated_delta_rule_packed_decode",
        mixed_qkv,
        (a, b),
        out,
        initial_state,
        ssm_state_indices,
        A_log=A_log,
        dt_bias=dt_bias,
        scale=scale,
        pad_below=kPadBelow,
        qk_norm=sequences.qk_norm(use_qk_l2norm_in_kernel),
    )


def fused_gdn_decode_post_conv_mtp(
    mixed_qkv: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    A_log: torch.Tensor,
    dt_bias: torch.Tensor,
    state_indices: torch.Tensor,
    cu_seqlens: torch.Tensor,
    num_accepted_tokens: torch.Tensor,
    state: torch.Tensor,
    output_gate: torch.Tensor,
    norm_weight: torch.Tensor,
    out: torch.Tensor | None = None,
    scale: float = 128**-0.5,
    norm_eps: float = 1e-5,
    output_gate_activation: str = "silu",
) -> torch.Tensor:
    """Verification after the convolution, with the gated norm: mixed_qkv [tokens, 2HK+HVV], a, b
    [tokens,HV], state_indices [N,W], output_gate and out [tokens,HV,V]. q and k are normalised; a
    sequence with num_accepted_tokens 0 is padding. W is the bound on its tokens (vLLM's kernel
    stops at 8 and writes zeros beyond; Sluice takes 16 and refuses more). Returns out."""
    import torch

    op = "vllm.fused_gdn_decode_post_conv_mtp"
    HV, V, K = state.shape[-3:]
    q, k, v, a, b = (t.unsqueeze(0) for t in (*sequences.split_heads(op, mixed_qkv, HV, K, V), a, b))
    slots = torch.where(num_accepted_tokens[:, None] > 0, state_indices, 0)
    call = sequences.arguments(q, k, v, a, b, cu_seqlens, check_scale(op, scale), True)
    call.update(
        A_log=A_log,
        dt_bias=dt_bias,
        gate_space="raw",
        beta_space="logit",
        columns=state_indices.shape[1],
        num_accepted=num_accepted_tokens,
        initial_state=state,
        state_layout="vk",
        read_slots=slots,
        write_slots=slots,
        state_writes="per_token",
        pad_below=kPadBelow,
    )
    core = sequences.decode(op, call)
    activation = "silu" if output_gate_activation == "swish" else output_gate_activation
    rows = ops.gated_rms_norm(
        core.squeeze(0), output_gate, norm_weight, out=out, eps=norm_eps, activation=activation
    )
    return rows if out is None else out


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
    cu_seqlens: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Prefill: log gates g [B,T,HV,K], beta [B,T,HV], state [N,HV,V,K] in, a new float32 one out.
    Returns (o, state or None)."""
    op = "vllm.chunk_kda"
    scale = check_scale(op, scale)
    call = sequences.arguments(q, k, v, g, beta, cu_seqlens, scale, use_qk_l2norm_in_kernel)
    return prefill(op, call, initial_state, output_final_state)


def chunk_kda_with_fused_gate(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    raw_g: torch.Tensor,
    beta: torch.Tensor,
    A_log: torch.Tensor,
    g_bias: torch.Tensor | None,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    lower_bound: float | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """chunk_kda from raw gates: raw_g [B,T,HV,K], A_log of HV numbers, g_bias [HV K], [HV,K] or
    None."""
    op = "vllm.chunk_kda_with_fused_gate"
    scale = check_scale(op, scale)
    call = sequences.arguments(q, k, v, raw_g, beta, cu_seqlens, scale, use_qk_l2norm_in_kernel)
    call.update(gate_arguments(op, raw_g, True, A_log, g_bias, lower_bound))
    return prefill(op, call, initial_state, output_final_state)


def fused_recurrent_kda(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor | None = None,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    inplace_final_state: bool = True,
    use_qk_l2norm_in_kernel: bool = True,
    cu_seqlens: torch.Tensor | None = None,
    ssm_state_indices: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Decode with log gates [B,T,HV,K]: the pool [slots,HV,V,K] is updated IN PLACE at
    ssm_state_indices. Returns (o, pool)."""
    op = "vllm.fused_recurrent_kda"
    if beta is not None and len(beta.shape) == 4:
        unsupported(op, "beta", beta, "[B,T,HV]", "one write strength a value head")
    call = sequences.arguments(q, k, v, g, beta, cu_seqlens, scale, use_qk_l2norm_in_kernel)
    return decode(op, call, initial_state, ssm_state_indices, None, inplace_final_state)
