// Checks the values of gates, keys and write strengths, which only SLUICE_DEBUG=1 reads: mistakes
// that are legal calls and give numbers without meaning.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "core/host_access.hpp"
#include "core/validate.hpp"

namespace sluice::core {
namespace {

using ll = long long;  // printf's type for 64 bits

/// A step multiplies the state along k by 1 - beta |k|^2: past 2 (and some rounding) it grows.
constexpr float kMostWritten = 2.02f;

/// One gate, of channel i where gates are key-wise, against the space it is said to be in.
void check_gate_value(Checker& c, const DeltaRuleProblem& p, int64_t batch, int64_t t, int64_t h,
                      int64_t i) noexcept {
  const bool log = p.gate_space == SLUICE_GATE_LOG, key_wise = present(p.key_gate);
  const float g = key_wise ? load_float(address(p.key_gate, batch, t, h, i), p.key_gate.dtype)
                           : load_float(address(p.gate, batch, t, h / p.r, h % p.r), p.gate.dtype);
  if (!(log ? g > 0 : (g < 0 || g > 1))) return;
  char channel[24] = "";
  if (key_wise) std::snprintf(channel, sizeof channel, ",%lld", static_cast<ll>(i));
  c.fail("gate[%lld,%lld,%lld%s] = %g, expected %s (SLUICE_DEBUG check)", static_cast<ll>(batch),
         static_cast<ll>(t), static_cast<ll>(h), channel, static_cast<double>(g),
         log ? "a log gate <= 0; is this alpha?" : "alpha in [0, 1]; is this a log gate?");
}

/// The gates of one token and head.
void check_gates(Checker& c, const DeltaRuleProblem& p, int64_t batch, int64_t t,
                 int64_t h) noexcept {
  const bool plain = p.gate_space == SLUICE_GATE_LOG || p.gate_space == SLUICE_GATE_LINEAR;
  const int64_t gates = present(p.gate) ? 1 : present(p.key_gate) ? p.K : 0;
  for (int64_t i = 0; plain && i < gates && c.ok(); ++i) check_gate_value(c, p, batch, t, h, i);
}

/// Its write strength, and the length of its key together with that.
void check_write(Checker& c, const DeltaRuleProblem& p, int64_t batch, int64_t t,
                 int64_t h) noexcept {
  if (p.rule != SLUICE_RULE_GATED_DELTA || p.beta_space != SLUICE_BETA_VALUE || !c.ok()) return;
  const float beta =
      present(p.beta) ? load_float(address(p.beta, batch, t, h / p.r, h % p.r), p.beta.dtype) : 1;
  if (beta < 0 || beta > kMostWritten) {
    c.fail("beta[%lld,%lld,%lld] = %g, expected 0 to 2; is this a logit? (SLUICE_DEBUG check)",
           static_cast<ll>(batch), static_cast<ll>(t), static_cast<ll>(h),
           static_cast<double>(beta));
    return;
  }
  if (p.qk_norm != SLUICE_QK_NORM_NONE || !present(p.k)) return;
  const int64_t head = p.key_head(h);
  float squares = 0;
  for (int64_t i = 0; i < p.K; ++i) {
    const float k = load_float(address(p.k, batch, t, head, i), p.k.dtype);
    squares += k * k;
  }
  if (beta * squares <= kMostWritten) return;
  c.fail(
      "k[%lld,%lld,%lld] with beta |k|^2 = %g, expected at most 2 (past it the state grows with "
      "every token); is the l2 norm of q and k missing? (SLUICE_DEBUG check)",
      static_cast<ll>(batch), static_cast<ll>(t), static_cast<ll>(head),
      static_cast<double>(beta * squares));
}

}  // namespace

void check_values(Checker& c, const DeltaRuleProblem& p) noexcept {
  for (int64_t n = 0; n < p.rows.N; ++n) {
    const TokenRange range = token_range(p.rows, n);
    for (int64_t t = range.begin; t < range.end; ++t) {
      for (int64_t h = 0; h < p.HV && c.ok(); ++h) {
        check_gates(c, p, range.batch, t, h);
        check_write(c, p, range.batch, t, h);
      }
    }
  }
}

}  // namespace sluice::core
