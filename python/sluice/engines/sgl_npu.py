# SPDX-License-Identifier: Apache-2.0
"""Stands in for sgl-kernel-npu: chunk_gated_delta_rule_npu, the prefill that SGLang calls on Ascend
devices.

Signature as in sgl-kernel-npu's repository (python/sgl_kernel_npu/fla/chunk.py). Sluice has no NPU
backend: the function runs CPU and CUDA tensors under the same contract.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import ops
from ..functional._arguments import new_state
from . import sequences
from .chunk_states import chunk_start_states
from .refusal import invalid, only_absent, unsupported

if TYPE_CHECKING:
    import torch


def chunk_gated_delta_rule_npu(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = True,
    cu_seqlens: torch.Tensor | None = None,
    head_first: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """q, k [B,T,H,K] and v [B,T,HV,V] in bfloat16 or float16 (float32 is refused, the engine's
    rule), g log [B,T,HV], beta [B,T,HV], state [N,HV,K,V]; packed rows with B = 1 and cu_seqlens.

    Returns THREE values: o, the final state (new, float32; None without output_final_state, whose
    default is True) and h, the states at the start of every 64-token chunk: [B, chunks, HV, K, V]
    in q's dtype (packed: B = 1, sequence after sequence; on CUDA the packed form may end in unused
    rows, because the exact count is not known to the host).
    """
    op = "sgl_npu.chunk_gated_delta_rule_npu"
    import torch

    only_absent(op, "token-first tensors", head_first=head_first)
    if q.dtype == torch.float32:
        unsupported(op, "q.dtype", q.dtype, "bfloat16 or float16", "the engine's rule")
    if len(beta.shape) != 3:
        invalid(op, "beta", beta, "[B,T,HV]", "one write strength a value head")
    h, checkpoints = chunk_start_states(q, v, cu_seqlens, initial_state, None, "kv")
    final = new_state(q, v, cu_seqlens, False) if output_final_state else None
    call = sequences.arguments(q, k, v, g, beta, cu_seqlens, scale, use_qk_l2norm_in_kernel)
    o = ops.chunk_forward(**call, initial_state=initial_state, final_state=final, **checkpoints)
    return o, final, h
