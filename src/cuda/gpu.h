// Asking for GPUs and switching between them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_GPU_H_
#define SLUICE_CUDA_GPU_H_

#include "cuda/room.h"

namespace sluice::cuda {

/// Number of GPUs, 0 if there is no driver.
int device_count() noexcept;

/// 10 major + minor of a GPU, 0 if it cannot be asked. The driver is asked once per GPU.
int compute_capability(int device) noexcept;

/// Multiprocessors of a GPU, 0 if it cannot be asked.
int multiprocessors(int device) noexcept;

/// Clusters of linear attention's kernel that a GPU runs at once. The driver is asked once per GPU.
Clusters resident_clusters(int device) noexcept;

/// Makes a GPU current while it lives.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) noexcept;
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

  /// A cudaError_t; 0 if the GPU is current.
  int error() const noexcept { return error_; }

 private:
  int previous_ = 0, error_ = 0;
  bool changed_ = false;
};

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_GPU_H_
