// Runs a chunk_backward by tensor cores in windows of chunks, which share one workspace.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CHUNK_BACKWARD_WINDOWS_H_
#define SLUICE_CUDA_CHUNK_BACKWARD_WINDOWS_H_

#include "core/problem.hpp"
#include "cuda/chunk_backward/waves.h"
#include "cuda/launch.h"

namespace sluice::cuda {

/// A call of one wave that has windows, but for dA_log and ddt_bias, whose parts it leaves. States are
/// brought from the first window to the last, then each window is computed, from the last to the first:
/// its states once more, gradients of states, gradients by chunk. States of borders are float32, as
/// chains have them in registers: the same bits as without windows.
void launch_windows(const core::ChunkBackwardProblem& problem, const Waves& waves, void* memory,
                    Launcher& launcher) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CHUNK_BACKWARD_WINDOWS_H_
