// Fills in the CUDA backend's entry of the core's table from the catalogues of its operators.
// SPDX-License-Identifier: Apache-2.0
#include "core/backend.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <initializer_list>

#include "cuda/catalogues.h"
#include "cuda/read_indices.h"

namespace sluice::cuda {
namespace {

bool available() noexcept {
  static const bool found = [] {
    for (int device = 0; device < device_count(); ++device) {
      if (machine_of(device).capability >= kOldestCapability) return true;
    }
    return false;
  }();
  return found;
}

/// In the order of docs/ops.md.
template <class Visit>
void for_each_catalogue(Visit visit) noexcept {
  visit(chunk_forward_catalogue());
  visit(recurrent_step_catalogue());
  visit(causal_conv1d_catalogue());
  visit(causal_conv1d_backward_catalogue());
  visit(gated_rms_norm_backward_catalogue());
  visit(gated_rms_norm_catalogue());
  visit(layer_prefill_catalogue());
  visit(layer_decode_catalogue());
  visit(chunk_stage_catalogue());
  visit(chunk_backward_catalogue());
  visit(chunk_summary_catalogue());
  visit(state_fold_catalogue());
}

Status warm_up(int32_t device_index) noexcept {
  const DeviceGuard guard(device_index);
  int error = guard.error();
  if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice) {
    return Status::failure(Code::kDeviceError,
                           "warm_up: device %d = %s, expected a GPU (no NVIDIA driver for CUDA %d "
                           "or newer was found, or it shows this process no GPU)",
                           device_index, cudaGetErrorName(static_cast<cudaError_t>(error)),
                           CUDART_VERSION / 1000);
  }
  const Machine machine = machine_of(device_index);
  for_each_catalogue([&](auto catalogue) {
    if (error == cudaSuccess) error = load_catalogue(catalogue, machine);
  });
  if (error == cudaSuccess) return ok_status();
  return Status::failure(Code::kDeviceError, "warm_up: device %d = %s, expected cudaSuccess",
                         device_index, cudaGetErrorName(static_cast<cudaError_t>(error)));
}

/// SLUICE_CUDA_KERNEL by KernelOverride.
constexpr const char* kKernelWords[] = {"auto", "fused", "generic"};

/// "cuda.device0: NVIDIA H200, compute capability 9.0, 132 multiprocessors, 139 GiB".
size_t describe_device(int device, char* out, size_t size) noexcept {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) return 0;
  const int length = std::snprintf(
      out, size, "cuda.device%d: %s, compute capability %d.%d, %d multiprocessors, %zu GiB\n",
      device, properties.name, properties.major, properties.minor, properties.multiProcessorCount,
      properties.totalGlobalMem >> 30);
  return length > 0 ? static_cast<size_t>(length) : 0;
}

size_t describe(char* out, size_t size) noexcept {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  const int count = device_count();
  const int length =
      std::snprintf(out, size,
                    "cuda.devices: %d\n"
                    "cuda.driver: %d\n"
                    "cuda.runtime: %d\n"
                    "cuda.kernel_override: %s\n",
                    count, driver, runtime, kKernelWords[static_cast<int>(environment().kernel)]);
  size_t used = length > 0 ? static_cast<size_t>(length) : 0;
  for (int device = 0; device < count; ++device) {
    const size_t at = std::min(used, size);
    used += describe_device(device, out + at, size - at);
  }
  for_each_catalogue([&](auto catalogue) {
    const size_t at = std::min(used, size);
    used += describe_catalogue(catalogue, out + at, size - at);
  });
  return used;
}

// The GPU that a problem is for, and the operator's name in messages.

