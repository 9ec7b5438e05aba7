// Gathers offsets and slots of device memory in host memory that the GPU sees.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/indices/read_indices.h"

#include <cuda_runtime_api.h>

#include "cuda/kernels/indices/params.h"
#include "cuda/launch.h"

namespace sluice::cuda {
namespace {

/// Host memory that the GPU writes; null if there is none.
class SharedMemory {
 public:
  explicit SharedMemory(size_t bytes) noexcept {
    error_ = cudaHostAlloc(&data_, bytes, cudaHostAllocPortable);
  }
  ~SharedMemory() { cudaFreeHost(data_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }
  int error() const noexcept { return error_; }

 private:
  void* data_ = nullptr;
  int error_ = 0;
};

int64_t count_of(const core::Tensor& view) noexcept {
  int64_t count = 1;
  for (int axis = 0; axis < view.rank; ++axis) count *= view.shape[axis];
  return count;
}

size_t bytes_of(const core::Tensor& view) noexcept {
  return static_cast<size_t>(count_of(view)) * (view.dtype.bits / 8u);
}

indices::Gathered gathered(const core::Tensor& view, void* to) noexcept {
  const bool columns = view.rank == 2;
  return {view.data,
          to,
          count_of(view),
          columns ? view.shape[1] : 1,
          view.stride[0],
          columns ? view.stride[1] : 0,
          view.dtype.bits == 64};
}

bool is_captured(cudaStream_t stream) noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  // An error is that of the default stream beside a capture: the call's own launches will report it.
  if (cudaStreamIsCapturing(stream, &status) == cudaSuccess) {
    return status != cudaStreamCaptureStatusNone;
  }
  cudaGetLastError();
  return true;
}

/// The eight bytes that every view begins at a multiple of.
constexpr size_t kAlignment = 8;
constexpr size_t aligned(size_t bytes) noexcept {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Status read_indices(const core::IndexSource& source, std::span<const core::IndexCopy> copies,
                    bool* read) noexcept {
  *read = false;
  const auto stream = static_cast<cudaStream_t>(source.stream);
  const DeviceGuard guard(source.device);
  const Machine machine = machine_of(source.device);
  Launcher launcher(source.op, machine, source.stream);
  launcher.note(guard.error());
  if (!launcher.ok() || is_captured(stream)) return launcher.status();
  size_t bytes = 0;
  for (const core::IndexCopy& copy : copies) bytes += aligned(bytes_of(*copy.from));
  const SharedMemory memory(bytes);
  launcher.note(memory.error());
  indices::GatherParams params{};
  std::byte* to = memory.data();
  for (const core::IndexCopy& copy : copies) {
    params.views[params.count++] = gathered(*copy.from, to);
    to += aligned(bytes_of(*copy.from));
  }
  constexpr unsigned kCtas = 64;
  launcher(indices::gather(), {{kCtas}, indices::kThreads, 0, 1, false}, params);
  if (launcher.ok()) launcher.note(cudaStreamSynchronize(stream));
  if (!launcher.ok()) return launcher.status();
  for (size_t i = 0; i < copies.size(); ++i) {
    std::memcpy(copies[i].to, params.views[i].to, bytes_of(*copies[i].from));
  }
  *read = true;
  return ok_status();
}

}  // namespace sluice::cuda
