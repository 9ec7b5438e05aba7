// Computes gradients of gated RMSNorm, row by row.
// Math:     docs/math.md section 10: dx = rstd (s - n mean(s n)), n = rstd x, s = d_out act(z) weight.
// Roles:    one work item = 128 rows and their sum for dweight; then one adds the sums up.
// Pipeline: a row, 512 columns at a time: sum of squares; sum of s n; then all three gradients.
// Memory:   14 KB of scratch on the worker's stack; V numbers an item of workspace.
// Numbers:  NUM: rows of an item, then items, are added up in ascending order, whatever the threads.
// SPDX-License-Identifier: Apache-2.0
#include "cpu/kernels/operators.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/gated_rms_norm_backward.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, so that they are compiled per target.
#include "core/host_access.hpp"
#include "cpu/kernels/norm_rows-inl.h"
#include "cpu/parallel_for.hpp"

#ifndef SLUICE_CPU_NORM_BACKWARD_ROWS_
#define SLUICE_CPU_NORM_BACKWARD_ROWS_
namespace sluice::cpu {
namespace {

constexpr int64_t kItemRows = 128;

int64_t rows_of(const core::GatedNormBackwardProblem& p) noexcept {
  const int64_t* shape = p.d_out.shape;
  return shape[0] * shape[1] * shape[2] * shape[3];
}
int64_t items_of(const core::GatedNormBackwardProblem& p) noexcept {
  return (rows_of(p) + kItemRows - 1) / kItemRows;
}

}  // namespace
}  // namespace sluice::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace {

using core::GatedNormBackwardProblem;

/// Rows, one after the other.
class RowGradients {
 public:
  RowGradients(const GatedNormBackwardProblem& problem, float* sums) noexcept
      : problem_(problem), p_(problem.forward), sums_(sums) {}

  /// Row `row` of the four outer dimensions, row-major.
  void run(int64_t row) noexcept {
    const int64_t* shape = problem_.d_out.shape;
    for (int axis = 3; axis >= 0; row /= shape[axis--]) index_[axis] = row % shape[axis];
    float squares = 0.0f, product = 0.0f;
    loaded_ = -1;
    for_pieces([&](int64_t, int64_t padded) { squares += sum_of_squares(x_, padded); });
    factor_ = rms_factor(squares, p_.V, p_.eps);
    for_pieces([&](int64_t, int64_t padded) { product += sum_of_products(padded); });
    mean_ = factor_ * product / static_cast<float>(p_.V);
    for_pieces([&](int64_t first, int64_t padded) { finish(first, padded); });
  }

 private:
  /// Calls visit(first column, columns padded to whole vectors) with the piece in scratch.
  template <class Visit>
  void for_pieces(Visit visit) noexcept {
    for (int64_t first = 0; first < p_.V; first += kNormColumns) {
      load(first);
      visit(first, whole_vectors(columns(first)));
    }
  }

  int64_t columns(int64_t first) const noexcept { return std::min(kNormColumns, p_.V - first); }

  void* address(const core::Tensor& t, int64_t first) const noexcept {
    return core::address(t, index_[0], index_[1], index_[2], index_[3], first);
  }

  void read(const core::Tensor& t, int64_t first, float* to) const noexcept {
    const int64_t count = columns(first);
    read_dense(address(t, first), t.dtype, count, to);
    std::fill_n(to + count, whole_vectors(count) - count, 0.0f);
  }

  /// Brings columns to scratch, of z act(z) and act'(z).
  void load(int64_t first) noexcept {
    if (loaded_ == first) return;
    loaded_ = first;
    const FloatTag d;
    const int64_t count = columns(first), padded = whole_vectors(count);
    read(p_.x, first, x_);
    read(p_.z, first, act_);
    read(problem_.d_out, first, d_out_);
    read_strided(core::address(p_.weight, first), p_.weight.dtype, p_.weight.stride[0], count,
                 weight_);
    std::fill_n(weight_ + count, padded - count, 0.0f);
    for (int64_t i = 0; i < padded; i += float_lanes()) {
      const auto z = hn::Load(d, act_ + i);
      const bool with_silu = p_.activation == SLUICE_ACTIVATION_SILU;
      hn::Store(with_silu ? silu_slope(d, z) : sigmoid_slope(d, z), d, slope_ + i);
      hn::Store(with_silu ? silu(d, z) : sigmoid(d, z), d, act_ + i);
    }
  }

