// Tells which sequences the rows of a tile belong to, for kernels whose items are rows, not
// sequences.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CPU_KERNELS_ROW_TILES_HPP_
#define SLUICE_CPU_KERNELS_ROW_TILES_HPP_

#include <algorithm>
#include <cstdint>

#include "core/host_access.hpp"

namespace sluice::cpu {

/// The sequence that row `token` of a batch entry lies in, or the first one after it.
inline int64_t sequence_at(const core::Rows& rows, int64_t batch, int64_t token) noexcept {
  if (!core::present(rows.cu_seqlens)) return batch;
  int64_t low = 0, high = rows.N;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (core::token_range(rows, middle).end > token) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

/// Calls run(n, range, first, last) for every sequence n with rows among begin .. end - 1 of a
/// batch entry: its whole range, and its rows among them.
template <class Run>
void for_sequences(const core::Rows& rows, int64_t batch, int64_t begin, int64_t end,
                   Run run) noexcept {
  for (int64_t n = sequence_at(rows, batch, begin); n < rows.N; ++n) {
    const core::TokenRange range = core::token_range(rows, n);
    if (range.batch != batch || range.begin >= end) return;
    run(n, range, std::max(begin, range.begin), std::min(end, range.end));
  }
}

}  // namespace sluice::cpu

#endif  // SLUICE_CPU_KERNELS_ROW_TILES_HPP_
