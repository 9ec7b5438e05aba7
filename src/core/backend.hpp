// The table that a backend fills in; the core knows backends by nothing else.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CORE_BACKEND_HPP_
#define SLUICE_CORE_BACKEND_HPP_

#include <cstddef>

#include "core/problem.hpp"
#include "sluice/status.hpp"

namespace sluice::core {

/// Name of the kernel chosen, e.g. "cpu.chunk_forward.avx512"; static storage.
using KernelName = const char*;

/// One operator of a backend. All three take a validated problem; run() is only called after
/// select() succeeded and with a workspace of at least workspace() bytes, 256-byte aligned.
template <class Problem>
struct Operator {
  /// Chooses the kernel from sizes, strides and dtypes alone, or refuses with kUnsupported and a
  /// message that lists what is supported. Null: the backend has no such operator.
  Status (*select)(const Problem&, KernelName*) noexcept = nullptr;
  /// Scratch bytes, from sizes alone; an upper bound for any cu_seqlens content.
  size_t (*workspace)(const Problem&) noexcept = nullptr;
  /// Runs, or enqueues on `stream`.
  Status (*run)(const Problem&, sluice_workspace, void* stream) noexcept = nullptr;
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
