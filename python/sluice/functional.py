# SPDX-License-Identifier: Apache-2.0
"""Functions with the names, parameter order and defaults of flash-linear-attention (fla), over the
operators of `sluice.ops`. Every parameter is named; parameters after the bare `*` are Sluice's own.

Tensor kinds, devices, streams and errors: see `sluice.ops`. Nothing is copied or made contiguous.
Gradients are refused: there is no backward pass yet."""

from . import _kinds, ops
from ._errors import InvalidArgument, Unsupported

__all__ = [
    "causal_conv1d",
    "causal_conv1d_update",
    "chunk_gated_delta_rule",
    "chunk_simple_gla",
    "fused_recurrent_gated_delta_rule",
    "fused_recurrent_simple_gla",
    "gated_rms_norm",
    "gdn_layer_decode",
    "gdn_layer_prefill",
]

# Tokens per sequence that the step operator takes (kMaxStepTokens of the library).
_MAX_STEP_TOKENS = 16


def chunk_gated_delta_rule(
    q,
    k,
    v,
    g=None,
    beta=None,
    scale=None,
    initial_state=None,
    output_final_state=False,
    use_qk_l2norm_in_kernel=False,
    use_beta_sigmoid_in_kernel=False,
    allow_neg_eigval=False,
    state_v_first=False,
    cu_seqlens=None,
    cu_seqlens_cpu=None,
    chunk_indices=None,
    cp_context=None,
    use_gate_in_kernel=False,
    A_log=None,
    dt_bias=None,
    chunk_size=None,
    transpose_state_layout=None,
    head_first=False,
    *,
    out=None,
    final_state=None,
    gate_space=None,
    read_slots=None,
    write_slots=None,
    has_initial_state=None,
    pad_below=0,
    checkpoints=None,
    checkpoint_slots=None,
    checkpoint_every=0,
    head_map="block",
    l2norm_eps=1e-6,
    implementation="auto",
    stream=None,
    workspace=None,
):
    """Gated delta rule over whole sequences, by chunks (prefill). Per value head:
      S_t = alpha_t S_{t-1} + k_t (beta_t (v_t - alpha_t S_{t-1}^T k_t))^T,  o_t = scale S_t^T q_t

    Args:
      q, k: [B,T,H,K]. v: [B,T,HV,V], HV a multiple of H (no repeat needed).
      g: [B,T,HV] log gate <= 0; with use_gate_in_kernel the raw gate a, and then
        g = -exp(A_log) softplus(a + dt_bias) with A_log, dt_bias [HV]. None = no decay.
      beta: [B,T,HV], after the sigmoid; before it with use_beta_sigmoid_in_kernel. None = 1.
      scale: None = K^-0.5.
      initial_state: [N,HV,K,V], or [N,HV,V,K] with state_v_first; any floating dtype.
      output_final_state: also return the state after the last token, float32, out of place.
      use_qk_l2norm_in_kernel: x * rsqrt(sum x^2 + l2norm_eps) on q and k.
      allow_neg_eigval: doubles beta (needs use_beta_sigmoid_in_kernel, as in fla).
      cu_seqlens: int32/int64 [N+1]; B must be 1.
      cu_seqlens_cpu, chunk_indices: accepted, not needed: they repeat cu_seqlens.
      chunk_size: None, 16, 32 or 64: accepted; the kernel has its own.
      transpose_state_layout: fla's older name of state_v_first.
      cp_context, head_first: refused if given (Unsupported).
      out: output tensor [B,T,HV,V].
      final_state: pool or tensor to write states to; may be initial_state itself (in place). It is
        what is returned.
      gate_space: "log", "linear" (g holds alpha) or "raw"; None follows use_gate_in_kernel.
      read_slots, write_slots, has_initial_state, pad_below, checkpoints, checkpoint_slots,
      checkpoint_every, head_map, implementation, stream, workspace: see `sluice.ops.chunk_forward`.

    Returns: (o [B,T,HV,V] in v's dtype, final state or None).
    Errors: InvalidArgument, Unsupported (see `sluice.ops`).
    """
    _refuse_foreign("chunk_gated_delta_rule", cp_context, head_first, chunk_size)
    if allow_neg_eigval and not use_beta_sigmoid_in_kernel:
        raise InvalidArgument(
            "chunk_gated_delta_rule: allow_neg_eigval = True, expected False without "
            "use_beta_sigmoid_in_kernel (the rule of fla)"
        )
    if transpose_state_layout is not None:
        state_v_first = transpose_state_layout
    final_state = _final_for(
        "chunk_gated_delta_rule",
        q, v, cu_seqlens, state_v_first, output_final_state, final_state, read_slots,
    )
    o = _kinds.empty_like(v) if out is None else out
    _kinds.entry("chunk_forward", q)(
        q=q,
        k=k,
        v=v,
        gate=g,
        beta=beta,
        o=o,
        A_log=A_log,
        dt_bias=dt_bias,
        cu_seqlens=cu_seqlens,
        initial_state=initial_state,
        final_state=final_state,
        state_layout="vk" if state_v_first else "kv",
        read_slots=read_slots,
        write_slots=write_slots,
        has_initial_state=has_initial_state,
        pad_below=pad_below,
        checkpoints=checkpoints,
        checkpoint_slots=checkpoint_slots,
        checkpoint_every=checkpoint_every,
        scale=scale,
        l2norm_eps=l2norm_eps,
        gate_space=gate_space or ("raw" if use_gate_in_kernel else "log"),
        beta_space="logit" if use_beta_sigmoid_in_kernel else "value",
        eigenvalues="negative" if allow_neg_eigval else "positive",
        qk_norm="l2" if use_qk_l2norm_in_kernel else "none",
        head_map=head_map,
        implementation=implementation,
        stream=stream,
        workspace=workspace,
    )
    return o, final_state


