# SPDX-License-Identifier: Apache-2.0
"""Offers KDA (Kimi delta attention: a gate for each key channel) and its gate alone, with fla's
signatures."""

import math
from typing import Any

from .. import ops
from .._arrays import empty
from .._errors import InvalidArgument, Unsupported
from .._types import T, Tensor
from ._arguments import add_states, check_key_gate, longest, over_ranks, refuse_foreign, run_recurrent


def flat_rates(A_log: Any) -> Any:
    """A_log as [HV]: models keep it as [1,1,HV,1]."""
    return A_log if A_log is None or len(A_log.shape) == 1 else A_log.reshape(-1)


def flat_biases(dt_bias: Any, heads: int, key_dim: int) -> Any:
    """dt_bias as [HV,K], from [HV K] or as it is."""
    if dt_bias is None or len(dt_bias.shape) == 2:
        return dt_bias
    return dt_bias.reshape(heads, key_dim)


def bound_argument(op: str, lower_bound: float | None) -> float:
    """lower_bound as the operators take it, to whom 0 means none."""
    if lower_bound is None:
        return 0.0
    if not -math.inf < lower_bound < 0:
        raise InvalidArgument(f"{op}: lower_bound = {lower_bound:g}, expected None or a finite number < 0")
    return lower_bound


def gate_arguments(
    op: str,
    g: Any,
    use_gate_in_kernel: bool,
    A_log: Any,
    dt_bias: Any,
    lower_bound: float | None,
    safe_gate: bool = False,
) -> dict[str, Any]:
    """What the operators are told about g: log gates, or raw ones as fla's gate reads them."""
    if not use_gate_in_kernel:
        return {}
    if safe_gate and lower_bound is None:
        raise InvalidArgument(
            f"{op}: lower_bound = None, expected a number < 0 (safe_gate with use_gate_in_kernel)"
        )
    if A_log is None and lower_bound is None:
        raise InvalidArgument(
            f"{op}: A_log = None, expected a tensor [HV] (use_gate_in_kernel without lower_bound)"
        )
    return {
        "A_log": flat_rates(A_log),
        "dt_bias": flat_biases(dt_bias, *g.shape[-2:]),
        "gate_space": "raw" if lower_bound is None else "raw_bounded",
        "gate_lower_bound": bound_argument(op, lower_bound),
    }


def _rule(
    op: str, allow_neg_eigval: bool, use_beta_sigmoid_in_kernel: bool, use_qk_l2norm_in_kernel: bool
) -> dict[str, Any]:
    """fla's switches of the rule as the operators take them."""
    if allow_neg_eigval and not use_beta_sigmoid_in_kernel:
        raise InvalidArgument(
            f"{op}: allow_neg_eigval = True, expected False without use_beta_sigmoid_in_kernel (the "
            "rule of fla)"
        )
    return {
        "beta_space": "logit" if use_beta_sigmoid_in_kernel else "value",
        "eigenvalues": "negative" if allow_neg_eigval else "positive",
        "qk_norm": "l2" if use_qk_l2norm_in_kernel else "none",
    }


# What the operators take of a call as it is.
_SAME = (
    *("q", "k", "v", "beta", "cu_seqlens", "initial_state", "final_state", "read_slots", "write_slots"),
    *("has_initial_state", "pad_below", "scale", "implementation", "stream", "workspace"),
)


def _first(op: str, state_v_first: bool, transpose_state_layout: bool | None) -> bool:
    """state_v_first, or fla's older name of it."""
    if transpose_state_layout is None:
        return state_v_first
    if state_v_first:
        raise InvalidArgument(
            f"{op}: transpose_state_layout = {transpose_state_layout}, expected None (with "
            "state_v_first)"
        )
    return transpose_state_layout


