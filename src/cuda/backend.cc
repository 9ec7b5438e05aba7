// The CUDA backend's entry in the core's table.
// SPDX-License-Identifier: Apache-2.0
#include "core/backend.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>

#include "cuda/catalogues.h"
#include "cuda/causal_conv1d.h"
#include "cuda/chunk_backward.h"
#include "cuda/decode/catalogue.h"
#include "cuda/delta_rule.h"
#include "cuda/gated_rms_norm.h"
#include "cuda/gpu.h"
#include "cuda/kernels/backward/launch.h"
#include "cuda/kernels/chunk_h/launch.h"
#include "cuda/kernels/chunk_o/launch.h"
#include "cuda/kernels/conv1d/launch.h"
#include "cuda/kernels/gated_norm/launch.h"
#include "cuda/kernels/stages/launch.h"
#include "cuda/layer_prefill.h"
#include "cuda/select.h"
#include "cuda/stages.h"

namespace sluice::cuda {
namespace {

bool available() noexcept {
  static const bool found = [] {
    for (int device = 0; device < device_count(); ++device) {
      if (compute_capability(device) >= kOldestCapability) return true;
    }
    return false;
  }();
  return found;
}

Status warm_up(int32_t device_index) noexcept {
  const DeviceGuard guard(device_index);
  int error = guard.error();
  if (error == cudaSuccess) {
    error = load_catalogue(chunk_forward_catalogue(), machine_of(device_index));
  }
  if (error == cudaSuccess) error = conv1d::load_kernels();
  if (error == cudaSuccess) error = gated_norm::load_kernels();
  if (error == cudaSuccess) error = stages::load_kernels();
  if (error == cudaSuccess) error = backward::load_kernels();
  if (error == cudaSuccess && compute_capability(device_index) == kHopperCapability) {
    error = chunk_h::load_kernels();
    if (error == cudaSuccess) error = chunk_o::load_kernels();
  }
  const Machine machine = machine_of(device_index);
  if (error == cudaSuccess) error = load_catalogue(decode::step_kernels(), machine);
  if (error == cudaSuccess) error = load_catalogue(decode::replay_step_kernels(), machine);
  if (error == cudaSuccess) error = load_catalogue(decode::layer_kernels(), machine);
  if (error == cudaSuccess) error = load_catalogue(decode::replay_layer_kernels(), machine);
  if (error == cudaSuccess) return ok_status();
  return Status::failure(Code::kDeviceError, "warm_up: device %d = %s, expected cudaSuccess",
                         device_index, cudaGetErrorName(static_cast<cudaError_t>(error)));
}

size_t describe(char* out, size_t size) noexcept {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  const int count = device_count();
  const int length = std::snprintf(
      out, size,
      "cuda.devices: %d\n"
      "cuda.device0.compute_capability: %d\n"
      "cuda.driver: %d\n"
      "cuda.runtime: %d\n"
      "cuda.kernels.fused: chunk_forward, gated delta rule, K of 64 or 128, V of 64, 128 "
      "or 256, bfloat16 or float16, 16-byte aligned rows, compute capability 9.0\n"
      "cuda.kernels.linear_attention: chunk_forward of that rule without l2norm and chunk_o, K of "
      "64 or 128, any multiple of 64 for V, otherwise as fused\n"
      "cuda.kernels.generic: chunk_forward and recurrent_step, every dtype, rule and stride, "
      "K <= 512, any V, compute capability 8.0 or newer\n"
      "cuda.kernels.layer: causal_conv1d, gated_rms_norm and layer_prefill, every option, compute "
      "capability 8.0 or newer\n"
      "cuda.kernels.stages: chunk_stage, every option with K <= 512 where states are carried; by "
      "tensor "
      "cores: bfloat16 or float16, chunks of 64 or 128, K and V of multiples of 64 (64 or 128 for "
      "K "
      "with states), 16-byte aligned rows\n"
      "cuda.kernels.backward: chunk_backward, every option with K <= 512, in float32\n"
      "cuda.kernel_wish: %s\n",
      count, count > 0 ? compute_capability(0) : 0, driver, runtime, wished_kernel());
  size_t used = length > 0 ? static_cast<size_t>(length) : 0;
  const auto append = [&](auto catalogue) {
    const size_t at = std::min(used, size);
    used += describe_catalogue(catalogue, out + at, size - at);
  };
  append(decode::step_kernels());
  append(decode::replay_step_kernels());
  append(decode::layer_kernels());
  append(decode::replay_layer_kernels());
  return used;
}

core::Backend make_backend() noexcept {
  core::Backend backend{};
  backend.id = SLUICE_IMPL_CUDA;
  backend.name = "cuda";
  backend.description = "a fused kernel for Hopper GPUs, a generic one for all";
  backend.requirement = "an NVIDIA GPU of compute capability 8.0 or newer, a driver for CUDA 13";
  backend.device_type = SLUICE_DEVICE_CUDA;
  backend.available = available;
  backend.warm_up = warm_up;
  backend.describe = describe;
  backend.chunk_forward = {plan_chunk_forward, run_chunk_forward};
  backend.recurrent_step = decode::recurrent_step_operator();
  backend.causal_conv1d =
      core::operator_by_sizes<select_causal_conv1d, causal_conv1d_workspace, run_causal_conv1d>();
  backend.gated_rms_norm = core::operator_by_sizes<select_gated_rms_norm, gated_rms_norm_workspace,
                                                   run_gated_rms_norm>();
  backend.layer_decode = decode::layer_decode_operator();
  backend.chunk_stage =
      core::operator_by_sizes<select_chunk_stage, chunk_stage_workspace, run_chunk_stage>();
  backend.chunk_backward = core::operator_by_sizes<select_chunk_backward, chunk_backward_workspace,
                                                   run_chunk_backward>();
  backend.layer_prefill =
      core::operator_by_sizes<select_layer_prefill, layer_prefill_workspace, run_layer_prefill>();
  return backend;
}

}  // namespace

const core::Backend& backend() noexcept {
  static const core::Backend instance = make_backend();
  return instance;
}

}  // namespace sluice::cuda
