// Checks the rules that operators of gradients share.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "core/validate.hpp"

namespace sluice::core {

void check_sequence_states(Checker& c, const char* name, const Tensor& t,
                           const DeltaRuleProblem& p) noexcept {
  check_pool(c, name, t, p, 0);
  if (present(t)) c.dimension(name, t, 0, p.rows.N, "N sequences");
}

void check_sequence_columns(Checker& c, const char* name, const Tensor& t,
                            CausalConvProblem* p) noexcept {
  if (!c.optional(name, t, 3, Dtypes::kFloat)) return;
  c.dimension(name, t, 0, p->rows.N, "N sequences");
  c.dimension(name, t, 1, p->G * p->C, "D channels");
  c.dimension_at_least(name, t, 2, p->W - 1, "columns, at least W - 1");
  if (p->L > 0) c.dimension(name, t, 2, p->L, "columns of the other states");
  p->L = t.shape[2];
}

bool check_like(Checker& c, const char* name, const Tensor& t, const char* like_name,
                const Tensor& like) noexcept {
  if (!c.optional(name, t, like.rank, Dtypes::kFloat)) return false;
  char shape[32];
  std::snprintf(shape, sizeof shape, "shape of %s", like_name);
  for (int axis = 0; axis < t.rank; ++axis) c.dimension(name, t, axis, like.shape[axis], shape);
  return c.ok();
}

void check_gradient(Checker& c, const char* name, const Tensor& t, const char* like_name,
                    const Tensor& like) noexcept {
  if (check_like(c, name, t, like_name, like)) c.writable(name, t);
}

}  // namespace sluice::core