def chunk_kda(
    q: T,
    k: T,
    v: T,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    safe_gate: bool = False,
    lower_bound: float | None = None,
    disable_recompute: bool = False,
    return_intermediate_states: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Any = None,
    cp_context: Any = None,
    use_graph: bool = False,
    max_num_seqs: int | None = None,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    chunk_size: int = 64,
    transpose_state_layout: bool | None = None,
    *,
    out: T | None = None,
    final_state: T | None = None,
    read_slots: Tensor | None = None,
    write_slots: Tensor | None = None,
    has_initial_state: Tensor | None = None,
    pad_below: int = 0,
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> tuple[Any, ...]:
    """KDA over whole sequences, by chunks (prefill): the gated delta rule with one decay for each
    channel of k,
      S_t = diag(alpha_t) S_{t-1} + k_t (beta_t (v_t - (diag(alpha_t) S_{t-1})^T k_t))^T.

    Args:
      g: [B,T,HV,K] log gates <= 0; with use_gate_in_kernel the raw gates, and then
        g = -exp(A_log) softplus(g + dt_bias), or with lower_bound
        g = lower_bound sigmoid(exp(A_log) (g + dt_bias)). A_log has HV numbers (with lower_bound
        None = 0), dt_bias [HV K] or [HV,K] (None = 0). lower_bound may be any number < 0: it is a
        form of the gate, and no kernel needs it.
      safe_gate: needs lower_bound with use_gate_in_kernel, as in fla; chooses nothing else.
      return_intermediate_states: also return the states that enter the chunks of 64 tokens, bfloat16
        [B,NT,HV,K,V] (torch tensors in inference mode alone, as in fla).
      disable_recompute, use_graph, max_num_seqs, chunk_size (32 or 64): accepted, choose nothing.
      cp_context: as in `chunk_gated_delta_rule`.
      The rest as in `chunk_gated_delta_rule`.

    Returns: (o, final state or None), or (o, final state or None, h).
    Source: Kimi Team, Kimi Linear, arXiv:2510.26692.

    Example:
      >>> x = np.ones((1, 100, 2, 16), np.float32)
      >>> g = np.full((1, 100, 2, 16), -0.1, np.float32)            # a gate for each channel of k
      >>> o, _ = sluice.chunk_kda(x, x, x, g, g[..., 0] * 0 + 1, use_qk_l2norm_in_kernel=True)
      >>> o.shape
      (1, 100, 2, 16)
    """
    op = "chunk_kda"
    if chunk_size != 64:
        refuse_foreign(op, False, 32 if chunk_size == 32 else 64)
    if chunk_size not in (32, 64):
        raise InvalidArgument(f"{op}: chunk_size = {chunk_size}, expected 32 or 64 (fla's rule)")
    check_key_gate(op, "g", g, "chunk_gated_delta_rule")
    rule = _rule(op, allow_neg_eigval, use_beta_sigmoid_in_kernel, use_qk_l2norm_in_kernel)
    state_v_first = _first(op, state_v_first, transpose_state_layout)
    gates = gate_arguments(op, g, use_gate_in_kernel, A_log, dt_bias, lower_bound, safe_gate)
    if cp_context is not None:
        foreign = (
            *("return_intermediate_states", "out", "final_state", "read_slots", "write_slots"),
            *("has_initial_state", "stream", "workspace"),
        )
        found: tuple[Any, ...] = over_ranks(op, locals(), foreign, **rule, **gates)
        return found
    given = locals()
    call = {name: given[name] for name in _SAME}
    max_tokens = 0 if cu_seqlens_cpu is None else longest(cu_seqlens_cpu)
    call.update(rule, gate=g, o=out, max_tokens=max_tokens, **gates)
    final_state = add_states(op, call, output_final_state, state_v_first)
    h: Any = None
    if return_intermediate_states:
        h, states = _intermediate_states(q, v, cu_seqlens, initial_state, read_slots, call["state_layout"])
        call.update(states)
    o = ops.chunk_forward(**call)
    return (o, final_state, h) if return_intermediate_states else (o, final_state)


def _intermediate_states(
    q: Any, v: Any, cu_seqlens: Any, initial_state: Any, read_slots: Any, layout: str
) -> tuple[Any, dict[str, Any]]:
    """h of fla, and the arguments of chunk_forward that fill it."""
    import sys

    torch = sys.modules.get("torch")
    if torch is None or not isinstance(q, torch.Tensor):
        raise Unsupported(
            "chunk_kda: return_intermediate_states = True, expected False (torch tensors have it)"
        )
    if not torch.is_inference_mode_enabled():
        raise InvalidArgument(
            "chunk_kda: return_intermediate_states = True, expected False outside inference mode "
            "(fla's rule)"
        )
    from ..engines.chunk_states import chunk_start_states

    found: tuple[Any, dict[str, Any]] = chunk_start_states(
        q, v, cu_seqlens, initial_state, read_slots, layout, torch.bfloat16
    )
    return found


def fused_recurrent_kda(
    q: T,
    k: T,
    v: T,
    g: Tensor,
    beta: Tensor,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    lower_bound: float | None = None,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    transpose_state_layout: bool | None = None,
    *,
    out: T | None = None,
    final_state: T | None = None,
    max_tokens: int | None = None,
    allow_chunks: bool = False,
    read_slots: Tensor | None = None,
    write_slots: Tensor | None = None,
    has_initial_state: Tensor | None = None,
    pad_below: int = 0,
    num_accepted: Tensor | None = None,
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> tuple[T, T | None]:
    """KDA token by token (decode): `chunk_kda`'s formula, gates and conventions; lengths, dtypes and
    states as in `fused_recurrent_gated_delta_rule`.

    Returns: (o, final state or None).
    Source: Kimi Team, Kimi Linear, arXiv:2510.26692.

    Example:
      >>> x, g = np.ones((3, 1, 2, 16), np.float32), np.full((3, 1, 2, 16), -0.1, np.float32)
      >>> state = np.zeros((3, 2, 16, 16), np.float32)
      >>> o, _ = sluice.fused_recurrent_kda(
      ...     x, x, x, g, g[..., 0] * 0 + 1, initial_state=state, final_state=state,
      ...     use_qk_l2norm_in_kernel=True)
      >>> o.shape, bool(state.any())
      ((3, 1, 2, 16), True)
    """
    op = "fused_recurrent_kda"
    check_key_gate(op, "g", g, "fused_recurrent_gated_delta_rule")
    rule = _rule(op, allow_neg_eigval, use_beta_sigmoid_in_kernel, use_qk_l2norm_in_kernel)
    state_v_first = _first(op, state_v_first, transpose_state_layout)
    gates = gate_arguments(op, g, use_gate_in_kernel, A_log, dt_bias, lower_bound)
    given = locals()
    call = {name: given[name] for name in _SAME}
    call.update(rule, gate=g, o=out, num_accepted=num_accepted, **gates)
    return run_recurrent(op, call, output_final_state, state_v_first, max_tokens, allow_chunks)


def fused_kda_gate(
    g: T,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    lower_bound: float | None = None,
    output_dtype: Any = None,
) -> T:
    """The gate of KDA alone: -exp(A_log) softplus(g + dt_bias), with lower_bound
    lower_bound sigmoid(exp(A_log) (g + dt_bias)), of raw g [..,HV,K], never below -128.

    A_log has HV numbers (with lower_bound None = 0), dt_bias [HV K] or [HV,K]. No caller of
    `chunk_kda` needs it: the operators take raw gates. Gradients are refused (Unsupported).

    Returns: the log gates, float32 unless output_dtype (of torch) says otherwise.

    Example:
      >>> raw = np.zeros((1, 5, 2, 16), np.float32)
      >>> gate = sluice.fused_kda_gate(raw, np.zeros(2, np.float32))
      >>> round(float(gate[0, 0, 0, 0]), 4)                         # -log(2)
      -0.6931
    """
    op = "fused_kda_gate"
    if getattr(g, "requires_grad", False):
        raise Unsupported(
            f"{op}: g.requires_grad = True, expected False (chunk_kda has gradients by raw gates)"
        )
    gates = gate_arguments(op, g, True, A_log, dt_bias, lower_bound)
    heads, key_dim = g.shape[-2:]
    raw: Any = g
    # Every token is a batch entry, so a chunk of its own: its sum is its gate.
    rows = raw.reshape(-1, 1, heads, key_dim)
    sums = empty(g, rows.shape, "float32")
    ops.chunk_stage("chunk_cumsum", gate=rows, g_cumsum=sums, **gates)
    sums = sums.reshape(g.shape)
    return sums if output_dtype is None else sums.to(output_dtype)
