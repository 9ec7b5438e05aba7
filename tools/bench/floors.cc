// Counts arithmetic and bytes of a prefill cell.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/floors.hpp"

#include <algorithm>
#include <functional>
#include <queue>

namespace sluice::tools {

double prefill_flops(const Cell& c) noexcept {
  const int64_t per_token = 4 * kChunk * (c.K + c.V) + 6 * c.K * c.V;
  return static_cast<double>(per_token) * static_cast<double>(c.tokens() * c.HV);
}

double prefill_bytes(const Cell& c, int64_t element_bytes) noexcept {
  const int64_t gates = c.key_gates ? c.K : 1;  // float32, as betas are
  const int64_t per_token = element_bytes * 2 * (c.H * c.K + c.HV * c.V) + 4 * (gates + 1) * c.HV;
  return static_cast<double>(per_token) * static_cast<double>(c.tokens()) +
         2.0 * 4.0 * static_cast<double>(c.K * c.V) * static_cast<double>(c.units());
}

int64_t busiest_chunks(const Cell& cell, int processors) {
  std::vector<int64_t> chunks;
  for (const int64_t length : cell.lengths) chunks.push_back((length + kChunk - 1) / kChunk);
  std::sort(chunks.begin(), chunks.end(), std::greater<>());
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> loads;
  for (int i = 0; i < processors; ++i) loads.push(0);
  int64_t busiest = 0;
  for (const int64_t unit : chunks) {
    for (int64_t head = 0; head < cell.HV; ++head) {
      const int64_t load = loads.top() + unit;
      loads.pop();
      loads.push(load);
      busiest = std::max(busiest, load);
    }
  }
  return busiest;
}

Floor floor_of(const Cell& cell, int64_t element_bytes, const Ceilings& ceilings) noexcept {
  const double arithmetic = prefill_flops(cell) / ceilings.flop_per_second;
  const double memory = prefill_bytes(cell, element_bytes) / ceilings.bytes_per_second;
  return {std::max(arithmetic, memory), memory > arithmetic};
}

}  // namespace sluice::tools
