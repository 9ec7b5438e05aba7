// Counts what a prefill cell must cost at least: arithmetic and bytes, against a machine's limits.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_FLOORS_HPP_
#define SLUICE_TOOLS_BENCH_FLOORS_HPP_

#include <string>

#include "tools/bench/cell.hpp"

namespace sluice::tools {

/// Tokens of a chunk, C.
constexpr int64_t kChunk = 64;

/// FLOP of the chunk form, triangles counted whole: per token and value head 4 C K (K K^T, Q K^T) +
/// 4 C V (Tmat R, P N) + 6 K V (K S, Q S, state update); 163,840 for K = V = 128.
double prefill_flops(const Cell& cell) noexcept;

/// Bytes read and written once: q, k, v, o in elements of `element_bytes`, gates and write
/// strengths in float32, initial and final states in float32.
double prefill_bytes(const Cell& cell, int64_t element_bytes) noexcept;

/// Chunks of the busiest processor where whole (sequence, value head) units are dealt out to
/// `processors`, longest first, each to the least loaded one.
int64_t busiest_chunks(const Cell& cell, int processors);

/// What a machine can do at best, and how that was found.
struct Ceilings {
  double flop_per_second = 0, bytes_per_second = 0;
  std::string flop_source, bytes_source;
};

/// The larger of the two floors.
struct Floor {
  double seconds = 0;
  bool memory = false;  ///< bytes, not arithmetic, set it
};
Floor floor_of(const Cell& cell, int64_t element_bytes, const Ceilings& ceilings) noexcept;

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_FLOORS_HPP_
