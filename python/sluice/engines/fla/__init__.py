# SPDX-License-Identifier: Apache-2.0
"""Gives flash-linear-attention (fla) its operators' signatures, and Sluice as one of its backends.

Signatures as of fla 0.6.0, with every keyword that fla reads from **kwargs named. `register()` puts
Sluice into fla's backend registry; see docs/engines/fla.md.
"""

from .backend import register, unregister
from .ops import (
    chunk_gated_delta_rule,
    chunk_gdn,
    chunk_gla,
    chunk_kda,
    fused_recurrent_gated_delta_rule,
    fused_recurrent_gdn,
    fused_recurrent_kda,
    recurrent_gated_delta_rule,
)

__all__ = [
    "chunk_gated_delta_rule",
    "chunk_gdn",
    "chunk_gla",
    "chunk_kda",
    "fused_recurrent_gated_delta_rule",
    "fused_recurrent_gdn",
    "fused_recurrent_kda",
    "recurrent_gated_delta_rule",
    "register",
    "unregister",
]
