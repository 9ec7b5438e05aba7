// Describes a compiled kernel and what its launch needs.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_INSTANCE_H_
#define SLUICE_CUDA_DEVICE_INSTANCE_H_

#include <cstddef>
#include <cstdint>

namespace sluice::cuda::device {

/// A compiled kernel and how to launch it.
struct Instance {
  const void* kernel;  ///< takes one struct of parameters by value, and then what its launcher says
  size_t shared_bytes;
  unsigned threads;
};

/// Instances of a kernel by K, 64 and then 128, and by one thing more.
using InstancesBySize = Instance[2][2];

/// The address of a kernel, as launches take it.
template <class... Parameters>
const void* address_of(void (*kernel)(Parameters...)) noexcept {
  return reinterpret_cast<const void*>(kernel);
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_INSTANCE_H_
