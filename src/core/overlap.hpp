// Finds memory that a call writes and that another view of the same call shares.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CORE_OVERLAP_HPP_
#define SLUICE_CORE_OVERLAP_HPP_

#include "core/problem.hpp"
#include "sluice/status.hpp"

namespace sluice::core {

/// False only where no byte belongs to elements of both views: ranges that do not meet, or slices of
/// one buffer that interleave. Strides that nothing repeats in are taken to share.
bool may_share(const Tensor& a, const Tensor& b) noexcept;

/// Refuses a call in which something written overlaps another view or the workspace. Pools of one
/// kind may be one view, and a norm may work in place; validation has seen to their strides.
Status check_memory(const char* op, const DeltaRuleProblem& p,
                    const sluice_workspace& workspace) noexcept;
Status check_memory(const char* op, const ChunkBackwardProblem& p,
                    const sluice_workspace& workspace) noexcept;
Status check_memory(const char* op, const ChunkSummaryProblem& p,
                    const sluice_workspace& workspace) noexcept;
Status check_memory(const char* op, const StateFoldProblem& p,
                    const sluice_workspace& workspace) noexcept;
Status check_memory(const char* op, const CausalConvProblem& p,
                    const sluice_workspace& workspace) noexcept;
Status check_memory(const char* op, const GatedNormProblem& p,
                    const sluice_workspace& workspace) noexcept;
Status check_memory(const char* op, const CausalConvBackwardProblem& p,
                    const sluice_workspace& workspace) noexcept;
Status check_memory(const char* op, const GatedNormBackwardProblem& p,
                    const sluice_workspace& workspace) noexcept;
/// The rule says what the caller calls the values that a stage reads.
Status check_memory(const char* op, const sluice_chunk_stage_args& args, const ChunkStageProblem& p,
                    const sluice_workspace& workspace) noexcept;
Status check_memory(const char* op, const sluice_layer_backward_args& args,
                    const LayerBackwardProblem& p, const sluice_workspace& workspace) noexcept;
/// The layer's views are the caller's; its problem says which pools it writes.
Status check_memory(const char* op, const sluice_layer_args& args, const LayerProblem& p,
                    const sluice_workspace& workspace) noexcept;

}  // namespace sluice::core

#endif  // SLUICE_CORE_OVERLAP_HPP_
