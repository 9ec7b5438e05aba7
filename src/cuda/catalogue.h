// Defines catalogues: an operator is an ordered list of kernels, and the first that takes a problem
// plans and runs it. Choosing, sizing, naming, loading and describing are loops over that list.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CATALOGUE_H_
#define SLUICE_CUDA_CATALOGUE_H_

#include <algorithm>
#include <cstdio>
#include <span>

#include "core/backend.hpp"
#include "core/host_access.hpp"
#include "cuda/environment.h"
#include "cuda/launch.h"
#include "cuda/machine.h"

namespace sluice::cuda {

/// One kernel (family) of an operator.
template <class Problem>
struct Kernel {
  const char* name;   ///< in `sluice info` and the docs' tables, e.g. "chunk_forward.gated_delta"
  const char* takes;  ///< what it takes, in one line for people
  Tier tier;          ///< what SLUICE_CUDA_KERNEL chooses between
  /// Whether sizes, strides, dtypes and options are this kernel's; else kUnsupported with what is.
  Status (*accepts)(const Problem&, const Machine&) noexcept;
  /// Likewise of addresses alone; null: any address will do.
  Status (*accepts_addresses)(const Problem&) noexcept;
  /// Fills in the plan of a problem that it accepts: the name of the instance that runs, workspace
  /// bytes, and with Plan::keep() whatever launch() is to know. It too may refuse with kUnsupported,
  /// where only planning tells. Of the environment it reads how sequences are to be cut.
  Status (*plan)(const Problem&, const Machine&, const Environment&, core::Plan*) noexcept;
  /// Enqueues what plan() decided. The GPU is current.
  void (*launch)(const Problem&, const core::Plan&, void* workspace, Launcher&) noexcept;
  /// Loads all instances onto the GPU, which is current; nothing on one that they are not compiled
  /// for. Null where another entry's load() does. @return a cudaError_t
  int (*load)(const Machine&) noexcept;
};

template <class Problem>
using Catalogue = std::span<const Kernel<Problem>>;

/// What every row of plain kernels checks first.
inline Status check_capability(const char* op, const Machine& machine) noexcept {
  if (machine.capability >= kOldestCapability) return ok_status();
  return Status::failure(Code::kUnsupported,
                         "%s: compute capability = %d.%d, expected 8.0 or newer (CUDA kernels)", op,
                         machine.capability / 10, machine.capability % 10);
}

/// What every row of Hopper's kernels checks first, and which sizes, strides and addresses kernels
/// take. @param kernel what messages call it
inline Status check_hopper(const char* op, const Machine& machine, const char* kernel) noexcept {
  if (machine.is_hopper()) return ok_status();
  return Status::failure(Code::kUnsupported, "%s: compute capability = %d.%d, expected 9.0 (%s)",
                         op, machine.capability / 10, machine.capability % 10, kernel);
}
inline Status check_at_most(const char* op, const char* size, int64_t found, int64_t most,
                            const char* kernel = "CUDA kernels") noexcept {
  if (found <= most) return ok_status();
  return Status::failure(Code::kUnsupported, "%s: %s = %lld, expected at most %lld (%s)", op, size,
                         static_cast<long long>(found), static_cast<long long>(most), kernel);
}
/// An axis of one element has any stride.
inline Status check_first_stride(const char* op, const char* name, const core::Tensor& t,
                                 int64_t multiple, const char* kernel) noexcept {
  if (!core::present(t) || t.shape[0] <= 1 || t.stride[0] % multiple == 0) return ok_status();
  return Status::failure(
      Code::kUnsupported, "%s: %s.stride[0] = %lld, expected a multiple of %lld (%s)", op, name,
      static_cast<long long>(t.stride[0]), static_cast<long long>(multiple), kernel);
}
inline Status check_address(const char* op, const char* name, const core::Tensor& t, int64_t bytes,
                            const char* kernel) noexcept {
  if (!core::present(t)) return ok_status();
  const auto misaligned = reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(bytes);
  if (misaligned == 0) return ok_status();
  return Status::failure(Code::kUnsupported, "%s: %s.data address mod %d = %d, expected 0 (%s)", op,
                         name, static_cast<int>(bytes), static_cast<int>(misaligned), kernel);
}

/// A refusal that nobody reads, of a problem that a kernel further down takes or answers for. PERF
/// no message is written.
inline Status left_to_others() noexcept {
  Status status;
  status.code = Code::kUnsupported;
  return status;
}

/// Refuses where the environment allows no kernel of a catalogue.
inline Status no_kernel_allowed(const Environment& environment) noexcept {
  const bool generic = environment.kernel == KernelOverride::kGeneric;
  return Status::failure(Code::kUnsupported,
                         "cuda: SLUICE_CUDA_KERNEL = %s, expected auto or %s (the operator has no "
                         "such kernel for this problem)",
                         generic ? "generic" : "fused", generic ? "fused" : "generic");
}

/// Names of a kernel's instances, each the kernel's own and a word of each list behind it: static
/// storage where the table is constexpr.
template <size_t... kCounts>
class NameTable {
 public:
  explicit constexpr NameTable(const char* kernel, const char* const (&... words)[kCounts]) {
    for (size_t i = 0; i < kNames; ++i) {
      size_t length = 0, rest = i, block = kNames;
      const auto append = [&](const char* word) {
        for (; *word != '\0'; ++word) names_[i][length++] = *word;
      };
      append(kernel);
      ((block /= kCounts, append(words[rest / block]), rest %= block), ...);
    }
  }
  /// @param word which one of each list
  constexpr core::KernelName at(auto... word) const noexcept {
    size_t place = 0;
    ((place = place * kCounts + static_cast<size_t>(word)), ...);
    return names_[place];
  }

