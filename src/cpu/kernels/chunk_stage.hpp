// Declares the stages of the chunk form on the CPU, each an operator.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CPU_KERNELS_CHUNK_STAGE_HPP_
#define SLUICE_CPU_KERNELS_CHUNK_STAGE_HPP_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/backend.hpp"
#include "core/host_access.hpp"
#include "core/problem.hpp"
#include "cpu/kernels/chunk_plan.hpp"
#include "cpu/kernels/size_limits.hpp"
#include "sluice/status.hpp"

namespace sluice::cpu {

/// Rows of scratch matrices are padded to this many floats, a multiple of every tile's width.
constexpr int64_t kStageColumns = 32;

/// Scratch of one worker, in floats: offsets of matrices whose rows have the strides below. Tokens
/// up to a multiple of 4 and columns up to the stride are zero past the real ones.
struct StageScratch {
  int64_t C, K_stride, C_stride, V_stride;  ///< V_stride: of the columns that an item has
  int64_t k, q, k_t, products, left, right, values, out, state, sums, size;
  /// Of key-wise gates: G in double; of a block of 16 tokens decays, rows, and a square.
  int64_t key_sums, key_alpha, key_block, key_pairs;

  StageScratch(const core::ChunkStageProblem& p, int64_t columns) noexcept
      : C(p.C),
        K_stride(round_up(p.K, kStageColumns)),
        C_stride(round_up(p.C, kStageColumns)),
        V_stride(round_up(columns, kStageColumns)) {
    int64_t used = 0;
    const auto take = [&used](int64_t count) {
      const int64_t at = used;
      used += round_up(count, kFloatsPerLine);
      return at;
    };
    k = take(C * K_stride);
    q = take(C * K_stride);
    k_t = take(K_stride * C_stride);
    products = take(C * C_stride);
    left = take(C * C_stride);
    right = take(C * C_stride);
    values = take(C * V_stride);
    out = take(C * std::max(K_stride, V_stride));
    state = take(K_stride * V_stride);
    // Of a token's gates: two rows of them, sums or exponents in double; rates and biases.
    const int64_t channels = p.key_gates ? K_stride : round_up(p.HV, kFloatsPerLine);
    sums = take(5 * std::max(C_stride, channels));
    const bool by_channel = p.key_gates && p.stage != SLUICE_STAGE_CHUNK_CUMSUM;
    key_sums = take(by_channel ? 2 * C * K_stride : 0);
    key_alpha = take(by_channel ? kChunk * K_stride : 0);
    key_block = take(by_channel ? kChunk * K_stride : 0);
    key_pairs = take(by_channel ? kChunk * kChunk : 0);
    size = used;
  }
};

/// One chunk of one sequence, and its place in h.
struct StageChunk {
  core::TokenRange tokens;
  int64_t h_row, h_entry;
  int64_t count() const noexcept { return tokens.size(); }
};

/// A chunk, and one of its `lanes`: key heads where the stage has keys, else value heads, or none.
struct StageChunkItem {
  const core::ChunkStageProblem& problem;
  const StageScratch& layout;
  float* scratch;
  StageChunk chunk;
  int64_t lane;
};

/// All chunks of sequence n on some columns of a value head's state.
struct StageSequenceItem {
  const core::ChunkStageProblem& problem;
  const StageScratch& layout;
  float* scratch;
  int64_t n, first_entry;  ///< of h
  int64_t head, first_column, columns;
};

}  // namespace sluice::cpu

#endif  // SLUICE_CPU_KERNELS_CHUNK_STAGE_HPP_
