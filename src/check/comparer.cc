// Compares outputs with the reference: as a whole, by head and by window.
// SPDX-License-Identifier: Apache-2.0
#include "check/comparer.hpp"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <limits>

#include "check/runs.hpp"

namespace sluice::check {
namespace {

/// Below this float32 has no normal numbers; a part this small may have been flushed to zero.
constexpr double kSmallestNormal = 0x1p-126;
constexpr double kNoLimit = std::numeric_limits<double>::infinity();
/// Tensors with fewer elements may err by single roundings.
constexpr int64_t kFewElements = 256;
/// How far a sum over tokens may cancel: |sum of n terms of random sign| is |terms| sqrt(n) less
/// than |terms| n, which bounds its error; n = 100.
constexpr double kTokenSums = 10;

/// Sums over a part of the tensor.
struct Sums {
  double difference = 0.0, reference = 0.0;  // of squares
  double largest_reference = 0.0, largest_actual = 0.0;

  void add(double x, double ref) noexcept {
    difference += (x - ref) * (x - ref);
    reference += ref * ref;
    largest_reference = std::max(largest_reference, std::fabs(ref));
    largest_actual = std::max(largest_actual, std::fabs(x));
  }
  void add(const Sums& part) noexcept {
    difference += part.difference;
    reference += part.reference;
    largest_reference = std::max(largest_reference, part.largest_reference);
    largest_actual = std::max(largest_actual, part.largest_actual);
  }
  double relative_l2() const noexcept {
    if (largest_reference == 0.0) {
      return largest_actual == 0.0 ? 0.0 : kNoLimit;
    }
    if (std::max(largest_reference, largest_actual) < kSmallestNormal) return 0.0;
    return std::sqrt(difference / reference);
  }
};

std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string text(const char* format, ...) {
  char buffer[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return buffer;
}

std::string coordinates(const std::vector<int64_t>& index) {
  std::string list;
  for (const int64_t i : index) {
    list.push_back(list.empty() ? '[' : ',');
    list.append(std::to_string(i));
  }
  return list.empty() ? "[]" : list.append("]");
}

/// Walks both views and gathers what a Comparison reports.
class Comparer {
 public:
  Comparer(const sluice_tensor& actual, const sluice_tensor& reference)
      : actual_(actual), reference_(reference) {
    check_views();
  }

  bool faulty() const noexcept { return !result_.fault.empty(); }

  /// Compares the elements with these leading indices; the remaining dimensions are walked.
  Sums compare_block(const std::vector<int64_t>& leading) {
    Sums sums;
    const size_t rank = reference_.rank, row = leading.size() < rank ? rank - 1 : rank;
    std::vector<int64_t> index(rank, 0);
    std::copy(leading.begin(), leading.end(), index.begin());
    int64_t rows = 1;
    for (size_t i = leading.size(); i < row; ++i) rows *= reference_.shape[i];
    for (; rows > 0; --rows) {
      compare_row(index, row, &sums);
      for (size_t i = row; i-- > leading.size() && ++index[i] == reference_.shape[i];) index[i] = 0;
    }
    return sums;
  }

  void take_head(const Sums& sums, int64_t sequence, int64_t head) {
    whole_.add(sums);
    take(sums, {0.0, sequence, head, -1}, &result_.worst_head);
  }
  void take_window(const Sums& sums, int64_t sequence, int64_t head, int64_t token) {
    take(sums, {0.0, sequence, head, token}, &result_.worst_window);
  }

  Comparison finish() {
    result_.relative_l2 = whole_.relative_l2();
    if (!faulty() && result_.compared == 0) result_.fault = "nothing was compared";
    return result_;
  }

 private:
  void check_views() {
    if (actual_.data == nullptr || reference_.data == nullptr) {
      result_.fault = "a view is absent";
    } else if (actual_.data == reference_.data) {
      result_.fault = "output and reference are the same memory";
    } else if (actual_.rank != reference_.rank ||
               !std::equal(actual_.shape, actual_.shape + actual_.rank, reference_.shape)) {
      result_.fault = "shapes differ";
    }
  }

  /// The elements of a view with these indices, of which that of dimension `row` runs.
  static void load_row(const sluice_tensor& view, const std::vector<int64_t>& index, size_t row,
                       std::vector<double>* values) {
    Run run;
    for (size_t i = 0; i < index.size(); ++i) run.offset += index[i] * view.stride[i];
    if (row < index.size()) run.count = view.shape[row], run.stride = view.stride[row];
    values->resize(static_cast<size_t>(run.count));
    load_run(view, run, values->data());
  }

  void compare_row(std::vector<int64_t> index, size_t row, Sums* sums) {
    load_row(actual_, index, row, &actual_row_);
    load_row(reference_, index, row, &reference_row_);
    for (size_t i = 0; i < reference_row_.size(); ++i) {
      if (row < index.size()) index[row] = static_cast<int64_t>(i);
      compare_element(index, actual_row_[i], reference_row_[i], sums);
    }
  }

  void compare_element(const std::vector<int64_t>& index, double x, double ref, Sums* sums) {
    ++result_.compared;
    if (!std::isfinite(x) || !std::isfinite(ref)) {
      const bool equal = x == ref || (std::isnan(x) && std::isnan(ref));
      if (!equal && !faulty()) {
        result_.fault = text("%g where the reference has %g at ", x, ref) + coordinates(index);
      }
      return;
    }
    sums->add(x, ref);
    if (std::fabs(x - ref) > result_.max_abs || result_.max_abs_at.empty()) {
      result_.max_abs = std::fabs(x - ref);
      result_.max_abs_at = index;
    }
  }

  void take(const Sums& sums, PartError part, PartError* worst) {
    part.relative_l2 = sums.relative_l2();
    if (std::isinf(part.relative_l2) && !faulty()) {
      result_.fault =
          text("not zero where the reference is, sequence %lld head %lld",
               static_cast<long long>(part.sequence), static_cast<long long>(part.head));
    }
    if (worst->sequence < 0 || part.relative_l2 > worst->relative_l2) *worst = part;
  }

  const sluice_tensor& actual_;
  const sluice_tensor& reference_;
  std::vector<double> actual_row_, reference_row_;
  Comparison result_;
  Sums whole_;
};

}  // namespace

Comparison compare_tokens(const sluice_tensor& actual, const sluice_tensor& reference,
                          const std::vector<int64_t>& cu_seqlens) {
  Comparer comparer(actual, reference);
  if (comparer.faulty()) return comparer.finish();
  const bool packed = !cu_seqlens.empty();
  const int64_t N = packed ? static_cast<int64_t>(cu_seqlens.size()) - 1 : reference.shape[0];
  for (int64_t n = 0; n < N; ++n) {
    const auto i = static_cast<size_t>(n);
    const int64_t begin = packed ? cu_seqlens[i] : 0;
    const int64_t end = packed ? cu_seqlens[i + 1] : reference.shape[1];
    for (int64_t h = 0; h < reference.shape[2] && begin < end; ++h) {
      Sums head;
      for (int64_t window = begin; window < end; window += kWindow) {
        Sums sums;
        for (int64_t t = window; t < std::min(window + kWindow, end); ++t) {
          sums.add(comparer.compare_block({packed ? 0 : n, t, h}));
        }
        comparer.take_window(sums, n, h, window - begin);
        head.add(sums);
      }
      comparer.take_head(head, n, h);
    }
  }
  return comparer.finish();
}

Comparison compare_states(const sluice_tensor& actual, const sluice_tensor& reference) {
  Comparer comparer(actual, reference);
  if (comparer.faulty()) return comparer.finish();
  for (int64_t n = 0; n < reference.shape[0]; ++n) {
    for (int64_t h = 0; h < reference.shape[1]; ++h) {
      comparer.take_head(comparer.compare_block({n, h}), n, h);
    }
  }
  return comparer.finish();
}

Comparison compare_whole(const sluice_tensor& actual, const sluice_tensor& reference) {
  Comparer comparer(actual, reference);
  if (comparer.faulty()) return comparer.finish();
  comparer.take_head(comparer.compare_block({}), 0, 0);
  return comparer.finish();
}

Tolerance cap(sluice_dtype io, Quantity quantity, Conditioning conditioning) {
  const bool degenerate = conditioning == Conditioning::kDegenerate;
  if (degenerate && (same_dtype(io, kBF16) || same_dtype(io, kF16))) {
    return {kNoLimit, kNoLimit, kNoLimit};
  }
  const bool correlated = degenerate || conditioning == Conditioning::kCorrelated;
  double whole = 0.0;
  if (quantity == Quantity::kOutput) {
    if (same_dtype(io, kBF16)) whole = correlated ? .016 : .005;
    if (same_dtype(io, kF16)) whole = correlated ? .002 : .0008;
    if (same_dtype(io, kF32)) whole = correlated ? 1e-4 : 1e-5;
  } else {
    if (same_dtype(io, kBF16)) whole = correlated ? .007 : .005;
    if (same_dtype(io, kF16)) whole = correlated ? .0009 : .0007;
    if (same_dtype(io, kF32)) whole = 1e-5;
  }
  return {whole, 2 * whole, 2 * whole};
}

namespace {

/// Sums over all tokens.
bool sums_tokens(const std::string& tensor) { return tensor == "A_log" || tensor == "dt_bias"; }

/// One number a token.
bool is_number(const std::string& tensor) { return tensor == "gate" || tensor == "beta"; }

double one_rounding(sluice_dtype io) { return same_dtype(io, kBF16) ? 0x1p-9 : 0x1p-12; }

}  // namespace

Tolerance gradient_tolerance(const std::string& tensor, int64_t elements, double arithmetic,
                             double unit) {
  const double few = 2 * unit + (sums_tokens(tensor) ? kTokenSums : 2) * arithmetic;
  const double whole = elements < kFewElements ? few : unit + arithmetic;
  if (is_number(tensor)) return {whole, kNoLimit, kNoLimit};
  return {whole, few, 2 * few};
}

Tolerance from_yardstick(const Comparison& yardstick, const Tolerance& cap, sluice_dtype io) {
  const double factor = std::isinf(cap.whole) ? 1.5 : 1.25;
  Tolerance tolerance{std::min(factor * yardstick.relative_l2, cap.whole),
                      2 * yardstick.worst_head.relative_l2, 2 * yardstick.worst_window.relative_l2};
  if (yardstick.compared < kFewElements) {
    const double rounding = one_rounding(io);
    tolerance.whole = std::max(tolerance.whole, rounding);
    tolerance.head = std::max(tolerance.head, rounding);
    tolerance.window = std::max(tolerance.window, rounding);
  }
  return tolerance;
}

Tolerance gradient_from_yardstick(const std::string& tensor, const Comparison& yardstick,
                                  double arithmetic, sluice_dtype io) {
  const Tolerance rounded = from_yardstick(yardstick, {kNoLimit, kNoLimit, kNoLimit}, io);
  Tolerance least = gradient_tolerance(tensor, yardstick.compared, arithmetic, 0);
  const bool few_numbers = is_number(tensor) && yardstick.compared < kFewElements;
  if (sums_tokens(tensor) || few_numbers) {
    least.whole = kTokenSums * one_rounding(io);
    least.head = std::max(least.head, least.whole);
  }
  return {std::max(rounded.whole, least.whole), std::max(rounded.head, least.head),
          std::max(rounded.window, least.window)};
}

Verdict judge(const std::string& name, const Comparison& comparison, const Tolerance& tolerance) {
  const PartError& head = comparison.worst_head;
  const PartError& window = comparison.worst_window;
  std::string reason = comparison.fault;
  // Written so that a NaN error fails.
  if (reason.empty() && !(comparison.relative_l2 <= tolerance.whole)) reason = "whole";
  if (reason.empty() && !(head.relative_l2 <= tolerance.head)) reason = "worst head";
  if (reason.empty() && !(window.relative_l2 <= tolerance.window)) reason = "worst window";
  std::string line = text("%-12s rel %.2e (%.1e)  head %.2e (%.1e) at %lld,%lld", name.c_str(),
                          comparison.relative_l2, tolerance.whole, head.relative_l2, tolerance.head,
                          static_cast<long long>(head.sequence), static_cast<long long>(head.head));
  if (window.sequence >= 0) {
    line += text("  window %.2e (%.1e) at %lld,%lld,%lld", window.relative_l2, tolerance.window,
                 static_cast<long long>(window.sequence), static_cast<long long>(window.head),
                 static_cast<long long>(window.token));
  }
  line += text("  max %.2e at ", comparison.max_abs) + coordinates(comparison.max_abs_at);
  line += reason.empty() ? "  PASS" : "  FAIL: " + reason;
  return {reason.empty(), line};
}

}  // namespace sluice::check
