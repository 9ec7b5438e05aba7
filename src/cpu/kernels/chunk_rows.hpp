// Computes what chunk_forward knows of one chunk before any tile is worked on, whatever the
// arithmetic.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CPU_KERNELS_CHUNK_ROWS_HPP_
#define SLUICE_CPU_KERNELS_CHUNK_ROWS_HPP_

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/chunk_plan.hpp"

namespace sluice::cpu {

/// Factors of one chunk of one value head, by token; zeros past the last one unless said. With
/// key-wise gates, which are in the rows of q and k, D and E are ones.
struct HeadFactors {
  float D[kChunk];  ///< exp(G_i)
  float E[kChunk];  ///< exp(G_n - G_i)
  float beta[kChunk];
};

/// Rows of a tensor that are needed soon: row t at `first + t * stride` bytes.
struct AheadRows {
  const std::byte* first = nullptr;
  int64_t stride = 0;
  int64_t panel_bytes = 0;  ///< of a row, fetched while one panel is worked on
};

/// What the next chunk or head reads and writes: n rows of v and o, and of key-wise gates and of q
/// and k where those are not null.
struct RowsAhead {
  int64_t n = 0;
  AheadRows v, o, gate, q, k;
};

/// Asks for one line.
/// PERF into L2, not L1 (73.1 -> 68.4 ms, Zen 4, 2026-11): rows lie multiples of 4 KiB apart, so
/// those of a chunk share the few ways of one L1 set.
inline __attribute__((always_inline)) void fetch_line(const std::byte* line) {
  __builtin_prefetch(line, 0, 2);
}

constexpr int64_t kLineBytes = 64;

/// Asks for the share of panel `panel` of rows from..to-1. Of v and o that is one line or two.
inline __attribute__((always_inline)) void fetch_rows(const RowsAhead& ahead, int64_t panel,
                                                      int64_t from, int64_t to) {
  for (int64_t t = from; t < to; ++t) {
    for (const AheadRows* rows : {&ahead.v, &ahead.o, &ahead.gate}) {
      if (rows->first == nullptr) continue;
      const std::byte* const at = rows->first + t * rows->stride + panel * rows->panel_bytes;
      fetch_line(at);
      if (rows->panel_bytes > kLineBytes) fetch_line(at + rows->panel_bytes - 1);
    }
    if (ahead.q.first == nullptr) continue;
    for (const AheadRows* rows : {&ahead.q, &ahead.k}) {
      const std::byte* const at = rows->first + t * rows->stride + panel * rows->panel_bytes;
      for (int64_t i = 0; i < rows->panel_bytes; i += kLineBytes) fetch_line(at + i);
    }
  }
}

}  // namespace sluice::cpu

#endif  // SLUICE_CPU_KERNELS_CHUNK_ROWS_HPP_
