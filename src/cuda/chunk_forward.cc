// Lowers chunk_forward problems to the fused prefill kernel's parameters.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/chunk_forward.h"

#include <cuda_runtime_api.h>

#include "cuda/kernels/chunk_forward/launch.h"

namespace sluice::cuda {
namespace {

namespace kernel = chunk_forward;
using core::present, core::Tensor, core::DeltaRuleProblem;
using ll = long long;

constexpr int kBf16Code = 4, kFloatCode = 2;
constexpr int64_t kInt32Limit = int64_t{1} << 31;

bool is_bf16(const Tensor& t) noexcept { return t.dtype.code == kBf16Code; }
bool is_16bit_float(const Tensor& t) noexcept {
  return t.dtype.bits == 16 && (t.dtype.code == kBf16Code || t.dtype.code == kFloatCode);
}

kernel::Number number_of(const Tensor& t) noexcept {
  if (t.dtype.bits == 32) return kernel::Number::kFloat32;
  return is_bf16(t) ? kernel::Number::kBfloat16 : kernel::Number::kFloat16;
}

/// The copy engine wants 16-byte aligned bases and strides.
Status check_tile_view(const char* name, const Tensor& t) noexcept {
  const auto misaligned = reinterpret_cast<uintptr_t>(t.data) % 16;
  if (misaligned != 0) {
    return Status::failure(Code::kUnsupported,
                           "chunk_forward: %s.data address mod 16 = %d, expected 0 (the CUDA "
                           "kernel's copies)",
                           name, static_cast<int>(misaligned));
  }
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t stride = t.stride[axis];
    if (t.shape[axis] > 1 && (stride <= 0 || stride % 8 != 0 || stride >= kInt32Limit * 128)) {
      return Status::failure(Code::kUnsupported,
                             "chunk_forward: %s.stride[%d] = %lld, expected a positive multiple of "
                             "8 below 2^38 (the CUDA kernel's copies)",
                             name, axis, static_cast<ll>(stride));
    }
  }
  return ok_status();
}

Status check_shapes(const DeltaRuleProblem& p) noexcept {
  if (p.rule != SLUICE_RULE_GATED_DELTA) {
    return Status::failure(Code::kUnsupported,
                           "chunk_forward: rule = %d, expected 0 (CUDA kernels: GATED_DELTA)",
                           static_cast<int>(p.rule));
  }
  if (p.K != 128 || p.V != 128) {
    return Status::failure(Code::kUnsupported,
                           "chunk_forward: K, V = %lld, %lld, expected 128, 128 (CUDA kernels: "
                           "K = V = 128 in bfloat16 or float16)",
                           static_cast<ll>(p.K), static_cast<ll>(p.V));
  }
  if (!is_16bit_float(p.q) || p.o.dtype.code != p.q.dtype.code || p.o.dtype.bits != 16) {
    return Status::failure(Code::kUnsupported,
                           "chunk_forward: q.dtype, o.dtype = {%d,%d}, {%d,%d}, expected both "
                           "bfloat16 or both float16 (CUDA kernels)",
                           p.q.dtype.code, p.q.dtype.bits, p.o.dtype.code, p.o.dtype.bits);
  }
  if (p.rows.T >= kInt32Limit - 64 || p.rows.N * p.HV >= kInt32Limit) {
    return Status::failure(Code::kUnsupported,
                           "chunk_forward: T, N * HV = %lld, %lld, expected below 2^31 - 64 and "
                           "2^31 (CUDA kernels)",
                           static_cast<ll>(p.rows.T), static_cast<ll>(p.rows.N * p.HV));
  }
  return ok_status();
}

tile::TokenTensor token_tensor(const Tensor& t) noexcept {
  return {t.data,      t.shape[0],  t.shape[1],  t.shape[2], t.shape[3],
          t.stride[0], t.stride[1], t.stride[2], is_bf16(t)};
}

kernel::TokenScalar token_scalar(const Tensor& t) noexcept {
  if (!present(t)) return {};
  const int64_t bytes = t.dtype.bits / 8;
  return {t.data,
          t.stride[0] * bytes,
          t.stride[1] * bytes,
          t.stride[2] * bytes,
          t.stride[3] * bytes,
          number_of(t)};
}

kernel::HeadScalar head_scalar(const Tensor& t) noexcept {
  return present(t) ? kernel::HeadScalar{t.data, t.stride[0], number_of(t)} : kernel::HeadScalar{};
}

kernel::IndexVector index_vector(const Tensor& t) noexcept {
  return present(t) ? kernel::IndexVector{t.data, t.stride[0], t.dtype.bits == 64}
                    : kernel::IndexVector{};
}

kernel::StatePool state_pool(const Tensor& t) noexcept {
  return present(t) ? kernel::StatePool{t.data, t.stride[0], number_of(t)} : kernel::StatePool{};
}

kernel::GateForm gate_form(const DeltaRuleProblem& p) noexcept {
  if (!present(p.gate)) return kernel::GateForm::kNone;
  if (p.gate_space == SLUICE_GATE_RAW) return kernel::GateForm::kRaw;
  return p.gate_space == SLUICE_GATE_LINEAR ? kernel::GateForm::kLinear : kernel::GateForm::kLog;
}

kernel::BetaForm beta_form(const DeltaRuleProblem& p) noexcept {
  if (!present(p.beta)) return kernel::BetaForm::kNone;
  return p.beta_space == SLUICE_BETA_LOGIT ? kernel::BetaForm::kLogit : kernel::BetaForm::kValue;
}

void lower_states(const DeltaRuleProblem& p, kernel::ChunkForwardParams* out) noexcept {
  out->initial = state_pool(p.state.initial);
  out->final = state_pool(p.state.final);
  out->read_slots = index_vector(p.state.read_slots);
  out->write_slots = index_vector(p.state.write_slots);
  out->pad_below = p.state.pad_below;
  out->state_is_vk = p.state.layout == SLUICE_STATE_VK;
  if (present(p.state.has_initial_state)) {
    out->has_initial_state = static_cast<const uint8_t*>(p.state.has_initial_state.data);
    out->has_initial_stride = p.state.has_initial_state.stride[0];
  }
  out->checkpoints = state_pool(p.checkpoints);
  if (present(p.checkpoints)) {
    out->checkpoint_slots = index_vector(p.checkpoint_slots);
    out->checkpoint_columns = p.checkpoint_slots.shape[1];
    out->checkpoint_column_stride = p.checkpoint_slots.stride[1];
    out->checkpoint_chunks = p.checkpoint_every / 64;
  }
}

kernel::ChunkForwardParams lower(const DeltaRuleProblem& p) noexcept {
  kernel::ChunkForwardParams out{};
  out.gate = token_scalar(p.gate);
  out.beta = token_scalar(p.beta);
  out.A_log = head_scalar(p.A_log);
  out.dt_bias = head_scalar(p.dt_bias);
  out.cu_seqlens = index_vector(p.rows.cu_seqlens);
  lower_states(p, &out);
  out.head_map_cyclic = p.head_map == SLUICE_HEAD_MAP_CYCLIC;
  out.gate_form = gate_form(p);
  out.beta_form = beta_form(p);
  out.scale = static_cast<float>(p.scale);
  out.beta_factor = static_cast<float>(p.beta_factor);
  out.l2norm_eps = static_cast<float>(p.l2norm_eps);
  out.N = static_cast<int32_t>(p.rows.N);
  out.T = static_cast<int32_t>(p.rows.T);
  out.H = static_cast<int32_t>(p.H);
  out.HV = static_cast<int32_t>(p.HV);
  out.r = static_cast<int32_t>(p.r);
  return out;
}

}  // namespace

