// Finds memory that a call writes and that another view of the same call shares.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CORE_OVERLAP_HPP_
#define SLUICE_CORE_OVERLAP_HPP_

#include <cstddef>
#include <span>

#include "core/argument_views.hpp"
#include "core/problem.hpp"
#include "sluice/status.hpp"

namespace sluice::core {

/// False only where no byte belongs to elements of both views: ranges that do not meet, or slices of
/// one buffer that interleave. Strides that nothing repeats in are taken to share.
bool may_share(const Tensor& a, const Tensor& b) noexcept;

/// Most views of a struct of arguments.
constexpr size_t kMostViews = 48;

/// The views of a call's arguments, which validation has accepted.
struct CallViews {
  const void* args;
  std::span<const ViewField> fields;
  unsigned writer = kAlways;  ///< the bit of the call's stage
  bool in_place = false;      ///< states without others to be written are updated
};

/// Makes absent what a stage does not name, and so does not look at.
void keep_named_views(const ChunkStageProblem& p, sluice_chunk_stage_args* args) noexcept;

/// Refuses a call in which something written overlaps another view or the workspace. Views of one
/// pool may be one view, and a norm may work in place; validation has seen to their strides.
Status check_memory(const char* op, const CallViews& call,
                    const sluice_workspace& workspace) noexcept;

}  // namespace sluice::core

#endif  // SLUICE_CORE_OVERLAP_HPP_
