# SPDX-License-Identifier: Apache-2.0
"""The gated delta rule with fla's signatures."""

from .. import _kinds
from .._errors import InvalidArgument, Unsupported
from ._arguments import MAX_STEP_TOKENS, final_for, refuse_foreign


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
    refuse_foreign("chunk_gated_delta_rule", cp_context, head_first, chunk_size)
    if allow_neg_eigval and not use_beta_sigmoid_in_kernel:
        raise InvalidArgument(
            "chunk_gated_delta_rule: allow_neg_eigval = True, expected False without "
            "use_beta_sigmoid_in_kernel (the rule of fla)"
        )
    if transpose_state_layout is not None:
        state_v_first = transpose_state_layout
    final_state = final_for(
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
    refuse_foreign(op, None, head_first, None)
    if gk is not None or gv is not None:
        raise Unsupported(f"{op}: gk or gv = given, expected None (one gate per head)")
    if transpose_state_layout is not None:
        state_v_first = transpose_state_layout
    steps = cu_seqlens is None and q.shape[1] <= MAX_STEP_TOKENS or max_tokens is not None
    final_state = final_for(
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
