// Makes one call of an operator where its implementation computes: on the host, or on device copies
// of all tensors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_PARITY_OPERATOR_CALL_HPP_
#define SLUICE_TESTS_PARITY_OPERATOR_CALL_HPP_

#include <cstring>
#include <memory>
#include <string>

#include "check/device_copy.hpp"
#include "check/tensors.hpp"
#include "check/views.hpp"
#include "parity/far_pads.hpp"

namespace sluice::check {

/// What a call left, beside its outputs.
struct CallOutcome {
  int code = SLUICE_OK;
  std::string message, kernel;
  std::string damage;  ///< to memory that is nobody's, and device errors; empty = none
};

/// workspace_fill: its bytes before the call.
template <class Args>
CallOutcome call_operator(sluice_op op, int (*function)(const Args*, sluice_workspace, void*),
                          Args args, int workspace_fill = 0xff) {
  CallOutcome out;
  size_t bytes = 0;
  const FarPads far(args);
  if (args.implementation == SLUICE_IMPL_CUDA) {
    const std::unique_ptr<DeviceCopy> device = make_device_copy();
    device->upload(views_of(&args));
    out.code = sluice_workspace_size(op, &args, &bytes);
    if (out.code == SLUICE_OK) {
      out.code = function(&args, device->workspace(bytes, workspace_fill), nullptr);
    }
    out.message = sluice_last_error();
    out.damage = device->download();
  } else {
    out.code = sluice_workspace_size(op, &args, &bytes);
    TestWorkspace workspace(bytes);
    std::memset(workspace.get().data, workspace_fill, bytes);
    if (out.code == SLUICE_OK) out.code = function(&args, workspace.get(), nullptr);
    out.message = sluice_last_error();
    if (!workspace.guards_intact()) out.damage = "memory past the workspace; ";
  }
  out.kernel = sluice_last_kernel();
  return out;
}

}  // namespace sluice::check

#endif  // SLUICE_TESTS_PARITY_OPERATOR_CALL_HPP_
