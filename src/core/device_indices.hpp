// Declares the check of SLUICE_DEBUG=1 that offsets and slots in device memory get.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CORE_DEVICE_INDICES_HPP_
#define SLUICE_CORE_DEVICE_INDICES_HPP_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>

#include "core/argument_views.hpp"
#include "core/dispatch.hpp"

namespace sluice::core {

/// Views of integers that content checks read, of any operator's arguments.
struct IndexViews {
  static constexpr size_t kMost = 9;
  Tensor* views[kMost];
  size_t count = 0;
};

/// What those are of a struct's views.
constexpr bool is_read_index(const ViewField& field) noexcept {
  return field.holds == Holds::kIndices && field.writers == 0;
}

/// Those of arguments that were validated. Flags become absent: no check depends on them.
IndexViews index_views(void* args, std::span<const ViewField> fields) noexcept;

/// Replaces views in device memory by copies in host memory, which *memory owns. *read is false
/// where nothing can be read: the stream is being captured, or no backend can.
Status fetch_indices(const char* op, const Call& request, const IndexViews& views,
                     std::unique_ptr<std::byte[]>* memory, bool* read) noexcept;

/// With SLUICE_DEBUG=1: the rules of contents for arguments that were validated by their shapes,
/// because they are in device memory. `args` is of no use afterwards.
/// @param validate gives the Validated of arguments by a depth
template <class Args, class Validate>
Status check_device_indices(const char* op, const Validated& call, const Call& request, Args& args,
                            Validate validate) noexcept {
  if (call.device.type != SLUICE_DEVICE_CUDA || !debug_checks()) return ok_status();
  static_assert(std::ranges::count_if(kViews<Args>, is_read_index) <= IndexViews::kMost);
  const IndexViews views = index_views(&args, kViews<Args>);
  std::unique_ptr<std::byte[]> memory;
  bool read = false;
  const Status status = fetch_indices(op, request, views, &memory, &read);
  return status.ok() && read ? validate(args, Depth::kIndices).status : status;
}

}  // namespace sluice::core

#endif  // SLUICE_CORE_DEVICE_INDICES_HPP_
