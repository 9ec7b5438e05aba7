// Steps with a replay ring: whether the ring kernel takes a problem, and the problem as it takes
// it.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/plan_grid.hpp"
#include "cuda/kernels/decode/ring_launch.h"
#include "cuda/lower_views.h"
#include "cuda/select_decode.h"

namespace sluice::cuda {
namespace {

using core::DeltaRuleProblem, core::LayerProblem, core::Tensor;
using ll = long long;

/// Four numbers of an entry are one access.
Status check_entries(const char* op, const char* name, const Tensor& t) noexcept {
  const auto bytes = static_cast<uintptr_t>(4 * t.dtype.bits / 8);
  const auto misaligned = reinterpret_cast<uintptr_t>(t.data) % bytes;
  if (misaligned != 0) {
    return Status::failure(Code::kUnsupported,
                           "%s: %s.data address mod %d = %d, expected 0 (CUDA ring kernel)", op,
                           name, static_cast<int>(bytes), static_cast<int>(misaligned));
  }
  if (t.shape[0] <= 1 || t.stride[0] % 4 == 0) return ok_status();
  return Status::failure(Code::kUnsupported,
                         "%s: %s.stride[0] = %lld, expected a multiple of 4 (CUDA ring kernel)", op,
                         name, static_cast<ll>(t.stride[0]));
}

Status check_key_size(const char* op, const DeltaRuleProblem& problem) noexcept {
  if (problem.K <= decode::kMaxRingK) return ok_status();
  return Status::failure(Code::kUnsupported, "%s: K = %lld, expected at most %d (CUDA ring kernel)",
                         op, static_cast<ll>(problem.K), decode::kMaxRingK);
}

/// What remains once states are known to move four numbers at a time.
Status check_rest(const char* op, const DeltaRuleProblem& problem,
                  const decode::RingParams& lowered) noexcept {
  Status status = check_entries(op, "ring.k", problem.ring.k);
  if (status.ok()) status = check_entries(op, "ring.delta", problem.ring.delta);
  if (!status.ok()) return status;
  const decode::RingSizes sizes = ring_sizes(lowered);
  if (sizes.bytes() <= decode::kMaxSharedBytes) return ok_status();
  return Status::failure(Code::kUnsupported,
                         "%s: r, tokens = %lld, %lld need %lld bytes of shared memory, expected at "
                         "most %lld (CUDA ring kernel)",
                         op, static_cast<ll>(problem.r), static_cast<ll>(problem.rows.max_tokens),
                         static_cast<ll>(sizes.bytes()), static_cast<ll>(decode::kMaxSharedBytes));
}

/// A tile of the layer kernel with a ring is a CTA, the tiles of a key head a cluster.
Status check_layer_tiles(const LayerProblem& problem, const decode::RingParams& lowered) noexcept {
  if (!moves_vectors(problem.delta)) {
    return Status::failure(Code::kUnsupported,
                           "layer_decode: state.initial = no vectors, expected K, V, slot stride "
                           "and address to be multiples of 4 numbers (CUDA ring kernel)");
  }
  if (lowered.step.grid.ctas <= decode::kMaxClusterCtas) return ok_status();
  return Status::failure(Code::kUnsupported,
                         "layer_decode: r, V = %lld, %lld make %d tiles, expected at most %d (CUDA "
                         "ring kernel; a tile is 128 columns of a value head of a key head)",
                         static_cast<ll>(problem.delta.r), static_cast<ll>(problem.delta.V),
                         lowered.step.grid.ctas, decode::kMaxClusterCtas);
}

decode::RingArray entries_of(const Tensor& t) noexcept {
  return {t.data, t.stride[0], static_cast<int32_t>(t.stride[1]), number_type(t.dtype)};
}

decode::RingParams lower_entries(const DeltaRuleProblem& problem,
                                 const decode::DecodeParams& step) noexcept {
  const sluice_replay_ring& ring = problem.ring;
  decode::RingParams out{};
  out.step = step;
  out.step.packed = problem.state.initial.dtype.bits == 16;
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

}  // namespace

Status check_ring(const DeltaRuleProblem& problem, int capability) noexcept {
  Status status = check_key_size("recurrent_step", problem);
  if (status.ok()) status = check_decode(problem, capability);
  return status.ok() ? check_rest("recurrent_step", problem, lower_ring(problem, 1)) : status;
}

Status check_ring(const LayerProblem& problem, int capability) noexcept {
  Status status = check_key_size("layer_decode", problem.delta);
  if (status.ok()) status = check_decode(problem, capability);
  if (!status.ok()) return status;
  const decode::RingParams lowered = lower_ring(problem, 1);
  status = check_layer_tiles(problem, lowered);
  return status.ok() ? check_rest("layer_decode", problem.delta, lowered) : status;
}

core::KernelName ring_name(const DeltaRuleProblem& problem) noexcept {
  return problem.K <= 64 ? "cuda.recurrent_step.sm_90a.ring_k64"
                         : "cuda.recurrent_step.sm_90a.ring_k128";
}

core::KernelName ring_name(const LayerProblem& problem) noexcept {
  return problem.delta.K <= 64 ? "cuda.layer_decode.sm_90a.ring_k64"
                               : "cuda.layer_decode.sm_90a.ring_k128";
}

decode::RingParams lower_ring(const DeltaRuleProblem& problem, int multiprocessors) noexcept {
  return lower_entries(problem, lower_decode(problem, multiprocessors));
}

decode::RingParams lower_ring(const LayerProblem& problem, int multiprocessors) noexcept {
  return lower_entries(problem.delta, lower_decode(problem, multiprocessors));
}

}  // namespace sluice::cuda
