# SPDX-License-Identifier: Apache-2.0
"""The whole layer: prefill and decode."""

from typing import Any

from .. import _kinds
from .._types import T, Tensor


def _layer(op: str, qkv: T, out: T | None, num_v_heads: int, head_v_dim: int, arguments: Any) -> T:
    if out is None:
        shape = (qkv.shape[0], qkv.shape[1], num_v_heads, head_v_dim)
        out = _kinds.empty(qkv, shape)
    _kinds.entry(op, qkv)(
        qkv=qkv, out=out, num_v_heads=num_v_heads, head_v_dim=head_v_dim, **arguments
    )
    return out


def layer_prefill(
    qkv: T,
    z: Tensor | None = None,
    b: Tensor | None = None,
    a: Tensor | None = None,
    *,
    conv_weight: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    norm_weight: Tensor,
    num_k_heads: int,
    num_v_heads: int,
    head_k_dim: int,
    head_v_dim: int,
    conv_bias: Tensor | None = None,
    out: T | None = None,
    core_out: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    conv_initial: Tensor | None = None,
    conv_final: Tensor | None = None,
    ring_position: Tensor | None = None,
    initial_state: Tensor | None = None,
    final_state: T | None = None,
    state_layout: str = "kv",
    read_slots: Tensor | None = None,
    write_slots: Tensor | None = None,
    has_initial_state: Tensor | None = None,
    pad_below: int = 0,
    scale: float | None = None,
    l2norm_eps: float = 1e-6,
    norm_eps: float = 1e-6,
    packing: str = "flat",
    conv_state_form: str = "shift",
    eigenvalues: str = "positive",
    head_map: str = "block",
    gate_activation: str = "silu",
    rounding: str = "once",
    max_tokens: int = 0,
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> T:
    """The whole layer between its input projections and out_proj, for sequences of any length:
    convolution + SiLU on [q|k|v], gates from a and b, l2 norm of q and k, delta rule, gated norm.

    Args:
      qkv: packing "flat": [B,T,2HK+HVV] = [q heads | k heads | v heads], with z [B,T,HVV],
        b [B,T,HV], a [B,T,HV] (Qwen3.5). Packing "interleaved": [B,T,2HK+2HVV], per key head
        [K q | K k | rV v | rV z], with b [B,T,2HV], per key head [r b | r a] (Qwen3-Next); z and a
        are None. Row strides are free.
      conv_weight: [2HK+HVV, W], inner stride 1, channels [q | k | v]. conv_bias: [2HK+HVV] or None.
      A_log, dt_bias: [HV]. norm_weight: [V].
      num_k_heads, num_v_heads, head_k_dim, head_v_dim: H, HV, K, V.
      out: [B,T,HV,V]; allocated in qkv's dtype if None. core_out: optional output [B,T,HV,V], the
        delta rule's output before the norm.
      conv_initial, conv_final: convolution state pools [slots,D,L]; initial_state, final_state:
        recurrent state pools; slots as in `chunk_forward`, for both kinds of state.
      ring_position: int32/int64 [N], with conv_state_form "ring".
      max_tokens: with cu_seqlens: a bound on one sequence's tokens, as in `chunk_forward`.
      gate_activation: of z, "silu" or "sigmoid". rounding: "once", "hf" or "input" (sluice.h).

    Returns: out.
    """
    return _layer(
        "layer_prefill",
        qkv,
        out,
        num_v_heads,
        head_v_dim,
        dict(
            z=z,
            b=b,
            a=a,
            conv_weight=conv_weight,
            conv_bias=conv_bias,
            A_log=A_log,
            dt_bias=dt_bias,
            norm_weight=norm_weight,
            core_out=core_out,
            cu_seqlens=cu_seqlens,
            conv_initial=conv_initial,
            conv_final=conv_final,
            ring_position=ring_position,
            initial_state=initial_state,
            final_state=final_state,
            state_layout=state_layout,
            read_slots=read_slots,
            write_slots=write_slots,
            has_initial_state=has_initial_state,
            pad_below=pad_below,
            num_k_heads=num_k_heads,
            head_k_dim=head_k_dim,
            scale=scale,
            l2norm_eps=l2norm_eps,
            norm_eps=norm_eps,
            packing=packing,
            conv_state_form=conv_state_form,
            eigenvalues=eigenvalues,
            head_map=head_map,
            gate_activation=gate_activation,
            rounding=rounding,
            max_tokens=max_tokens,
            implementation=implementation,
            stream=stream,
            workspace=workspace,
        ),
    )


def layer_decode(
    qkv: T,
    z: Tensor | None = None,
    b: Tensor | None = None,
    a: Tensor | None = None,
    *,
    conv_weight: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    norm_weight: Tensor,
    num_k_heads: int,
    num_v_heads: int,
    head_k_dim: int,
    head_v_dim: int,
    conv_bias: Tensor | None = None,
    out: T | None = None,
    core_out: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    max_tokens: int = 0,
    conv_initial: Tensor | None = None,
    conv_final: Tensor | None = None,
    ring_position: Tensor | None = None,
    num_accepted: Tensor | None = None,
    initial_state: Tensor | None = None,
    final_state: T | None = None,
    state_layout: str = "kv",
    read_slots: Tensor | None = None,
    write_slots: Tensor | None = None,
    has_initial_state: Tensor | None = None,
    pad_below: int = 0,
    scale: float | None = None,
    l2norm_eps: float = 1e-6,
    norm_eps: float = 1e-6,
    packing: str = "flat",
    conv_state_form: str = "shift",
    eigenvalues: str = "positive",
    head_map: str = "block",
    gate_activation: str = "silu",
    rounding: str = "once",
    state_writes: str = "last",
    replay_k: Tensor | None = None,
    replay_delta: Tensor | None = None,
    replay_decay: Tensor | None = None,
    replay_position: Tensor | None = None,
    replay_checkpoint: Tensor | None = None,
    replay_next_checkpoint: Tensor | None = None,
    replay_fold: str = "auto",
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> T:
    """`layer_prefill` for 1 to 16 tokens per sequence; both kinds of state are updated IN PLACE
    unless conv_final and final_state are given. max_tokens, num_accepted, state_writes and the
    replay ring (replay_k ..) as in `recurrent_step`. With a ring, convolution states are rolled
    back by ring_position (conv_state_form "ring", the same tensor as replay_position, L >= W-1+T)
    or by num_accepted ("shift"), which then holds for them alone.

    Returns: out.
    """
    return _layer(
        "layer_decode",
        qkv,
        out,
        num_v_heads,
        head_v_dim,
        dict(
            z=z,
            b=b,
            a=a,
            conv_weight=conv_weight,
            conv_bias=conv_bias,
            A_log=A_log,
            dt_bias=dt_bias,
            norm_weight=norm_weight,
            core_out=core_out,
            cu_seqlens=cu_seqlens,
            max_tokens=max_tokens,
            conv_initial=conv_initial,
            conv_final=conv_final,
            ring_position=ring_position,
            num_accepted=num_accepted,
            initial_state=initial_state,
            final_state=final_state,
            state_layout=state_layout,
            read_slots=read_slots,
            write_slots=write_slots,
            has_initial_state=has_initial_state,
            pad_below=pad_below,
            num_k_heads=num_k_heads,
            head_k_dim=head_k_dim,
            scale=scale,
            l2norm_eps=l2norm_eps,
            norm_eps=norm_eps,
            packing=packing,
            conv_state_form=conv_state_form,
            eigenvalues=eigenvalues,
            head_map=head_map,
            gate_activation=gate_activation,
            rounding=rounding,
            state_writes=state_writes,
            replay_k=replay_k,
            replay_delta=replay_delta,
            replay_decay=replay_decay,
            replay_position=replay_position,
            replay_checkpoint=replay_checkpoint,
            replay_next_checkpoint=replay_next_checkpoint,
            replay_fold=replay_fold,
            implementation=implementation,
            stream=stream,
            workspace=workspace,
        ),
    )
