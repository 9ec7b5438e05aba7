// SPDX-License-Identifier: Apache-2.0
#include "cuda/select.h"

#include <initializer_list>

#include "cuda/kernels/generic/config.h"

namespace sluice::cuda {
namespace {

using core::Tensor, core::DeltaRuleProblem;
using ll = long long;

constexpr int kBf16Code = 4, kFloatCode = 2;
constexpr int64_t kInt32Limit = int64_t{1} << 31;

bool is_16bit_float(const Tensor& t) noexcept {
  return t.dtype.bits == 16 && (t.dtype.code == kBf16Code || t.dtype.code == kFloatCode);
}

bool is_linear(const DeltaRuleProblem& p) noexcept {
  return p.rule == SLUICE_RULE_LINEAR_ATTENTION;
}

const char* op_name(const DeltaRuleProblem& p) noexcept {
  return p.op == SLUICE_OP_CHUNK_FORWARD ? "chunk_forward" : "recurrent_step";
}

/// The copy engine wants strides that are multiples of 16 bytes.
Status check_tile_strides(const char* name, const Tensor& t) noexcept {
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t stride = t.stride[axis];
    if (t.shape[axis] > 1 && (stride <= 0 || stride % 8 != 0 || stride >= kInt32Limit * 128)) {
      return Status::failure(Code::kUnsupported,
                             "chunk_forward: %s.stride[%d] = %lld, expected a positive multiple of "
                             "8 below 2^38 (fused CUDA kernel)",
                             name, axis, static_cast<ll>(stride));
    }
  }
  return ok_status();
}

/// ... and addresses likewise.
Status check_tile_address(const char* name, const Tensor& t) noexcept {
  const auto misaligned = reinterpret_cast<uintptr_t>(t.data) % 16;
  if (misaligned == 0) return ok_status();
  return Status::failure(
      Code::kUnsupported,
      "chunk_forward: %s.data address mod 16 = %d, expected 0 (fused CUDA kernel)", name,
      static_cast<int>(misaligned));
}

Status check_fused_options(const DeltaRuleProblem& p, int capability) noexcept {
  if (p.op != SLUICE_OP_CHUNK_FORWARD) {
    return Status::failure(Code::kUnsupported,
                           "%s: SLUICE_CUDA_KERNEL = fused, expected generic or auto (the fused "
                           "CUDA kernel is one of chunk_forward)",
                           op_name(p));
  }
  if (capability != kHopperCapability) {
    return Status::failure(Code::kUnsupported,
                           "chunk_forward: compute capability = %d.%d, expected 9.0 (fused CUDA "
                           "kernel)",
                           capability / 10, capability % 10);
  }
  if (core::present(p.key_gate)) {
    return Status::failure(Code::kUnsupported,
                           "chunk_forward: gate rank = 4, expected 3 (fused CUDA kernel)");
  }
  if (is_linear(p) && p.qk_norm != SLUICE_QK_NORM_NONE) {
    return Status::failure(Code::kUnsupported,
                           "chunk_forward: qk_norm = %d, expected 0 with rule 1 (fused CUDA "
                           "kernel of LINEAR_ATTENTION)",
                           static_cast<int>(p.qk_norm));
  }
  return ok_status();
}

/// K and V. Work items of linear attention have 64 or 128 columns, of as many as there are.
Status check_fused_heads(const DeltaRuleProblem& p) noexcept {
  const bool wide = p.K == 64 || p.K == 128;
  if (is_linear(p)) {
    if (wide && p.V % 64 == 0 && p.V > 0) return ok_status();
    return Status::failure(Code::kUnsupported,
                           "chunk_forward: K, V = %lld, %lld, expected 64 or 128, and a multiple "
                           "of 64 (fused CUDA kernel of LINEAR_ATTENTION)",
                           static_cast<ll>(p.K), static_cast<ll>(p.V));
  }
  if (!wide || (p.V != 64 && p.V != 128 && p.V != 256)) {
    return Status::failure(Code::kUnsupported,
                           "chunk_forward: K, V = %lld, %lld, expected 64 or 128, and 64, 128 or "
                           "256 (fused CUDA kernel)",
                           static_cast<ll>(p.K), static_cast<ll>(p.V));
  }
  return ok_status();
}

Status check_fused_sizes(const DeltaRuleProblem& p) noexcept {
  if (const Status status = check_fused_heads(p); !status.ok()) return status;
  if (!is_16bit_float(p.q) || p.o.dtype.code != p.q.dtype.code || p.o.dtype.bits != 16) {
    return Status::failure(Code::kUnsupported,
                           "chunk_forward: q.dtype, o.dtype = {%d,%d}, {%d,%d}, expected both "
                           "bfloat16 or both float16 (fused CUDA kernel)",
                           p.q.dtype.code, p.q.dtype.bits, p.o.dtype.code, p.o.dtype.bits);
  }
  if (p.rows.T >= kInt32Limit - 64 || p.rows.N * p.HV >= kInt32Limit / 2) {
    return Status::failure(Code::kUnsupported,
                           "chunk_forward: T, N * HV = %lld, %lld, expected below 2^31 - 64 and "
                           "2^30 (fused CUDA kernel)",
                           static_cast<ll>(p.rows.T), static_cast<ll>(p.rows.N * p.HV));
  }
  return ok_status();
}

struct NamedView {
  const char* name;
  const Tensor& tensor;
};

/// Everything but addresses.
Status check_fused(const DeltaRuleProblem& p, int capability) noexcept {
  Status status = check_fused_options(p, capability);
  if (status.ok()) status = check_fused_sizes(p);
  for (const auto& [name, tensor] :
       {NamedView{"q", p.q}, NamedView{"k", p.k}, NamedView{"v", p.v}, NamedView{"o", p.o}}) {
    if (status.ok()) status = check_tile_strides(name, tensor);
  }
  return status;
}

Status check_addresses(const DeltaRuleProblem& p) noexcept {
  Status status = ok_status();
  for (const auto& [name, tensor] :
       {NamedView{"q", p.q}, NamedView{"k", p.k}, NamedView{"v", p.v}, NamedView{"o", p.o}}) {
    if (status.ok()) status = check_tile_address(name, tensor);
  }
  return status;
}

Status check_generic(const DeltaRuleProblem& p, int capability) noexcept {
  if (capability < kOldestCapability) {
    return Status::failure(Code::kUnsupported,
                           "%s: compute capability = %d.%d, expected 8.0 or newer (CUDA kernels)",
                           op_name(p), capability / 10, capability % 10);
  }
  if (p.K > generic::kMaxK) {
    return Status::failure(Code::kUnsupported,
                           "%s: k.shape[3] = %lld, expected at most %lld (CUDA kernels)",
                           op_name(p), static_cast<ll>(p.K), static_cast<ll>(generic::kMaxK));
  }
  return ok_status();
}

/// Of one dtype, K and V: whole, in 64 columns of V, cut, and both.
#define SLUICE_WAYS(name)                                                          \
  "cuda.chunk_forward.sm_90a." name, "cuda.chunk_forward.sm_90a." name ".columns", \
      "cuda.chunk_forward.sm_90a." name ".segments",                               \
      "cuda.chunk_forward.sm_90a." name ".columns.segments"
#define SLUICE_FUSED(name) {SLUICE_WAYS(name)}
#define SLUICE_LINEAR(name)                                          \
  {SLUICE_WAYS(name), "cuda.chunk_forward.sm_90a." name ".clusters", \
   "cuda.chunk_forward.sm_90a." name ".prefix"}
/// By dtype (bfloat16 first), K (64 first) and V (64 first).
constexpr core::KernelName kFusedNames[2][2][3][4] = {
    {{SLUICE_FUSED("bf16.k64.v64"), SLUICE_FUSED("bf16.k64.v128"), SLUICE_FUSED("bf16.k64.v256")},
     {SLUICE_FUSED("bf16.k128.v64"), SLUICE_FUSED("bf16.k128.v128"),
      SLUICE_FUSED("bf16.k128.v256")}},
    {{SLUICE_FUSED("fp16.k64.v64"), SLUICE_FUSED("fp16.k64.v128"), SLUICE_FUSED("fp16.k64.v256")},
     {SLUICE_FUSED("fp16.k128.v64"), SLUICE_FUSED("fp16.k128.v128"),
      SLUICE_FUSED("fp16.k128.v256")}}};
/// Of linear attention, by dtype and K; the last ones in clusters, and with prefixes.
constexpr core::KernelName kLinearNames[2][2][6] = {
    {SLUICE_LINEAR("linear.bf16.k64"), SLUICE_LINEAR("linear.bf16.k128")},
    {SLUICE_LINEAR("linear.fp16.k64"), SLUICE_LINEAR("linear.fp16.k128")}};
#undef SLUICE_LINEAR
#undef SLUICE_FUSED
#undef SLUICE_WAYS

core::KernelName fused_name(const DeltaRuleProblem& p, const device::SplitRequest& split) noexcept {
  const bool narrow = p.V > 64 && split.columns == 64,
             cut = split.rule != device::SplitRule::kWhole;
  const int type = p.q.dtype.code == kBf16Code ? 0 : 1, way = (narrow ? 1 : 0) + (cut ? 2 : 0);
  if (is_linear(p)) return kLinearNames[type][p.K / 128][linear_way(split, p.V)];
  return kFusedNames[type][p.K / 128][p.V / 128][way];
}

core::KernelName generic_name(const DeltaRuleProblem& p) noexcept {
  return p.op == SLUICE_OP_CHUNK_FORWARD ? "cuda.chunk_forward.generic"
                                         : "cuda.recurrent_step.generic";
}

}  // namespace

Status choose_kernel(const DeltaRuleProblem& problem, const Gpu& gpu, const Environment& wish,
                     KernelChoice* choice) noexcept {
  if (wish.kernel != KernelOverride::kGeneric) {
    Status status = check_fused(problem, gpu.capability);
    if (status.ok()) status = check_addresses(problem);
    if (status.ok()) {
      const auto split = choose_split(problem, gpu.room(), wish.cut);
      *choice = {DeltaKernel::kFused, fused_name(problem, split), split};
    }
    if (status.ok() || wish.kernel == KernelOverride::kFused) return status;
  }
  const Status status = check_generic(problem, gpu.capability);
  if (status.ok()) *choice = {DeltaKernel::kGeneric, generic_name(problem), {}};
  return status;
}

bool may_be_fused(const DeltaRuleProblem& problem, const Gpu& gpu,
                  const Environment& wish) noexcept {
  return wish.kernel != KernelOverride::kGeneric && check_fused(problem, gpu.capability).ok();
}

}  // namespace sluice::cuda
