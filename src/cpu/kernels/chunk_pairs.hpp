// Declares the parts of chunk_forward on bfloat16 dot products (AVX512-BF16): operands are pairs of
// bfloat16 in 32 bits, sums are float32. Everything else of the operator is that of
// chunk_forward-inl.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CPU_KERNELS_CHUNK_PAIRS_HPP_
#define SLUICE_CPU_KERNELS_CHUNK_PAIRS_HPP_

#include <cstdint>

#include "core/problem.hpp"
#include "cpu/kernels/chunk_rows.hpp"

namespace sluice::cpu {

/// Columns of a panel; K must be a multiple of kPairRows, an item's columns one of kPairColumns.
constexpr int64_t kPairColumns = 32;
constexpr int64_t kPairRows = 32;

/// q and k of one chunk, as products take them; rows past n are zeros.
struct PairRows {
  uint32_t* qk_t;   ///< [K / 2][2 kChunk]: elements 2i and 2i+1 of k's tokens, then of q's
  uint32_t* pairs;  ///< [kChunk / 2][K]: element i of k's tokens 2j and 2j+1
  float* kk;        ///< [kChunk][kChunk]: k_i . k_j, normalised
  float* qk;        ///< q_i . k_j, normalised and scaled
  float* k_factor;  ///< [kChunk] of k_i: 1, or the l2 norm's
  float* q_factor;  ///< of q_i: scale times that
};

/// Row t of the chunk at `first + t * stride`.
struct PairSource {
  const uint16_t* q;
  int64_t q_stride;
  const uint16_t* k;
  int64_t k_stride;
  int64_t n, K;
  float scale;
  bool normalise;
  float eps;
};

/// Fills `rows`. NUM: q and k are never rounded: norms and scale become factors of sums.
void pack_pairs(const PairSource& source, const PairRows& rows) noexcept;

/// Rows of a chunk with key-wise gates, [kChunk][K] in float32, zeros past the last: what is read of
/// k, of q, and what is written, each with its decays.
struct KeyPairSource {
  const float *decayed_k, *decayed_q, *written_k;
  int64_t K;
};
/// Fills `rows` but for kk and qk. NUM: rounds all three to bfloat16, as operands. Factors are ones.
void pack_key_pairs(const KeyPairSource& source, const PairRows& rows) noexcept;

/// One chunk of one value head; `factors` are without the factors of q and k.
struct PairChunk {
  int64_t n, K;
  bool delta_rule;
  PairRows rows;
  const float* A;  ///< as in HeadChunk
  const float* P;
  HeadFactors factors;
  const float* decay;  ///< [K]: exp(G_n)
  const uint16_t* v;   ///< row t at v + t * v_stride, kChunk or n rows up to 8
  int64_t v_stride;
  uint16_t* o;  ///< likewise
  int64_t o_stride;
  RowsAhead ahead;
};

/// A panel is the state [K][kPairColumns] in float32, then in pairs of rows [K / 2][kPairColumns].
/// This rounds the first into the second.
void round_panel(float* panel, int64_t K) noexcept;

/// One chunk on the panel that starts `column` columns into v and o.
void advance_pair_panel(const PairChunk& chunk, int64_t column, float* panel) noexcept;

/// Whether this machine has the instructions.
bool has_pairs() noexcept;

}  // namespace sluice::cpu

#endif  // SLUICE_CPU_KERNELS_CHUNK_PAIRS_HPP_
