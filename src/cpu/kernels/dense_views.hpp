// Lays dense views out in scratch memory, for operators made of others.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CPU_KERNELS_DENSE_VIEWS_HPP_
#define SLUICE_CPU_KERNELS_DENSE_VIEWS_HPP_

#include <initializer_list>

#include "core/host_access.hpp"

namespace sluice::cpu {

/// Views one behind the other from a base address: one layout gives the size query and the run their
/// offsets.
class DenseViews {
 public:
  // WHY no null base: views without data count as absent.
  static constexpr uintptr_t kAnyBase = 256;

  explicit DenseViews(uintptr_t base) noexcept : base_(base), next_(base) {}

  core::Tensor take(sluice_dtype dtype, std::initializer_list<int64_t> shape) noexcept {
    const core::Tensor view = core::dense_view(rest(), dtype, shape);
    int64_t elements = 1;
    for (const int64_t extent : shape) elements *= extent;
    const auto bytes = static_cast<uintptr_t>(elements * core::element_size(dtype));
    next_ += (bytes + 255) / 256 * 256;
    return view;
  }
  /// What lies behind all views.
  void* rest() const noexcept { return reinterpret_cast<void*>(next_); }
  size_t bytes() const noexcept { return next_ - base_; }

 private:
  uintptr_t base_, next_;
};

}  // namespace sluice::cpu

#endif  // SLUICE_CPU_KERNELS_DENSE_VIEWS_HPP_
