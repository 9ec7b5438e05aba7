// Lists suites of cases: which ones `sluice make-case --suite` writes.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_MAKE_SUITE_HPP_
#define SLUICE_TOOLS_MAKE_SUITE_HPP_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sluice/sluice.h"

namespace sluice::tools {

/// One case of a suite, in the words of make-case's options.
struct SuiteRow {
  std::string name, op;
  std::string part = "all", rule = "gated_delta", keys = "silu", gates = "flashqla";
  std::string gate_space = "log", initial = "random", final_gradient = "random";
  std::vector<int64_t> lengths = {};
  int64_t B = 1, T = 128, H = 1, HV = 2, K = 64, V = 64, chunk = 64, steps = 1;
  bool head_first = false, vk = false, key_gates = false;
  double lower_bound = 0;                  ///< of a layer's gates
  std::optional<bool> l2norm = {};         ///< of q and k; by default that of prefills alone
  std::optional<sluice_dtype> dtype = {};  ///< of activations; by default that of --dtype
  double tolerance = 1e-5;
  uint64_t seed = 1;
};

/// "conformance"; "smoke", a small cut of it; "self-check", that and the heads of models. Nothing for
/// an empty name.
std::vector<SuiteRow> suite_rows(const std::string& suite);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_MAKE_SUITE_HPP_
