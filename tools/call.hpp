// One timed call of an operator of the C++ facade, workspace included.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_CALL_HPP_
#define SLUICE_TOOLS_CALL_HPP_

#include <chrono>
#include <utility>

#include "tools/execute.hpp"

namespace sluice::tools {

/// Calls `function` with a workspace of the size asked for and appends the step, or sets the
/// status. Returns whether to go on.
template <class Args>
bool call(Status (*function)(const Args&, Workspace, Stream) noexcept,
          const Result<WorkspaceSize>& size, const Args& args, Step step, Execution* out) {
  out->status = size.status;
  if (!out->status.ok()) return false;
  HostWorkspace memory;
  const Workspace workspace = memory.reserve(size.value.bytes);
  const auto start = std::chrono::steady_clock::now();
  out->status = function(args, workspace, nullptr);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  step.seconds = elapsed.count();
  step.kernel = sluice_last_kernel();
  out->steps.push_back(std::move(step));
  return out->status.ok();
}

/// What a layer keeps from step to step: parameters, and states that calls update in place.
struct LayerTensors {
  LayerTensors(const io::CaseFile& file, const io::Case& which, const ExecuteOptions& options);

  testing::TestTensor conv_weight, conv_bias, A_log, dt_bias, norm_weight, state, conv_state;
};

/// Adds a step's results, out_proj included where the case has its weight.
void add_step_results(const io::CaseFile& file, const io::Case& which, const std::string& prefix,
                      testing::Array core_out, testing::Array norm_out, Execution* out);

/// Runs a case of op layer; see execute().
Execution execute_layer(const io::CaseFile& file, const io::Case& which,
                        const ExecuteOptions& options);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_CALL_HPP_
