// Passes of the emulated prefill backend that are compiled each in a file of its own.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_EMULATION_EMULATED_PASSES_HPP_
#define SLUICE_TESTS_EMULATION_EMULATED_PASSES_HPP_

#include <algorithm>
#include <cstdint>
#include <string>

#include "cuda/chunk_forward/launch.h"
#include "emulated_backend.hpp"
#include "emulated_ctas.hpp"

namespace sluice::cuda::prefill_passes {

/// Trouble of the first launch that had any, and the launches after it left out.
struct Launches {
  std::string trouble;

  template <class Kernel>
  void operator()(unsigned ctas, unsigned threads, const Kernel& kernel) {
    for (unsigned cta = 0; cta < ctas && trouble.empty(); ++cta) {
      std::fill_n(chunk_forward::dynamic_shared, emulation::kSharedBytes, uint8_t{0xFF});
      trouble = emulation::run_cta(cta, ctas, threads, emulation_seed + cta, kernel);
    }
  }
};

inline constexpr unsigned kMostCtas = 3;  ///< of the persistent kernels

/// One pass over items of `columns` columns of V; `output`: not the pass of transitions.
struct Pass {
  bool bf16, output;
  int columns;
  int64_t items;

  unsigned ctas() const { return static_cast<unsigned>(std::min<int64_t>(items, kMostCtas)); }
};

/// Simple GLA.
void run_linear(Launches& launch, const device::PrefillParams& p, const Pass& pass);
void run_linear_join(Launches& launch, const device::PrefillParams& p);
/// Simple GLA, segments as the CTAs of clusters, one cluster at a time: empty, or what went wrong.
std::string run_clusters(device::PrefillParams p, const prefill::MappedTensors& tensors);
/// Simple GLA, segments that sum up all before them: empty, or what went wrong.
std::string run_prefix(device::PrefillParams p, const prefill::MappedTensors& tensors);

/// Key-wise gates: the pass, and the preparation before it.
void run_keys(Launches& launch, const device::PrefillParams& p, const Pass& pass);
void run_key_preparation(Launches& launch, const device::PrefillParams& p, bool bf16, bool l2norm);
}  // namespace sluice::cuda::prefill_passes

#endif  // SLUICE_TESTS_EMULATION_EMULATED_PASSES_HPP_
