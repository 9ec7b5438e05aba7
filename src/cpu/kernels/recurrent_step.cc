// Runs recurrent_step: one item is a run of consecutive (sequence, value head) pairs, so that each
// head's sweep, run_head_steps(), can ask for the next one's state and q and k are prepared once a
// key head.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "core/host_access.hpp"
#include "cpu/isa.hpp"
#include "cpu/kernels/delta_rule.hpp"
#include "cpu/kernels/key_steps.hpp"
#include "cpu/kernels/load_store.hpp"
#include "cpu/kernels/operators.hpp"
#include "cpu/kernels/size_limits.hpp"
#include "cpu/parallel_for.hpp"

namespace sluice::cpu {
namespace {

/// Runs per worker, where there are several: few enough that most heads know their successor,
/// enough that a worker that was held up is helped out.
constexpr int64_t kRunsPerWorker = 4;

/// One worker's scratch, in floats; every array starts on a cache line.
struct StepScratch {
  int64_t q, k, v, o, panel, decays, size;

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
    panel = take(head_steps_scratch(problem.K, problem.V, tokens));
    decays = take(core::present(problem.key_gate) ? key_decay_floats(problem.K, tokens) : 0);
    size = at;
  }
};

/// How the N * HV heads are cut into items.
struct StepRuns {
  int64_t heads, workers, length;

  explicit StepRuns(const core::DeltaRuleProblem& problem) noexcept
      : heads(problem.rows.N * problem.HV),
        workers(std::clamp<int64_t>(worker_count(), 1, std::max<int64_t>(heads, 1))),
        length(workers == 1 ? heads : std::max<int64_t>(heads / (workers * kRunsPerWorker), 1)) {}

  int64_t items() const noexcept { return heads == 0 ? 0 : (heads + length - 1) / length; }
};

class StepItems {
 public:
  StepItems(const core::DeltaRuleProblem& problem, float* memory) noexcept
      : problem_(problem), plan_(problem), runs_(problem), memory_(memory) {}

  void operator()(int64_t item, int worker) const noexcept {
    const int64_t first = item * runs_.length, end = std::min(first + runs_.length, runs_.heads);
    Run run;
    run.scratch = memory_ + worker * plan_.size;
    Planned heads[2];
    plan(first, &heads[first % 2]);
    for (int64_t index = first; index < end; ++index) {
      Planned& head = heads[index % 2];
      if (index + 1 < end) {
        Planned& next = heads[1 - index % 2];
        plan(index + 1, &next);
        head.steps.next = next.active ? next.steps.initial : nullptr;
      }
      step(head, &run);
    }
  }

 private:
  /// A head and where its states are; inactive: padding.
  struct Planned {
    int64_t n = 0, h = 0;
    core::TokenRange range{};
    HeadSteps steps;
    bool active = false;
  };

  /// What a run keeps from head to head: whose q and k are in the scratch, and the gates of one
  /// head's tokens or of heads from gates_first.
  struct Run {
    float* scratch = nullptr;
    int64_t n = -1, key_head = -1;
    int64_t gates_n = -1, gates_first = -1;
    float alpha[kMaxSteps], beta[kMaxSteps];
  };

  void plan(int64_t index, Planned* head) const noexcept {
    head->n = index / problem_.HV;
    head->h = index % problem_.HV;
    head->range = core::token_range(problem_.rows, head->n);
    head->steps.tokens = head->range.size();
    head->steps.next = nullptr;
    head->active = plan_head_states(problem_, head->n, head->h, &head->steps);
  }

  void step(Planned& head, Run* run) const noexcept {
    if (!head.active) return zero_rows(problem_, head.range, head.h);
    HeadSteps& steps = head.steps;
    steps.K = problem_.K;
    steps.V = problem_.V;
    steps.rule = problem_.rule;
    steps.scratch = run->scratch + plan_.panel;
    load_keys(head, run);
    load_values(head, run->scratch);
    load_gates(head, run);
    if (core::present(problem_.key_gate)) {
      set_key_decays(problem_, head.range, head.h, run->scratch + plan_.decays, &steps);
    }
    run_head_steps(steps);
    if (steps.o != run->scratch + plan_.o) return;
    for (int64_t t = 0; t < steps.tokens; ++t) {
      store_row(steps.o + t * steps.o_stride, problem_.V, problem_.o.dtype,
                core::address(problem_.o, head.range.batch, head.range.begin + t, head.h, 0));
    }
  }

