# SPDX-License-Identifier: Apache-2.0
"""The operators with every option of the C interface (include/sluice/sluice.h), for callers that
build their own conventions on top; `sluice.functional` has the FLA-style functions.

Tensors are torch tensors, NumPy arrays (bfloat16 by ml_dtypes) or any DLPack producer, all on one
device; they are passed as views with their strides and never copied. Shapes are token-first:
q, k [B,T,H,K], v, o [B,T,HV,V], gate, beta [B,T,HV], state pools [slots,HV,K,V] ("kv") or
[slots,HV,V,K] ("vk"). With cu_seqlens (int32 or int64 [N+1]) B is 1 and sequence n is rows
cu_seqlens[n] .. cu_seqlens[n+1]-1. Floating tensors are float32, bfloat16 or float16.

Outputs that are not given are allocated in the kind and on the device of the first tensor. A CUDA
call runs on `stream` (an integer handle, or an object with `cuda_stream`, `ptr` or
`__cuda_stream__`), by default the framework's current stream; a CPU call takes none.

Every refusal is a sluice.Error: InvalidArgument (a ValueError) for the caller's mistakes,
Unsupported (a NotImplementedError) where no kernel does it. After a refusal nothing was written.
"""

from . import _kinds

__all__ = [
    "causal_conv1d",
    "chunk_forward",
    "gated_rms_norm",
    "layer_decode",
    "layer_prefill",
    "recurrent_step",
]


def chunk_forward(
    q,
    k,
    v,
    gate=None,
    beta=None,
    *,
    o=None,
    A_log=None,
    dt_bias=None,
    cu_seqlens=None,
    initial_state=None,
    final_state=None,
    state_layout="kv",
    read_slots=None,
    write_slots=None,
    has_initial_state=None,
    pad_below=0,
    checkpoints=None,
    checkpoint_slots=None,
    checkpoint_every=0,
    scale=None,
    l2norm_eps=1e-6,
    gate_space="log",
    beta_space="value",
    eigenvalues="positive",
    qk_norm="none",
    head_map="block",
    rule="gated_delta",
    implementation="auto",
    stream=None,
    workspace=None,
):
    """Outputs and final states of whole sequences, by chunks (prefill).

    Per sequence and value head, for t = 1..T:
      S_t = alpha_t S_{t-1} + k_t (beta_t (v_t - alpha_t S_{t-1}^T k_t))^T,  o_t = scale S_t^T q_t

    Args:
      q, k: [B,T,H,K], inner stride 1.
      v: [B,T,HV,V], inner stride 1; HV a multiple of H.
      gate: [B,T,HV]; what it holds is `gate_space`: "log" (g = ln alpha <= 0), "linear" (alpha)
        or "raw" (a: g = -exp(A_log) softplus(a + dt_bias)). None = no decay.
      beta: [B,T,HV]; "value" or "logit" (sigmoid inside) by `beta_space`. None = 1.
      o: output [B,T,HV,V], dtype free; allocated as v if None.
      A_log, dt_bias: [HV], with gate_space "raw".
      cu_seqlens: int32/int64 [N+1], packed batches.
      initial_state, final_state: pools [slots,HV,K,V] or their "vk" form, slot stride free, dtypes
        free. None: start from zeros / do not write. One tensor for both: updated in place.
      read_slots, write_slots: int32/int64 [N] slots of the pools; default: n, and read_slots.
      has_initial_state: bool/uint8 [N]; false starts from zeros whatever the slot holds.
      pad_below: a slot index below it is padding: zero outputs, no state touched.
      checkpoints, checkpoint_slots, checkpoint_every: pool, int32/int64 [N,M] slots, and tokens
        between stored states (a multiple of 64).
      scale: None = K^-0.5; 0.0 is zero.
      eigenvalues: "negative" doubles beta. qk_norm: "l2" normalises q and k inside.
      head_map: "block" (value head h reads key head h // r) or "cyclic" (h mod H, ggml).
      rule: "gated_delta" or "linear_attention" (simple GLA: S_t = alpha_t S_{t-1} + k_t v_t^T).
      implementation: "auto", "cpu", "cuda", "reference", "reference-chunked".
      stream: see the module. workspace: scratch memory of the device (any 1-D tensor), None =
        allocated for the call.

    Returns: o.
    Source: Yang, Kautz, Hatamizadeh, Gated Delta Networks, arXiv:2412.06464.
    """
    if o is None:
        o = _kinds.empty_like(v)
    _kinds.entry("chunk_forward", q)(
        q=q,
        k=k,
        v=v,
        gate=gate,
        beta=beta,
        o=o,
        A_log=A_log,
        dt_bias=dt_bias,
        cu_seqlens=cu_seqlens,
        initial_state=initial_state,
        final_state=final_state,
        state_layout=state_layout,
        read_slots=read_slots,
        write_slots=write_slots,
        has_initial_state=has_initial_state,
        pad_below=pad_below,
        checkpoints=checkpoints,
        checkpoint_slots=checkpoint_slots,
        checkpoint_every=checkpoint_every,
        scale=scale,
        l2norm_eps=l2norm_eps,
        gate_space=gate_space,
        beta_space=beta_space,
        eigenvalues=eigenvalues,
        qk_norm=qk_norm,
        head_map=head_map,
        rule=rule,
        implementation=implementation,
        stream=stream,
        workspace=workspace,
    )
    return o


