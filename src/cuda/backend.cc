// The CUDA backend's entry in the core's table.
// SPDX-License-Identifier: Apache-2.0
#include "core/backend.hpp"

#include <cuda_runtime_api.h>

#include <cstdio>

#include "cuda/chunk_forward.h"
#include "cuda/kernels/chunk_forward/launch.h"

namespace sluice::cuda {
namespace {

constexpr int kHopper = 90;

/// 10 major + minor of a device, 0 if it cannot be asked.
int compute_capability(int device) noexcept {
  int major = 0, minor = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return 10 * major + minor;
}

int device_count() noexcept {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

bool available() noexcept {
  static const bool found = [] {
    for (int device = 0; device < device_count(); ++device) {
      if (compute_capability(device) == kHopper) return true;
    }
    return false;
  }();
  return found;
}

Status warm_up(int32_t device_index) noexcept {
  int previous = 0;
  cudaError_t error = cudaGetDevice(&previous);
  if (error == cudaSuccess) error = cudaSetDevice(device_index);
  if (error == cudaSuccess) error = static_cast<cudaError_t>(chunk_forward::load_kernels());
  cudaSetDevice(previous);
  if (error == cudaSuccess) return ok_status();
  return Status::failure(Code::kDeviceError, "warm_up: device %d = %s, expected cudaSuccess",
                         device_index, cudaGetErrorName(error));
}

size_t describe(char* out, size_t size) noexcept {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  const int count = device_count();
  const int length = std::snprintf(out, size,
                                   "cuda.devices: %d\n"
                                   "cuda.device0.compute_capability: %d\n"
                                   "cuda.driver: %d\n"
                                   "cuda.runtime: %d\n",
                                   count, count > 0 ? compute_capability(0) : 0, driver, runtime);
  return length > 0 ? static_cast<size_t>(length) : 0;
}

core::Backend make_backend() noexcept {
  core::Backend backend{};
  backend.id = SLUICE_IMPL_CUDA;
  backend.name = "cuda";
  backend.description = "fused kernels for Hopper GPUs";
  backend.requirement = "an NVIDIA GPU of compute capability 9.0 and a driver for CUDA 13";
  backend.device_type = SLUICE_DEVICE_CUDA;
  backend.available = available;
  backend.warm_up = warm_up;
  backend.describe = describe;
  backend.chunk_forward = {select_chunk_forward, chunk_forward_workspace, run_chunk_forward};
  return backend;
}

}  // namespace

const core::Backend& backend() noexcept {
  static const core::Backend instance = make_backend();
  return instance;
}

}  // namespace sluice::cuda
