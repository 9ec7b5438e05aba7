// Applies the slot, gate and head rules of sluice.h as one value head needs them.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "core/host_access.hpp"
#include "cpu/kernels/delta_rule.hpp"
#include "cpu/kernels/load_store.hpp"

namespace sluice::cpu {
namespace {

void* head_state(const core::Tensor& pool, int64_t slot, int64_t h) noexcept {
  return core::address(pool, slot, h, 0, 0);
}

// Slot of the state after token t, -1 = not written.
int64_t step_slot(const core::DeltaRuleProblem& problem, int64_t n, int64_t t) noexcept {
  const sluice_state_io& state = problem.state;
  const int64_t slot = core::slot_at(state.write_slots, n, t);
  const bool skip = core::present(state.write_slots) && slot < state.pad_below;
  return skip ? -1 : slot;
}

}  // namespace

bool plan_head_states(const core::DeltaRuleProblem& problem, int64_t n, int64_t h,
                      HeadSteps* steps) noexcept {
  const sluice_state_io& state = problem.state;
  const core::SlotPlan plan = core::plan_slots(state, problem.num_accepted, n);
  if (plan.padded) return false;
  steps->layout = static_cast<sluice_state_layout>(state.layout);
  steps->initial_dtype = state.initial.dtype;
  steps->final_dtype = state.final.dtype;
  steps->initial = plan.read < 0 ? nullptr : head_state(state.initial, plan.read, h);
  for (void*& address : steps->final) address = nullptr;
  if (!core::present(state.final)) return true;
  if (problem.state_writes == SLUICE_STATE_WRITE_PER_TOKEN) {
    for (int64_t t = 0; t < steps->tokens; ++t) {
      const int64_t slot = step_slot(problem, n, t);
      if (slot >= 0) steps->final[t] = head_state(state.final, slot, h);
    }
  } else if (problem.state_writes == SLUICE_STATE_WRITE_LAST && plan.write >= 0) {
    const int64_t last = steps->tokens > 0 ? steps->tokens - 1 : 0;
    steps->final[last] = head_state(state.final, plan.write, h);
  }
  return true;
}

void load_key_rows(const core::DeltaRuleProblem& problem, const core::TokenRange& tokens,
                   int64_t key_head, float* q, float* k) noexcept {
  const float scale = static_cast<float>(problem.scale);
  const float eps = static_cast<float>(problem.l2norm_eps);
  const int64_t K = problem.K;
  for (int64_t t = tokens.begin; t < tokens.end; ++t, q += K, k += K) {
    load_row(core::address(problem.q, tokens.batch, t, key_head, 0), problem.q.dtype, K, q);
    load_row(core::address(problem.k, tokens.batch, t, key_head, 0), problem.k.dtype, K, k);
    if (problem.qk_norm == SLUICE_QK_NORM_L2) {
      l2_normalise(q, K, eps, scale, q);
      l2_normalise(k, K, eps, 1.0f, k);
    } else {
      for (int64_t i = 0; i < K; ++i) q[i] *= scale;
    }
  }
}

GateRule gate_rule(const core::DeltaRuleProblem& problem, int64_t h) noexcept {
  GateRule rule;
  rule.gated = core::present(problem.gate);
  rule.gate_space = problem.gate_space;
  if (core::present(problem.A_log)) {
    const float A_log = core::load_float(core::address(problem.A_log, h), problem.A_log.dtype);
    rule.decay_rate = static_cast<float>(std::exp(static_cast<double>(A_log)));
  }
  if (core::present(problem.dt_bias) && !core::present(problem.key_gate)) {
    rule.dt_bias = core::load_float(core::address(problem.dt_bias, h), problem.dt_bias.dtype);
  }
  rule.lower_bound = static_cast<float>(problem.gate_lower_bound);
  rule.weighted = core::present(problem.beta);
  rule.beta_space = problem.beta_space;
  rule.beta_factor = static_cast<float>(problem.beta_factor);
  return rule;
}

}  // namespace sluice::cpu
