// Says which kernel takes which stage, by sizes, dtypes and strides, and apart from those by
// addresses.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CHUNK_STAGE_ACCEPTS_H_
#define SLUICE_CUDA_CHUNK_STAGE_ACCEPTS_H_

#include "core/problem.hpp"
#include "cuda/kernels/stages/launch.h"
#include "cuda/machine.h"
#include "sluice/status.hpp"

namespace sluice::cuda {

/// Hopper's kernels: chunk_o that carries its states, chunk_o from given ones, chunk_h with w.
Status accept_linear_stage(const core::ChunkStageProblem& problem, const Machine& machine) noexcept;
Status accept_hopper_outputs(const core::ChunkStageProblem& problem,
                             const Machine& machine) noexcept;
Status accept_hopper_states(const core::ChunkStageProblem& problem,
                            const Machine& machine) noexcept;
/// Tensor cores of any GPU: 16-bit numbers, chunks of 64 or 128.
Status accept_tiles(const core::ChunkStageProblem& problem, const Machine& machine) noexcept;
/// All of these want rows that begin at multiples of 16 bytes.
Status accept_packed_addresses(const core::ChunkStageProblem& problem) noexcept;
/// What everything else goes to.
Status accept_plain(const core::ChunkStageProblem& problem, const Machine& machine) noexcept;

/// The kernel of tensor cores that a stage has; kCumsum: none.
stages::Kernel tile_kernel(const core::ChunkStageProblem& problem) noexcept;
stages::Kernel plain_kernel(const core::ChunkStageProblem& problem) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CHUNK_STAGE_ACCEPTS_H_