  /// q and k of the head's key head, unless the run has them from the head before.
  void load_keys(Planned& head, Run* run) const noexcept {
    const int64_t K = problem_.K, key_head = problem_.key_head(head.h);
    float* const q = run->scratch + plan_.q;
    float* const k = run->scratch + plan_.k;
    head.steps.q = q;
    head.steps.k = k;
    head.steps.qk_stride = K;
    if (run->n == head.n && run->key_head == key_head) return;
    run->n = head.n;
    run->key_head = key_head;
    load_key_rows(problem_, head.range, key_head, q, k);
  }

  /// v and o: where they lie if that is float32, else rows of the scratch.
  void load_values(Planned& head, float* scratch) const noexcept {
    HeadSteps& steps = head.steps;
    const int64_t V = problem_.V, batch = head.range.batch, row = head.range.begin;
    steps.v_stride = steps.o_stride = V;
    steps.o = scratch + plan_.o;
    if (core::same(problem_.o.dtype, core::kFloat32) && steps.tokens > 0) {
      steps.o = static_cast<float*>(core::address(problem_.o, batch, row, head.h, 0));
      steps.o_stride = problem_.o.stride[1];
    }
    if (core::same(problem_.v.dtype, core::kFloat32) && steps.tokens > 0) {
      steps.v = static_cast<const float*>(core::address(problem_.v, batch, row, head.h, 0));
      steps.v_stride = problem_.v.stride[1];
      return;
    }
    float* const v = scratch + plan_.v;
    for (int64_t t = 0; t < steps.tokens; ++t) {
      load_row(core::address(problem_.v, batch, row + t, head.h, 0), problem_.v.dtype, V,
               v + t * V);
    }
    steps.v = v;
  }

  /// alpha and beta of the head's tokens. WHY heads together: what one costs is the latency of exp,
  /// and 16 lanes cost as much.
  void load_gates(Planned& head, Run* run) const noexcept {
    const bool by_head = core::present(problem_.A_log) || core::present(problem_.dt_bias);
    const bool together = head.steps.tokens == 1 && !by_head;
    const int64_t first = together ? head.h / kMaxSteps * kMaxSteps : head.h;
    const int64_t count = together ? std::min(kMaxSteps, problem_.HV - first) : head.steps.tokens;
    head.steps.alpha = run->alpha + (together ? head.h - first : 0);
    head.steps.beta = run->beta + (together ? head.h - first : 0);
    if (together && run->gates_n == head.n && run->gates_first == first) return;
    run->gates_n = together ? head.n : -1;
    run->gates_first = first;
    const GateRule rule = gate_rule(problem_, head.h);
    float gates[kMaxSteps], betas[kMaxSteps];
    for (int64_t i = 0; i < count; ++i) {
      const int64_t t = together ? 0 : i, h = together ? first + i : head.h;
      gates[i] = rule.gated ? head_scalar(problem_.gate, head.range, t, h) : 0.0f;
      betas[i] = rule.weighted ? head_scalar(problem_.beta, head.range, t, h) : 0.0f;
    }
    gates_of_steps(rule, gates, betas, count, run->alpha, run->beta);
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
  const StepRuns runs_;
  float* const memory_;
};

}  // namespace

size_t recurrent_step_workspace(const core::DeltaRuleProblem& problem) noexcept {
  if (core::present(problem.ring.k)) return replay_step_workspace(problem);
  return static_cast<size_t>(StepRuns(problem).workers * StepScratch(problem).size) * sizeof(float);
}

void recurrent_step(const core::DeltaRuleProblem& problem, void* scratch) noexcept {
  auto* const memory = static_cast<float*>(scratch);
  if (core::present(problem.ring.k)) return replay_step(problem, memory);
  StepItems items(problem, memory);
  const StepRuns runs(problem);
  parallel_for(runs.items(), static_cast<int>(runs.workers), items);
}

}  // namespace sluice::cpu