  /// d_out weight act(z) of a vector.
  hn::Vec<FloatTag> scaled(int64_t i) const noexcept {
    const FloatTag d;
    return hn::Mul(hn::Mul(hn::Load(d, d_out_ + i), hn::Load(d, act_ + i)),
                   hn::Load(d, weight_ + i));
  }

  float sum_of_products(int64_t padded) const noexcept {
    const FloatTag d;
    auto sum = hn::Zero(d);
    for (int64_t i = 0; i < padded; i += float_lanes()) {
      sum = hn::MulAdd(scaled(i), hn::Load(d, x_ + i), sum);
    }
    return hn::GetLane(hn::SumOfLanes(d, sum));
  }

  void finish(int64_t first, int64_t padded) noexcept {
    const FloatTag d;
    const auto factor = hn::Set(d, factor_), mean = hn::Set(d, mean_);
    for (int64_t i = 0; i < padded; i += float_lanes()) {
      const auto n = hn::Mul(factor, hn::Load(d, x_ + i));
      hn::Store(hn::Mul(factor, hn::NegMulAdd(n, mean, scaled(i))), d, dx_ + i);
      hn::Store(n, d, x_ + i);
    }
    if (p_.rounding == SLUICE_NORM_ROUND_HF) round_through(x_, padded, p_.x.dtype);
    loaded_ = -1;  // x_ has become n
    write(problem_.dx, first, dx_);
    for (int64_t i = 0; i < padded; i += float_lanes()) {
      const auto dn = hn::Mul(hn::Load(d, d_out_ + i), hn::Load(d, x_ + i));
      hn::Store(hn::Mul(hn::Mul(dn, hn::Load(d, weight_ + i)), hn::Load(d, slope_ + i)), d,
                dx_ + i);
      hn::Store(hn::Mul(dn, hn::Load(d, act_ + i)), d, x_ + i);
    }
    write(problem_.dz, first, dx_);
    for (int64_t i = 0; i < columns(first) && sums_ != nullptr; ++i) sums_[first + i] += x_[i];
  }

  void write(const core::Tensor& t, int64_t first, const float* from) const noexcept {
    if (core::present(t)) write_dense(from, columns(first), address(t, first), t.dtype);
  }

  const GatedNormBackwardProblem& problem_;
  const core::GatedNormProblem& p_;
  float* sums_;
  int64_t index_[4] = {}, loaded_ = -1;
  float factor_ = 0.0f, mean_ = 0.0f;
  HWY_ALIGN float x_[kNormColumns];
  HWY_ALIGN float act_[kNormColumns];
  HWY_ALIGN float slope_[kNormColumns];
  HWY_ALIGN float d_out_[kNormColumns];
  HWY_ALIGN float weight_[kNormColumns];
  HWY_ALIGN float dx_[kNormColumns];
};

}  // namespace

void norm_gradients(const GatedNormBackwardProblem& problem, float* sums) {
  const int64_t V = problem.forward.V, rows = rows_of(problem), items = items_of(problem);
  auto item = [&](int64_t index, int) {
    float* const own = sums == nullptr ? nullptr : sums + index * V;
    if (own != nullptr) std::fill_n(own, V, 0.0f);
    RowGradients gradients(problem, own);
    const int64_t end = std::min((index + 1) * kItemRows, rows);
    for (int64_t row = index * kItemRows; row < end; ++row) gradients.run(row);
  };
  // PERF: below this many elements (about 20 us) waking threads costs more than they save.
  constexpr int64_t kWorthThreads = 16384;
  parallel_for(items, rows * V < kWorthThreads ? 1 : worker_count(), item);
  for (int64_t j = 0; j < V && sums != nullptr; ++j) {
    float sum = 0.0f;
    for (int64_t i = 0; i < items; ++i) sum += sums[i * V + j];
    core::store_float(core::address(problem.dweight, j), problem.dweight.dtype, sum);
  }
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {

HWY_EXPORT(norm_gradients);

size_t gated_rms_norm_backward_workspace(const core::GatedNormBackwardProblem& p) noexcept {
  if (!core::present(p.dweight)) return 0;
  return static_cast<size_t>(items_of(p) * p.forward.V) * sizeof(float);
}

void gated_rms_norm_backward(const core::GatedNormBackwardProblem& p, void* scratch) noexcept {
  // No rows: no memory is needed for sums, which are zero.
  float none = 0.0f;
  float* const sums = scratch == nullptr ? &none : static_cast<float*>(scratch);
  HWY_DYNAMIC_DISPATCH(norm_gradients)(p, core::present(p.dweight) ? sums : nullptr);
}

}  // namespace sluice::cpu
#endif  // HWY_ONCE
