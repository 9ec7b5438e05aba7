# SPDX-License-Identifier: Apache-2.0
"""Runs fla.ops.gated_delta_rule, fla.ops.kda and fla.ops.gla on Sluice: fla's parameters, nothing of Sluice's own.

Differences from fla: inputs are not made contiguous (the last dimension must be). By chunks gradients
are computed (not fast on CUDA yet); steps refuse them.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from ... import functional
from ..refusal import invalid, only_absent, unsupported

if TYPE_CHECKING:
    import torch


def passed_on(op: str, given: dict[str, Any]) -> dict[str, Any]:
    """A call's arguments by name as `sluice.functional` takes them: fla's deprecated name of state_v_first
    resolved, with fla's warning, and its context there only where it cuts sequences over ranks."""
    arguments = {name: value for name, value in given.items() if name != "op"}
    older = arguments.pop("transpose_state_layout")
    if older is not None:
        if arguments["state_v_first"]:
            invalid(op, "transpose_state_layout", older, "None", "with state_v_first")
        text = "transpose_state_layout is deprecated and renamed to state_v_first"
        warnings.warn(f"{op}: {text}", DeprecationWarning, stacklevel=3)
        arguments["state_v_first"] = bool(older)
    cp_context = arguments.get("cp_context")
    if cp_context is None:
        return arguments
    if getattr(cp_context, "group", cp_context) is None:
        arguments["cp_context"] = None
    elif not readable(cp_context):
        unsupported(op, "cp_context", cp_context, "what fla's build_cp_context makes", "group and cu_seqlens")
    return arguments


def readable(cp_context: Any) -> bool:
    """Whether a context tells what each rank holds."""
    if getattr(cp_context, "group", None) is None or getattr(cp_context, "cu_seqlens", None) is None:
        return False
    zigzag = ("front_num_seqs", "pre_num_ranks_by_part")
    needed = zigzag if getattr(cp_context, "layout", "contiguous") == "zigzag" else ("pre_num_ranks",)
    return all(getattr(cp_context, name, None) is not None for name in needed)


def _raw_gate(
    op: str, use_gate_in_kernel: bool, A_log: torch.Tensor | None, dt_bias: torch.Tensor | None
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """A_log and dt_bias as the operators take them: with raw gates alone."""
    if use_gate_in_kernel and A_log is None:
        invalid(op, "A_log", None, "a tensor [HV]", "use_gate_in_kernel")
    return (A_log, dt_bias) if use_gate_in_kernel else (None, None)


def chunk_gated_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    cu_seqlens_cpu: Any = None,
    chunk_indices: Any = None,
    cp_context: Any = None,
    use_gate_in_kernel: bool = False,
    A_log: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    chunk_size: int = 64,
    transpose_state_layout: bool | None = None,
    head_first: bool | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """fla's prefill: q, k [B,T,H,K], v [B,T,HV,V], g, beta [B,T,HV], state [N,HV,K,V].

    cu_seqlens_cpu tells the longest sequence; chunk_indices is not read; chunk_size 16, 32 or 64
    chooses nothing (Sluice's kernels have their own chunks); cp_context is fla's, and then the offsets of
    sequences are its own; head_first is refused.
    Returns (o, final state float32 or None).
    """
    op = "fla.chunk_gated_delta_rule"
    only_absent(op, "not supported", head_first=head_first)
    if chunk_size not in (16, 32, 64):
        invalid(op, "chunk_size", chunk_size, "16, 32 or 64", "fla's rule")
    A_log, dt_bias = _raw_gate(op, use_gate_in_kernel, A_log, dt_bias)
    return functional.chunk_gated_delta_rule(**passed_on(op, locals()))


def fused_recurrent_gated_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor | None = None,
    gk: torch.Tensor | None = None,
    gv: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    A_log: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    transpose_state_layout: bool | None = None,
    head_first: bool | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """fla's decode, shapes as in chunk_gated_delta_rule, beta None = 1. gk and gv (a decay per
    channel) and a beta per channel [B,T,HV,V] are refused. Returns (o, final state or None)."""
    op = "fla.fused_recurrent_gated_delta_rule"
    only_absent(op, "one gate per value head", gk=gk, gv=gv, head_first=head_first)
    if allow_neg_eigval and not use_beta_sigmoid_in_kernel:
        invalid(op, "allow_neg_eigval", True, "use_beta_sigmoid_in_kernel with it", "fla's rule")
    A_log, dt_bias = _raw_gate(op, use_gate_in_kernel, A_log, dt_bias)
    return functional.fused_recurrent_gated_delta_rule(**passed_on(op, locals()))


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
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    safe_gate: bool = False,
    lower_bound: float | None = None,
    disable_recompute: bool = False,
    return_intermediate_states: bool = False,
    state_v_first: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    cu_seqlens_cpu: Any = None,
    cp_context: Any = None,
    use_graph: bool = False,
    max_num_seqs: int | None = None,
    A_log: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    chunk_size: int = 64,
    transpose_state_layout: bool | None = None,
) -> tuple[Any, ...]:
    """fla's prefill: q, k [B,T,H,K], v [B,T,HV,V], g [B,T,HV,K], beta [B,T,HV], state [N,HV,K,V]; see
    `sluice.chunk_kda`. cp_context is fla's; lower_bound may be any number < 0; use_graph and
    max_num_seqs are not read (launches depend on no contents).

    Returns (o, final state float32 or None), with return_intermediate_states (o, final, h).
    """
    return functional.chunk_kda(**passed_on("fla.chunk_kda", locals()))


def fused_recurrent_kda(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    A_log: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    lower_bound: float | None = None,
    state_v_first: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    transpose_state_layout: bool | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """fla's decode, shapes as in chunk_kda. A beta per channel [B,T,HV,V] is refused. Returns
    (o, final state or None)."""
    op = "fla.fused_recurrent_kda"
    if len(beta.shape) != 3:
        invalid(op, "beta", beta, "[B,T,HV]", "one write strength a value head")
    return functional.fused_recurrent_kda(**passed_on(op, locals()))


def chunk_gla(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    scale: int | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    cu_seqlens_cpu: Any = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """fla's gated linear attention by chunks: see `sluice.chunk_gla`."""
    return functional.chunk_gla(**locals())


chunk_gdn = chunk_gated_delta_rule
fused_recurrent_gdn = fused_recurrent_gated_delta_rule
# A revision of transformers asks fla for this name.
recurrent_gated_delta_rule = fused_recurrent_gated_delta_rule
