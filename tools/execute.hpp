// Runs a case of a case file on an implementation, and collects what comes of it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_EXECUTE_HPP_
#define SLUICE_TOOLS_EXECUTE_HPP_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "check/array.hpp"
#include "check/tensors.hpp"
#include "io/case_file.hpp"
#include "sluice/sluice.hpp"

namespace sluice::tools {

/// How a case is run, beyond what it says itself.
struct ExecuteOptions {
  Implementation implementation = Implementation::kAuto;
  /// Activations (q, k, v, projections, convolution) are rounded to it before the call. Gates,
  /// write strengths and gate parameters stay float32.
  sluice_dtype inputs = check::kF32;
  sluice_dtype outputs = check::kF32;
  /// Memory order of token tensors; by default the case's own.
  std::optional<bool> head_first = std::nullopt;
  /// Stages read what the ones before have computed, not what the case records of them.
  bool chained = false;
};

/// One call of an operator.
struct Step {
  std::string kind;  ///< "prefill", "decode", ..
  int64_t tokens = 0;
  double seconds = 0;
  std::string kernel;
};

/// Results by their names in the case; token tensors are token-first, states in the case's layout.
struct Execution {
  Status status;
  std::map<std::string, check::Array> results;
  std::vector<Step> steps;
};

/// Runs a case. Outputs are filled with NaN before each call. Failures of a call are in the status.
Execution execute(const io::CaseFile& file, const io::Case& which, const ExecuteOptions& options);

/// A tensor of a case as an array, token-first; empty if the file has none.
check::Array load(const io::CaseFile& file, const io::Case& which, const std::string& tensor);

/// Whether the case records that result.
bool is_expected(const io::Case& which, const std::string& tensor);

/// Whether that tensor of that case has dimensions 1 and 2 exchanged in the file (layout bhtd).
bool stored_head_first(const io::Case& which, const std::string& tensor);

/// [B,T,HV,D] to [B,HV,T,D] and back; rank 3 likewise.
check::Array exchange_tokens_and_heads(const check::Array& array);

/// States [N,HV,K,V] as [N,HV,V,K], and back.
check::Array transposed_states(const check::Array& states);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_EXECUTE_HPP_
