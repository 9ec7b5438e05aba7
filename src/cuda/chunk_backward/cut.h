// Chooses how the sequences of chunk_backward are cut into segments: a function of sizes, options and
// the GPU, never of addresses.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CHUNK_BACKWARD_CUT_H_
#define SLUICE_CUDA_CHUNK_BACKWARD_CUT_H_

#include "core/problem.hpp"
#include "cuda/environment.h"
#include "cuda/kernels/backward/segments.h"
#include "cuda/machine.h"

namespace sluice::cuda {

/// The cut of a call by tensor cores, without memory. The caller's option comes before the
/// environment's, and that before the model of time.
backward::SegmentCut choose_backward_cut(const core::ChunkBackwardProblem& problem,
                                         const Machine& machine,
                                         const CutOverride& environment) noexcept;

/// Whether the matrices M of a cut, read before the second pass, lie in states that only that one
/// stores: those of a single sequence behind its first segment, where there is room.
bool lie_in_states(const core::DeltaRuleProblem& problem, const backward::SegmentCut& cut) noexcept;

/// Rows of all whole chunks that there may be.
int64_t chunk_rows(const core::DeltaRuleProblem& problem) noexcept;

/// Bytes of a value head that a cut adds to the workspace, beyond those that it has to spare.
size_t boundary_bytes(const core::DeltaRuleProblem& problem,
                      const backward::SegmentCut& cut) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CHUNK_BACKWARD_CUT_H_
