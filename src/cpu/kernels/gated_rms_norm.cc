// Computes gated RMSNorm, row by row.
// Math:     out = x rsqrt(mean(x^2) + eps) * weight * act(z).
// Roles:    one work item = 32 rows.
// Pipeline: factors of all rows of the item; then, per 512 columns, the weight once and every row
//           through float32 scratch: read, scale, gate, write.
// Memory:   6 KB of scratch on the worker's stack; the second read of x comes from L1 or L2.
// Floor:    x and z read, out written once; the gate's exponential is most of the arithmetic.
// SPDX-License-Identifier: Apache-2.0
#include "cpu/kernels/operators.hpp"

#include "cpu/kernels/row_tiles.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/gated_rms_norm.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, so that they are compiled per target.
#include "cpu/isa.hpp"
#include "cpu/kernels/norm_rows-inl.h"
#include "cpu/kernels/step_elements-inl.h"
#include "cpu/parallel_for.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kItemRows = 32;

/// out = factor x weight act(z) for whole pairs of vectors; out may be x.
template <bool kSilu, class Element>
void norm_in_place(const float* x, float factor, const float* weight, const void* gates,
                   int64_t count, void* target) noexcept {
  const FloatTag d;
  const auto f = hn::Set(d, factor);
  const auto* z = static_cast<const Element*>(gates);
  auto* out = static_cast<Element*>(target);
  for (int64_t i = 0; i < count; i += 2 * kLanes) {
    FloatVec values[2], weights[2], gate[2];
    load_columns<Element>(x + i, values[0], values[1]);
    load_columns<Element>(weight + i, weights[0], weights[1]);
    load_pair(z + i, gate[0], gate[1]);
    SLUICE_UNROLL
    for (size_t j = 0; j < 2; ++j) {
      const auto act = kSilu ? silu(d, gate[j]) : sigmoid(d, gate[j]);
      values[j] = hn::Mul(hn::Mul(hn::Mul(f, values[j]), weights[j]), act);
    }
    store_pair(values[0], values[1], out + i);
  }
}

using NormFunction = void (*)(const float*, float, const float*, const void*, int64_t, void*);

template <class Element>
NormFunction norm_function(bool with_silu) noexcept {
  return with_silu ? norm_in_place<true, Element> : norm_in_place<false, Element>;
}

/// A block of rows; a row is an index into the four outer dimensions, row-major.
class RowBlock {
 public:
  RowBlock(const core::GatedNormProblem& problem, const NormRule& rule) noexcept
      : problem_(problem), rule_(rule), direct_(is_direct(problem, rule)) {}

  /// Rows begin .. end - 1, at most kItemRows.
  void run(int64_t begin, int64_t end) noexcept {
    const int64_t rows = locate(begin, end);
    if (direct_) return run_direct(rows);
    for (int64_t i = 0; i < rows; ++i) factors_[i] = factor(i);
    for (int64_t first = 0; first < problem_.V; first += kNormColumns) {
      const int64_t count = std::min(kNormColumns, problem_.V - first);
      const int64_t padded = whole_vectors(count);
      std::fill_n(weight_ + count, padded - count, 0.0f);
      std::fill_n(z_ + count, padded - count, 0.0f);
      read_strided(core::address(problem_.weight, first), problem_.weight.dtype,
                   problem_.weight.stride[0], count, weight_);
      for (int64_t i = 0; i < rows; ++i) {
        read_x(i, first, count);
        read_dense(element(problem_.z, z_rows_[i], first), problem_.z.dtype, count, z_);
        norm_columns(rule_, factors_[i], z_, weight_, padded, x_);
        write_dense(x_, count, element(problem_.out, out_rows_[i], first), problem_.out.dtype);
      }
    }
  }