def recurrent_step(
    q,
    k,
    v,
    gate=None,
    beta=None,
    *,
    o=None,
    A_log=None,
    dt_bias=None,
    cu_seqlens=None,
    max_tokens=0,
    num_accepted=None,
    initial_state=None,
    final_state=None,
    state_layout="kv",
    read_slots=None,
    write_slots=None,
    has_initial_state=None,
    pad_below=0,
    scale=None,
    l2norm_eps=1e-6,
    gate_space="log",
    beta_space="value",
    eigenvalues="positive",
    qk_norm="none",
    head_map="block",
    rule="gated_delta",
    state_writes="last",
    implementation="auto",
    stream=None,
    workspace=None,
):
    """1 to 16 tokens per sequence, one pass over each state (decode, speculative verification).

    The recurrence and the arguments of `chunk_forward`, and:
      initial_state: required unless state_writes is "none"; updated IN PLACE unless final_state
        is given.
      max_tokens: with cu_seqlens: the host's bound (1..16) on one sequence's tokens.
      read_slots, write_slots: [N] or [N,W].
      num_accepted: int32/int64 [N]: start from column max(num_accepted[n], 1) - 1 of read_slots.
      state_writes: "last" (the state after the last token), "per_token" (the state after token t
        to column t of write_slots [N, >= T]) or "none" (outputs only).

    Returns: o.
    """
    if o is None:
        o = _kinds.empty_like(v)
    _kinds.entry("recurrent_step", q)(
        q=q,
        k=k,
        v=v,
        gate=gate,
        beta=beta,
        o=o,
        A_log=A_log,
        dt_bias=dt_bias,
        cu_seqlens=cu_seqlens,
        max_tokens=max_tokens,
        num_accepted=num_accepted,
        initial_state=initial_state,
        final_state=final_state,
        state_layout=state_layout,
        read_slots=read_slots,
        write_slots=write_slots,
        has_initial_state=has_initial_state,
        pad_below=pad_below,
        scale=scale,
        l2norm_eps=l2norm_eps,
        gate_space=gate_space,
        beta_space=beta_space,
        eigenvalues=eigenvalues,
        qk_norm=qk_norm,
        head_map=head_map,
        rule=rule,
        state_writes=state_writes,
        implementation=implementation,
        stream=stream,
        workspace=workspace,
    )
    return o


def causal_conv1d(
    x,
    weight,
    bias=None,
    *,
    out=None,
    cu_seqlens=None,
    initial_state=None,
    final_state=None,
    read_slots=None,
    write_slots=None,
    has_initial_state=None,
    num_accepted=None,
    ring_position=None,
    pad_below=0,
    conv_state_form="shift",
    activation="none",
    implementation="auto",
    stream=None,
    workspace=None,
):
    """Short causal depthwise convolution, prefill and update alike:
      out[t,d] = act(bias[d] + sum_{w=0}^{W-1} weight[d,w] x[t-W+1+w, d]).

    Args:
      x: [B,T,D], any strides: a channel-first tensor is passed transposed, without a copy.
      weight: [D,W], W in {2,3,4}, inner stride 1. bias: [D] or None.
      out: [B,T,D], any strides; must not overlap x. Allocated as x if None.
      initial_state, final_state: pools [slots,D,L] with free strides, L >= W-1 columns of raw
        inputs, oldest first. None: zeros / not written. One tensor for both: in place.
      read_slots, write_slots, has_initial_state, pad_below: as in `chunk_forward`.
      num_accepted: int32/int64 [N], the speculative window of the "shift" form.
      ring_position: int32/int64 [N], absolute position of the first input; "ring" form only.
      activation: "none" or "silu".

    Returns: out.
    """
    if out is None:
        out = _kinds.empty_like(x)
    _kinds.entry("causal_conv1d", x)(
        x=x,
        weight=weight,
        bias=bias,
        out=out,
        cu_seqlens=cu_seqlens,
        initial_state=initial_state,
        final_state=final_state,
        read_slots=read_slots,
        write_slots=write_slots,
        has_initial_state=has_initial_state,
        num_accepted=num_accepted,
        ring_position=ring_position,
        pad_below=pad_below,
        conv_state_form=conv_state_form,
        activation=activation,
        implementation=implementation,
        stream=stream,
        workspace=workspace,
    )
    return out


