// Declares the check of SLUICE_DEBUG=1 that offsets and slots in device memory get.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CORE_DEVICE_INDICES_HPP_
#define SLUICE_CORE_DEVICE_INDICES_HPP_

#include <cstddef>
#include <memory>

#include "core/dispatch.hpp"

namespace sluice::core {

/// Views of integers that content checks read, of any operator's arguments.
struct IndexViews {
  static constexpr size_t kMost = 9;
  Tensor* views[kMost];
  size_t count = 0;

  void add(Tensor* view) noexcept {
    if (present(*view)) views[count++] = view;
  }
};

template <class Args>
IndexViews index_views(Args& a) noexcept {
  IndexViews out;
  if constexpr (requires { a.cu_seqlens; }) out.add(&a.cu_seqlens);
  if constexpr (requires { a.state.read_slots; }) {
    out.add(&a.state.read_slots);
    out.add(&a.state.write_slots);
    a.state.has_initial_state = {};  // no check depends on it
  }
  if constexpr (requires { a.state.num_accepted; }) {
    out.add(&a.state.num_accepted);
    out.add(&a.state.ring_position);
  }
  if constexpr (requires { a.num_accepted; }) out.add(&a.num_accepted);
  if constexpr (requires { a.ring_position; }) out.add(&a.ring_position);
  if constexpr (requires { a.checkpoint_slots; }) out.add(&a.checkpoint_slots);
  if constexpr (requires { a.cu_chains; }) {
    out.add(&a.cu_chains);
    out.add(&a.route_pieces);
    out.add(&a.route_states);
  }
  if constexpr (requires { a.ring.position; }) {
    out.add(&a.ring.position);
    out.add(&a.ring.checkpoint);
  }
  return out;
}

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
  const IndexViews views = index_views(args);
  std::unique_ptr<std::byte[]> memory;
  bool read = false;
  const Status status = fetch_indices(op, request, views, &memory, &read);
  return status.ok() && read ? validate(args, Depth::kIndices).status : status;
}

}  // namespace sluice::core

#endif  // SLUICE_CORE_DEVICE_INDICES_HPP_
