// Computes gated RMSNorm in double, norm before gate, and its gradients (docs/math.md sections 5
// and 10).
// SPDX-License-Identifier: Apache-2.0
#include "ref/operators.hpp"

#include <cmath>

#include "ref/access.hpp"
#include "ref/gates.hpp"

namespace sluice::ref {
namespace {

using core::GatedNormBackwardProblem;
using core::GatedNormProblem;

/// Calls visit(row) with the first four indices of each row.
template <class Visit>
void for_each_row(const Tensor& rows, const Visit& visit) noexcept {
  const int64_t* shape = rows.shape;
  for (int64_t i0 = 0; i0 < shape[0]; ++i0) {
    for (int64_t i1 = 0; i1 < shape[1]; ++i1) {
      for (int64_t i2 = 0; i2 < shape[2]; ++i2) {
        for (int64_t i3 = 0; i3 < shape[3]; ++i3) visit({i0, i1, i2, i3});
      }
    }
  }
}

/// Gradients of the row at the first four indices `row`; adds its share of dweight to `sums`.
void row_gradients(const GatedNormBackwardProblem& problem, const int64_t (&row)[4],
                   Vector sums) noexcept {
  const GatedNormProblem& p = problem.forward;
  const auto at = [&](const Tensor& view, int64_t j) {
    return load(view, row[0], row[1], row[2], row[3], j);
  };
  const auto put = [&](const Tensor& view, double value, int64_t j) {
    if (core::present(view)) store(view, value, row[0], row[1], row[2], row[3], j);
  };
  const auto scaled = [&](int64_t j) {
    return at(problem.d_out, j) * activate(p.activation, at(p.z, j)) * load(p.weight, j);
  };
  const auto size = static_cast<double>(p.V);
  double squares = 0.0, product = 0.0;
  for (int64_t j = 0; j < p.V; ++j) squares += at(p.x, j) * at(p.x, j);
  const double factor = 1.0 / std::sqrt(squares / size + p.eps);
  for (int64_t j = 0; j < p.V; ++j) product += scaled(j) * factor * at(p.x, j);
  for (int64_t j = 0; j < p.V; ++j) {
    const double n = factor * at(p.x, j), d_out = at(problem.d_out, j), z = at(p.z, j);
    const double used = p.rounding == SLUICE_NORM_ROUND_HF ? round_to(p.x.dtype, n) : n;
    put(problem.dx, factor * (scaled(j) - n * product / size), j);
    put(problem.dz, d_out * used * load(p.weight, j) * activation_slope(p.activation, z), j);
    sums[j] += d_out * used * activate(p.activation, z);
  }
}

}  // namespace

void gated_rms_norm_row(const core::GatedNormProblem& problem, const int64_t (&row)[4],
                        sluice_dtype rounded_to) noexcept {
  const auto x = [&](int64_t j) {
    const double value = load(problem.x, row[0], row[1], row[2], row[3], j);
    return problem.rounding == SLUICE_NORM_ROUND_ONCE ? value : round_to(rounded_to, value);
  };
  double sum = 0.0;
  for (int64_t j = 0; j < problem.V; ++j) sum += x(j) * x(j);
  const double factor = 1.0 / std::sqrt(sum / static_cast<double>(problem.V) + problem.eps);
  for (int64_t j = 0; j < problem.V; ++j) {
    double n = x(j) * factor;
    if (problem.rounding == SLUICE_NORM_ROUND_HF) n = round_to(rounded_to, n);
    const double z = load(problem.z, row[0], row[1], row[2], row[3], j);
    const double y = n * load(problem.weight, j) * activate(problem.activation, z);
    store(problem.out, y, row[0], row[1], row[2], row[3], j);
  }
}

void gated_rms_norm(const core::GatedNormProblem& problem) noexcept {
  for_each_row(problem.out,
               [&](const int64_t(&row)[4]) { gated_rms_norm_row(problem, row, problem.x.dtype); });
}

size_t gated_rms_norm_backward_workspace(const GatedNormBackwardProblem& problem) noexcept {
  return static_cast<size_t>(problem.forward.V) * sizeof(double);
}

void gated_rms_norm_backward(const GatedNormBackwardProblem& problem, Arena arena) noexcept {
  const Vector sums = arena.vector(problem.forward.V);
  for (int64_t j = 0; j < sums.size; ++j) sums[j] = 0.0;
  for_each_row(problem.d_out, [&](const int64_t(&row)[4]) { row_gradients(problem, row, sums); });
  if (!core::present(problem.dweight)) return;
  for (int64_t j = 0; j < sums.size; ++j) store(problem.dweight, sums[j], j);
}

}  // namespace sluice::ref
