// WHY three kernels: the delta rule wants whole chunks of q, k and v in shared memory tiles that
// the copy engine fills, so something has to write the convolved rows first; l2 norm and gates need
// one head of a chunk, so they stay inside the delta rule kernel; the norm needs a whole row of V,
// of which a work item of the delta rule may have half.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/layer_prefill.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "cuda/causal_conv1d.h"
#include "cuda/delta_rule.h"
#include "cuda/gated_rms_norm.h"
#include "cuda/gpu.h"
#include "cuda/kernels/conv1d/launch.h"
#include "cuda/kernels/gated_norm/launch.h"
#include "cuda/kernels/generic/config.h"

namespace sluice::cuda {
namespace {

using core::DeltaRuleProblem, core::LayerProblem, core::present, core::Tensor;

constexpr sluice_dtype kFloat32{2, 32};

bool same(sluice_dtype a, sluice_dtype b) noexcept { return a.code == b.code && a.bits == b.bits; }

/// A dense view [shape..].
Tensor dense_view(uintptr_t address, sluice_device device, sluice_dtype dtype,
                  std::initializer_list<int64_t> shape) noexcept {
  Tensor view{};
  view.data = reinterpret_cast<void*>(address);
  view.device = device;
  view.dtype = dtype;
  view.rank = static_cast<uint16_t>(shape.size());
  std::copy(shape.begin(), shape.end(), view.shape);
  int64_t stride = 1;
  for (int axis = view.rank; axis-- > 0; stride *= view.shape[axis]) view.stride[axis] = stride;
  return view;
}

/// Whether the fused kernel is chosen; *status: why nothing is.
bool is_fused(const DeltaRuleProblem& delta, Status* status) noexcept {
  core::KernelName name = "";
  *status = select_delta_rule(delta, &name);
  return status->ok() && std::strstr(name, ".sm_90a.") != nullptr;
}

/// The parts with their memory between them, laid out from a base address.
struct LayerPlan {
  core::CausalConvProblem conv[3];
  DeltaRuleProblem delta;
  core::GatedNormProblem norm;
  Tensor core_copy{};            ///< where the norm also writes its input; absent where it is there
  uint8_t* row_kinds = nullptr;  ///< null: all rows are live
  uintptr_t delta_workspace = 0;
  bool fused = false;
  Status status;  ///< of choosing the delta rule's kernel

  // WHY no null base: views without data count as absent. WHY 256: what workspaces are aligned to.
  static constexpr uintptr_t kAnyBase = 256;

  LayerPlan(const LayerProblem& problem, uintptr_t base) noexcept
      : delta(problem.delta), norm(problem.norm), next_(base) {
    std::copy_n(problem.conv, 3, conv);
    const int64_t B = delta.rows.B, T = delta.rows.T;
    const Tensor& x = conv[0].x;
    delta.q = take(x, x.dtype, {B, T, delta.H, delta.K});
    delta.k = take(x, x.dtype, {B, T, delta.H, delta.K});
    delta.v = take(x, x.dtype, {B, T, delta.HV, delta.V});
    const Tensor* parts[3] = {&delta.q, &delta.k, &delta.v};
    for (int i = 0; i < 3; ++i) {
      conv[i].out = dense_view(reinterpret_cast<uintptr_t>(parts[i]->data), x.device, x.dtype,
                               {B, T, conv[i].G, conv[i].C});
    }
    place_core(problem, x);
    if (present(delta.rows.cu_seqlens) || present(delta.state.read_slots)) {
      row_kinds = static_cast<uint8_t*>(take(x, {1, 8}, {B, T}).data);
    }
    delta_workspace = next_;
  }

