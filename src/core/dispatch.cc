// Chooses the backend of a call by its devices, runs it, and records the kernel.
// SPDX-License-Identifier: Apache-2.0
#include "core/dispatch.hpp"

#include <cstring>

#include "core/environment.hpp"

namespace sluice::core {
namespace {

/// SLUICE_IMPL, read once; "auto" is no override.
const char* implementation_override() noexcept {
  static const char* const value = [] {
    const char* name = variable(Variable::kImplementation);
    return name == nullptr || std::strcmp(name, "auto") == 0 ? nullptr : name;
  }();
  return value;
}

const Backend* find(int32_t id) noexcept {
  for (const Backend* backend : backends()) {
    if (backend->id == id) return backend;
  }
  return nullptr;
}

const Backend* find(const char* name) noexcept {
  for (const Backend* backend : backends()) {
    if (std::strcmp(backend->name, name) == 0) return backend;
  }
  return nullptr;
}

}  // namespace

thread_local KernelName last_kernel = "";
thread_local Status last_status;

std::span<const Backend* const> backends() noexcept {
  static const Backend* const all[] = {
      &cpu::backend(),
#ifdef SLUICE_WITH_CUDA
      &cuda::backend(),
#endif
      &ref::recurrent_backend(),
      &ref::chunked_backend(),
  };
  return all;
}

Status choose_backend(const char* op, const Validated& call, const Backend** backend) noexcept {
  const bool on_cpu = call.device.type == SLUICE_DEVICE_CPU;
  const Backend* chosen = nullptr;
  if (call.implementation != SLUICE_IMPL_AUTO) {
    chosen = find(call.implementation);
    if (chosen == nullptr) {
      return Status::failure(Code::kUnsupported,
                             "%s: implementation = %d, expected one of this build (the CUDA half "
                             "was not built)",
                             op, call.implementation);
    }
  } else if (const char* name = implementation_override(); name != nullptr) {
    chosen = find(name);
    if (chosen == nullptr) {
      return Status::failure(Code::kInvalidArgument,
                             "%s: SLUICE_IMPL = %s, expected auto, cpu, cuda, reference or "
                             "reference-chunked, as far as in this build",
                             op, name);
    }
  } else {
    chosen = find(on_cpu ? SLUICE_IMPL_CPU : SLUICE_IMPL_CUDA);
    if (chosen == nullptr) {
      return Status::failure(Code::kUnsupported,
                             "%s: device = CUDA, expected CPU views (the CUDA half was not built)",
                             op);
    }
  }
  if (chosen->device_type != call.device.type) {
    return Status::failure(Code::kUnsupported,
                           "%s: implementation = %s, expected one for %s views (the backend "
                           "follows the device of the views)",
                           op, chosen->name, on_cpu ? "CPU" : "CUDA");
  }
  if (!chosen->available()) {
    return Status::failure(Code::kUnsupported, "%s: implementation = %s, expected %s", op,
                           chosen->name, chosen->requirement);
  }
  *backend = chosen;
  return ok_status();
}

const char* chosen_by(const Validated& call) noexcept {
  if (call.implementation != SLUICE_IMPL_AUTO) return "argument";
  return implementation_override() != nullptr ? "SLUICE_IMPL" : "device";
}

Status check_stream(const char* op, const Validated& call, const Call& request) noexcept {
  if (call.device.type == SLUICE_DEVICE_CPU && request.stream != nullptr) {
    return Status::failure(Code::kInvalidArgument,
                           "%s: stream = given, expected null (CPU views have no stream)", op);
  }
  return ok_status();
}

Status check_workspace(const char* op, const sluice_workspace& workspace, size_t needed) noexcept {
  if (needed == 0) return ok_status();
  if (workspace.data == nullptr || workspace.size < needed) {
    return Status::failure(Code::kWorkspaceTooSmall,
                           "%s: workspace.size = %zu, expected >= %zu bytes "
                           "(sluice_workspace_size tells)",
                           op, workspace.data == nullptr ? size_t{0} : workspace.size, needed);
  }
  const auto misalignment = reinterpret_cast<uintptr_t>(workspace.data) % kWorkspaceAlignment;
  if (misalignment != 0) {
    return Status::failure(Code::kInvalidArgument,
                           "%s: workspace.data address mod %zu = %zu, expected 0 (alignment)", op,
                           kWorkspaceAlignment, static_cast<size_t>(misalignment));
  }
  return ok_status();
}

}  // namespace sluice::core
