# SPDX-License-Identifier: Apache-2.0
"""Finds the extension's function of each operator."""

from . import _core

CALLS = {
    name: getattr(_core, name)
    for name in (
        "chunk_forward",
        "recurrent_step",
        "causal_conv1d",
        "gated_rms_norm",
        "layer_prefill",
        "layer_decode",
        "chunk_stage",
        "chunk_backward",
        "chunk_summary",
        "state_fold",
        "causal_conv1d_backward",
        "gated_rms_norm_backward",
        "layer_backward",
    )
}