  void zero(int64_t begin, int64_t end) noexcept {
    const int64_t rows = locate(begin, end);
    std::fill_n(x_, kNormColumns, 0.0f);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t first = 0; first < problem_.V; first += kNormColumns) {
        const int64_t count = std::min(kNormColumns, problem_.V - first);
        write_dense(x_, count, element(problem_.out, out_rows_[i], first), problem_.out.dtype);
      }
    }
  }

 private:
  /// Whether rows are worked on where they lie: what a layer makes of its float32 core output.
  static bool is_direct(const core::GatedNormProblem& p, const NormRule& rule) noexcept {
    const bool floats = core::same(p.z.dtype, core::kFloat32);
    return core::same(p.x.dtype, core::kFloat32) && core::same(p.z.dtype, p.out.dtype) &&
           (floats || core::same(p.z.dtype, core::kBFloat16)) && !rule.round_normalised &&
           !(rule.round_x && !floats) && p.V % (2 * kLanes) == 0 && p.V <= kNormColumns;
  }

  /// All columns of rows that is_direct() takes: the same sums and products as the others.
  void run_direct(int64_t rows) noexcept {
    read_strided(core::address(problem_.weight, 0), problem_.weight.dtype,
                 problem_.weight.stride[0], problem_.V, weight_);
    const bool with_silu = rule_.activation == SLUICE_ACTIVATION_SILU;
    const NormFunction norm = core::same(problem_.z.dtype, core::kFloat32)
                                  ? norm_function<float>(with_silu)
#if HWY_TARGET == HWY_AVX3 && defined(__x86_64__)
                              : isa_has_bfloat16_dots() ? norm_function<RoundedByMachine>(with_silu)
#endif
                                                        : norm_function<uint16_t>(with_silu);
    for (int64_t i = 0; i < rows; ++i) {
      const auto* x = static_cast<const float*>(element(problem_.x, x_rows_[i], 0));
      const float factor = rms_factor(sum_of_squares(x, problem_.V), problem_.V, problem_.eps);
      norm(x, factor, weight_, element(problem_.z, z_rows_[i], 0), problem_.V,
           element(problem_.out, out_rows_[i], 0));
    }
  }

  /// Fills the offsets of the rows' first elements; returns the number of rows.
  int64_t locate(int64_t begin, int64_t end) noexcept {
    const int64_t* shape = problem_.out.shape;
    int64_t index[4], rest = begin;
    for (int axis = 3; axis >= 0; --axis) {
      index[axis] = rest % shape[axis];
      rest /= shape[axis];
    }
    for (int64_t i = 0; i < end - begin; ++i) {
      x_rows_[i] = core::offset_of(problem_.x, index[0], index[1], index[2], index[3]);
      z_rows_[i] = core::offset_of(problem_.z, index[0], index[1], index[2], index[3]);
      out_rows_[i] = core::offset_of(problem_.out, index[0], index[1], index[2], index[3]);
      for (int axis = 3; axis >= 0 && ++index[axis] == shape[axis]; --axis) index[axis] = 0;
    }
    return end - begin;
  }

  /// Address of column `column` of the row that starts `row` elements into `t`.
  static void* element(const core::Tensor& t, int64_t row, int64_t column) noexcept {
    return static_cast<std::byte*>(t.data) + (row + column) * core::element_size(t.dtype);
  }

  void read_x(int64_t i, int64_t first, int64_t count) noexcept {
    read_dense(element(problem_.x, x_rows_[i], first), problem_.x.dtype, count, x_);
    std::fill_n(x_ + count, whole_vectors(count) - count, 0.0f);
    if (rule_.round_x) round_through(x_, count, rule_.dtype);
  }

  float factor(int64_t i) noexcept {
    float sum = 0;
    for (int64_t first = 0; first < problem_.V; first += kNormColumns) {
      const int64_t count = std::min(kNormColumns, problem_.V - first);
      read_x(i, first, count);
      sum += sum_of_squares(x_, whole_vectors(count));
    }
    return rms_factor(sum, problem_.V, problem_.eps);
  }

  const core::GatedNormProblem& problem_;
  NormRule rule_;
  bool direct_;
  HWY_ALIGN float x_[kNormColumns];
  HWY_ALIGN float z_[kNormColumns];
  HWY_ALIGN float weight_[kNormColumns];
  int64_t x_rows_[kItemRows], z_rows_[kItemRows], out_rows_[kItemRows];
  float factors_[kItemRows];
};

/// Runs or zeroes rows of `block` that belong to tokens begin .. end - 1 of a batch entry.
void norm_tokens(RowBlock& block, const core::DeltaRuleProblem& delta, int64_t batch, int64_t begin,
                 int64_t end) noexcept {
  const auto run = [&](int64_t n, const core::TokenRange&, int64_t from, int64_t to) {
    const int64_t base = batch * delta.rows.T;
    const int64_t first = (base + from) * delta.HV, last = (base + to) * delta.HV;
    const bool padded = core::plan_slots(delta.state, delta.num_accepted, n).padded;
    for (int64_t row = first; row < last; row += kItemRows) {
      const int64_t stop = std::min(row + kItemRows, last);
      padded ? block.zero(row, stop) : block.run(row, stop);
    }
  };
  for_sequences(delta.rows, batch, begin, end, run);
}

/// PERF: below this many elements (about 20 us) waking threads costs more than they save.
constexpr int64_t kWorthThreads = 32768;

int workers_for(int64_t elements) noexcept { return elements < kWorthThreads ? 1 : worker_count(); }

}  // namespace

void norm_all(const core::GatedNormProblem& problem) {
  const int64_t* shape = problem.out.shape;
  const int64_t rows = shape[0] * shape[1] * shape[2] * shape[3];
  auto item = [&](int64_t index, int) {
    const int64_t begin = index * kItemRows;
    RowBlock(problem, operator_norm_rule(problem)).run(begin, std::min(begin + kItemRows, rows));
  };
  parallel_for((rows + kItemRows - 1) / kItemRows, workers_for(rows * problem.V), item);
}

void norm_of_layer(const core::GatedNormProblem& problem, const core::DeltaRuleProblem& delta) {
  const core::Rows& rows = delta.rows;
  const int64_t tokens = std::max<int64_t>(1, kItemRows / delta.HV);
  const int64_t items_each = (rows.T + tokens - 1) / tokens;
  auto item = [&](int64_t index, int) {
    const int64_t begin = index % items_each * tokens;
    RowBlock block(problem, layer_norm_rule(problem));
    norm_tokens(block, delta, index / items_each, begin, std::min(begin + tokens, rows.T));
  };
  parallel_for(rows.B * items_each, workers_for(rows.B * rows.T * delta.HV * delta.V), item);
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {

HWY_EXPORT(norm_all);
HWY_EXPORT(norm_of_layer);

void gated_rms_norm(const core::GatedNormProblem& problem) noexcept {
  HWY_DYNAMIC_DISPATCH(norm_all)(problem);
}

void layer_norm_rows(const core::GatedNormProblem& problem,
                     const core::DeltaRuleProblem& delta) noexcept {
  HWY_DYNAMIC_DISPATCH(norm_of_layer)(problem, delta);
}

}  // namespace sluice::cpu
#endif  // HWY_ONCE
