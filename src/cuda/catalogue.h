// Defines catalogues: an operator is an ordered list of kernels, and the first that takes a problem
// plans and runs it. Choosing, sizing, naming, loading and describing are loops over that list.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CATALOGUE_H_
#define SLUICE_CUDA_CATALOGUE_H_

#include <algorithm>
#include <cstdio>
#include <span>

#include "core/backend.hpp"
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

/// A kernel's name put together from words at compile time: static storage where it is constexpr.
struct ComposedName {
  char text[64] = {};

  constexpr ComposedName() = default;
  template <class... Words>
  explicit constexpr ComposedName(const Words*... words) {
    size_t at = 0;
    const auto append = [&](const char* word) {
      for (; *word != '\0'; ++word) text[at++] = *word;
    };
    (append(words), ...);
    text[at] = '\0';
  }
};

/// Names "<kernel><dtype>.<size><suffix>" of all instances of a kernel of 16-bit numbers.
template <size_t kSizes, size_t kSuffixes>
class NameTable {
 public:
  template <size_t kWords>
  constexpr NameTable(const char* kernel, const char* const (&sizes)[kSizes],
                      const char* const (&suffixes)[kWords]) {
    static_assert(kSuffixes <= kWords);
    constexpr const char* kTypes[] = {"bf16.", "fp16."};
    for (size_t i = 0; i < 2 * kSizes * kSuffixes; ++i) {
      const size_t suffix = i % kSuffixes, size = i / kSuffixes % kSizes;
      names_[i] =
          ComposedName(kernel, kTypes[i / kSuffixes / kSizes], sizes[size], suffixes[suffix]);
    }
  }
  /// @param type 0: bfloat16, 1: float16
  constexpr core::KernelName at(int64_t type, int64_t size, int64_t suffix) const noexcept {
    const auto sizes = static_cast<int64_t>(kSizes), suffixes = static_cast<int64_t>(kSuffixes);
    return names_[static_cast<size_t>((type * sizes + size) * suffixes + suffix)].text;
  }

 private:
  ComposedName names_[2 * kSizes * kSuffixes];
};

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

/// Runs a plan of plan_by() on the machine that it was made for.
template <class Problem>
Status run_plan(const char* op, const Problem& problem, const core::Plan& plan,
                const Machine& machine, void* workspace, void* stream) noexcept {
  const DeviceGuard guard(machine.device);
  Launcher launcher(op, machine, stream);
  launcher.note(guard.error());
  const auto* const kernel = static_cast<const Kernel<Problem>*>(plan.entry);
  if (launcher.ok()) kernel->launch(problem, plan, workspace, launcher);
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
