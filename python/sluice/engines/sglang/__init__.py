# SPDX-License-Identifier: Apache-2.0
"""Stands in for SGLang's gated delta rule operators, signatures as of sglang 0.5.23, and has a
sglang.srt.plugins entry point (`register`).

Slots < 0 are padding, slot 0 is live; states are [slots, HV, V, K]. Padded rows give zero outputs
here; SGLang computes them on a zero state. docs/engines/sglang.md says what was run.
"""

from .conv import causal_conv1d_fn, causal_conv1d_update
from .ops import (
    chunk_gated_delta_rule,
    chunk_kda,
    fused_recurrent_gated_delta_rule_packed_decode,
    fused_recurrent_gated_delta_rule_update,
    fused_recurrent_kda_packed_decode,
    fused_sigmoid_gating_delta_rule_update,
)
from .plugin import register

__all__ = [
    "causal_conv1d_fn",
    "causal_conv1d_update",
    "chunk_gated_delta_rule",
    "chunk_kda",
    "fused_recurrent_gated_delta_rule_packed_decode",
    "fused_recurrent_gated_delta_rule_update",
    "fused_recurrent_kda_packed_decode",
    "fused_sigmoid_gating_delta_rule_update",
    "register",
]
