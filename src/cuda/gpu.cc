// SPDX-License-Identifier: Apache-2.0
#include "cuda/gpu.h"

#include <cuda_runtime_api.h>

#include <atomic>

namespace sluice::cuda {
namespace {

constexpr int kKnownDevices = 64;
using KnownFact = std::atomic<int>;

/// What `ask` says of a device; asked again only while it says 0.
template <class Ask>
int recall(KnownFact (&known)[kKnownDevices], int device, Ask ask) noexcept {
  const bool kept = device >= 0 && device < kKnownDevices;
  int fact = kept ? known[device].load(std::memory_order_relaxed) : 0;
  if (fact != 0) return fact;
  fact = ask(device);
  if (fact == 0) cudaGetLastError();
  if (kept) known[device].store(fact, std::memory_order_relaxed);
  return fact;
}

}  // namespace

// PERF every operator call asks whether there is a GPU; the driver is asked once.
int device_count() noexcept {
  static std::atomic<int> known{0};
  int count = known.load(std::memory_order_relaxed);
  if (count > 0) return count;
  if (cudaGetDeviceCount(&count) == cudaSuccess) {
    known.store(count, std::memory_order_relaxed);
    return count;
  }
  cudaGetLastError();
  return 0;
}

int compute_capability(int device) noexcept {
  static KnownFact known[kKnownDevices];
  return recall(known, device, [](int d) {
    int major = 0, minor = 0;
    const bool found =
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, d) == cudaSuccess &&
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, d) == cudaSuccess;
    return found ? 10 * major + minor : 0;
  });
}

int multiprocessors(int device) noexcept {
  static KnownFact known[kKnownDevices];
  return recall(known, device, [](int d) {
    int count = 0;
    return cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, d) == cudaSuccess ? count
                                                                                            : 0;
  });
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
