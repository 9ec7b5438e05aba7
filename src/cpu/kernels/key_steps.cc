// Compiles the steps with key-wise gates for each instruction set, and chooses one at run time.
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/key_steps.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "cpu/kernels/key_steps-inl.h"

#if HWY_ONCE
#include "cpu/kernels/load_store.hpp"

namespace sluice::cpu {
namespace {

HWY_EXPORT(key_steps);
HWY_EXPORT(key_decays);

}  // namespace

void run_key_steps(const KeySteps& steps) noexcept { HWY_DYNAMIC_DISPATCH(key_steps)(steps); }

void load_key_decays(const core::DeltaRuleProblem& problem, int64_t batch, int64_t token, int64_t h,
                     float* alpha) noexcept {
  const core::Tensor& gate = problem.key_gate;
  std::fill(alpha + problem.K, alpha + key_decay_stride(problem.K), 0.0f);
  load_row(core::address(gate, batch, token, h, 0), gate.dtype, problem.K, alpha);
  if (const core::Tensor& bias = problem.dt_bias; core::present(bias)) {
    for (int64_t i = 0; i < problem.K; ++i) {
      alpha[i] += core::load_float(core::address(bias, h, i), bias.dtype);
    }
  }
  HWY_DYNAMIC_DISPATCH(key_decays)(gate_rule(problem, h), problem.K, alpha);
}

void run_key_head(const core::DeltaRuleProblem& problem, const core::TokenRange& range, int64_t h,
                  const HeadSteps& steps, float* decays) noexcept {
  const KeySteps key{steps, decays, key_decay_stride(problem.K)};
  for (int64_t t = 0; t < steps.tokens; ++t) {
    load_key_decays(problem, range.batch, range.begin + t, h, decays + t * key.stride);
  }
  run_key_steps(key);
}

}  // namespace sluice::cpu
#endif  // HWY_ONCE
