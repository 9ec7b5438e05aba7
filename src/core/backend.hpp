// Declares the table that a backend fills in; the core knows backends by nothing else.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CORE_BACKEND_HPP_
#define SLUICE_CORE_BACKEND_HPP_

#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <type_traits>

#include "core/problem.hpp"
#include "sluice/status.hpp"

namespace sluice::core {

/// Name of the kernel chosen, e.g. "cpu.chunk_forward.avx512"; static storage.
using KernelName = const char*;

/// What a call will do, decided once from a validated problem. Plain data: it lives as long as the
/// call and may be copied.
struct Plan {
  KernelName kernel = nullptr;
  size_t workspace_bytes = 0;
  const void* entry = nullptr;  ///< the backend's own: which entry of a catalogue it is

  /// Keeps what the backend decided beside the kernel's name, for its run().
  template <class Choice>
  void keep(const Choice& choice) noexcept {
    static_assert(sizeof(Choice) <= sizeof(choice_) && std::is_trivially_copyable_v<Choice>);
    std::memcpy(choice_, &choice, sizeof choice);
  }
  /// What keep() was given.
  template <class Choice>
  Choice kept() const noexcept {
    static_assert(sizeof(Choice) <= sizeof(choice_) && std::is_trivially_copyable_v<Choice>);
    Choice choice;
    std::memcpy(static_cast<void*>(&choice), choice_, sizeof choice);
    return choice;
  }
  /// Likewise of an operator made of others: what it decided around its main part, of which this
  /// was the plan, and is still as far as kept() goes.
  template <class Choice>
  void keep_around(const Choice& choice) noexcept {
    static_assert(sizeof(Choice) <= sizeof(around_) && std::is_trivially_copyable_v<Choice>);
    std::memcpy(around_, &choice, sizeof choice);
  }
  /// What keep_around() was given.
  template <class Choice>
  Choice kept_around() const noexcept {
    static_assert(sizeof(Choice) <= sizeof(around_) && std::is_trivially_copyable_v<Choice>);
    Choice choice;
    std::memcpy(static_cast<void*>(&choice), around_, sizeof choice);
    return choice;
  }
  /// Memory in place of keep(), for what is too large to be copied; not initialised.
  template <class Choice>
  Choice* keep_in_place() noexcept {
    static_assert(sizeof(Choice) <= sizeof(choice_) && std::is_trivially_copyable_v<Choice>);
    return ::new (static_cast<void*>(choice_)) Choice;
  }
  /// What was made there.
  template <class Choice>
  const Choice& kept_in_place() const noexcept {
    return *std::launder(reinterpret_cast<const Choice*>(choice_));
  }

 private:
  alignas(8) std::byte choice_[800];
  alignas(8) std::byte around_[48];
};

/// What a plan is made for.
enum class PlanFor {
  kCall,  ///< these addresses
  /// Sizes, strides and dtypes like these at any address: workspaces are asked for before tensors
  /// exist. Of all kernels that addresses choose between, workspace_bytes is the largest need.
  kAnyAddress,
};

/// One operator of a backend.
template <class Problem>
struct Operator {
  /// Decides what a call with this validated problem does, or refuses with kUnsupported and a
  /// message that lists what is supported. Null: the backend has no such operator.
  Status (*plan)(const Problem&, PlanFor, Plan*) noexcept = nullptr;
  /// Runs, or enqueues on `stream`, what plan() decided for this problem (PlanFor::kCall). The
  /// workspace has at least plan.workspace_bytes, 256-byte aligned.
  Status (*run)(const Problem&, const Plan&, sluice_workspace, void* stream) noexcept = nullptr;
};

/// An operator of which sizes alone choose the kernel and its scratch, whatever the addresses.
/// @tparam select names the kernel, or refuses: Status(const Problem&, KernelName*)
/// @tparam workspace scratch bytes, an upper bound for any cu_seqlens content
/// @tparam run as Operator::run, without a plan
/// @tparam ready asked before select: refuses what the environment asks for and cannot have
template <auto select, auto workspace, auto run, Status (*ready)() noexcept = ok_status>
constexpr auto operator_by_sizes() noexcept {
  return [&]<class Problem>(size_t (*)(const Problem&) noexcept) {
    return Operator<Problem>{[](const Problem& problem, PlanFor, Plan* plan) noexcept {
                               Status status = ready();
                               if (status.ok()) status = select(problem, &plan->kernel);
                               if (status.ok()) plan->workspace_bytes = workspace(problem);
                               return status;
                             },
                             [](const Problem& problem, const Plan&, sluice_workspace scratch,
                                void* stream) noexcept { return run(problem, scratch, stream); }};
  }(workspace);
}

/// Integers to bring to the host: a view of rank 1 or 2 and where its elements go, densely.
struct IndexCopy {
  const Tensor* from;
  void* to;
};
/// On whose behalf, from which device, and behind what.
struct IndexSource {
  const char* op;
  int32_t device;
  void* stream;
};

struct Backend {
  sluice_implementation id;
  const char* name;
  const char* description;
  const char* requirement;
  int32_t device_type;  ///< SLUICE_DEVICE_CPU or SLUICE_DEVICE_CUDA
  bool (*available)() noexcept;
  Status (*warm_up)(int32_t device_index) noexcept;
  /// Appends "key: value" lines about the machine; same return as sluice_capability().
  size_t (*describe)(char* out, size_t size) noexcept;
  /// Brings integers of device memory to the host and waits for them; *read becomes false on a
  /// stream that is being captured. Null where memory is the host's.
  Status (*read_indices)(const IndexSource&, std::span<const IndexCopy>, bool* read) noexcept;
  /// sluice_set_executor(); null where the backend has no threads of its own.
  Status (*set_executor)(sluice_parallel_for, void* user, int threads) noexcept;
  Operator<DeltaRuleProblem> chunk_forward;
  Operator<DeltaRuleProblem> recurrent_step;
  Operator<CausalConvProblem> causal_conv1d;
  Operator<GatedNormProblem> gated_rms_norm;
  Operator<LayerProblem> layer_prefill;
  Operator<LayerProblem> layer_decode;
  Operator<ChunkStageProblem> chunk_stage;
  Operator<ChunkBackwardProblem> chunk_backward;
  Operator<ChunkSummaryProblem> chunk_summary;
  Operator<StateFoldProblem> state_fold;
  Operator<CausalConvBackwardProblem> causal_conv1d_backward;
  Operator<GatedNormBackwardProblem> gated_rms_norm_backward;
  Operator<LayerBackwardProblem> layer_backward;
};

}  // namespace sluice::core

namespace sluice::ref {
const core::Backend& recurrent_backend() noexcept;
const core::Backend& chunked_backend() noexcept;
}  // namespace sluice::ref

namespace sluice::cpu {
const core::Backend& backend() noexcept;
}  // namespace sluice::cpu

namespace sluice::cuda {
const core::Backend& backend() noexcept;
}  // namespace sluice::cuda

#endif  // SLUICE_CORE_BACKEND_HPP_
