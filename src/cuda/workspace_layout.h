// Hands out pieces of a call's workspace: the same code counts the bytes of a plan (null base) and
// gives a launch its pointers.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_WORKSPACE_LAYOUT_H_
#define SLUICE_CUDA_WORKSPACE_LAYOUT_H_

#include <cstddef>
#include <cstdint>

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

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_WORKSPACE_LAYOUT_H_
