# SPDX-License-Identifier: Apache-2.0
"""Offers functions with the names, parameter order and defaults of flash-linear-attention (fla),
over the operators of `sluice.ops`. Every parameter is named; parameters after the bare `*` are
Sluice's own.

Tensor kinds, devices, streams and errors: see `sluice.ops`. Nothing is copied or made contiguous,
but 16-bit rows that recurrent functions compute by chunks in float32.
On torch tensors the functions that run by chunks are differentiable, and so are causal_conv1d and
gated_rms_norm; steps, pools and layers refuse gradients by name."""

from .conv_norm import causal_conv1d, causal_conv1d_update, gated_rms_norm
from .gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule
from .gla import chunk_gla, chunk_simple_gla, fused_recurrent_gla, fused_recurrent_simple_gla
from .kda import chunk_kda, fused_kda_gate, fused_recurrent_kda
from .layer import gdn_layer_decode, gdn_layer_prefill, kda_layer_decode, kda_layer_prefill

__all__ = [
    "causal_conv1d",
    "causal_conv1d_update",
    "chunk_gated_delta_rule",
    "chunk_gla",
    "chunk_kda",
    "chunk_simple_gla",
    "fused_kda_gate",
    "fused_recurrent_gated_delta_rule",
    "fused_recurrent_gla",
    "fused_recurrent_kda",
    "fused_recurrent_simple_gla",
    "gated_rms_norm",
    "gdn_layer_decode",
    "gdn_layer_prefill",
    "kda_layer_decode",
    "kda_layer_prefill",
]
