// Declares the recurrence with key-wise gates on the CPU: one decay for each row of the state.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CPU_KERNELS_KEY_STEPS_HPP_
#define SLUICE_CPU_KERNELS_KEY_STEPS_HPP_

#include <cstddef>
#include <cstdint>

#include "core/host_access.hpp"
#include "cpu/kernels/delta_rule.hpp"
#include "cpu/kernels/size_limits.hpp"

namespace sluice::cpu {

/// run_head_steps() with diag(alpha_t) S in place of alpha_t S: row t of alpha, K decays, is at
/// alpha + t * stride, and steps.alpha is not looked at. T tokens have the bits of T calls of one.
struct KeySteps {
  HeadSteps steps;
  const float* alpha = nullptr;
  int64_t stride = 0;
};
void run_key_steps(const KeySteps& steps) noexcept;

/// Floats between the decays of two tokens.
constexpr int64_t key_decay_stride(int64_t K) noexcept { return round_up(K, kFloatsPerLine); }

/// alpha[0, K) of value head h at (batch, token); it has key_decay_stride(K) floats.
void load_key_decays(const core::DeltaRuleProblem&, int64_t batch, int64_t token, int64_t h,
                     float* alpha) noexcept;

/// The steps of value head h on a range of tokens; decays: key_decay_stride() floats for each.
void run_key_head(const core::DeltaRuleProblem&, const core::TokenRange&, int64_t h,
                  const HeadSteps&, float* decays) noexcept;

}  // namespace sluice::cpu

#endif  // SLUICE_CPU_KERNELS_KEY_STEPS_HPP_
