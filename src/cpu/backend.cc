// Enters the CPU backend into the core's table.
// SPDX-License-Identifier: Apache-2.0
#include "core/backend.hpp"

#include <cstdio>

#include "cpu/isa.hpp"
#include "cpu/kernels/causal_conv1d.hpp"
#include "cpu/kernels/chunk_backward.hpp"
#include "cpu/kernels/chunk_stage.hpp"
#include "cpu/kernels/delta_rule.hpp"
#include "cpu/kernels/gated_rms_norm.hpp"
#include "cpu/kernels/layer_decode.hpp"
#include "cpu/kernels/layer_prefill.hpp"
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
  char isas[128];
  list_isas(isas, sizeof isas);
  const int length = std::snprintf(out, size,
                                   "cpu.isa: %s\n"
                                   "cpu.isas:%s\n"
                                   "cpu.threads: %d\n",
                                   isa_name(), isas, worker_count());
  return length > 0 ? static_cast<size_t>(length) : 0;
}

/// An operator's run() as a call that the threads know of.
template <auto run, class Problem>
Status call(const Problem& problem, sluice_workspace workspace, void* stream) noexcept {
  const RunningCall running;
  Status status = run(problem, workspace, stream);
  if (running.lost_items()) {
    status = Status::failure(Code::kInternal,
                             "cpu: executor = threw an exception, expected one that returns "
                             "(sluice_set_executor; outputs are incomplete)");
  }
  return status;
}

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
      core::operator_by_sizes<select_chunk_forward, chunk_forward_workspace,
                              call<chunk_forward, core::DeltaRuleProblem>, environment>();
  backend.recurrent_step =
      core::operator_by_sizes<select_recurrent_step, recurrent_step_workspace,
                              call<recurrent_step, core::DeltaRuleProblem>, environment>();
  backend.causal_conv1d =
      core::operator_by_sizes<select_causal_conv1d, causal_conv1d_workspace,
                              call<causal_conv1d, core::CausalConvProblem>, environment>();
  backend.gated_rms_norm =
      core::operator_by_sizes<select_gated_rms_norm, gated_rms_norm_workspace,
                              call<gated_rms_norm, core::GatedNormProblem>, environment>();
  backend.layer_prefill =
      core::operator_by_sizes<select_layer_prefill, layer_prefill_workspace,
                              call<layer_prefill, core::LayerProblem>, environment>();
  backend.layer_decode =
      core::operator_by_sizes<select_layer_decode, layer_decode_workspace,
                              call<layer_decode, core::LayerProblem>, environment>();
  backend.chunk_stage =
      core::operator_by_sizes<select_chunk_stage, chunk_stage_workspace,
                              call<chunk_stage, core::ChunkStageProblem>, environment>();
  backend.chunk_backward =
      core::operator_by_sizes<select_chunk_backward, chunk_backward_workspace,
                              call<chunk_backward, core::ChunkBackwardProblem>, environment>();
  return backend;
}

}  // namespace

const core::Backend& backend() noexcept {
  static const core::Backend instance = make_backend();
  return instance;
}

}  // namespace sluice::cpu
