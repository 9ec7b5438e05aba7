// Asks the driver, once per GPU, what plans depend on.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/machine.h"

#include <cuda_runtime_api.h>

#include <atomic>

#include "cuda/chunk_forward/launch.h"

namespace sluice::cuda {
namespace {

constexpr int kKnownDevices = 64;

/// Zero until the driver had an answer.
struct KnownGpu {
  std::atomic<int> capability, multiprocessors;
  std::atomic<int> clusters[kClusterSizes.size()];
};
KnownGpu known[kKnownDevices];

/// The fact that is kept in `place`, or what `ask` says of it, which is kept unless it is 0.
template <class Ask>
int recall(std::atomic<int>& place, Ask ask) noexcept {
  int fact = place.load(std::memory_order_relaxed);
  if (fact != 0) return fact;
  fact = ask();
  if (fact == 0) cudaGetLastError();
  place.store(fact, std::memory_order_relaxed);
  return fact;
}

int attribute(cudaDeviceAttr of, int device) noexcept {
  int value = 0;
  return cudaDeviceGetAttribute(&value, of, device) == cudaSuccess ? value : 0;
}

int capability_of(int device) noexcept {
  const int major = attribute(cudaDevAttrComputeCapabilityMajor, device);
  return 10 * major + (major > 0 ? attribute(cudaDevAttrComputeCapabilityMinor, device) : 0);
}

/// Asked again only while the GPU is said to run none of the smallest size.
ResidentClusters clusters_of(KnownGpu& gpu, int device) noexcept {
  ResidentClusters out{};
  if (gpu.clusters[0].load(std::memory_order_acquire) == 0) {
    const DeviceGuard guard(device);
    // The first one last: it says that the others are known.
    for (size_t i = kClusterSizes.size(); i-- > 0 && guard.error() == 0;) {
      gpu.clusters[i].store(prefill::resident_clusters(kClusterSizes[i], device),
                            std::memory_order_release);
    }
  }
  for (size_t i = 0; i < kClusterSizes.size(); ++i) {
    out[i] = gpu.clusters[i].load(std::memory_order_relaxed);
  }
  return out;
}

}  // namespace

Machine machine_of(int device) noexcept {
  Machine machine{device, 0, 0, {}};
  if (device < 0 || device >= kKnownDevices) return machine;
  KnownGpu& gpu = known[device];
  machine.capability = recall(gpu.capability, [&] { return capability_of(device); });
  machine.multiprocessors = recall(
      gpu.multiprocessors, [&] { return attribute(cudaDevAttrMultiProcessorCount, device); });
  if (machine.is_hopper()) machine.clusters = clusters_of(gpu, device);
  return machine;
}

// PERF every operator call asks whether there is a GPU; the driver is asked once.
int device_count() noexcept {
  static std::atomic<int> kept{0};
  return recall(kept, [] {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
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
