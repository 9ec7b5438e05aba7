// chunk_stage on CUDA: what the core's table points to.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_STAGES_H_
#define SLUICE_CUDA_STAGES_H_

#include "core/backend.hpp"
#include "cuda/kernels/stages/launch.h"

namespace sluice::cuda {

/// A stage for any of its kernels: no checks, no CUDA calls.
stages::StageParams lower_stage(const core::ChunkStageProblem& problem) noexcept;

/// The kernel of tensor cores where sizes, dtypes, strides and the GPU allow it, else the plain
/// one; kUnsupported where neither goes: K above 512 in stages that carry a state, GPUs before 8.0.
/// @param capability 10 major + minor
Status choose_stage_kernel(const core::ChunkStageProblem& problem, int capability,
                           stages::Kernel* kernel, core::KernelName* name) noexcept;

Status select_chunk_stage(const core::ChunkStageProblem& problem, core::KernelName* name) noexcept;
/// The segments' states of simple GLA; none otherwise.
size_t chunk_stage_workspace(const core::ChunkStageProblem& problem) noexcept;
/// Enqueues on `stream` of the views' GPU; neither allocates nor waits.
Status run_chunk_stage(const core::ChunkStageProblem& problem, sluice_workspace workspace,
                       void* stream) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_STAGES_H_
