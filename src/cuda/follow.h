// Launches that may begin while the kernel ahead of them ends; device/follow.cuh is their other
// half. SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_FOLLOW_H_
#define SLUICE_CUDA_FOLLOW_H_

#include <cuda_runtime_api.h>

#include "cuda/target.h"

namespace sluice::cuda {

/// Enqueues a kernel that begins with device::follow().
/// @param params what the kernel takes, one POD
/// @return a cudaError_t
template <class Params>
int launch_following(const void* kernel, dim3 grid, int threads, size_t shared_bytes,
                     Params* params, const Target& target, void* stream) noexcept {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &overlap;
  config.numAttrs = target.follows ? 1 : 0;
  void* arguments[] = {params};
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_FOLLOW_H_