def gated_rms_norm(
    x,
    z,
    weight,
    *,
    out=None,
    eps=1e-6,
    activation="silu",
    rounding="once",
    implementation="auto",
    stream=None,
    workspace=None,
):
    """Gated RMSNorm, norm before gate: out = x rsqrt(mean(x^2) + eps) * weight * act(z).

    Args:
      x, z: [.., V] of rank 2 to 4, inner stride 1. weight: [V].
      out: shape of x, inner stride 1; may be x. Allocated as x if None.
      eps: > 0. activation: "silu" or "sigmoid".
      rounding: "once" (float32 to the end, FLA) or "hf" (normalised x rounded to its dtype first).

    Returns: out.
    """
    if out is None:
        out = _kinds.empty_like(x)
    _kinds.entry("gated_rms_norm", x)(
        x=x,
        z=z,
        weight=weight,
        out=out,
        eps=eps,
        activation=activation,
        rounding=rounding,
        implementation=implementation,
        stream=stream,
        workspace=workspace,
    )
    return out


def _layer(op, qkv, out, num_v_heads, head_v_dim, arguments):
    if out is None:
        shape = (qkv.shape[0], qkv.shape[1], num_v_heads, head_v_dim)
        out = _kinds.empty(qkv, shape)
    _kinds.entry(op, qkv)(
        qkv=qkv, out=out, num_v_heads=num_v_heads, head_v_dim=head_v_dim, **arguments
    )
    return out


def layer_prefill(
    qkv,
    z=None,
    b=None,
    a=None,
    *,
    conv_weight,
    A_log,
    dt_bias,
    norm_weight,
    num_k_heads,
    num_v_heads,
    head_k_dim,
    head_v_dim,
    conv_bias=None,
    out=None,
    core_out=None,
    cu_seqlens=None,
    conv_initial=None,
    conv_final=None,
    ring_position=None,
    initial_state=None,
    final_state=None,
    state_layout="kv",
    read_slots=None,
    write_slots=None,
    has_initial_state=None,
    pad_below=0,
    scale=None,
    l2norm_eps=1e-6,
    norm_eps=1e-6,
    packing="flat",
    conv_state_form="shift",
    eigenvalues="positive",
    head_map="block",
    gate_activation="silu",
    rounding="once",
    implementation="auto",
    stream=None,
    workspace=None,
):
    """The whole layer between its input projections and out_proj, for sequences of any length:
    convolution + SiLU on [q|k|v], gates from a and b, l2 norm of q and k, delta rule, gated RMSNorm.

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
            implementation=implementation,
            stream=stream,
            workspace=workspace,
        ),
    )


def layer_decode(
    qkv,
    z=None,
    b=None,
    a=None,
    *,
    conv_weight,
    A_log,
    dt_bias,
    norm_weight,
    num_k_heads,
    num_v_heads,
    head_k_dim,
    head_v_dim,
    conv_bias=None,
    out=None,
    core_out=None,
    cu_seqlens=None,
    max_tokens=0,
    conv_initial=None,
    conv_final=None,
    ring_position=None,
    num_accepted=None,
    initial_state=None,
    final_state=None,
    state_layout="kv",
    read_slots=None,
    write_slots=None,
    has_initial_state=None,
    pad_below=0,
    scale=None,
    l2norm_eps=1e-6,
    norm_eps=1e-6,
    packing="flat",
    conv_state_form="shift",
    eigenvalues="positive",
    head_map="block",
    gate_activation="silu",
    rounding="once",
    state_writes="last",
    implementation="auto",
    stream=None,
    workspace=None,
):
    """`layer_prefill` for 1 to 16 tokens per sequence; both kinds of state are updated IN PLACE
    unless conv_final and final_state are given. max_tokens, num_accepted and state_writes as in
    `recurrent_step`.

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
            implementation=implementation,
            stream=stream,
            workspace=workspace,
        ),
    )