def fused_recurrent_gated_delta_rule(
    q,
    k,
    v,
    g=None,
    gk=None,
    gv=None,
    beta=None,
    scale=None,
    initial_state=None,
    output_final_state=False,
    use_qk_l2norm_in_kernel=False,
    use_gate_in_kernel=False,
    A_log=None,
    dt_bias=None,
    use_beta_sigmoid_in_kernel=False,
    allow_neg_eigval=False,
    state_v_first=False,
    cu_seqlens=None,
    transpose_state_layout=None,
    head_first=False,
    *,
    out=None,
    final_state=None,
    max_tokens=None,
    gate_space=None,
    read_slots=None,
    write_slots=None,
    has_initial_state=None,
    pad_below=0,
    num_accepted=None,
    head_map="block",
    l2norm_eps=1e-6,
    implementation="auto",
    stream=None,
    workspace=None,
):
    """The gated delta rule token by token (decode): `chunk_gated_delta_rule`'s formula, shapes and
    conventions.

    Up to 16 tokens per sequence run as one pass over each state (`sluice.ops.recurrent_step`);
    longer rows, and packed rows whose bound `max_tokens` (1..16) is not given, run by chunks.
    States are written out of place; pass final_state=initial_state for an update in place.
    gk, gv: refused if given (Unsupported). num_accepted: see `sluice.ops.recurrent_step`.

    Returns: (o [B,T,HV,V] in v's dtype, final state or None).
    """
    op = "fused_recurrent_gated_delta_rule"
    _refuse_foreign(op, None, head_first, None)
    if gk is not None or gv is not None:
        raise Unsupported(f"{op}: gk or gv = given, expected None (one gate per head)")
    if transpose_state_layout is not None:
        state_v_first = transpose_state_layout
    steps = cu_seqlens is None and q.shape[1] <= _MAX_STEP_TOKENS or max_tokens is not None
    final_state = _final_for(
        op, q, v, cu_seqlens, state_v_first, output_final_state, final_state, read_slots,
        zeros=steps and initial_state is None,
    )
    o = _kinds.empty_like(v) if out is None else out
    layout = "vk" if state_v_first else "kv"
    gate_space = gate_space or ("raw" if use_gate_in_kernel else "log")
    beta_space = "logit" if use_beta_sigmoid_in_kernel else "value"
    eigenvalues = "negative" if allow_neg_eigval else "positive"
    qk_norm = "l2" if use_qk_l2norm_in_kernel else "none"
    if steps:
        _kinds.entry("recurrent_step", q)(
            q=q,
            k=k,
            v=v,
            gate=g,
            beta=beta,
            o=o,
            A_log=A_log,
            dt_bias=dt_bias,
            cu_seqlens=cu_seqlens,
            initial_state=final_state if initial_state is None else initial_state,
            final_state=final_state,
            state_layout=layout,
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
            implementation=implementation,
            stream=stream,
            workspace=workspace,
            max_tokens=max_tokens or 0,
            num_accepted=num_accepted,
            state_writes="none" if final_state is None else "last",
        )
    else:
        if num_accepted is not None:
            raise InvalidArgument(f"{op}: num_accepted = given, expected None without max_tokens")
        _kinds.entry("chunk_forward", q)(
            q=q,
            k=k,
            v=v,
            gate=g,
            beta=beta,
            o=o,
            A_log=A_log,
            dt_bias=dt_bias,
            cu_seqlens=cu_seqlens,
            initial_state=initial_state,
            final_state=final_state,
            state_layout=layout,
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
            implementation=implementation,
            stream=stream,
            workspace=workspace,
        )
    return o, final_state


