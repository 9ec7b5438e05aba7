// Validates how gates become logarithms: their space, its bound, A_log and dt_bias.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "core/validate.hpp"

namespace sluice::core {
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

}  // namespace sluice::core
