// Makes one timed call of an operator of the C++ facade, workspace and device copies included.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_CALL_HPP_
#define SLUICE_TOOLS_CALL_HPP_

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "check/device_copy.hpp"
#include "check/views.hpp"
#include "tools/execute.hpp"

namespace sluice::tools {

/// Wall time since it was made.
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// What a DeviceCopy reported, as a status.
inline Status device_error(const std::string& trouble) {
  return Status::failure(Code::kDeviceError, "device copy: %s", trouble.c_str());
}

/// An operator of the C interface.
template <class Args>
struct OperatorFunctions {
  sluice_op op;
  int (*run)(const typename Args::CArgs*, sluice_workspace, void*);
};

/// Runs on host memory with a workspace of the size asked for; *seconds without the queries.
template <class Args>
Status call_on_host(const OperatorFunctions<Args>& op, const Args& args, double* seconds) {
  const auto c = args.c();
  const Result<WorkspaceSize> size = detail::workspace_size(op.op, &c);
  if (!size.ok()) return size.status;
  HostWorkspace memory;
  const Workspace workspace = memory.reserve(size.value.bytes);
  const Stopwatch watch;
  const Status status = detail::last_status(op.run(&c, workspace.c(), nullptr));
  *seconds = watch.seconds();
  return status;
}

/// Runs on device copies of the views' memory and copies everything back; *seconds are those of the
/// call until the device is done, without copies.
template <class Args>
Status call_on_device(const OperatorFunctions<Args>& op, const Args& args, double* seconds) {
  const std::unique_ptr<check::DeviceCopy> device = check::make_device_copy();
  auto c = args.c();
  device->upload(check::views_of(&c));
  if (const std::string trouble = device->wait(); !trouble.empty()) return device_error(trouble);
  const Result<WorkspaceSize> size = detail::workspace_size(op.op, &c);
  if (!size.ok()) return size.status;
  // All ones is NaN in every floating type.
  const sluice_workspace memory = device->workspace(size.value.bytes, 0xff);
  device->wait();
  const Stopwatch watch;
  const Status status = detail::last_status(op.run(&c, memory, nullptr));
  const std::string trouble = device->wait();
  *seconds = watch.seconds();
  if (!status.ok()) return status;
  if (!trouble.empty()) return device_error(trouble);
  const std::string damage = device->download();
  return damage.empty() ? ok_status() : device_error(damage);
}

/// Calls an operator where `args.implementation` computes and appends the step, or sets the status.
/// Returns whether to go on.
template <class Args>
bool call(const OperatorFunctions<Args>& op, const Args& args, Step step, Execution* out) {
  const bool on_device =
      args.implementation == Implementation::kCuda && check::make_device_copy != nullptr;
  out->status =
      on_device ? call_on_device(op, args, &step.seconds) : call_on_host(op, args, &step.seconds);
  if (!out->status.ok()) return false;
  step.kernel = sluice_last_kernel();
  out->steps.push_back(std::move(step));
  return true;
}

/// What a layer keeps from step to step: parameters, and states that calls update in place.
struct LayerTensors {
  LayerTensors(const io::CaseFile& file, const io::Case& which, const ExecuteOptions& options);

  check::TestTensor conv_weight, conv_bias, A_log, dt_bias, norm_weight, state, conv_state;
};

/// Adds the output of a step, from its norm_out, where the case has the weight of out_proj.
void add_projection(const io::CaseFile& file, const io::Case& which, const std::string& prefix,
                    Execution* out);

/// Runs a case of op stages; see execute().
Execution execute_stages(const io::CaseFile& file, const io::Case& which,
                         const ExecuteOptions& options);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_CALL_HPP_
