// Launches that may begin while the kernel ahead of them ends; device/follow.cuh is their other
// half.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_FOLLOW_H_
#define SLUICE_CUDA_FOLLOW_H_

#include <cuda_runtime_api.h>

#include "cuda/target.h"

namespace sluice::cuda {

/// Size of a launch; shared_bytes: dynamic shared memory.
struct Extent {
  dim3 grid;
  int threads;
  size_t shared_bytes;
};

/// Enqueues a kernel that begins with device::follow().
/// @param parameters what the kernel takes, of its own types
/// @return a cudaError_t
template <class... Parameters>
int launch_following(const void* kernel, const Extent& extent, const Target& target, void* stream,
                     Parameters... parameters) noexcept {
  constexpr size_t kWithoutLeave = 48 * 1024;
  if (extent.shared_bytes > kWithoutLeave) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(extent.shared_bytes));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = extent.grid;
  config.blockDim = dim3(static_cast<unsigned>(extent.threads));
  config.dynamicSmemBytes = extent.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &overlap;
  config.numAttrs = target.follows ? 1 : 0;
  void* arguments[] = {&parameters...};
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_FOLLOW_H_
