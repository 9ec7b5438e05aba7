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

/// Bytes of a value head at the boundaries of a cut.
size_t boundary_bytes(const core::DeltaRuleProblem& problem,
                      const backward::SegmentCut& cut) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CHUNK_BACKWARD_CUT_H_
