// Checks the tensors of op gradients: the inputs of a prefill, gradients of its results, and as
// answers those by its inputs.
// SPDX-License-Identifier: Apache-2.0
#include "io/shape_matcher.hpp"

namespace sluice::io {
namespace {

/// A gradient of what the case need not have: refused without it.
void expect_of(Matcher& match, const std::string& gradient, const char* input, const Symbols& shape,
               Case* out) {
  if (match.get(gradient, false) == nullptr) return;
  if (match.get(input, false) == nullptr) {
    match.complain(Matcher::quoted(gradient) + " is given, expected none (no '" + input + "')");
  }
  expect(match, gradient, shape, false, out);
}

}  // namespace

void match_gradients(Matcher& match, Case* out) {
  match_delta_inputs(match, out);
  match_rows(match);
  const auto rows = [&](const char* heads, const char* inner) {
    return token_rows(*out, heads, inner);
  };
  match.floats("initial_state", state_symbols(*out), false);
  match.floats("d_o", rows("HV", "V"), true);
  match.floats("d_final_state", state_symbols(*out), false);
  expect(match, "dq", rows("H", "K"), false, out);
  expect(match, "dk", rows("H", "K"), false, out);
  expect(match, "dv", rows("HV", "V"), false, out);
  expect_of(match, "dg", "g", rows("HV", ""), out);
  expect_of(match, "dbeta", "beta", rows("HV", ""), out);
  if (out->options.gate_space >= SLUICE_GATE_RAW) {
    expect_of(match, "dA_log", "A_log", {"HV"}, out);
    expect_of(match, "ddt_bias", "dt_bias", {"HV"}, out);
  }
  expect(match, "d_initial_state", state_symbols(*out), false, out);
  check_value_heads(match);
  if (out->expected.empty()) match.complain("records no gradient");
}

}  // namespace sluice::io
