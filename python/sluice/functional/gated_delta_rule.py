# SPDX-License-Identifier: Apache-2.0
"""Offers the gated delta rule with fla's signatures."""

from typing import Any

from .. import _kinds
from .._errors import InvalidArgument, Unsupported
from .._types import T, Tensor
from ._arguments import (
    MAX_STEP_TOKENS,
    as_asked,
    check_states,
    chunk_output,
    longest,
    new_state,
    over_ranks,
    refuse_foreign,
    refuse_pool,
    refuse_states,
)


def chunk_gated_delta_rule(
    q: T,
    k: T,
    v: T,
    g: Tensor | None = None,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Any = None,
    chunk_indices: Any = None,
    cp_context: Any = None,
    use_gate_in_kernel: bool = False,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    chunk_size: int | None = None,
    transpose_state_layout: bool | None = None,
    head_first: bool = False,
    *,
    out: T | None = None,
    final_state: T | None = None,
    gate_space: str | None = None,
    read_slots: Tensor | None = None,
    write_slots: Tensor | None = None,
    has_initial_state: Tensor | None = None,
    pad_below: int = 0,
    checkpoints: Tensor | None = None,
    checkpoint_slots: Tensor | None = None,
    checkpoint_every: int = 0,
    head_map: str = "block",
    l2norm_eps: float = 1e-6,
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> tuple[T, T | None]:
    """Gated delta rule over whole sequences, by chunks (prefill). Per value head:
      S_t = alpha_t S_{t-1} + k_t (beta_t (v_t - alpha_t S_{t-1}^T k_t))^T,  o_t = scale S_t^T q_t

    Args:
      q, k: [B,T,H,K]. v: [B,T,HV,V], HV a multiple of H (no repeat needed).
      g: [B,T,HV] log gate <= 0; with use_gate_in_kernel the raw gate a, and then
        g = -exp(A_log) softplus(a + dt_bias) with A_log, dt_bias [HV], dt_bias None = 0. None = no
        decay.
      beta: [B,T,HV], after the sigmoid; before it with use_beta_sigmoid_in_kernel. None = 1.
      scale: None = K^-0.5.
      initial_state: [N,HV,K,V], or [N,HV,V,K] with state_v_first; any floating dtype; exactly N
        states unless read_slots is given.
      output_final_state: also return the state after the last token, float32, out of place.
      use_qk_l2norm_in_kernel: x * rsqrt(sum x^2 + l2norm_eps) on q and k.
      allow_neg_eigval: doubles beta (needs use_beta_sigmoid_in_kernel, as in fla).
      cu_seqlens: int32/int64 [N+1]; B must be 1.
      cu_seqlens_cpu: cu_seqlens in host memory: the longest sequence, if known, steers how a GPU
        spreads the work and nothing else. chunk_indices: accepted, not needed.
      chunk_size: None, 16, 32 or 64: accepted; the kernel has its own.
      transpose_state_layout: fla's older name of state_v_first.
      cp_context: a `sluice.distributed.ContextParallel` or fla's context: sequences are cut over ranks, whose
        rows these are (torch); cu_seqlens is the context's then. head_first: refused (Unsupported).
      out: output tensor [B,T,HV,V]; its rows past cu_seqlens[-1] are not written. A new one has
        zeros there.
      final_state: pool or tensor to write states to; may be initial_state itself (in place). It is
        what is returned.
      gate_space: "log", "linear" (g holds alpha) or "raw"; None follows use_gate_in_kernel.
      read_slots, write_slots, has_initial_state, pad_below, checkpoints, checkpoint_slots,
      checkpoint_every, head_map, implementation, stream, workspace: see `sluice.ops.chunk_forward`.

    Returns: (o [B,T,HV,V] in v's dtype, final state or None).
    Errors: InvalidArgument, Unsupported (see `sluice.ops`).

    Example:
      >>> x = np.ones((1, 100, 2, 16), np.float32)                  # [B,T,H,K]
      >>> v, g = np.ones((1, 100, 4, 8), np.float32), np.full((1, 100, 4), -0.1, np.float32)
      >>> o, state = sluice.chunk_gated_delta_rule(
      ...     x, x, v, g, output_final_state=True, use_qk_l2norm_in_kernel=True)
      >>> o.shape, state.shape
      ((1, 100, 4, 8), (1, 4, 16, 8))
    """
    if head_first or chunk_size is not None:
        refuse_foreign("chunk_gated_delta_rule", head_first, chunk_size)
    if allow_neg_eigval and not use_beta_sigmoid_in_kernel:
        raise InvalidArgument(
            "chunk_gated_delta_rule: allow_neg_eigval = True, expected False without "
            "use_beta_sigmoid_in_kernel (the rule of fla)"
        )
    if transpose_state_layout is not None:
        state_v_first = transpose_state_layout
    if cp_context is not None:
        return _over_ranks(locals())
    if initial_state is not None and read_slots is None:
        check_states("chunk_gated_delta_rule", initial_state, q, cu_seqlens)
    if output_final_state and final_state is None:
        refuse_pool("chunk_gated_delta_rule", read_slots, write_slots)
        final_state = new_state(q, v, cu_seqlens, state_v_first)
    o = out
    if o is None:
        o = _kinds.empty_like(v) if cu_seqlens is None else _kinds.zeros_like(v)
    gate = g
    gate_space = gate_space or ("raw" if use_gate_in_kernel else "log")
    if gate_space == "raw" and dt_bias is None and A_log is not None:
        dt_bias = _kinds.zeros_like(A_log)
    beta_space = "logit" if use_beta_sigmoid_in_kernel else "value"
    eigenvalues = "negative" if allow_neg_eigval else "positive"
    qk_norm = "l2" if use_qk_l2norm_in_kernel else "none"
    state_layout = "vk" if state_v_first else "kv"
    max_tokens = longest(cu_seqlens_cpu)
    _kinds.entry("chunk_forward", q)(  # values of chunk_forward
        q, k, v, gate, beta, o, A_log, dt_bias, cu_seqlens, initial_state, final_state,
        state_layout, read_slots, write_slots, has_initial_state, pad_below, scale, l2norm_eps,
        gate_space, beta_space, eigenvalues, qk_norm, head_map, "gated_delta", implementation,
        stream, workspace, checkpoints, checkpoint_slots, checkpoint_every, 0.0, "auto", 0, "auto",
        max_tokens
    )
    return o, final_state


def _over_ranks(given: dict[str, Any]) -> Any:
    """chunk_gated_delta_rule of arguments by name, cut over ranks."""
    foreign = (
        *("out", "final_state", "read_slots", "write_slots", "has_initial_state", "pad_below"),
        *("checkpoints", "checkpoint_slots", "checkpoint_every", "stream", "workspace"),
    )
    raw = given["use_gate_in_kernel"] and given["gate_space"] is None or given["gate_space"] == "raw"
    dt_bias, A_log = given["dt_bias"], given["A_log"]
    if raw and dt_bias is None and A_log is not None:
        dt_bias = _kinds.zeros_like(A_log)
    return over_ranks(
        "chunk_gated_delta_rule",
        given,
        foreign,
        A_log=A_log,
        dt_bias=dt_bias,
        l2norm_eps=given["l2norm_eps"],
        gate_space="raw" if raw else given["gate_space"] or "log",
        beta_space="logit" if given["use_beta_sigmoid_in_kernel"] else "value",
        eigenvalues="negative" if given["allow_neg_eigval"] else "positive",
        qk_norm="l2" if given["use_qk_l2norm_in_kernel"] else "none",
        head_map=given["head_map"],
    )


def fused_recurrent_gated_delta_rule(
    q: T,
    k: T,
    v: T,
    g: Tensor | None = None,
    gk: Tensor | None = None,
    gv: Tensor | None = None,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    transpose_state_layout: bool | None = None,
    head_first: bool = False,
    *,
    out: T | None = None,
    final_state: T | None = None,
    max_tokens: int | None = None,
    allow_chunks: bool = False,
    gate_space: str | None = None,
    read_slots: Tensor | None = None,
    write_slots: Tensor | None = None,
    has_initial_state: Tensor | None = None,
    pad_below: int = 0,
    num_accepted: Tensor | None = None,
    head_map: str = "block",
    l2norm_eps: float = 1e-6,
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> tuple[T, T | None]:
    """The gated delta rule token by token (decode): `chunk_gated_delta_rule`'s formula, shapes and
    conventions.

    Computed in float32 whatever the lengths. Up to 16 tokens per sequence run as one pass over each
    state (`sluice.ops.recurrent_step`). Longer rows, and packed rows whose bound `max_tokens` (1..16)
    is not given, run by chunks in float32: an o of 16 bits is computed in float32 and then converted.
    On CUDA that is the generic kernel, which is many times slower than the one that fills an o of
    16 bits. allow_chunks: take that one, with operands rounded to 16 bits, as
    `chunk_gated_delta_rule` does (relative error of the state 2e-3 instead of 1e-7).
    States are written out of place; pass final_state=initial_state for an update in place.
    gk: key-wise log gates [B,T,HV,K] in place of g (KDA: `fused_recurrent_kda`). gv: refused if
    given (Unsupported). num_accepted: see `sluice.ops.recurrent_step`.

    Returns: (o [B,T,HV,V] in v's dtype, final state or None).

    Example:
      >>> x, v = np.ones((3, 1, 2, 16), np.float32), np.ones((3, 1, 4, 8), np.float32)
      >>> pool = np.zeros((10, 4, 16, 8), np.float32)               # 10 slots
      >>> o, _ = sluice.fused_recurrent_gated_delta_rule(
      ...     x, x, v, use_qk_l2norm_in_kernel=True, initial_state=pool, final_state=pool,
      ...     read_slots=np.array([7, 2, -1]))                      # the third row is padding
      >>> bool(pool[7].any()), bool(o[2].any())
      (True, False)
    """
    op = "fused_recurrent_gated_delta_rule"
    if head_first:
        refuse_foreign(op, head_first, None)
    if gv is not None:
        raise Unsupported(f"{op}: gv = given, expected None (gates are per head or key-wise)")
    if gk is not None:
        if g is not None:
            raise Unsupported(f"{op}: gk = given, expected None with g (one gate or the other; "
                "the fifth positional argument is gk: pass beta=beta)"
            )
    if transpose_state_layout is not None:
        state_v_first = transpose_state_layout
    shape = q.shape
    if initial_state is not None and read_slots is None:
        n = shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
        if initial_state.shape[0] != n:
            refuse_states(op, initial_state.shape[0], n)
    steps = max_tokens is not None or (cu_seqlens is None and shape[1] <= MAX_STEP_TOKENS)
    if output_final_state and final_state is None:
        refuse_pool(op, read_slots, write_slots)
        zeros = steps and initial_state is None
        final_state = new_state(q, v, cu_seqlens, state_v_first, zeros)
    gate = g if gk is None else gk
    gate_space = gate_space or ("raw" if use_gate_in_kernel else "log")
    if gate_space == "raw" and dt_bias is None and A_log is not None:
        dt_bias = _kinds.zeros_like(A_log)
    beta_space = "logit" if use_beta_sigmoid_in_kernel else "value"
    eigenvalues = "negative" if allow_neg_eigval else "positive"
    qk_norm = "l2" if use_qk_l2norm_in_kernel else "none"
    state_layout = "vk" if state_v_first else "kv"
    if steps:
        o = out
        if o is None:
            o = _kinds.empty_like(v) if cu_seqlens is None else _kinds.zeros_like(v)
        if initial_state is None:
            initial_state = final_state
        max_tokens = max_tokens or 0
        state_writes = "none" if final_state is None else "last"
        _kinds.entry("recurrent_step", q)(  # values of recurrent_step
            q, k, v, gate, beta, o, A_log, dt_bias, cu_seqlens, num_accepted, initial_state,
            final_state, state_layout, read_slots, write_slots, has_initial_state, pad_below,
            max_tokens, scale, l2norm_eps, gate_space, beta_space, eigenvalues, qk_norm, head_map,
            "gated_delta", state_writes, implementation, stream, workspace
        )
        return o, final_state
    if num_accepted is not None:
        raise InvalidArgument(f"{op}: num_accepted = given, expected None without max_tokens")
    o = chunk_output(op, v, out, allow_chunks, cu_seqlens, stream)
    _kinds.entry("chunk_forward", q)(  # values of chunk_forward but max_tokens
        q, k, v, gate, beta, o, A_log, dt_bias, cu_seqlens, initial_state, final_state,
        state_layout, read_slots, write_slots, has_initial_state, pad_below, scale, l2norm_eps,
        gate_space, beta_space, eigenvalues, qk_norm, head_map, "gated_delta", implementation,
        stream, workspace
    )
    return as_asked(o, v, out), final_state
