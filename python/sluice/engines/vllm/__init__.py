# SPDX-License-Identifier: Apache-2.0
"""Stands in for vLLM's gated delta rule operators, signatures as of vllm 0.33.0, and has a
vllm.general_plugins entry point (`register`).

In this vLLM block 0 of every state pool is the null block: slots <= 0 are padding. States are
[slots, HV, V, K]. Padded rows give zero outputs here; vLLM leaves them unwritten. docs/engines/
vllm.md says what ran inside vLLM.
"""

from .conv import causal_conv1d_fn, causal_conv1d_update
from .cpu import chunk_gated_delta_rule_cpu, fused_sigmoid_gating_delta_rule_update_cpu
from .norm import layer_norm_fwd, rms_norm_gated, rmsnorm_fn
from .ops import (
    chunk_gated_delta_rule,
    chunk_kda,
    chunk_kda_with_fused_gate,
    fused_gdn_decode_post_conv_mtp,
    fused_recurrent_gated_delta_rule,
    fused_recurrent_gated_delta_rule_packed_decode,
    fused_recurrent_kda,
    fused_sigmoid_gating_delta_rule_update,
)
from .plugin import register, unregister

__all__ = [
    "causal_conv1d_fn",
    "causal_conv1d_update",
    "chunk_gated_delta_rule",
    "chunk_gated_delta_rule_cpu",
    "chunk_kda",
    "chunk_kda_with_fused_gate",
    "fused_gdn_decode_post_conv_mtp",
    "fused_recurrent_gated_delta_rule",
    "fused_recurrent_gated_delta_rule_packed_decode",
    "fused_recurrent_kda",
    "fused_sigmoid_gating_delta_rule_update",
    "fused_sigmoid_gating_delta_rule_update_cpu",
    "layer_norm_fwd",
    "register",
    "rms_norm_gated",
    "rmsnorm_fn",
    "unregister",
]