def chunk_simple_gla(
    q,
    k,
    v,
    g=None,
    g_gamma=None,
    scale=None,
    initial_state=None,
    output_final_state=False,
    state_v_first=False,
    cu_seqlens=None,
    *,
    out=None,
    final_state=None,
    implementation="auto",
    stream=None,
    workspace=None,
):
    """Simple GLA (scalar-gated linear attention) by chunks:
      S_t = alpha_t S_{t-1} + k_t v_t^T,  o_t = scale S_t^T q_t.

    Arguments as in `chunk_gated_delta_rule`; g [B,T,HV] is the log gate; g_gamma is refused.
    Returns: (o, final state or None).
    """
    if g_gamma is not None:
        raise Unsupported("chunk_simple_gla: g_gamma = given, expected None (pass g)")
    final_state = _final_for(
        "chunk_simple_gla", q, v, cu_seqlens, state_v_first, output_final_state, final_state, None
    )
    o = ops.chunk_forward(
        q,
        k,
        v,
        g,
        o=out,
        cu_seqlens=cu_seqlens,
        initial_state=initial_state,
        final_state=final_state,
        state_layout="vk" if state_v_first else "kv",
        scale=scale,
        rule="linear_attention",
        implementation=implementation,
        stream=stream,
        workspace=workspace,
    )
    return o, final_state


def fused_recurrent_simple_gla(
    q,
    k,
    v,
    g=None,
    g_gamma=None,
    scale=None,
    initial_state=None,
    output_final_state=False,
    state_v_first=False,
    cu_seqlens=None,
    *,
    out=None,
    final_state=None,
    max_tokens=None,
    implementation="auto",
    stream=None,
    workspace=None,
):
    """`chunk_simple_gla` token by token, for up to 16 tokens per sequence in one pass; longer rows
    run by chunks, as in `fused_recurrent_gated_delta_rule`.

    Returns: (o, final state or None).
    """
    op = "fused_recurrent_simple_gla"
    if g_gamma is not None:
        raise Unsupported(f"{op}: g_gamma = given, expected None (pass g)")
    steps = cu_seqlens is None and q.shape[1] <= _MAX_STEP_TOKENS or max_tokens is not None
    final_state = _final_for(
        op, q, v, cu_seqlens, state_v_first, output_final_state, final_state, None,
        zeros=steps and initial_state is None,
    )
    shared = dict(
        o=out,
        cu_seqlens=cu_seqlens,
        initial_state=initial_state,
        final_state=final_state,
        state_layout="vk" if state_v_first else "kv",
        scale=scale,
        rule="linear_attention",
        implementation=implementation,
        stream=stream,
        workspace=workspace,
    )
    if steps:
        if initial_state is None:
            shared["initial_state"] = final_state
        shared["state_writes"] = "none" if final_state is None else "last"
        return ops.recurrent_step(q, k, v, g, max_tokens=max_tokens or 0, **shared), final_state
    return ops.chunk_forward(q, k, v, g, **shared), final_state


def causal_conv1d(
    x,
    weight,
    bias=None,
    initial_state=None,
    output_final_state=False,
    activation=None,
    cu_seqlens=None,
    *,
    out=None,
    final_state=None,
    read_slots=None,
    write_slots=None,
    has_initial_state=None,
    pad_below=0,
    implementation="auto",
    stream=None,
    workspace=None,
):
    """Short causal depthwise convolution over whole sequences:
      out[t,d] = act(bias[d] + sum_{w=0}^{W-1} weight[d,w] x[t-W+1+w, d]).

    Args:
      x: [B,T,D], any strides. weight: [D,W], W in {2,3,4}. bias: [D] or None.
      initial_state: [N,D,L], L >= W-1 columns of raw inputs, oldest first; None = zeros.
      output_final_state: also return the last max(L of initial_state, W-1) inputs, in x's dtype.
      activation: None, "silu" or "swish".
      final_state: tensor or pool to write; may be initial_state itself. It is what is returned.

    Returns: (out [B,T,D], final state or None).
    """
    if output_final_state and final_state is None:
        _refuse_pool("causal_conv1d", read_slots)
        n = x.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
        columns = weight.shape[1] - 1 if initial_state is None else initial_state.shape[2]
        final_state = _kinds.empty(x, (n, x.shape[2], columns))
    out = ops.causal_conv1d(
        x,
        weight,
        bias,
        out=out,
        cu_seqlens=cu_seqlens,
        initial_state=initial_state,
        final_state=final_state,
        read_slots=read_slots,
        write_slots=write_slots,
        has_initial_state=has_initial_state,
        pad_below=pad_below,
        activation=_activation(activation),
        implementation=implementation,
        stream=stream,
        workspace=workspace,
    )
    return out, final_state


