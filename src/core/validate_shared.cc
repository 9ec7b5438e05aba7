// Checks rules that several operators share beside those of validate_parts.cc: states and gradients that
// look like another view, how gates become logarithms, and sizes that fit 64 bits.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
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

namespace {

bool is_raw(int32_t space) noexcept {
  return space == SLUICE_GATE_RAW || space == SLUICE_GATE_RAW_BOUNDED;
}

void check_lower_bound(Checker& c, const GateSpace& gates) noexcept {
  const double bound = gates.lower_bound;
  const bool bounded = gates.space == SLUICE_GATE_RAW_BOUNDED;
  if (c.ok() && bounded && !(std::isfinite(bound) && bound < 0)) {
    c.fail("gate_lower_bound = %g, expected a finite number < 0 (gate_space RAW_BOUNDED)", bound);
  } else if (c.ok() && !bounded && bound != 0) {
    c.fail("gate_lower_bound = %g, expected 0 (only with gate_space RAW_BOUNDED)", bound);
  }
}

}  // namespace

void check_gate_space(Checker& c, const GateSpace& gates, int64_t HV, int64_t channels) noexcept {
  const auto& [space, lower_bound, A_log, dt_bias] = gates;
  if (!is_raw(space)) {
    c.absent("A_log", A_log, "only with gate_space RAW or RAW_BOUNDED");
    c.absent("dt_bias", dt_bias, "only with gate_space RAW or RAW_BOUNDED");
    return check_lower_bound(c, gates);
  }
  const bool bounded = space == SLUICE_GATE_RAW_BOUNDED, key_wise = channels > 0;
  if (bounded ? c.optional("A_log", A_log, 1, Dtypes::kFloat)
              : c.required("A_log", A_log, 1, Dtypes::kFloat)) {
    c.dimension("A_log", A_log, 0, HV, "HV value heads");
  }
  const int rank = key_wise ? 2 : 1;
  if (bounded || key_wise ? c.optional("dt_bias", dt_bias, rank, Dtypes::kFloat)
                          : c.required("dt_bias", dt_bias, rank, Dtypes::kFloat)) {
    c.dimension("dt_bias", dt_bias, 0, HV, "HV value heads");
    if (key_wise) {
      c.dimension("dt_bias", dt_bias, 1, channels, "K channels of key-wise gates");
      c.inner_contiguous("dt_bias", dt_bias);
    }
  }
  check_lower_bound(c, gates);
}

void check_work(Checker& c, const Rows& rows, int64_t heads, int64_t widest) noexcept {
  if (!c.ok()) return;
  const int64_t tokens = std::max<int64_t>(rows.B * rows.T + rows.N, 1);
  int64_t work = 0;
  bool past = __builtin_mul_overflow(tokens, heads, &work);
  past = past || __builtin_mul_overflow(work, widest, &work);
  past = past || __builtin_mul_overflow(work, widest, &work) || work >= kMostWork;
  if (past) {
    c.unsupported(
        "tokens + sequences, heads, widest dimension = %lld, %lld, %lld, expected a product (with "
        "the last one squared) below 2^52 (sizes are computed in 64 bits)",
        static_cast<long long>(tokens), static_cast<long long>(heads),
        static_cast<long long>(widest));
  }
}

}  // namespace sluice::core