 private:
  /// WHY memory for the core output is set aside even where core_out is given: whether the delta
  /// rule's kernel can write there depends on its address, which a size query does not have.
  void place_core(const LayerProblem& problem, const Tensor& x) noexcept {
    const int64_t B = delta.rows.B, T = delta.rows.T;
    const uintptr_t start = next_;
    delta.o = take(x, x.dtype, {B, T, delta.HV, delta.V});
    fused = is_fused(delta, &status);
    if (!fused) {
      next_ = start;
      delta.o = take(x, kFloat32, {B, T, delta.HV, delta.V});
      is_fused(delta, &status);
    }
    const Tensor& wanted = problem.delta.o;
    if (present(wanted) && same(wanted.dtype, delta.o.dtype)) {
      DeltaRuleProblem direct = delta;
      direct.o = wanted;
      Status fits;
      if (is_fused(direct, &fits) == fused && fits.ok()) {
        delta.o = wanted;
        return;  // and norm.x is a view of it already
      }
    }
    core_copy = norm.x;
    norm.x = dense_view(reinterpret_cast<uintptr_t>(delta.o.data), x.device, delta.o.dtype,
                        {B, T, delta.HV / delta.r, delta.r, delta.V});
  }

  Tensor take(const Tensor& like, sluice_dtype dtype,
              std::initializer_list<int64_t> shape) noexcept {
    const Tensor view = dense_view(next_, like.device, dtype, shape);
    int64_t elements = 1;
    for (const int64_t extent : shape) elements *= extent;
    const auto bytes = static_cast<uintptr_t>(elements * (dtype.bits / 8));
    next_ += (bytes + 255) / 256 * 256;
    return view;
  }

  uintptr_t next_;
};

int prepare(const LayerPlan& plan, void* stream) noexcept {
  conv1d::ConvParams params = lower_conv(plan.conv, 3);
  params.row_kinds = plan.row_kinds;
  return conv1d::launch(params, target_of(plan.delta.q.device.index), stream);
}

int finish(const LayerPlan& plan, void* stream) noexcept {
  gated_norm::NormParams params = lower_norm(plan.norm, plan.norm.out.dtype);
  params.copy = norm_rows(plan.core_copy);
  params.row_kinds = plan.row_kinds;
  params.row_kinds_stride = plan.delta.rows.T;
  return gated_norm::launch(params, target_of(plan.delta.q.device.index), stream);
}

const char* op_name(const LayerProblem& problem) noexcept {
  return problem.op == SLUICE_OP_LAYER_PREFILL ? "layer_prefill" : "layer_decode";
}

Status launch_status(const LayerProblem& problem, int error) noexcept {
  if (error == cudaSuccess) return ok_status();
  return Status::failure(Code::kDeviceError, "%s: launch = %s, expected cudaSuccess",
                         op_name(problem), cudaGetErrorName(static_cast<cudaError_t>(error)));
}

}  // namespace

Status select_layer_prefill(const LayerProblem& problem, core::KernelName* name) noexcept {
  if (problem.delta.K > generic::kMaxK) {
    return Status::failure(Code::kUnsupported,
                           "%s: head_k_dim = %lld, expected at most %lld (CUDA kernels)",
                           op_name(problem), static_cast<long long>(problem.delta.K),
                           static_cast<long long>(generic::kMaxK));
  }
  const LayerPlan plan(problem, LayerPlan::kAnyBase);
  if (!plan.status.ok()) return plan.status;
  *name = plan.fused ? "cuda.layer_prefill.sm_90a" : "cuda.layer_prefill.generic";
  return ok_status();
}

size_t layer_prefill_workspace(const LayerProblem& problem) noexcept {
  const LayerPlan plan(problem, LayerPlan::kAnyBase);
  return plan.delta_workspace - LayerPlan::kAnyBase + delta_rule_workspace(plan.delta);
}

Status run_layer_prefill(const LayerProblem& problem, sluice_workspace workspace,
                         void* stream) noexcept {
  const auto base = reinterpret_cast<uintptr_t>(workspace.data);
  const LayerPlan plan(problem, base);
  const DeviceGuard guard(plan.delta.q.device.index);
  int error = guard.error();
  if (error == cudaSuccess) error = prepare(plan, stream);
  if (error != cudaSuccess) return launch_status(problem, error);
  const size_t used = plan.delta_workspace - base;
  const Status status = run_delta_rule(
      plan.delta, {reinterpret_cast<void*>(plan.delta_workspace), workspace.size - used}, stream);
  return status.ok() ? launch_status(problem, finish(plan, stream)) : status;
}

}  // namespace sluice::cuda