def causal_conv1d_update(
    x,
    conv_state,
    weight,
    bias=None,
    activation=None,
    cu_seqlens=None,
    *,
    out=None,
    slots=None,
    num_accepted=None,
    ring_position=None,
    pad_below=0,
    implementation="auto",
    stream=None,
    workspace=None,
):
    """The next token, or the next few, of each sequence; conv_state is updated IN PLACE.

    Args:
      x: [B,D] (one token) or [B,T,D].
      conv_state: [slots,D,L] with free strides, L >= W-1 columns of raw inputs, oldest first, or a
        ring where ring_position [N] (absolute position of the first input) is given.
      slots: int32/int64 [N] slots of conv_state, default n; below pad_below is padding.
      num_accepted: int32/int64 [N], speculation (`sluice_conv_state_io` in sluice.h).
      weight, bias, activation: as in `causal_conv1d`.

    Returns: out, the shape of x (a new tensor unless given).
    """
    single = len(x.shape) == 2
    result = out
    if result is None:
        result = _kinds.empty_like(x)
    ops.causal_conv1d(
        x[:, None] if single else x,
        weight,
        bias,
        out=result[:, None] if single else result,
        cu_seqlens=cu_seqlens,
        initial_state=conv_state,
        final_state=conv_state,
        read_slots=slots,
        num_accepted=num_accepted,
        ring_position=ring_position,
        pad_below=pad_below,
        conv_state_form="shift" if ring_position is None else "ring",
        activation=_activation(activation),
        implementation=implementation,
        stream=stream,
        workspace=workspace,
    )
    return result


def gated_rms_norm(
    x,
    z,
    weight,
    eps=1e-6,
    activation="silu",
    rounding="once",
    *,
    out=None,
    implementation="auto",
    stream=None,
    workspace=None,
):
    """Gated RMSNorm, norm before gate: out = x rsqrt(mean(x^2) + eps) * weight * act(z).

    x, z: [.., V] of rank 2 to 4, inner stride 1. weight: [V]. activation: "silu", "swish" or
    "sigmoid". rounding: "once" (fla) or "hf" (transformers). out: may be x.

    Returns: out.
    """
    return ops.gated_rms_norm(
        x,
        z,
        weight,
        out=out,
        eps=eps,
        activation=_activation(activation),
        rounding=rounding,
        implementation=implementation,
        stream=stream,
        workspace=workspace,
    )


def gdn_layer_prefill(
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
    cu_seqlens=None,
    conv_state=None,
    initial_state=None,
    output_final_state=False,
    state_v_first=False,
    has_initial_state=None,
    scale=None,
    norm_eps=1e-6,
    packing="flat",
    allow_neg_eigval=False,
    gate_activation="silu",
    rounding="once",
    out=None,
    implementation="auto",
    stream=None,
    workspace=None,
):
    """The layer between its input projections and out_proj, for whole sequences: convolution +
    SiLU, gates, l2 norm, delta rule, gated RMSNorm. Arguments as in `sluice.ops.layer_prefill`
    (which also takes pools and slots), except:

      conv_state: [N,D,L] or None (zeros), D = 2HK+HVV. initial_state: [N,HV,K,V] or None.
      output_final_state: also return both states, out of place.

    Returns: (out [B,T,HV,V], conv state [N,D,L] in qkv's dtype or None, state float32 or None).
    """
    final_state = conv_final = None
    if output_final_state:
        n = qkv.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
        inner = (head_v_dim, head_k_dim) if state_v_first else (head_k_dim, head_v_dim)
        final_state = _kinds.empty(qkv, (n, num_v_heads, *inner), "float32")
        columns = conv_weight.shape[1] - 1 if conv_state is None else conv_state.shape[2]
        conv_final = _kinds.empty(qkv, (n, conv_weight.shape[0], columns))
    out = ops.layer_prefill(
        qkv,
        z,
        b,
        a,
        conv_weight=conv_weight,
        A_log=A_log,
        dt_bias=dt_bias,
        norm_weight=norm_weight,
        num_k_heads=num_k_heads,
        num_v_heads=num_v_heads,
        head_k_dim=head_k_dim,
        head_v_dim=head_v_dim,
        conv_bias=conv_bias,
        out=out,
        cu_seqlens=cu_seqlens,
        conv_initial=conv_state,
        conv_final=conv_final,
        initial_state=initial_state,
        final_state=final_state,
        state_layout="vk" if state_v_first else "kv",
        has_initial_state=has_initial_state,
        scale=scale,
        norm_eps=norm_eps,
        packing=packing,
        eigenvalues="negative" if allow_neg_eigval else "positive",
        gate_activation=_activation(gate_activation),
        rounding=rounding,
        implementation=implementation,
        stream=stream,
        workspace=workspace,
    )
    return out, conv_final, final_state


