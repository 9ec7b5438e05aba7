// Checks rules that several operators share beside those of validate_parts.cc: states and gradients
// that look like another view, memory of slots and of views in place, weights of convolutions, grouped
// heads, how gates become logarithms, and sizes that fit 64 bits.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/validate.hpp"

namespace sluice::core {
namespace {

using ll = long long;  // printf's type for 64 bits

}  // namespace

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
  c.same_shape(name, t, like, t.rank, shape);
  return c.ok();
}

void check_gradient(Checker& c, const char* name, const Tensor& t, const char* like_name,
                    const Tensor& like, bool in_rows) noexcept {
  if (!check_like(c, name, t, like_name, like)) return;
  if (in_rows) c.inner_contiguous(name, t);
  c.writable(name, t);
}

void check_slot_memory(Checker& c, const char* name, const Tensor& t) noexcept {
  int64_t size = 1, dense = 0;
  int wrong = 0;  // the first axis that is
  for (int axis = t.rank - 1; axis > 0; --axis) {
    if (t.shape[axis] > 1 && t.stride[axis] != size) wrong = axis, dense = size;
    size *= t.shape[axis];
  }
  if (c.ok() && wrong > 0) {
    c.fail("%s.stride[%d] = %lld, expected %lld (contiguous inside a slot)", name, wrong,
           static_cast<ll>(t.stride[wrong]), static_cast<ll>(dense));
  }
  if (c.ok() && t.shape[0] > 1 && t.stride[0] < size) {
    c.fail("%s.stride[0] = %lld, expected >= %lld (slots may not overlap)", name,
           static_cast<ll>(t.stride[0]), static_cast<ll>(size));
  }
}

void check_alias(Checker& c, const char* initial_name, const Tensor& initial,
                 const char* final_name, const Tensor& final) noexcept {
  if (!c.ok() || !present(initial) || !present(final) || initial.data != final.data) return;
  c.same_dtype(final_name, final, initial_name, initial);
  for (int axis = 0; axis < final.rank && c.ok(); ++axis) {
    if (final.shape[axis] > 1 && final.stride[axis] != initial.stride[axis]) {
      c.fail("%s.stride[%d] = %lld, expected %lld (that of %s, whose memory it is)", final_name,
             axis, static_cast<ll>(final.stride[axis]), static_cast<ll>(initial.stride[axis]),
             initial_name);
    }
  }
}

void check_conv_weights(Checker& c, const char* name, const Tensor& weight, const char* bias_name,
                        const Tensor& bias, int64_t D, const char* what) noexcept {
  if (c.required(name, weight, 2, Dtypes::kFloat)) {
    c.dimension(name, weight, 0, D, what);
    if (c.ok() && (weight.shape[1] < 2 || weight.shape[1] > 4)) {
      c.fail("%s.shape[1] = %lld, expected 2, 3 or 4 (width W)", name,
             static_cast<ll>(weight.shape[1]));
    }
    c.inner_contiguous(name, weight);
  }
  if (c.optional(bias_name, bias, 1, Dtypes::kFloat)) c.dimension(bias_name, bias, 0, D, what);
}

void check_gate_activation(Checker& c, const char* name, int32_t value) noexcept {
  if (c.ok() && value != SLUICE_ACTIVATION_SILU && value != SLUICE_ACTIVATION_SIGMOID) {
    c.fail("%s = %d, expected 1 (SILU) or 2 (SIGMOID)", name, value);
  }
}

double check_scale(Checker& c, int32_t mode, double scale, int64_t K) noexcept {
  c.choice("scale_mode", mode, 2, "0 (DEFAULT) or 1 (VALUE)");
  const bool given = mode == SLUICE_SCALE_VALUE;
  if (c.ok() && given && !std::isfinite(scale)) {
    c.fail("scale = %g, expected a finite number", scale);
  }
  if (!c.ok()) return 0;
  return given ? scale : 1.0 / std::sqrt(static_cast<double>(K));
}

int64_t check_grouped(Checker& c, const char* name, int64_t HV, int64_t H) noexcept {
  if (!c.ok()) return 0;
  if (HV % H == 0) return HV / H;
  c.fail("%s.shape[2] = %lld, expected a multiple of H = %lld (grouped value heads)", name,
         static_cast<ll>(HV), static_cast<ll>(H));
  return 0;
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
        static_cast<ll>(tokens), static_cast<ll>(heads), static_cast<ll>(widest));
  }
}

}  // namespace sluice::core
