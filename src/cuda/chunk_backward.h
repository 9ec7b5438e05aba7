// chunk_backward on CUDA: what the core's table points to.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CHUNK_BACKWARD_H_
#define SLUICE_CUDA_CHUNK_BACKWARD_H_

#include "core/backend.hpp"

namespace sluice::cuda {

/// The kernels of kernels/backward after the plain stages; kUnsupported for K above 512 and GPUs
/// before 8.0.
Status select_chunk_backward(const core::ChunkBackwardProblem& problem,
                             core::KernelName* name) noexcept;
/// States of all chunks and their gradients, what stages leave, parts of dq and dk by value head.
size_t chunk_backward_workspace(const core::ChunkBackwardProblem& problem) noexcept;
/// Enqueues on `stream` of the views' GPU; neither allocates nor waits.
Status run_chunk_backward(const core::ChunkBackwardProblem& problem, sluice_workspace workspace,
                          void* stream) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CHUNK_BACKWARD_H_
