// recurrent_step: one item per sequence and value head, each head's state swept by
// run_head_steps(). SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "core/host_access.hpp"
#include "cpu/isa.hpp"
#include "cpu/kernels/delta_rule.hpp"
#include "cpu/kernels/load_store.hpp"
#include "cpu/kernels/size_limits.hpp"
#include "cpu/parallel_for.hpp"

namespace sluice::cpu {
namespace {

/// One worker's scratch, in floats; every array starts on a cache line.
struct StepScratch {
  int64_t q, k, v, o, panel, size;

  explicit StepScratch(const core::DeltaRuleProblem& problem) noexcept {
    const int64_t tokens = std::max<int64_t>(problem.rows.max_tokens, 1);
    int64_t at = 0;
    const auto take = [&at](int64_t floats) {
      const int64_t first = at;
      at += round_up(floats, kFloatsPerLine);
      return first;
    };
    q = take(tokens * problem.K);
    k = take(tokens * problem.K);
    v = take(tokens * problem.V);
    o = take(tokens * problem.V);
    panel = take(head_steps_scratch(problem.K));
    size = at;
  }
};

class StepItems {
 public:
  StepItems(const core::DeltaRuleProblem& problem, float* memory) noexcept
      : problem_(problem), plan_(problem), memory_(memory) {}

  void operator()(int64_t item, int worker) const noexcept {
    const int64_t n = item / problem_.HV;
    const int64_t h = item % problem_.HV;
    const core::TokenRange range = core::token_range(problem_.rows, n);
    float* const scratch = memory_ + worker * plan_.size;
    HeadSteps steps;
    steps.tokens = range.size();
    steps.K = problem_.K;
    steps.V = problem_.V;
    steps.rule = problem_.rule;
    steps.scratch = scratch + plan_.panel;
    if (!plan_head_states(problem_, n, h, &steps)) {
      zero_rows(range, h);
      return;
    }
    float alpha[kMaxSteps], beta[kMaxSteps];
    load_inputs(range, h, scratch, &steps);
    load_gates(range, h, alpha, beta);
    steps.alpha = alpha;
    steps.beta = beta;
    run_head_steps(steps);
    for (int64_t t = 0; t < steps.tokens; ++t) {
      store_row(steps.o + t * steps.o_stride, problem_.V, problem_.o.dtype,
                core::address(problem_.o, range.batch, range.begin + t, h, 0));
    }
  }

 private:
  void zero_rows(const core::TokenRange& range, int64_t h) const noexcept {
    const size_t bytes = static_cast<size_t>(problem_.V * core::element_size(problem_.o.dtype));
    for (int64_t t = range.begin; t < range.end; ++t) {
      std::memset(core::address(problem_.o, range.batch, t, h, 0), 0, bytes);
    }
  }

  void load_inputs(const core::TokenRange& range, int64_t h, float* scratch,
                   HeadSteps* steps) const noexcept {
    const int64_t K = problem_.K, V = problem_.V, key_head = problem_.key_head(h);
    float* const q = scratch + plan_.q;
    float* const k = scratch + plan_.k;
    float* const v = scratch + plan_.v;
    for (int64_t t = 0; t < steps->tokens; ++t) {
      const int64_t row = range.begin + t;
      load_row(core::address(problem_.q, range.batch, row, key_head, 0), problem_.q.dtype, K,
               q + t * K);
      load_row(core::address(problem_.k, range.batch, row, key_head, 0), problem_.k.dtype, K,
               k + t * K);
      load_row(core::address(problem_.v, range.batch, row, h, 0), problem_.v.dtype, V, v + t * V);
      scale_and_normalise(q + t * K, k + t * K);
    }
    steps->q = q;
    steps->k = k;
    steps->qk_stride = K;
    steps->v = v;
    steps->v_stride = V;
    steps->o = scratch + plan_.o;
    steps->o_stride = V;
  }

  void scale_and_normalise(float* q, float* k) const noexcept {
    const float scale = static_cast<float>(problem_.scale);
    if (problem_.qk_norm == SLUICE_QK_NORM_L2) {
      const float eps = static_cast<float>(problem_.l2norm_eps);
      l2_normalise(q, problem_.K, eps, scale, q);
      l2_normalise(k, problem_.K, eps, 1.0f, k);
    } else {
      for (int64_t i = 0; i < problem_.K; ++i) q[i] *= scale;
    }
  }

  void load_gates(const core::TokenRange& range, int64_t h, float* alpha,
                  float* beta) const noexcept {
    const GateRule rule = gate_rule(problem_, h);
    float gates[kMaxSteps], betas[kMaxSteps];
    for (int64_t t = 0; t < range.size(); ++t) {
      gates[t] = rule.gated ? head_scalar(problem_.gate, range, t, h) : 0.0f;
      betas[t] = rule.weighted ? head_scalar(problem_.beta, range, t, h) : 0.0f;
    }
    gates_of_steps(rule, gates, betas, range.size(), alpha, beta);
  }

  /// Element (t, h) of gate or beta.
  float head_scalar(const core::Tensor& view, const core::TokenRange& range, int64_t t,
                    int64_t h) const noexcept {
    return core::load_float(
        core::address(view, range.batch, range.begin + t, h / problem_.r, h % problem_.r),
        view.dtype);
  }

  const core::DeltaRuleProblem& problem_;
  const StepScratch plan_;
  float* const memory_;
};

int workers_for(const core::DeltaRuleProblem& problem) noexcept {
  return static_cast<int>(
      std::min<int64_t>(worker_count(), std::max<int64_t>(problem.rows.N * problem.HV, 1)));
}

}  // namespace

Status select_recurrent_step(const core::DeltaRuleProblem& problem,
                             core::KernelName* kernel) noexcept {
  *kernel = kernel_name(SLUICE_OP_RECURRENT_STEP);
  return check_size_limits(problem, "recurrent_step");
}

size_t recurrent_step_workspace(const core::DeltaRuleProblem& problem) noexcept {
  return static_cast<size_t>(workers_for(problem) * StepScratch(problem).size) * sizeof(float);
}

Status recurrent_step(const core::DeltaRuleProblem& problem, sluice_workspace workspace,
                      void* /*stream*/) noexcept {
  StepItems items(problem, static_cast<float*>(workspace.data));
  parallel_for(problem.rows.N * problem.HV, workers_for(problem), items);
  return ok_status();
}

}  // namespace sluice::cpu
