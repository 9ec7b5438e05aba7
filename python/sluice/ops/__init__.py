# SPDX-License-Identifier: Apache-2.0
"""Offers the operators with every option of the C interface (include/sluice/sluice.h), for callers
that build their own conventions on top; `sluice.functional` has the FLA-style functions.

Tensors are torch tensors, NumPy arrays (bfloat16 by ml_dtypes) or any DLPack producer, all on one
device; they are passed as views with their strides and never copied. Shapes are token-first:
q, k [B,T,H,K], v, o [B,T,HV,V], gate, beta [B,T,HV], state pools [slots,HV,K,V] ("kv") or
[slots,HV,V,K] ("vk"). With cu_seqlens (int32 or int64 [N+1]) B is 1 and sequence n is rows
cu_seqlens[n] .. cu_seqlens[n+1]-1. Floating tensors are float32, bfloat16 or float16.

Outputs that are not given are allocated in the kind and on the device of the first tensor. A CUDA
call runs on `stream` (an integer handle, or an object with `cuda_stream`, `ptr` or
`__cuda_stream__`), by default the framework's current stream; a CPU call takes none.

Every refusal is a sluice.Error: InvalidArgument (a ValueError) for the caller's mistakes,
Unsupported (a NotImplementedError) where no kernel does it. After a refusal nothing was written.
"""

from .context import chunk_summary, state_fold
from .conv_norm import causal_conv1d, gated_rms_norm
from .conv_norm_backward import causal_conv1d_backward, gated_rms_norm_backward
from .decode import recurrent_step
from .layer import layer_decode, layer_prefill
from .layer_gradients import layer_backward
from .prefill import chunk_backward, chunk_forward
from .stage import chunk_stage

__all__ = [
    "causal_conv1d",
    "causal_conv1d_backward",
    "chunk_backward",
    "chunk_forward",
    "chunk_stage",
    "chunk_summary",
    "gated_rms_norm",
    "gated_rms_norm_backward",
    "layer_backward",
    "layer_decode",
    "layer_prefill",
    "recurrent_step",
    "state_fold",
]
