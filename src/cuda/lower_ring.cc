// Steps with a replay ring: whether the ring kernel takes a problem, and the problem as it takes
// it. SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/plan_grid.hpp"
#include "cuda/kernels/decode/ring_launch.h"
#include "cuda/lower_views.h"
#include "cuda/select_decode.h"

namespace sluice::cuda {
namespace {

using core::DeltaRuleProblem, core::Tensor;
using ll = long long;

/// Four numbers of an entry are one access.
Status check_entries(const char* name, const Tensor& t) noexcept {
  const auto bytes = static_cast<uintptr_t>(4 * t.dtype.bits / 8);
  const auto misaligned = reinterpret_cast<uintptr_t>(t.data) % bytes;
  if (misaligned != 0) {
    return Status::failure(Code::kUnsupported,
                           "recurrent_step: %s.data address mod %d = %d, expected 0 (CUDA ring "
                           "kernel)",
                           name, static_cast<int>(bytes), static_cast<int>(misaligned));
  }
  if (t.shape[0] <= 1 || t.stride[0] % 4 == 0) return ok_status();
  return Status::failure(Code::kUnsupported,
                         "recurrent_step: %s.stride[0] = %lld, expected a multiple of 4 (CUDA ring "
                         "kernel)",
                         name, static_cast<ll>(t.stride[0]));
}

decode::RingArray entries_of(const Tensor& t) noexcept {
  return {t.data, t.stride[0], static_cast<int32_t>(t.stride[1]), number_type(t.dtype)};
}

}  // namespace

Status check_ring(const DeltaRuleProblem& problem, int capability) noexcept {
  if (problem.K > decode::kMaxRingK) {
    return Status::failure(Code::kUnsupported,
                           "recurrent_step: K = %lld, expected at most %d (CUDA ring kernel)",
                           static_cast<ll>(problem.K), decode::kMaxRingK);
  }
  Status status = check_decode(problem, capability);
  if (status.ok()) status = check_entries("ring.k", problem.ring.k);
  if (status.ok()) status = check_entries("ring.delta", problem.ring.delta);
  if (!status.ok()) return status;
  const decode::RingSizes sizes = ring_sizes(lower_ring(problem, 1), false);
  if (sizes.bytes() <= decode::kMaxSharedBytes) return ok_status();
  return Status::failure(Code::kUnsupported,
                         "recurrent_step: r, tokens = %lld, %lld need %lld bytes of shared memory, "
                         "expected at most %lld (CUDA ring kernel)",
                         static_cast<ll>(problem.r), static_cast<ll>(problem.rows.max_tokens),
                         static_cast<ll>(sizes.bytes()), static_cast<ll>(decode::kMaxSharedBytes));
}

core::KernelName ring_name(const DeltaRuleProblem& problem) noexcept {
  return problem.K <= 64 ? "cuda.recurrent_step.sm_90a.ring_k64"
                         : "cuda.recurrent_step.sm_90a.ring_k128";
}

decode::RingParams lower_ring(const DeltaRuleProblem& problem, int multiprocessors) noexcept {
  const sluice_replay_ring& ring = problem.ring;
  decode::RingParams out{};
  out.step = lower_decode(problem, multiprocessors);
  out.step.packed = false;
  out.k = entries_of(ring.k);
  out.delta = entries_of(ring.delta);
  out.decay = entries_of(ring.decay);
  out.position = indices_of(ring.position);
  out.checkpoint = indices_of(ring.checkpoint);
  out.next_checkpoint = indices_of(ring.next_checkpoint);
  out.L = static_cast<int32_t>(ring.k.shape[1]);
  out.always = ring.fold == SLUICE_RING_FOLD_ALWAYS;
  return out;
}

}  // namespace sluice::cuda
