# SPDX-License-Identifier: Apache-2.0
"""Computes gated linear attention (Gated DeltaNet, simple GLA) on CPUs and GPUs.

Takes torch tensors, NumPy arrays and DLPack producers as views, without copies, and runs where
they live. `sluice.functional` (re-exported here) follows flash-linear-attention's signatures,
`sluice.ops` has every option of the C interface. docs/python.md is the guide.
"""

from . import ops
from ._errors import (
    DeviceError,
    Error,
    InternalError,
    InvalidArgument,
    Unsupported,
    WorkspaceTooSmall,
)
from ._library import (
    __version__,
    implementations,
    info,
    last_kernel,
    set_num_threads,
    supported,
    warm_up,
)
from .functional import (
    causal_conv1d,
    causal_conv1d_update,
    chunk_gated_delta_rule,
    chunk_gla,
    chunk_kda,
    chunk_simple_gla,
    fused_kda_gate,
    fused_recurrent_gated_delta_rule,
    fused_recurrent_gla,
    fused_recurrent_kda,
    fused_recurrent_simple_gla,
    gated_rms_norm,
    gdn_layer_decode,
    gdn_layer_prefill,
    kda_layer_decode,
    kda_layer_prefill,
)

# The names under which fla and some of its callers know these.
chunk_gdn = chunk_gated_delta_rule
fused_recurrent_gdn = fused_recurrent_gated_delta_rule
recurrent_gated_delta_rule = fused_recurrent_gated_delta_rule

__all__ = [
    "DeviceError",
    "Error",
    "InternalError",
    "InvalidArgument",
    "Unsupported",
    "WorkspaceTooSmall",
    "__version__",
    "causal_conv1d",
    "causal_conv1d_update",
    "chunk_gated_delta_rule",
    "chunk_gdn",
    "chunk_gla",
    "chunk_kda",
    "chunk_simple_gla",
    "fused_kda_gate",
    "fused_recurrent_gated_delta_rule",
    "fused_recurrent_gdn",
    "fused_recurrent_gla",
    "fused_recurrent_kda",
    "fused_recurrent_simple_gla",
    "gated_rms_norm",
    "gdn_layer_decode",
    "gdn_layer_prefill",
    "implementations",
    "info",
    "kda_layer_decode",
    "kda_layer_prefill",
    "last_kernel",
    "ops",
    "recurrent_gated_delta_rule",
    "set_num_threads",
    "supported",
    "warm_up",
]
