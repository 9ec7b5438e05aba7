// Runs grids on the emulator with fewer CTAs than items, so that items follow each other in a CTA.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_EMULATION_EMULATED_CTAS_HPP_
#define SLUICE_TESTS_EMULATION_EMULATED_CTAS_HPP_

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "cuda/ptx/tma.cuh"
#include "cuda/tile/token_map.hpp"
#include "emulator.hpp"

namespace sluice::cuda::chunk_forward {
alignas(1024) extern uint8_t dynamic_shared[];  ///< of the emulator
}

namespace sluice::cuda {

/// Whether nobody wrote past the first `bytes` of shared memory, which was all NaN.
inline bool within(int64_t bytes) {
  const uint8_t *const end = chunk_forward::dynamic_shared + bytes,
                       *const past = chunk_forward::dynamic_shared + emulation::kSharedBytes;
  const bool is = std::all_of(end, past, [](uint8_t x) { return x == 0xFF; });
  if (!is) std::fprintf(stderr, "emulation: shared memory past the launch's\n");
  return is;
}

/// Fewer CTAs than items, one after the other.
template <class Kernel>
int run_ctas(int64_t items, int threads, int64_t shared_bytes, const Kernel& kernel) {
  static uint64_t seed = 1;
  const auto ctas = static_cast<unsigned>(std::min<int64_t>(items, 3));
  for (unsigned cta = 0; cta < ctas; ++cta) {
    // NaN, to whoever reads before anybody wrote; the end of what was asked for is a guard.
    std::fill_n(chunk_forward::dynamic_shared, emulation::kSharedBytes, uint8_t{0xFF});
    const std::string trouble =
        emulation::run_cta(cta, ctas, static_cast<unsigned>(threads), ++seed, kernel);
    if (!trouble.empty()) std::fprintf(stderr, "emulation: %s\n", trouble.c_str());
    if (!trouble.empty() || !within(shared_bytes)) return 1;
  }
  return 0;
}

/// A map as the emulated copy engine reads it.
inline CUtensorMap emulated_map(const tile::TokenTensor& tensor, uint32_t rows, int64_t columns) {
  const ptx::EmulatedMap map{static_cast<uint8_t*>(tensor.data),
                             tile::token_map(tensor, rows, static_cast<uint32_t>(columns / 64))};
  CUtensorMap out{};
  std::memcpy(static_cast<void*>(&out), &map, sizeof map);
  return out;
}

/// A kernel that fetches its items itself.
template <class Params>
int run_persistent(void (*kernel)(Params, int64_t), const Params& p, int64_t items, int threads) {
  return run_ctas(items, threads, emulation::kSharedBytes, [&] { kernel(p, items); });
}

}  // namespace sluice::cuda

#endif  // SLUICE_TESTS_EMULATION_EMULATED_CTAS_HPP_
