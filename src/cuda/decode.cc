// SPDX-License-Identifier: Apache-2.0
#include "cuda/decode.h"

#include <cuda_runtime_api.h>

#include <cstring>

#include "cuda/delta_rule.h"
#include "cuda/gpu.h"
#include "cuda/kernels/decode/launch.h"
#include "cuda/kernels/decode/ring_launch.h"
#include "cuda/kernels/decode/single_launch.h"
#include "cuda/layer_prefill.h"
#include "cuda/select.h"
#include "cuda/select_decode.h"

namespace sluice::cuda {
namespace {

using core::DeltaRuleProblem, core::LayerProblem;

/// SLUICE_CUDA_KERNEL.
bool asks_for(const char* kernel) noexcept { return std::strcmp(wished_kernel(), kernel) == 0; }

int device_of(const DeltaRuleProblem& p) noexcept { return p.q.device.index; }
int device_of(const LayerProblem& p) noexcept { return p.norm.out.device.index; }

bool has_ring(const DeltaRuleProblem& p) noexcept { return core::present(p.ring.k); }
bool has_ring(const LayerProblem& p) noexcept { return has_ring(p.delta); }

/// Whether sizes and strides are the decode kernel's, and nobody asked for another one.
template <class Problem>
Status check_choice(const Problem& p) noexcept {
  if (!asks_for("auto") && !asks_for("fused")) {
    return Status::failure(Code::kUnsupported,
                           "cuda: SLUICE_CUDA_KERNEL = %s, expected auto or "
                           "fused (CUDA decode kernel)",
                           wished_kernel());
  }
  const int capability = compute_capability(device_of(p));
  return has_ring(p) ? check_ring(p, capability) : check_decode(p, capability);
}

/// Whether it is a single token of a model. PERF every call of an operator asks three times what
/// takes it: this is asked first, and all that is asked then.
template <class Problem>
bool runs_single(const Problem& p) noexcept {
  return takes_single(p) && !has_ring(p) && (asks_for("auto") || asks_for("fused")) &&
         compute_capability(device_of(p)) == kHopperCapability;
}

int launch_single(const DeltaRuleProblem& p, int device, void* stream) noexcept {
  const int processors = multiprocessors(device);
  return decode::launch_single(lower_single(p, processors), single_kind(p, processors), p.rows.N,
                               stream);
}

int launch_single(const LayerProblem& p, int device, void* stream) noexcept {
  return decode::launch_single(lower_single(p, multiprocessors(device)), single_kind(p),
                               p.delta.rows.N, stream);
}

/// With a ring, or the kernel for all.
int launch_step(const DeltaRuleProblem& p, int device, void* stream) noexcept {
  const int processors = multiprocessors(device);
  const bool is_vk = p.state.layout == SLUICE_STATE_VK;
  if (has_ring(p)) {
    return decode::launch_ring(lower_ring(p, processors), p.rows.N, is_vk, stream);
  }
  return decode::launch(lower_decode(p, processors), p.rows.N, is_vk, false, stream);
}

int launch_step(const LayerProblem& p, int device, void* stream) noexcept {
  const int processors = multiprocessors(device);
  const bool is_vk = p.delta.state.layout == SLUICE_STATE_VK;
  if (has_ring(p)) {
    return decode::launch_ring(lower_ring(p, processors), p.delta.rows.N, is_vk, stream);
  }
  return decode::launch(lower_decode(p, processors), p.delta.rows.N, is_vk, true, stream);
}

template <class Problem>
Status enqueue(const char* op, const Problem& p, int (*launch)(const Problem&, int, void*) noexcept,
               void* stream) noexcept {
  const int device = device_of(p);
  const DeviceGuard guard(device);
  int error = guard.error();
  if (error == cudaSuccess) error = launch(p, device, stream);
  if (error == cudaSuccess) return ok_status();
  return Status::failure(Code::kDeviceError, "%s: launch = %s, expected cudaSuccess", op,
                         cudaGetErrorName(static_cast<cudaError_t>(error)));
}

}  // namespace

Status select_recurrent_step(const DeltaRuleProblem& p, core::KernelName* name) noexcept {
  if (runs_single(p)) {
    *name = single_name(p);
    return ok_status();
  }
  const Status status = check_choice(p);
  if (status.ok()) *name = has_ring(p) ? ring_name(p) : decode_name(p);
  return status.ok() || asks_for("fused") || has_ring(p) ? status : select_delta_rule(p, name);
}

size_t recurrent_step_workspace(const DeltaRuleProblem&) noexcept { return 0; }

Status run_recurrent_step(const DeltaRuleProblem& p, sluice_workspace workspace,
                          void* stream) noexcept {
  if (runs_single(p)) return enqueue<DeltaRuleProblem>("recurrent_step", p, launch_single, stream);
  return check_choice(p).ok() ? enqueue<DeltaRuleProblem>("recurrent_step", p, launch_step, stream)
                              : run_delta_rule(p, workspace, stream);
}

Status select_layer_decode(const LayerProblem& p, core::KernelName* name) noexcept {
  if (runs_single(p)) {
    *name = single_name(p);
    return ok_status();
  }
  Status status = check_choice(p);
  if (status.ok()) *name = has_ring(p) ? ring_name(p) : decode_name(p);
  if (status.ok() || asks_for("fused") || has_ring(p)) return status;
  status = select_layer_prefill(p, name);
  if (status.ok()) *name = "cuda.layer_decode.generic";
  return status;
}

size_t layer_decode_workspace(const LayerProblem& p) noexcept {
  return runs_single(p) || check_choice(p).ok() ? 0 : layer_prefill_workspace(p);
}

Status run_layer_decode(const LayerProblem& p, sluice_workspace workspace, void* stream) noexcept {
  if (runs_single(p)) return enqueue<LayerProblem>("layer_decode", p, launch_single, stream);
  return check_choice(p).ok() ? enqueue<LayerProblem>("layer_decode", p, launch_step, stream)
                              : run_layer_prefill(p, workspace, stream);
}

}  // namespace sluice::cuda
