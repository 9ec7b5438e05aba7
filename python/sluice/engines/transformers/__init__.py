# SPDX-License-Identifier: Apache-2.0
"""Patches models of Hugging Face transformers: `patch(model)` swaps the gated delta rule of Qwen3-Next,
Qwen3.5 and every other model built from the same functions, and gives it back.

    import sluice.engines.transformers as sluice_hf
    handle = sluice_hf.patch(model)      # or: with sluice_hf.patched(model): ...
    handle.restore()

See docs/engines/transformers.md for the models, the versions and the measured times.
"""

from .ops import (
    causal_conv1d_fn,
    causal_conv1d_update,
    chunk_gated_delta_rule,
    fused_recurrent_gated_delta_rule,
    gated_rms_norm,
)
from .patch import Patch, patch, patched

__all__ = [
    "Patch",
    "causal_conv1d_fn",
    "causal_conv1d_update",
    "chunk_gated_delta_rule",
    "fused_recurrent_gated_delta_rule",
    "gated_rms_norm",
    "patch",
    "patched",
]
