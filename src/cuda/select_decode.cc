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
constexpr int64_t kMaxV = 1024, kMaxCtas = 1 << 16, kMaxTiles = 1 << 12;

Status check_sizes(const char* op, const DeltaRuleProblem& p, int capability) noexcept {
  if (capability != kHopper) {
    return Status::failure(Code::kUnsupported,
                           "%s: compute capability = %d.%d, expected 9.0 (CUDA decode kernel)", op,
                           capability / 10, capability % 10);
  }
  if (p.K <= decode::kMaxK && p.V <= kMaxV) return ok_status();
  return Status::failure(Code::kUnsupported,
                         "%s: K, V = %lld, %lld, expected at most %lld and %lld (CUDA decode "
                         "kernel)",
                         op, static_cast<ll>(p.K), static_cast<ll>(p.V),
                         static_cast<ll>(decode::kMaxK), static_cast<ll>(kMaxV));
}

/// Four numbers of a state are one access.
Status check_pool(const char* name, const Tensor& pool) noexcept {
  if (!present(pool)) return ok_status();
  const auto bytes = static_cast<uintptr_t>(kVector * pool.dtype.bits / 8);
  const auto misaligned = reinterpret_cast<uintptr_t>(pool.data) % bytes;
  if (misaligned != 0) {
    return Status::failure(Code::kUnsupported,
                           "recurrent_step: %s.data address mod %d = %d, expected 0 (CUDA decode "
                           "kernel)",
                           name, static_cast<int>(bytes), static_cast<int>(misaligned));
  }
  if (pool.shape[0] <= 1 || pool.stride[0] % kVector == 0) return ok_status();
  return Status::failure(Code::kUnsupported,
                         "recurrent_step: %s.stride[0] = %lld, expected a multiple of 4 (CUDA "
                         "decode kernel)",
                         name, static_cast<ll>(pool.stride[0]));
}

Status check_vectors(const DeltaRuleProblem& p) noexcept {
  if (p.K % kVector != 0 || p.V % kVector != 0) {
    return Status::failure(
        Code::kUnsupported,
        "recurrent_step: K, V = %lld, %lld, expected multiples of 4 (CUDA decode "
        "kernel)",
        static_cast<ll>(p.K), static_cast<ll>(p.V));
  }
  const Status status = check_pool("state.initial", p.state.initial);
  return status.ok() ? check_pool("state.final", p.state.final) : status;
}

/// Whether some grid's shared memory fits, and its dimensions are legal.
Status check_grid(const char* op, const DeltaRuleProblem& p, bool layer) noexcept {
  constexpr int64_t kColumns = 1 << decode::kMinColumnBits;
  const int64_t tiles = p.r * ((p.V + kColumns - 1) / kColumns);
  if (tiles >= kMaxTiles || p.rows.N >= kMaxCtas || p.H >= kMaxCtas) {
    return Status::failure(Code::kUnsupported,
                           "%s: N, H, tiles = %lld, %lld, %lld, expected below 2^16, 2^16 and 2^12 "
                           "(CUDA decode kernel; a tile is 32 columns of a value head of a key "
                           "head)",
                           op, static_cast<ll>(p.rows.N), static_cast<ll>(p.H),
                           static_cast<ll>(tiles));
  }
  const decode::Work work{p.rows.N * p.H,
                          static_cast<int>(p.V),
                          static_cast<int>(p.K),
                          static_cast<int>(p.r),
                          static_cast<int>(p.rows.max_tokens),
                          layer,
                          layer && !check_vectors(p).ok()};
  const size_t bytes = shared_bytes(work, plan_grid(work, 1));
  if (bytes <= decode::kMaxSharedBytes) return ok_status();
  return Status::failure(Code::kUnsupported,
                         "%s: r, V, tokens = %lld, %lld, %lld need %lld bytes of shared memory, "
                         "expected at most %lld (CUDA decode kernel)",
                         op, static_cast<ll>(p.r), static_cast<ll>(p.V),
                         static_cast<ll>(p.rows.max_tokens), static_cast<ll>(bytes),
                         static_cast<ll>(decode::kMaxSharedBytes));
}

/// By K: up to 64, 128, 256.
core::KernelName name_of(int64_t K, const core::KernelName (&names)[3]) noexcept {
  const int rounded = decode::rounded_k(K, false);
  return names[rounded == 64 ? 0 : (rounded == 128 ? 1 : 2)];
}

}  // namespace

bool moves_vectors(const DeltaRuleProblem& problem) noexcept { return check_vectors(problem).ok(); }

Status check_decode(const DeltaRuleProblem& problem, int capability) noexcept {
  if (present(problem.key_gate)) {
    return Status::failure(Code::kUnsupported,
                           "recurrent_step: gate rank = 4, expected 3 (CUDA decode kernel)");
  }
  Status status = check_sizes("recurrent_step", problem, capability);
  if (status.ok()) status = check_vectors(problem);
  return status.ok() ? check_grid("recurrent_step", problem, false) : status;
}

Status check_decode(const LayerProblem& problem, int capability) noexcept {
  const Status status = check_sizes("layer_decode", problem.delta, capability);
  return status.ok() ? check_grid("layer_decode", problem.delta, true) : status;
}

core::KernelName single_name(const DeltaRuleProblem&) noexcept {
  return "cuda.recurrent_step.sm_90a.single_k128";
}

core::KernelName single_name(const LayerProblem&) noexcept {
  return "cuda.layer_decode.sm_90a.single_k128";
}

core::KernelName decode_name(const DeltaRuleProblem& problem) noexcept {
  if (takes_single(problem)) return single_name(problem);
  return name_of(problem.K, {"cuda.recurrent_step.sm_90a.k64", "cuda.recurrent_step.sm_90a.k128",
                             "cuda.recurrent_step.sm_90a.k256"});
}

core::KernelName decode_name(const LayerProblem& problem) noexcept {
  if (takes_single(problem)) return single_name(problem);
  if (!moves_vectors(problem.delta)) return "cuda.layer_decode.sm_90a.by_element";
  return name_of(problem.delta.K, {"cuda.layer_decode.sm_90a.k64", "cuda.layer_decode.sm_90a.k128",
                                   "cuda.layer_decode.sm_90a.k256"});
}

}  // namespace sluice::cuda
