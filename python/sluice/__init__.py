# SPDX-License-Identifier: Apache-2.0
"""Computes gated linear attention (Gated DeltaNet, simple GLA) on CPUs and GPUs.

Takes torch tensors, NumPy arrays and DLPack producers as views, without copies, and runs where
they live. `sluice.functional` (re-exported here) follows flash-linear-attention's signatures,
`sluice.ops` has every option of the C interface. docs/python.md is the guide.
"""

from . import functional, ops
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
from .functional import *  # noqa: F403

# The names under which fla and some of its callers know these.
chunk_gdn = functional.chunk_gated_delta_rule
fused_recurrent_gdn = functional.fused_recurrent_gated_delta_rule
recurrent_gated_delta_rule = functional.fused_recurrent_gated_delta_rule

__all__ = [
    "DeviceError",
    "Error",
    "InternalError",
    "InvalidArgument",
    "Unsupported",
    "WorkspaceTooSmall",
    "__version__",
    "chunk_gdn",
    "fused_recurrent_gdn",
    "implementations",
    "info",
    "last_kernel",
    "ops",
    "recurrent_gated_delta_rule",
    "set_num_threads",
    "supported",
    "warm_up",
]
__all__ += functional.__all__
