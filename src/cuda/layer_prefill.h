// layer_prefill on CUDA: what the core's table points to. The same serves layer_decode where its
// own kernel does not apply.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_LAYER_PREFILL_H_
#define SLUICE_CUDA_LAYER_PREFILL_H_

#include "core/backend.hpp"

namespace sluice::cuda {

/// What chunk_forward supports. Three launches or a few more: one convolution for q, k and v that
/// also takes the packing apart, the delta rule's kernels, one gated norm. Between them q, k and v
/// are of qkv's dtype; so is the core output where the fused delta rule kernel runs, and float32
/// where the generic one does. Bits do not depend on core_out being asked for.
Status select_layer_prefill(const core::LayerProblem& problem, core::KernelName* name) noexcept;

/// q, k, v and the core output of all rows, a byte per row, and the delta rule's scratch.
size_t layer_prefill_workspace(const core::LayerProblem& problem) noexcept;

/// Enqueues on `stream` of the views' GPU; neither allocates nor waits.
Status run_layer_prefill(const core::LayerProblem& problem, sluice_workspace workspace,
                         void* stream) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_LAYER_PREFILL_H_
