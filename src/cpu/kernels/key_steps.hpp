// Declares what key-wise gates make of the rows that steps work with.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CPU_KERNELS_KEY_STEPS_HPP_
#define SLUICE_CPU_KERNELS_KEY_STEPS_HPP_

#include <cstdint>

#include "core/host_access.hpp"
#include "cpu/kernels/delta_rule.hpp"
#include "cpu/kernels/size_limits.hpp"

namespace sluice::cpu {

/// Floats between the decays of two tokens.
constexpr int64_t key_decay_stride(int64_t K) noexcept { return round_up(K, kFloatsPerLine); }

/// Floats of set_key_decays()'s memory.
constexpr int64_t key_decay_floats(int64_t K, int64_t tokens) noexcept {
  return 3 * tokens * key_decay_stride(K);
}

/// Makes the decays of value head h on a range of tokens in `memory`, and with them the decayed
/// rows of `steps`, whose q and k are set.
void set_key_decays(const core::DeltaRuleProblem&, const core::TokenRange&, int64_t h,
                    float* memory, HeadSteps* steps) noexcept;

}  // namespace sluice::cpu

#endif  // SLUICE_CPU_KERNELS_KEY_STEPS_HPP_
