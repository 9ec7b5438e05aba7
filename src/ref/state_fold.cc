// Folds the maps of pieces into the states that enter them (docs/math.md section 9), in double.
// SPDX-License-Identifier: Apache-2.0
#include "ref/access.hpp"
#include "ref/operators.hpp"

namespace sluice::ref {
namespace {

using core::StateFoldProblem;

/// S <- addend + transition S, or with its transpose.
void apply(const StateFoldProblem& problem, int64_t piece, int64_t h, Matrix S, Matrix before) {
  const bool reverse = problem.direction == SLUICE_DIRECTION_REVERSE;
  const bool forgotten =
      core::present(problem.forgotten) &&
      *static_cast<const uint8_t*>(core::address(problem.forgotten, piece, h)) != 0;
  for (int64_t i = 0; i < S.rows * S.cols; ++i) before.data[i] = S.data[i];
  for (int64_t i = 0; i < S.rows; ++i) {
    for (int64_t j = 0; j < S.cols; ++j) {
      S(i, j) = load(problem.addend, piece, h, i, j);
    }
    for (int64_t l = 0; l < S.rows && !forgotten; ++l) {
      const double m = reverse ? load(problem.transition, piece, h, l, i)
                               : load(problem.transition, piece, h, i, l);
      for (int64_t j = 0; j < S.cols; ++j) S(i, j) += m * before(l, j);
    }
  }
}

}  // namespace

size_t state_fold_workspace(const StateFoldProblem& problem) noexcept {
  return static_cast<size_t>(2 * problem.K * problem.V) * sizeof(double);
}

void state_fold(const StateFoldProblem& problem, Arena arena) noexcept {
  if (!core::writes_states(problem)) return;
  const Matrix S = arena.matrix(problem.K, problem.V), before = arena.matrix(problem.K, problem.V);
  const bool reverse = problem.direction == SLUICE_DIRECTION_REVERSE;
  for (int64_t n = 0; n < problem.N; ++n) {
    const int64_t begin = core::slot_at(problem.cu_chains, n, 0);
    const int64_t count = core::slot_at(problem.cu_chains, n + 1, 0) - begin;
    for (int64_t h = 0; h < problem.HV; ++h) {
      load_state(problem.initial, problem.layout, n, h, S);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t step = begin + (reverse ? count - 1 - i : i);
        const int64_t to = core::slot_at(problem.route_states, step, 0);
        if (to >= 0 && core::present(problem.entering)) {
          store_state(problem.entering, problem.layout, to, h, S);
        }
        const int64_t piece = core::slot_at(problem.route_pieces, step, 0);
        if (piece >= 0) apply(problem, piece, h, S, before);
      }
      if (core::present(problem.final)) store_state(problem.final, problem.layout, n, h, S);
    }
  }
}

}  // namespace sluice::ref
