// Compiles the decays of steps with key-wise gates for each instruction set, and chooses one at run
// time.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cpu/kernels/key_steps.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/key_steps.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h, so that it is compiled per target.
#include "cpu/kernels/gates-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

/// decay [K] from the gates that it holds, and row times decay for the two rows of a token; all
/// are padded to whole vectors but the sources.
void decay_rows(const GateRule& rule, const float* bias, int64_t K, const float* HWY_RESTRICT k,
                const float* HWY_RESTRICT q, float* HWY_RESTRICT decay,
                float* HWY_RESTRICT decayed_k, float* HWY_RESTRICT decayed_q) {
  const FloatTag d;
  const auto rate = hn::Set(d, rule.decay_rate);
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if (rule.gate_space != SLUICE_GATE_LINEAR) {
    for (int64_t i = 0; i < K; i += lanes) {
      const auto g = log_gate(rule, hn::LoadU(d, decay + i), rate, hn::LoadU(d, bias + i));
      hn::StoreU(exp_nonpositive(g), d, decay + i);
    }
  }
  for (int64_t i = 0; i < K; ++i) {
    decayed_k[i] = decay[i] * k[i];
    decayed_q[i] = decay[i] * q[i];
  }
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu/kernels/load_store.hpp"

namespace sluice::cpu {
namespace {

HWY_EXPORT(decay_rows);

}  // namespace

void set_key_decays(const core::DeltaRuleProblem& problem, const core::TokenRange& range, int64_t h,
                    float* memory, HeadSteps* steps) noexcept {
  const core::Tensor &gate = problem.key_gate, &bias = problem.dt_bias;
  const int64_t K = problem.K, stride = key_decay_stride(K);
  const GateRule rule = gate_rule(problem, h);
  float biases[kMaxHeadDim] = {};
  if (core::present(bias)) load_row(core::address(bias, h, 0), bias.dtype, K, biases);
  float* const decay = memory;
  float* const decayed_k = memory + steps->tokens * stride;
  float* const decayed_q = decayed_k + steps->tokens * stride;
  for (int64_t t = 0; t < steps->tokens; ++t) {
    float* const row = decay + t * stride;
    std::fill(row + K, row + stride, 0.0f);
    load_row(core::address(gate, range.batch, range.begin + t, h, 0), gate.dtype, K, row);
    HWY_DYNAMIC_DISPATCH(decay_rows)
    (rule, biases, K, steps->k + t * steps->qk_stride, steps->q + t * steps->qk_stride, row,
     decayed_k + t * stride, decayed_q + t * stride);
  }
  steps->decay = decay, steps->decayed_k = decayed_k, steps->decayed_q = decayed_q;
  steps->decay_stride = stride;
}

}  // namespace sluice::cpu
#endif  // HWY_ONCE
