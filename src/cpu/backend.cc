// Enters the CPU backend into the core's table.
// SPDX-License-Identifier: Apache-2.0
#include "core/backend.hpp"

#include <cstdio>
#include <type_traits>

#include "core/host_summary.hpp"
#include "core/operators.hpp"
#include "cpu/cpu_quota.hpp"
#include "cpu/isa.hpp"
#include "cpu/kernels/operators.hpp"
#include "cpu/kernels/size_limits.hpp"
#include "cpu/parallel_for.hpp"

namespace sluice::cpu {
namespace {

bool available() noexcept { return true; }

/// What the environment asks for must be possible: no call runs on something else silently.
Status environment() noexcept {
  const Status status = isa_request();
  return status.ok() ? threads_request() : status;
}

Status warm_up(int32_t /*device_index*/) noexcept {
  choose_isa();
  const Status status = environment();
  return status.ok() ? start_workers() : status;
}

size_t describe(char* out, size_t size) noexcept {
  char isas[128], quota[32] = "none";
  list_isas(isas, sizeof isas);
  const int cpus = quota_cpus();
  if (cpus > 0) std::snprintf(quota, sizeof quota, "%d CPUs", cpus);
  const int length = std::snprintf(out, size,
                                   "cpu.isa: %s\n"
                                   "cpu.isas:%s\n"
                                   "cpu.quota: %s\n"
                                   "cpu.threads: %d\n",
                                   isa_name(), isas, quota, worker_count());
  return length > 0 ? static_cast<size_t>(length) : 0;
}

Status select_stage(const core::ChunkStageProblem& p, core::KernelName* name) noexcept {
  *name = stage_kernel_name(p.stage);
  const bool states = p.stage == SLUICE_STAGE_CHUNK_H || p.stage == SLUICE_STAGE_CHUNK_O;
  if (!states || (p.K <= kMaxHeadDim && p.V <= kMaxHeadDim)) return ok_status();
  const bool key = p.K > kMaxHeadDim;
  return Status::failure(Code::kUnsupported,
                         "%s: head dimension %s = %lld, expected at most %lld "
                         "(cpu kernels)",
                         core::stage_name(p.stage), key ? "K" : "V",
                         static_cast<long long>(key ? p.K : p.V),
                         static_cast<long long>(kMaxHeadDim));
}

/// Names the kernel, and refuses heads that are too large.
template <sluice_op op, class Problem>
Status select(const Problem& problem, core::KernelName* name) noexcept {
  if constexpr (op == SLUICE_OP_CHUNK_STAGE) return select_stage(problem, name);
  *name = kernel_name(op);
  const char* const name_of_op = core::kOperatorNames[op];
  if constexpr (std::is_same_v<Problem, core::DeltaRuleProblem>) {
    return check_size_limits(problem, name_of_op);
  }
  if constexpr (std::is_same_v<Problem, core::ChunkBackwardProblem>) {
    return check_size_limits(problem.forward, name_of_op);
  }
  if constexpr (std::is_same_v<Problem, core::LayerBackwardProblem>) {
    return check_size_limits(problem.delta.forward, name_of_op, "head_k_dim", "head_v_dim");
  }
  if constexpr (std::is_same_v<Problem, core::LayerProblem>) {
    return check_size_limits(problem.delta, name_of_op, "head_k_dim", "head_v_dim");
  }
  return ok_status();
}

template <class Problem>
size_t no_workspace(const Problem& /*problem*/) noexcept {
  return 0;
}

/// An operator's function as a call that the threads know of.
template <auto function, class Problem>
Status call(const Problem& problem, sluice_workspace workspace, void* /*stream*/) noexcept {
  const RunningCall running;
  if constexpr (std::is_invocable_v<decltype(function), const Problem&>) {
    function(problem);
  } else {
    function(problem, workspace.data);
  }
  if (!running.lost_items()) return ok_status();
  return Status::failure(Code::kInternal,
                         "cpu: executor = threw an exception, expected one that returns "
                         "(sluice_set_executor; outputs are incomplete)");
}

/// What an operator's function takes.
template <class Problem, class... Scratch>
Problem problem_of(void (*)(const Problem&, Scratch...) noexcept) noexcept;

template <sluice_op op, auto function,
          auto workspace = no_workspace<decltype(problem_of(function))>>
constexpr auto operator_of() noexcept {
  using Problem = decltype(problem_of(function));
  return core::operator_by_sizes<select<op, Problem>, workspace, call<function, Problem>,
                                 environment>();
}

constexpr const char* kSummary = "cpu.chunk_summary";

core::Backend make_backend() noexcept {
  choose_isa();
  core::Backend backend{};
  backend.id = SLUICE_IMPL_CPU;
  backend.name = "cpu";
  backend.description = "float32 on SIMD instructions chosen at run time, threaded";
  backend.requirement = "any CPU; fastest with AVX-512 or AVX2";
  backend.device_type = SLUICE_DEVICE_CPU;
  backend.available = available;
  backend.warm_up = warm_up;
  backend.describe = describe;
  backend.set_executor = set_executor;
  backend.chunk_forward =
      operator_of<SLUICE_OP_CHUNK_FORWARD, chunk_forward, chunk_forward_workspace>();
  backend.recurrent_step =
      operator_of<SLUICE_OP_RECURRENT_STEP, recurrent_step, recurrent_step_workspace>();
  backend.causal_conv1d = operator_of<SLUICE_OP_CAUSAL_CONV1D, causal_conv1d>();
  backend.gated_rms_norm = operator_of<SLUICE_OP_GATED_RMS_NORM, gated_rms_norm>();
  backend.layer_prefill =
      operator_of<SLUICE_OP_LAYER_PREFILL, layer_prefill, layer_prefill_workspace>();
  backend.layer_decode =
      operator_of<SLUICE_OP_LAYER_DECODE, layer_decode, layer_decode_workspace>();
  backend.chunk_stage = operator_of<SLUICE_OP_CHUNK_STAGE, chunk_stage, chunk_stage_workspace>();
  backend.chunk_backward =
      operator_of<SLUICE_OP_CHUNK_BACKWARD, chunk_backward, chunk_backward_workspace>();
  backend.chunk_summary = core::host_summary<sluice::cpu::backend, kSummary>();
  backend.state_fold = operator_of<SLUICE_OP_STATE_FOLD, state_fold, state_fold_workspace>();
  backend.causal_conv1d_backward =
      operator_of<SLUICE_OP_CAUSAL_CONV1D_BACKWARD, causal_conv1d_backward,
                  causal_conv1d_backward_workspace>();
  backend.gated_rms_norm_backward =
      operator_of<SLUICE_OP_GATED_RMS_NORM_BACKWARD, gated_rms_norm_backward,
                  gated_rms_norm_backward_workspace>();
  backend.layer_backward =
      operator_of<SLUICE_OP_LAYER_BACKWARD, layer_backward, layer_backward_workspace>();
  return backend;
}

}  // namespace

const core::Backend& backend() noexcept {
  static const core::Backend instance = make_backend();
  return instance;
}

}  // namespace sluice::cpu
