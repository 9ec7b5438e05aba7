// Runs a Gated DeltaNet case: its inputs become views, the views a call of the C interface, and the
// outputs come back as arrays.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_SUPPORT_CASE_RUNNER_HPP_
#define SLUICE_TESTS_SUPPORT_CASE_RUNNER_HPP_

#include <optional>
#include <string>
#include <vector>

#include "check/comparer.hpp"
#include "check/gdn_case.hpp"

namespace sluice::check {

struct GdnOutputs {
  int code = SLUICE_OK;
  std::string message;        ///< sluice_last_error()
  std::string kernel;         ///< sluice_last_kernel()
  Array o;                    ///< [B,T,HV,V]
  Array final_state;          ///< [N,HV,K,V]; NaN for padded sequences
  Array checkpoints;          ///< [N,M,HV,K,V]; NaN where a sequence is shorter
  bool memory_intact = true;  ///< guards, unused slots and inputs kept their content
};

/// Which implementation, and the dtypes of what it writes (default: the case's).
struct RunOptions {
  sluice_implementation implementation = SLUICE_IMPL_AUTO;
  std::optional<sluice_dtype> o_dtype = std::nullopt, state_dtype = std::nullopt;
};

/// Outputs are poisoned with NaN before the call. With SLUICE_IMPL_CUDA it runs on device copies.
GdnOutputs run_chunk_forward(const GdnCase& gdn_case, const GdnInputs& inputs,
                             const RunOptions& options);
/// T <= 16, or lengths <= 16; states are written as with state_writes LAST.
GdnOutputs run_recurrent_step(const GdnCase& gdn_case, const GdnInputs& inputs,
                              const RunOptions& options);

/// What parity suites compare with the truth: the CUDA backend in an executable with device copies,
/// else what runs on the CPU: its backend and the chunk form of the reference.
std::vector<sluice_implementation> implementations_under_test();

/// Truth: the reference's recurrence on these inputs, outputs in float32.
GdnOutputs truth_of(const GdnCase& gdn_case, const GdnInputs& inputs);
/// o, final state and checkpoints of one run against the truth: yardstick rules where something is
/// stored in 16 bits, caps for float32. One line each; passes if all do. What has no elements (no
/// tokens, no sequences) is left out.
Verdict judge_run(const GdnCase& gdn_case, const GdnInputs& inputs, const GdnOutputs& outputs,
                  const GdnOutputs& truth);

}  // namespace sluice::check

#endif  // SLUICE_TESTS_SUPPORT_CASE_RUNNER_HPP_