 private:
  static constexpr size_t kNames = (kCounts * ...);
  char names_[kNames][64] = {};
};

/// The words of 16-bit numbers in names.
inline constexpr const char* kTypeWords[] = {"bf16.", "fp16."};
/// Of tables by dtype: bfloat16 first.
inline int type_index(sluice_dtype dtype) noexcept {
  return dtype.code == core::kBFloat16.code ? 0 : 1;
}

/// Loads kernels of Hopper alone: the others have no code for them.
template <int (*load)() noexcept>
int load_on_hopper(const Machine& machine) noexcept {
  return machine.is_hopper() ? load() : 0;
}

/// Plans a problem by one kernel, or says why not.
template <class Problem>
Status plan_by_kernel(const Kernel<Problem>& kernel, const Problem& problem, const Machine& machine,
                      const Environment& environment, core::PlanFor purpose,
                      core::Plan* plan) noexcept {
  // PERF a Status is 260 bytes: none is copied where all goes well.
  if (const Status status = kernel.accepts(problem, machine); !status.ok()) return status;
  if (purpose == core::PlanFor::kCall && kernel.accepts_addresses != nullptr) {
    if (const Status status = kernel.accepts_addresses(problem); !status.ok()) return status;
  }
  return kernel.plan(problem, machine, environment, plan);
}

/// Why no kernel of the catalogue takes a problem: the last reason given.
template <class Problem>
Status refuse(Catalogue<Problem> catalogue, const Problem& problem, const Machine& machine,
              const Environment& environment, core::PlanFor purpose) noexcept {
  Status refusal = no_kernel_allowed(environment);
  for (const Kernel<Problem>& kernel : catalogue) {
    if (!environment.allows(kernel.tier)) continue;
    core::Plan plan;
    const Status status = plan_by_kernel(kernel, problem, machine, environment, purpose, &plan);
    if (status.message[0] != '\0') refusal = status;
  }
  return refusal;
}

/// Plans a problem by the first kernel of the catalogue that takes it and that the environment
/// allows; of kernels that addresses choose between, workspace_bytes is the largest need.
template <class Problem>
Status plan_by(Catalogue<Problem> catalogue, const Problem& problem, const Machine& machine,
               const Environment& environment, core::PlanFor purpose, core::Plan* plan) noexcept {
  if (!environment.status.ok()) return environment.status;
  bool planned = false;
  for (const Kernel<Problem>& kernel : catalogue) {
    if (!environment.allows(kernel.tier)) continue;
    core::Plan other;
    core::Plan* const found = planned ? &other : plan;
    found->workspace_bytes = 0;
    if (!plan_by_kernel(kernel, problem, machine, environment, purpose, found).ok()) continue;
    found->entry = &kernel;
    plan->workspace_bytes = std::max(plan->workspace_bytes, found->workspace_bytes);
    planned = true;
    // Other addresses may go to a kernel further down.
    if (purpose == core::PlanFor::kCall || kernel.accepts_addresses == nullptr) break;
  }
  // PERF reasons are asked for only where they are needed: to keep them costs what they are long.
  return planned ? ok_status() : refuse(catalogue, problem, machine, environment, purpose);
}

/// The kernel that plan_by() has chosen for such a problem.
template <class Problem>
const Kernel<Problem>& kernel_of(const core::Plan& plan) noexcept {
  return *static_cast<const Kernel<Problem>*>(plan.entry);
}

/// Of an operator made of others, plans a part; *most becomes at least what it needs of the workspace.
/// WHY no plan is given back: one has room for one choice, and there are several parts.
/// @param fast whether its kernel is of Tier::kFast; may be null
template <class Problem>
Status plan_part(Catalogue<Problem> catalogue, const Problem& problem, const Machine& machine,
                 const Environment& environment, core::PlanFor purpose, size_t* most,
                 bool* fast = nullptr) noexcept {
  core::Plan plan;
  const Status status = plan_by(catalogue, problem, machine, environment, purpose, &plan);
  if (!status.ok()) return status;
  *most = std::max(*most, plan.workspace_bytes);
  if (fast != nullptr) *fast = kernel_of<Problem>(plan).tier == Tier::kFast;
  return status;
}

/// Plans such a part once more, where memory is the call's own, and launches it.
template <class Problem>
void launch_part(Catalogue<Problem> catalogue, const Problem& problem, void* workspace,
                 Launcher& launcher) noexcept {
  if (!launcher.ok()) return;
  core::Plan plan;
  const Status status =
      plan_by(catalogue, problem, launcher.machine(), environment(), core::PlanFor::kCall, &plan);
  if (!status.ok()) return launcher.note_invalid();
  kernel_of<Problem>(plan).launch(problem, plan, workspace, launcher);
}

/// Runs a plan of plan_by() on the machine that it was made for.
template <class Problem>
Status run_plan(const char* op, const Problem& problem, const core::Plan& plan,
                const Machine& machine, void* workspace, void* stream) noexcept {
  const DeviceGuard guard(machine.device);
  Launcher launcher(op, machine, stream);
  launcher.note(guard.error());
  if (launcher.ok()) kernel_of<Problem>(plan).launch(problem, plan, workspace, launcher);
  return launcher.status();
}

/// Loads all kernels of a catalogue onto the machine, which must be current.
/// @return a cudaError_t
template <class Problem>
int load_catalogue(Catalogue<Problem> catalogue, const Machine& machine) noexcept {
  for (const Kernel<Problem>& kernel : catalogue) {
    const int error = kernel.load == nullptr ? 0 : kernel.load(machine);
    if (error != 0) return error;
  }
  return 0;
}

/// Writes a line for each kernel of a catalogue, cut where `size` bytes end.
/// @return bytes without the end, as snprintf()
template <class Problem>
size_t describe_catalogue(Catalogue<Problem> catalogue, char* out, size_t size) noexcept {
  size_t used = 0;
  for (const Kernel<Problem>& kernel : catalogue) {
    const size_t left = used < size ? size - used : 0;
    const int length = std::snprintf(left > 0 ? out + used : nullptr, left, "cuda.kernels.%s: %s\n",
                                     kernel.name, kernel.takes);
    if (length > 0) used += static_cast<size_t>(length);
  }
  return used;
}

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CATALOGUE_H_
