// Chooses the backend that serves a call, and records what ran.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CORE_DISPATCH_HPP_
#define SLUICE_CORE_DISPATCH_HPP_

#include <span>

#include "core/backend.hpp"
#include "core/validate.hpp"
#include "core/verbose.hpp"

namespace sluice::core {

/// Every backend of this build, in the order sluice_implementations() lists them.
std::span<const Backend* const> backends() noexcept;

/// The backend for a validated call: by the argument, else by SLUICE_IMPL, else by the device of
/// the views. Refuses an implementation that does not serve that device or is not in this build.
Status choose_backend(const char* op, const Validated& call, const Backend** backend) noexcept;

/// What chose the backend of a call, in a word: "device", "SLUICE_IMPL" or "argument".
const char* chosen_by(const Validated& call) noexcept;

/// Kernel of this thread's last successful call.
extern thread_local KernelName last_kernel;
/// Message of this thread's last failed call.
extern thread_local Status last_status;

/// What is asked of an operator: whether it is supported, its workspace, or the call itself.
enum class Action { kSelect, kWorkspace, kRun };

/// What an action needs and gives.
struct Call {
  Action action = Action::kRun;
  sluice_workspace workspace{};
  void* stream = nullptr;
  size_t bytes = 0;             ///< out, with kWorkspace
  KernelName kernel = nullptr;  ///< out
};

/// Alignment of workspaces in bytes.
constexpr size_t kWorkspaceAlignment = 256;

Status check_stream(const char* op, const Validated& call, const Call& request) noexcept;
Status check_workspace(const char* op, const sluice_workspace& workspace, size_t needed) noexcept;

/// Answers a request for a validated problem by entry `member` of the operator table: chooses the
/// backend, plans once, and for a call checks the workspace and runs the plan.
template <class Problem>
Status dispatch(const char* op, const Validated& call, const Problem& problem,
                Operator<Problem> Backend::* member, Call* request) noexcept {
  if (!call.status.ok()) return call.status;
  const Backend* backend = nullptr;
  if (Status s = choose_backend(op, call, &backend); !s.ok()) return s;
  const Operator<Problem>& entry = backend->*member;
  if (entry.plan == nullptr) {
    return Status::failure(Code::kUnsupported, "%s: implementation = %s, expected one that has it",
                           op, backend->name);
  }
  const bool sizes = request->action == Action::kWorkspace;
  Plan plan;
  const PlanFor purpose = sizes ? PlanFor::kAnyAddress : PlanFor::kCall;
  if (Status s = entry.plan(problem, purpose, &plan); !s.ok()) return s;
  request->kernel = plan.kernel;
  request->bytes = plan.workspace_bytes;
  if (request->action != Action::kRun) return ok_status();
  if (Status s = check_stream(op, call, *request); !s.ok()) return s;
  if (Status s = check_workspace(op, request->workspace, request->bytes); !s.ok()) return s;
  const bool log = verbose();
  LoggedCall logged{op, plan.kernel, backend, nullptr, call.device, {}};
  if (log) logged.begin = std::chrono::steady_clock::now();
  if (Status s = entry.run(problem, plan, request->workspace, request->stream); !s.ok()) return s;
  last_kernel = request->kernel;
  if (log) {
    logged.chosen_by = chosen_by(call);
    log_call(logged, problem);
  }
  return ok_status();
}

}  // namespace sluice::core

#endif  // SLUICE_CORE_DISPATCH_HPP_
