// Defines Workspace, scratch memory that the caller owns, and Result for queries.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_WORKSPACE_HPP_
#define SLUICE_WORKSPACE_HPP_

#include <cstddef>
#include <memory>
#include <new>

#include "sluice/status.hpp"

namespace sluice {

/// A value, or the reason why there is none.
template <class T>
struct [[nodiscard]] Result {
  T value{};
  Status status;
  [[nodiscard]] bool ok() const noexcept { return status.ok(); }
};

/// Bytes of scratch memory.
struct WorkspaceSize {
  size_t bytes = 0;
};

/// A view of scratch memory on the device of the call, 256-byte aligned.
struct Workspace {
  void* data = nullptr;
  size_t size = 0;  ///< bytes
  [[nodiscard]] sluice_workspace c() const noexcept { return {data, size}; }
};

/// Host memory for CPU workspaces, grown on demand by the caller. Not for CUDA calls.
class HostWorkspace {
 public:
  static constexpr size_t kAlignment = 256;

  /// At least `bytes`, content undefined; empty if memory ran out.
  Workspace reserve(size_t bytes) noexcept {
    if (bytes > size_) {
      memory_.reset(static_cast<std::byte*>(::operator new(bytes, kAlign, std::nothrow)));
      size_ = memory_ ? bytes : 0;
    }
    return {memory_.get(), size_};
  }

 private:
  static constexpr std::align_val_t kAlign{kAlignment};
  struct Free {
    void operator()(std::byte* p) const noexcept { ::operator delete(p, kAlign); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  size_t size_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_WORKSPACE_HPP_
