// SPDX-License-Identifier: Apache-2.0
#include "cuda/gpu.h"

#include <cuda_runtime_api.h>

namespace sluice::cuda {

int device_count() noexcept {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

int compute_capability(int device) noexcept {
  int major = 0, minor = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return 10 * major + minor;
}

DeviceGuard::DeviceGuard(int device) noexcept {
  error_ = cudaGetDevice(&previous_);
  if (error_ != cudaSuccess || previous_ == device) return;
  error_ = cudaSetDevice(device);
  changed_ = error_ == cudaSuccess;
}

DeviceGuard::~DeviceGuard() {
  if (changed_) cudaSetDevice(previous_);
}

}  // namespace sluice::cuda
