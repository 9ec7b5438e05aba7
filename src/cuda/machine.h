// Describes the GPU that a plan is made for, and makes it current.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_MACHINE_H_
#define SLUICE_CUDA_MACHINE_H_

#include <array>

namespace sluice::cuda {

/// Lowest compute capability with kernels, 10 major + minor.
inline constexpr int kOldestCapability = 80;
/// The one that kernels of sm_90a are compiled for.
inline constexpr int kHopperCapability = 90;

/// Sizes of clusters, in CTAs, that linear attention may choose.
inline constexpr std::array<int, 4> kClusterSizes{2, 4, 6, 8};
/// How many clusters of each size run at once, where a CTA takes a multiprocessor. WHY not
/// multiprocessors / size: a cluster lies within one of the groups that multiprocessors come in.
using ResidentClusters = std::array<int, kClusterSizes.size()>;

/// What a plan depends on besides the problem: one GPU. Plain data, so that tests can make one up.
struct Machine {
  int device = 0;
  int capability = 0;  ///< 10 major + minor; 0 if the GPU cannot be asked
  int multiprocessors = 0;
  ResidentClusters clusters{};

  bool operator==(const Machine&) const = default;
  bool is_hopper() const noexcept { return capability == kHopperCapability; }
  /// Whether a launch may begin while the one ahead of it ends (programmatic dependent launch).
  bool overlaps_launches() const noexcept { return capability >= kHopperCapability; }
};

/// The GPU of that index. The driver is asked once per GPU, and again only where it had no answer.
Machine machine_of(int device) noexcept;

/// Number of GPUs, 0 if there is no driver.
int device_count() noexcept;

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

#endif  // SLUICE_CUDA_MACHINE_H_