Status select_chunk_forward(const DeltaRuleProblem& p, core::KernelName* name) noexcept {
  Status status = check_shapes(p);
  if (status.ok()) status = check_tile_view("q", p.q);
  if (status.ok()) status = check_tile_view("k", p.k);
  if (status.ok()) status = check_tile_view("v", p.v);
  if (status.ok()) status = check_tile_view("o", p.o);
  if (!status.ok()) return status;
  *name =
      is_bf16(p.q) ? "cuda.chunk_forward.sm_90a.bf16.d128" : "cuda.chunk_forward.sm_90a.fp16.d128";
  return ok_status();
}

size_t chunk_forward_workspace(const DeltaRuleProblem& p) noexcept {
  return present(p.rows.cu_seqlens) ? kernel::workspace_bytes(p.rows.N) : 0;
}

Status run_chunk_forward(const DeltaRuleProblem& p, sluice_workspace workspace,
                         void* stream) noexcept {
  int previous = 0;
  cudaError_t error = cudaGetDevice(&previous);
  if (error == cudaSuccess && previous != p.q.device.index) {
    error = cudaSetDevice(p.q.device.index);
  }
  if (error == cudaSuccess) {
    const kernel::Tiles tiles{token_tensor(p.q), token_tensor(p.k), token_tensor(p.v),
                              token_tensor(p.o), p.qk_norm == SLUICE_QK_NORM_L2};
    error = static_cast<cudaError_t>(kernel::launch(lower(p), tiles, workspace.data, stream));
  }
  if (previous != p.q.device.index) cudaSetDevice(previous);
  if (error != cudaSuccess) {
    return Status::failure(Code::kDeviceError, "chunk_forward: launch = %s, expected cudaSuccess",
                           cudaGetErrorName(error));
  }
  return ok_status();
}

}  // namespace sluice::cuda
