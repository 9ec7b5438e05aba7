// Hands out pieces of a call's workspace, also as dense views: the same code counts the bytes of a plan (null
// base) and gives a launch its pointers.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_WORKSPACE_LAYOUT_H_
#define SLUICE_CUDA_WORKSPACE_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "core/dense_view.hpp"
#include "core/problem.hpp"

namespace sluice::cuda {

class WorkspaceLayout {
 public:
  /// @param base 256-byte aligned, or null to count alone
  explicit WorkspaceLayout(void* base) noexcept : base_(reinterpret_cast<uintptr_t>(base)) {}

  /// The next `bytes`, 256-byte aligned. With a null base an offset: not to be read.
  void* take(size_t bytes) noexcept {
    constexpr size_t kAlignment = 256;
    void* const piece = reinterpret_cast<void*>(base_ + used_);
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return piece;
  }
  template <class T>
  T* take(int64_t count) noexcept {
    return static_cast<T*>(take(static_cast<size_t>(count) * sizeof(T)));
  }
  /// Bytes handed out so far.
  size_t bytes() const noexcept { return used_; }

 private:
  uintptr_t base_;
  size_t used_ = 0;
};

/// A base for plans that ask about addresses. WHY not null: views without data count as absent. Any
/// other that is aligned will do.
inline void* any_workspace() noexcept { return reinterpret_cast<void*>(uintptr_t{256}); }

/// A dense view [shape..] of the workspace.
inline core::Tensor take_view(WorkspaceLayout& layout, sluice_device device, sluice_dtype dtype,
                              std::initializer_list<int64_t> shape) noexcept {
  core::Tensor view = core::dense_view(nullptr, dtype, shape);
  view.device = device;
  const int64_t elements = view.shape[0] * view.stride[0];
  view.data = layout.take(static_cast<size_t>(elements * (dtype.bits / 8)));
  return view;
}

/// A dense view of other extents.
inline core::Tensor reshaped(const core::Tensor& view,
                             std::initializer_list<int64_t> shape) noexcept {
  core::Tensor other = core::dense_view(view.data, view.dtype, shape);
  other.device = view.device;
  return other;
}

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_WORKSPACE_LAYOUT_H_
