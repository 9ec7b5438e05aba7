// Fills in launch attributes, and remembers which kernels have been granted their shared memory.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/launch.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>

namespace sluice::cuda {
namespace {

/// Kernels and devices that have been granted shared memory: an open-addressed table that only
/// grows. A lost or full place costs a call of the driver, never a wrong answer.
class Grants {
 public:
  bool has(uint64_t key, size_t bytes) const noexcept {
    for (size_t i = 0; i < kProbes; ++i) {
      const Place& place = places_[(key + i) % kPlaces];
      if (place.key.load(std::memory_order_acquire) != key) continue;
      return place.bytes.load(std::memory_order_relaxed) >= bytes;
    }
    return false;
  }
  void add(uint64_t key, size_t bytes) noexcept {
    for (size_t i = 0; i < kProbes; ++i) {
      Place& place = places_[(key + i) % kPlaces];
      uint64_t found = 0;
      if (!place.key.compare_exchange_strong(found, key) && found != key) continue;
      // WHY not the maximum: what the driver was told last holds.
      place.bytes.store(bytes, std::memory_order_relaxed);
      return;
    }
  }

 private:
  static constexpr size_t kPlaces = 1021, kProbes = 8;
  struct Place {
    std::atomic<uint64_t> key{0};
    std::atomic<size_t> bytes{0};
  };
  Place places_[kPlaces];
};

Grants grants;

/// Functions are 16-byte aligned, so that a device's index fits into the low bits; 0 is nobody's.
uint64_t key_of(const void* kernel, int device) noexcept {
  return (reinterpret_cast<uintptr_t>(kernel) << 8) + static_cast<uint64_t>(device) + 1;
}

}  // namespace

int load_kernel(const void* kernel) noexcept {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, kernel);
}

int grant_shared(const void* kernel, size_t bytes, int device) noexcept {
  constexpr size_t kWithoutGrant = 48 * 1024;
  constexpr int kKnownDevices = 255;
  if (bytes <= kWithoutGrant) return cudaSuccess;
  const uint64_t key = key_of(kernel, device);
  const bool kept = device >= 0 && device < kKnownDevices;
  if (kept && grants.has(key, bytes)) return cudaSuccess;
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error == cudaSuccess && kept) grants.add(key, bytes);
  return error;
}

void Launcher::clear(void* memory, size_t bytes) noexcept {
  if (ok()) note(cudaMemsetAsync(memory, 0, bytes, static_cast<cudaStream_t>(stream_)));
}

void Launcher::note(int error) noexcept {
  if (error == cudaSuccess || !status_.ok()) return;
  status_ = Status::failure(Code::kDeviceError, "%s: launch = %s, expected cudaSuccess", op_,
                            cudaGetErrorName(static_cast<cudaError_t>(error)));
}

int Launcher::enqueue(const void* kernel, const LaunchShape& shape, void** arguments) noexcept {
  if (const int error = grant_shared(kernel, shape.shared_bytes, machine_.device); error != 0) {
    return error;
  }
  cudaLaunchAttribute attributes[2];
  unsigned count = 0;
  if (shape.follows && machine_.overlaps_launches()) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = shape.cluster;
    attributes[count].val.clusterDim.y = attributes[count].val.clusterDim.z = 1;
    ++count;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(shape.grid.x, shape.grid.y, shape.grid.z);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream_);
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

}  // namespace sluice::cuda