def gdn_layer_decode(
    qkv,
    z=None,
    b=None,
    a=None,
    *,
    conv_state,
    state,
    conv_weight,
    A_log,
    dt_bias,
    norm_weight,
    num_k_heads,
    num_v_heads,
    head_k_dim,
    head_v_dim,
    conv_bias=None,
    slots=None,
    pad_below=0,
    state_v_first=False,
    scale=None,
    norm_eps=1e-6,
    packing="flat",
    allow_neg_eigval=False,
    gate_activation="silu",
    rounding="once",
    out=None,
    implementation="auto",
    stream=None,
    workspace=None,
):
    """`gdn_layer_prefill` for 1 to 16 tokens per sequence; conv_state [slots,D,L] and state
    [slots,HV,K,V] are updated IN PLACE. slots: int32/int64 [N], default n; below pad_below is
    padding. `sluice.ops.layer_decode` has the rest (speculation, rings, packed rows).

    Returns: out [B,T,HV,V].
    """
    return ops.layer_decode(
        qkv,
        z,
        b,
        a,
        conv_weight=conv_weight,
        A_log=A_log,
        dt_bias=dt_bias,
        norm_weight=norm_weight,
        num_k_heads=num_k_heads,
        num_v_heads=num_v_heads,
        head_k_dim=head_k_dim,
        head_v_dim=head_v_dim,
        conv_bias=conv_bias,
        out=out,
        conv_initial=conv_state,
        initial_state=state,
        state_layout="vk" if state_v_first else "kv",
        read_slots=slots,
        pad_below=pad_below,
        scale=scale,
        norm_eps=norm_eps,
        packing=packing,
        eigenvalues="negative" if allow_neg_eigval else "positive",
        gate_activation=_activation(gate_activation),
        rounding=rounding,
        implementation=implementation,
        stream=stream,
        workspace=workspace,
    )


def _activation(name):
    """fla's and causal_conv1d's spellings of an activation."""
    if name is None:
        return "none"
    return "silu" if name == "swish" else name


def _refuse_foreign(op, cp_context, head_first, chunk_size):
    if cp_context is not None:
        raise Unsupported(f"{op}: cp_context = given, expected None (no context parallelism)")
    if head_first:
        raise Unsupported(
            f"{op}: head_first = True, expected False (pass x.transpose(1, 2): views are not copied)"
        )
    if chunk_size not in (None, 16, 32, 64):
        raise InvalidArgument(f"{op}: chunk_size = {chunk_size}, expected None, 16, 32 or 64")


def _refuse_pool(op, read_slots):
    if read_slots is not None:
        raise InvalidArgument(
            f"{op}: final_state = None, expected a pool (output_final_state with read_slots)"
        )


def _final_for(op, q, v, cu_seqlens, state_v_first, wanted, final_state, read_slots, zeros=False):
    """The given final_state, or a new float32 [N,HV,K,V] ([N,HV,V,K]) where one is wanted."""
    if final_state is not None or not wanted:
        return final_state
    _refuse_pool(op, read_slots)
    batch, _, _, key_dim = q.shape
    _, _, heads, value_dim = v.shape
    n = batch if cu_seqlens is None else cu_seqlens.shape[0] - 1
    inner = (value_dim, key_dim) if state_v_first else (key_dim, value_dim)
    return _kinds.empty(q, (n, heads, *inner), "float32", zeros)
