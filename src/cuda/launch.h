// Launches kernels: the one place that fills in launch attributes, grants shared memory and turns
// CUDA's errors into a Status.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_LAUNCH_H_
#define SLUICE_CUDA_LAUNCH_H_

#include <cstddef>

#include "cuda/device/instance.h"
#include "cuda/machine.h"
#include "sluice/status.hpp"

namespace sluice::cuda {

/// CTAs of a launch. WHY not dim3: what chooses a kernel is built and tested without CUDA's headers.
struct GridSize {
  unsigned x = 1, y = 1, z = 1;
};

/// As many CTAs as items that they take in turn, as far as a launch may have so many, or `most`.
constexpr GridSize grid_of(int64_t items, int64_t most = (int64_t{1} << 31) - 1) noexcept {
  return {static_cast<unsigned>(items < most ? items : most)};
}

/// Size of a launch.
struct LaunchShape {
  GridSize grid;
  unsigned threads;
  size_t shared_bytes = 0;  ///< dynamic shared memory
  unsigned cluster = 1;     ///< CTAs of a cluster, along grid.x
  /// Whether the kernel begins with device::follow(), and so may start while the one ahead of it in
  /// the stream ends, on GPUs that can.
  bool follows = true;
};

/// Launches the kernels of one operator call, one after the other, until one fails.
class Launcher {
 public:
  /// @param op the operator's name in messages; static storage
  /// @param stream a cudaStream_t of machine.device, which must be current
  Launcher(const char* op, const Machine& machine, void* stream) noexcept
      : op_(op), machine_(machine), stream_(stream) {}

  const Machine& machine() const noexcept { return machine_; }
  void* stream() const noexcept { return stream_; }
  const Status& status() const noexcept { return status_; }
  bool ok() const noexcept { return status_.ok(); }

  /// Enqueues a kernel with its parameters, of the kernel's own types; nothing after a failure.
  template <class... Parameters>
  void operator()(const void* kernel, const LaunchShape& shape,
                  const Parameters&... parameters) noexcept {
    void* arguments[] = {const_cast<void*>(static_cast<const void*>(&parameters))...};
    if (status_.ok()) note(enqueue(kernel, shape, arguments));
  }
  template <class... Taken, class... Parameters>
  void operator()(void (*kernel)(Taken...), const LaunchShape& shape,
                  const Parameters&... parameters) noexcept {
    (*this)(reinterpret_cast<const void*>(kernel), shape, parameters...);
  }
  template <class... Parameters>
  void operator()(const device::Instance& instance, const GridSize& grid,
                  const Parameters&... parameters) noexcept {
    (*this)(instance.kernel, {grid, instance.threads, instance.shared_bytes}, parameters...);
  }
  /// Enqueues zeros over `bytes` of device memory.
  void clear(void* memory, size_t bytes) noexcept;
  /// Makes a cudaError_t this call's failure, unless it failed before; cudaSuccess changes nothing.
  void note(int error) noexcept;
  /// Likewise what the driver will not take: cudaErrorInvalidValue.
  void note_invalid() noexcept { note(1); }

 private:
  int enqueue(const void* kernel, const LaunchShape& shape, void** arguments) noexcept;

  const char* op_;
  const Machine& machine_;
  void* stream_;
  Status status_ = ok_status();
};

/// Loads a kernel onto the current device, which its first launch would do otherwise.
/// @return a cudaError_t
int load_kernel(const void* kernel) noexcept;

/// Loads kernels, one after the other, until one fails; null is none.
class KernelLoader {
 public:
  void operator()(const void* kernel) noexcept {
    if (kernel != nullptr && error_ == 0) error_ = load_kernel(kernel);
  }
  void operator()(const device::Instance& instance) noexcept { (*this)(instance.kernel); }
  template <class... Taken>
  void operator()(void (*kernel)(Taken...)) noexcept {
    (*this)(reinterpret_cast<const void*>(kernel));
  }
  template <class Instances, size_t kCount>
  void operator()(const Instances (&list)[kCount]) noexcept {
    for (const auto& each : list) (*this)(each);
  }
  template <class... Kernels>
    requires(sizeof...(Kernels) > 1)
  void operator()(const Kernels&... kernels) noexcept {
    ((*this)(kernels), ...);
  }
  /// @return a cudaError_t
  int error() const noexcept { return error_; }

 private:
  int error_ = 0;
};

/// Lets a kernel have that much dynamic shared memory on a device, which must be current. PERF the
/// driver is asked once a kernel and device, not once a launch.
/// @return a cudaError_t
int grant_shared(const void* kernel, size_t bytes, int device) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_LAUNCH_H_
