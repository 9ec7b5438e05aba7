// Runs chunk_backward: sequences and value heads, then sums over the value heads of key heads.
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/chunk_backward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "cpu/kernels/chunk_backward-inl.h"
#include "cpu/kernels/key_backward-inl.h"
#include "cpu/kernels/operators.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

void backward_of_head(const BackwardItem& item) { HeadBackward(item).run(); }
void key_backward_of_head(const KeyBackwardItem& item) { KeyBackward(item).run(); }
void sum_key_rows(const KeyRowsItem& item) { key_rows(item); }

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu/isa.hpp"
#include "cpu/parallel_for.hpp"

namespace sluice::cpu {
namespace {

HWY_EXPORT(backward_of_head);
HWY_EXPORT(key_backward_of_head);
HWY_EXPORT(sum_key_rows);

using core::ChunkBackwardProblem;
using core::DeltaRuleProblem;

/// PERF: below this many elements (about 20 us) waking threads costs more than they save.
constexpr int64_t kWorthThreads = 8192;

int workers_for(const DeltaRuleProblem& p) noexcept {
  if (p.rows.B * p.rows.T * p.HV * (p.K + p.V) < kWorthThreads) return 1;
  return static_cast<int>(std::clamp<int64_t>(p.rows.N * p.HV, 1, std::max(worker_count(), 1)));
}

/// Biases of a value head.
int64_t bias_channels(const DeltaRuleProblem& p) noexcept {
  return core::present(p.key_gate) ? p.K : 1;
}

/// Where everything lies in the workspace; with a null base it only counts.
class Plan {
 public:
  Plan(const ChunkBackwardProblem& b, void* base) noexcept
      : layout(b.forward), key_layout(b.forward), base_(static_cast<std::byte*>(base)) {
    const DeltaRuleProblem& p = b.forward;
    const int64_t rows = p.r > 1 ? p.rows.B * p.rows.T * p.HV * p.K : 0;
    partials.dA_log = take<double>(core::present(b.dA_log) ? p.rows.N * p.HV : 0);
    const int64_t biases = p.rows.N * p.HV * bias_channels(p);
    partials.ddt_bias = take<double>(core::present(b.ddt_bias) ? biases : 0);
    partials.dq = take<float>(core::present(b.dq) ? rows : 0);
    partials.dk = take<float>(core::present(b.dk) ? rows : 0);
    scratch_size = core::present(p.key_gate) ? key_layout.size : layout.size;
    scratch = take<float>(workers_for(p) * scratch_size);
  }

  BackwardScratch layout;
  KeyBackwardScratch key_layout;
  int64_t scratch_size = 0;  ///< floats of a worker
  BackwardPartials partials;
  float* scratch = nullptr;
  int64_t bytes() const noexcept { return used_; }

 private:
  template <class Number>
  Number* take(int64_t count) noexcept {
    const int64_t at = used_;
    used_ += round_up(count * static_cast<int64_t>(sizeof(Number)), 64);
    return count == 0 || base_ == nullptr ? nullptr : reinterpret_cast<Number*>(base_ + at);
  }

  std::byte* base_;
  int64_t used_ = 0;
};

void run_heads(const ChunkBackwardProblem& b, const Plan& plan) noexcept {
  auto body = [&](int64_t index, int worker) noexcept {
    const int64_t HV = b.forward.HV, n = index / HV, head = index % HV;
    float* const scratch = plan.scratch + worker * plan.scratch_size;
    if (core::present(b.forward.key_gate)) {
      const KeyBackwardItem item{b, plan.key_layout, scratch, plan.partials, n, head};
      return HWY_DYNAMIC_DISPATCH(key_backward_of_head)(item);
    }
    const BackwardItem item{b, plan.layout, scratch, plan.partials, n, head};
    HWY_DYNAMIC_DISPATCH(backward_of_head)(item);
  };
  parallel_for(b.forward.rows.N * b.forward.HV, workers_for(b.forward), body);
}

/// Rows of an item of sum_key_rows.
constexpr int64_t kSumRows = 64;

void sum_keys(const ChunkBackwardProblem& b, const Plan& plan) noexcept {
  const DeltaRuleProblem& p = b.forward;
  if (p.r == 1 || p.rows.N == 0) return;
  const bool packed = core::present(p.rows.cu_seqlens);
  const int64_t rows = packed ? core::token_range(p.rows, p.rows.N - 1).end : p.rows.T;
  const int64_t pieces = core::chunk_count(rows, kSumRows);
  auto body = [&](int64_t index, int /*worker*/) noexcept {
    const int64_t piece = index / p.H % pieces, begin = piece * kSumRows;
    const KeyRowsItem item{
        b,          plan.partials, index / p.H / pieces, begin, std::min(begin + kSumRows, rows),
        index % p.H};
    HWY_DYNAMIC_DISPATCH(sum_key_rows)(item);
  };
  parallel_for(p.rows.B * pieces * p.H, workers_for(p), body);
}

/// Numbers of value heads, `channels` each: the sums of what sequences left.
void store_sums(const DeltaRuleProblem& p, const double* parts, int64_t channels,
                const core::Tensor& to) noexcept {
  const int64_t count = p.HV * channels;
  for (int64_t i = 0; i < count && core::present(to); ++i) {
    double sum = 0;
    for (int64_t n = 0; n < p.rows.N; ++n) sum += parts[n * count + i];
    const int64_t h = i / channels;
    void* const at = to.rank == 2 ? core::address(to, h, i % channels) : core::address(to, h);
    core::store_float(at, to.dtype, static_cast<float>(sum));
  }
}

}  // namespace

size_t chunk_backward_workspace(const ChunkBackwardProblem& b) noexcept {
  return static_cast<size_t>(Plan(b, nullptr).bytes());
}

void chunk_backward(const ChunkBackwardProblem& b, void* scratch) noexcept {
  const Plan plan(b, scratch);
  run_heads(b, plan);
  sum_keys(b, plan);
  store_sums(b.forward, plan.partials.dA_log, 1, b.dA_log);
  store_sums(b.forward, plan.partials.ddt_bias, bias_channels(b.forward), b.ddt_bias);
}

}  // namespace sluice::cpu
#endif  // HWY_ONCE
