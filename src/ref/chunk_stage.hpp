// Declares the stages of the chunk form as operators of their own: sequences, chunks, heads and
// states around the equations of chunk_form.hpp.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_REF_CHUNK_STAGE_HPP_
#define SLUICE_REF_CHUNK_STAGE_HPP_

#include "core/problem.hpp"
#include "ref/matrix.hpp"

namespace sluice::ref {

/// Bytes of scratch that chunk_stage() needs: the matrices of one chunk.
size_t chunk_stage_workspace(const core::ChunkStageProblem& problem) noexcept;

/// Runs the stage, one chunk and value head after another.
void chunk_stage(const core::ChunkStageProblem& problem, Arena arena) noexcept;

}  // namespace sluice::ref

#endif  // SLUICE_REF_CHUNK_STAGE_HPP_
