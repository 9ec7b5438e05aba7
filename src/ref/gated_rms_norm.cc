// Computes gated RMSNorm in double, norm before gate (docs/math.md section 5).
// SPDX-License-Identifier: Apache-2.0
#include "ref/operators.hpp"

#include <cmath>

#include "ref/access.hpp"
#include "ref/gates.hpp"

namespace sluice::ref {

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
  const int64_t* shape = problem.out.shape;
  for (int64_t i0 = 0; i0 < shape[0]; ++i0) {
    for (int64_t i1 = 0; i1 < shape[1]; ++i1) {
      for (int64_t i2 = 0; i2 < shape[2]; ++i2) {
        for (int64_t i3 = 0; i3 < shape[3]; ++i3) {
          gated_rms_norm_row(problem, {i0, i1, i2, i3}, problem.x.dtype);
        }
      }
    }
  }
}

}  // namespace sluice::ref