int device_of(const core::DeltaRuleProblem& p) noexcept { return p.q.device.index; }
int device_of(const core::CausalConvProblem& p) noexcept { return p.x.device.index; }
int device_of(const core::GatedNormProblem& p) noexcept { return p.out.device.index; }
int device_of(const core::CausalConvBackwardProblem& p) noexcept { return p.d_out.device.index; }
int device_of(const core::GatedNormBackwardProblem& p) noexcept { return p.d_out.device.index; }
int device_of(const core::LayerProblem& p) noexcept { return p.conv[0].x.device.index; }
int device_of(const core::ChunkBackwardProblem& p) noexcept { return p.forward.q.device.index; }
int device_of(const core::ChunkSummaryProblem& p) noexcept { return p.forward.k.device.index; }
int device_of(const core::StateFoldProblem& p) noexcept { return p.addend.device.index; }
int device_of(const core::ChunkStageProblem& p) noexcept {
  for (const core::Tensor* t : {&p.k, &p.g_cumsum, &p.A_inverse}) {
    if (core::present(*t)) return t->device.index;
  }
  return p.o.device.index;
}

const char* name_of(const core::DeltaRuleProblem& p) noexcept {
  return p.op == SLUICE_OP_CHUNK_FORWARD ? "chunk_forward" : "recurrent_step";
}
const char* name_of(const core::CausalConvProblem&) noexcept { return "causal_conv1d"; }
const char* name_of(const core::GatedNormProblem&) noexcept { return "gated_rms_norm"; }
const char* name_of(const core::CausalConvBackwardProblem&) noexcept {
  return "causal_conv1d_backward";
}
const char* name_of(const core::GatedNormBackwardProblem&) noexcept {
  return "gated_rms_norm_backward";
}
const char* name_of(const core::ChunkBackwardProblem&) noexcept { return "chunk_backward"; }
const char* name_of(const core::ChunkSummaryProblem&) noexcept { return "chunk_summary"; }
const char* name_of(const core::StateFoldProblem&) noexcept { return "state_fold"; }
const char* name_of(const core::ChunkStageProblem& p) noexcept { return core::stage_name(p.stage); }
const char* name_of(const core::LayerProblem& p) noexcept {
  return p.op == SLUICE_OP_LAYER_PREFILL ? "layer_prefill" : "layer_decode";
}

/// An operator that is planned by a catalogue on the GPU of its tensors.
template <auto catalogue>
constexpr auto operator_by() noexcept {
  return []<class Problem>(Catalogue<Problem> (*)() noexcept) {
    return core::Operator<Problem>{
        [](const Problem& problem, core::PlanFor purpose, core::Plan* plan) noexcept {
          return plan_by(catalogue(), problem, machine_of(device_of(problem)), environment(),
                         purpose, plan);
        },
        [](const Problem& problem, const core::Plan& plan, sluice_workspace workspace,
           void* stream) noexcept {
          return run_plan(name_of(problem), problem, plan, machine_of(device_of(problem)),
                          workspace.data, stream);
        }};
  }(catalogue);
}

core::Backend make_backend() noexcept {
  core::Backend backend{};
  backend.id = SLUICE_IMPL_CUDA;
  backend.name = "cuda";
  backend.description = "kernels for Hopper GPUs, and generic ones for every GPU since Ampere";
  backend.requirement = "an NVIDIA GPU of compute capability 8.0 or newer, a driver for CUDA 13";
  backend.device_type = SLUICE_DEVICE_CUDA;
  backend.available = available;
  backend.warm_up = warm_up;
  backend.describe = describe;
  backend.read_indices = read_indices;
  backend.chunk_forward = operator_by<chunk_forward_catalogue>();
  backend.recurrent_step = operator_by<recurrent_step_catalogue>();
  backend.layer_decode = operator_by<layer_decode_catalogue>();
  backend.causal_conv1d = operator_by<causal_conv1d_catalogue>();
  backend.gated_rms_norm = operator_by<gated_rms_norm_catalogue>();
  backend.causal_conv1d_backward = operator_by<causal_conv1d_backward_catalogue>();
  backend.gated_rms_norm_backward = operator_by<gated_rms_norm_backward_catalogue>();
  backend.chunk_stage = operator_by<chunk_stage_catalogue>();
  backend.chunk_backward = operator_by<chunk_backward_catalogue>();
  backend.chunk_summary = operator_by<chunk_summary_catalogue>();
  backend.state_fold = operator_by<state_fold_catalogue>();
  backend.layer_prefill = operator_by<layer_prefill_catalogue>();
  return backend;
}

}  // namespace

const core::Backend& backend() noexcept {
  static const core::Backend instance = make_backend();
  return instance;
}

}  // namespace sluice::cuda
