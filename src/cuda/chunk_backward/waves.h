// Cuts chunk_backward by tensor cores into waves of heads that share one workspace.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CHUNK_BACKWARD_WAVES_H_
#define SLUICE_CUDA_CHUNK_BACKWARD_WAVES_H_

#include <cstddef>

#include "core/problem.hpp"
#include "cuda/kernels/backward/segments.h"
#include "cuda/machine.h"

namespace sluice::cuda {

/// Waves do not depend on each other: value heads of different key heads never meet.
struct Waves {
  int64_t key_heads;         ///< of a wave; the last one may have fewer
  size_t bytes;              ///< of the workspace, whatever the addresses
  backward::SegmentCut cut;  ///< of all waves
};

/// As few waves as a workspace of 1536 bytes a token and value head allows, of at most 2 GiB unless
/// fewer heads would not fill the GPU; what lies at the boundaries of a cut comes on top.
Waves choose_waves(const core::ChunkBackwardProblem& problem, const backward::SegmentCut& cut,
                   const Machine& machine) noexcept;

/// The call for key heads first..first + count, of the H that `problem` has, and for their value
/// heads.
core::ChunkBackwardProblem wave_of(const core::ChunkBackwardProblem& problem, int64_t first,
                                   int64_t count) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CHUNK_BACKWARD_WAVES_H_
