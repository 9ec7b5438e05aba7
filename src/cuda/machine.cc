// Asks the driver, once per GPU, what plans depend on.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/machine.h"

#include <cuda_runtime_api.h>

#include <atomic>

#include "cuda/chunk_forward/launch.h"

namespace sluice::cuda {
namespace {

constexpr int kKnownDevices = 64;

/// What one GPU is, once the driver had an answer to everything.
struct KnownGpu {
  enum State { kUnknown, kWritten, kKnown };
  std::atomic<State> state{kUnknown};
  Machine machine;
};
KnownGpu known[kKnownDevices];

int attribute(cudaDeviceAttr of, int device) noexcept {
  int value = 0;
  return cudaDeviceGetAttribute(&value, of, device) == cudaSuccess ? value : 0;
}

int capability_of(int device) noexcept {
  const int major = attribute(cudaDevAttrComputeCapabilityMajor, device);
  return 10 * major + (major > 0 ? attribute(cudaDevAttrComputeCapabilityMinor, device) : 0);
}

ResidentClusters clusters_of(int device) noexcept {
  ResidentClusters out{};
  const DeviceGuard guard(device);
  for (size_t i = 0; i < kClusterSizes.size() && guard.error() == 0; ++i) {
    out[i] = prefill::resident_clusters(kClusterSizes[i], device);
  }
  return out;
}

/// What the driver says now.
Machine ask(int device) noexcept {
  Machine machine{
      device, capability_of(device), attribute(cudaDevAttrMultiProcessorCount, device), {}};
  if (machine.is_hopper()) machine.clusters = clusters_of(device);
  return machine;
}

/// Whether the driver had an answer to everything: any GPU runs clusters of the smallest size.
bool is_complete(const Machine& machine) noexcept {
  return machine.capability != 0 && machine.multiprocessors != 0 &&
         (!machine.is_hopper() || machine.clusters[0] != 0);
}

}  // namespace

Machine machine_of(int device) noexcept {
  if (device < 0 || device >= kKnownDevices) return {device, 0, 0, {}};
  KnownGpu& gpu = known[device];
  if (gpu.state.load(std::memory_order_acquire) == KnownGpu::kKnown) return gpu.machine;
  const Machine machine = ask(device);
  KnownGpu::State unknown = KnownGpu::kUnknown;
  if (!is_complete(machine)) {
    cudaGetLastError();
  } else if (gpu.state.compare_exchange_strong(unknown, KnownGpu::kWritten)) {
    // WHY three states: one thread alone writes what others may read by now.
    gpu.machine = machine;
    gpu.state.store(KnownGpu::kKnown, std::memory_order_release);
  }
  return machine;
}

// PERF every operator call asks whether there is a GPU; the driver is asked once.
int device_count() noexcept {
  static std::atomic<int> kept{0};
  int count = kept.load(std::memory_order_relaxed);
  if (count != 0) return count;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  if (count == 0) cudaGetLastError();
  kept.store(count, std::memory_order_relaxed);
  return count;
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
