// SPDX-License-Identifier: Apache-2.0
#include "cuda/select_decode.h"

#include "cuda/kernels/decode/plan_grid.hpp"

namespace sluice::cuda {
namespace {

using core::DeltaRuleProblem, core::LayerProblem, core::present, core::Tensor;
using ll = long long;

constexpr int kHopper = 90;
/// Lanes move four numbers at a time.
constexpr int64_t kVector = 4;
constexpr int64_t kMaxV = 1024, kMaxCtas = int64_t{1} << 30, kMaxTiles = 1 << 16;

Status check_sizes(const char* op, const DeltaRuleProblem& p, int capability) noexcept {
  if (capability != kHopper) {
    return Status::failure(Code::kUnsupported,
                           "%s: compute capability = %d.%d, expected 9.0 (CUDA decode kernel)", op,
                           capability / 10, capability % 10);
  }
  if (p.K % kVector != 0 || p.K > decode::kMaxK || p.V % kVector != 0 || p.V > kMaxV) {
    return Status::failure(Code::kUnsupported,
                           "%s: K, V = %lld, %lld, expected multiples of 4 up to %lld and %lld "
                           "(CUDA decode kernel)",
                           op, static_cast<ll>(p.K), static_cast<ll>(p.V),
                           static_cast<ll>(decode::kMaxK), static_cast<ll>(kMaxV));
  }
  return ok_status();
}

/// Whether some grid's shared memory fits, and its CTAs can be counted even with one tile each.
Status check_grid(const char* op, const DeltaRuleProblem& p, bool layer) noexcept {
  const int64_t tiles = p.r * ((p.V + decode::kTileColumns - 1) / decode::kTileColumns);
  if (tiles >= kMaxTiles || p.rows.N >= kMaxCtas || p.rows.N * p.H * tiles >= kMaxCtas) {
    return Status::failure(Code::kUnsupported,
                           "%s: N, HV, V = %lld, %lld, %lld, expected fewer than 2^30 tiles of 16 "
                           "columns, 2^16 of a key head (CUDA decode kernel)",
                           op, static_cast<ll>(p.rows.N), static_cast<ll>(p.HV),
                           static_cast<ll>(p.V));
  }
  const decode::Work work{p.rows.N * p.H,
                          static_cast<int>(tiles),
                          static_cast<int>(p.K),
                          static_cast<int>(p.r),
                          static_cast<int>(p.rows.max_tokens),
                          layer};
  const size_t bytes = shared_bytes(work, plan_grid(work, 1));
  if (bytes <= decode::kMaxSharedBytes) return ok_status();
  return Status::failure(Code::kUnsupported,
                         "%s: r, V, tokens = %lld, %lld, %lld need %lld bytes of shared memory, "
                         "expected at most %lld (CUDA decode kernel)",
                         op, static_cast<ll>(p.r), static_cast<ll>(p.V),
                         static_cast<ll>(p.rows.max_tokens), static_cast<ll>(bytes),
                         static_cast<ll>(decode::kMaxSharedBytes));
}

/// Four numbers of a state are one access.
Status check_stride(const char* op, const char* name, const Tensor& pool) noexcept {
  if (!present(pool) || pool.shape[0] <= 1 || pool.stride[0] % kVector == 0) return ok_status();
  return Status::failure(Code::kUnsupported,
                         "%s: %s.stride[0] = %lld, expected a multiple of 4 (CUDA decode kernel)",
                         op, name, static_cast<ll>(pool.stride[0]));
}

Status check_address(const char* op, const char* name, const Tensor& pool) noexcept {
  if (!present(pool)) return ok_status();
  const auto bytes = static_cast<uintptr_t>(kVector * pool.dtype.bits / 8);
  const auto misaligned = reinterpret_cast<uintptr_t>(pool.data) % bytes;
  if (misaligned == 0) return ok_status();
  return Status::failure(Code::kUnsupported,
                         "%s: %s.data address mod %d = %d, expected 0 (CUDA decode kernel)", op,
                         name, static_cast<int>(bytes), static_cast<int>(misaligned));
}

Status check(const char* op, const DeltaRuleProblem& p, int capability, bool layer) noexcept {
  Status status = check_sizes(op, p, capability);
  if (status.ok()) status = check_grid(op, p, layer);
  if (status.ok()) status = check_stride(op, "state.initial", p.state.initial);
  if (status.ok()) status = check_stride(op, "state.final", p.state.final);
  return status;
}

Status check_addresses(const char* op, const DeltaRuleProblem& p) noexcept {
  const Status status = check_address(op, "state.initial", p.state.initial);
  return status.ok() ? check_address(op, "state.final", p.state.final) : status;
}

/// By K: up to 32, 64, 128, 256.
core::KernelName name_of(int64_t K, const core::KernelName (&names)[4]) noexcept {
  const int rounded = decode::rounded_k(K);
  return names[rounded == 32 ? 0 : (rounded == 64 ? 1 : (rounded == 128 ? 2 : 3))];
}

}  // namespace

Status check_decode(const DeltaRuleProblem& problem, int capability) noexcept {
  return check("recurrent_step", problem, capability, false);
}

Status check_decode(const LayerProblem& problem, int capability) noexcept {
  return check("layer_decode", problem.delta, capability, true);
}

Status check_decode_addresses(const DeltaRuleProblem& problem) noexcept {
  return check_addresses("recurrent_step", problem);
}

Status check_decode_addresses(const LayerProblem& problem) noexcept {
  return check_addresses("layer_decode", problem.delta);
}

core::KernelName decode_name(const DeltaRuleProblem& problem) noexcept {
  return name_of(problem.K, {"cuda.recurrent_step.sm_90a.k32", "cuda.recurrent_step.sm_90a.k64",
                             "cuda.recurrent_step.sm_90a.k128", "cuda.recurrent_step.sm_90a.k256"});
}

core::KernelName decode_name(const LayerProblem& problem) noexcept {
  return name_of(problem.delta.K,
                 {"cuda.layer_decode.sm_90a.k32", "cuda.layer_decode.sm_90a.k64",
                  "cuda.layer_decode.sm_90a.k128", "cuda.layer_decode.sm_90a.k256"});
}

}  // namespace sluice::cuda
