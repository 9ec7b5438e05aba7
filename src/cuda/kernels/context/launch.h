// Launches the kernels of state_fold and chunk_summary that every GPU has.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONTEXT_LAUNCH_H_
#define SLUICE_CUDA_KERNELS_CONTEXT_LAUNCH_H_

#include "cuda/kernels/context/params.h"
#include "cuda/launch.h"

namespace sluice::cuda::context {

/// Head dimension K of the largest state: two times 16 columns of it are in shared memory.
inline constexpr int64_t kMaxK = 512;

/// Loads the kernels onto the current device. @return a cudaError_t
int load_kernels() noexcept;

/// Enqueue a fold, and the preparation of a summary by the generic kernel.
void launch_fold(const FoldParams& params, Launcher& launcher) noexcept;
void launch_fill(const FillParams& params, Launcher& launcher) noexcept;

}  // namespace sluice::cuda::context

#endif  // SLUICE_CUDA_KERNELS_CONTEXT_LAUNCH_H_
