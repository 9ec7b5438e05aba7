// Fixes what models leave no choice about as constants of the replay kernel: the same source, hence
// the same bits.
//
// PERF a CTA's time is that of its chain of instructions, docs/lab/decode.md. Where sizes and types
// are constants, a third of them is not there.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_REPLAY_MODEL_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_REPLAY_MODEL_CUH_

#include <type_traits>

#include "cuda/kernels/decode/replay/params.h"
#include "cuda/tile/number.cuh"

namespace sluice::cuda::decode {

template <class T>
inline constexpr Number kNumberOf = std::is_same_v<T, float>           ? Number::kFloat32
                                    : std::is_same_v<T, __nv_bfloat16> ? Number::kBfloat16
                                                                       : Number::kFloat16;

/// An instance: types of tokens and of entries; states have 32 bits, or the tokens' type.
template <class Io_, class Entry_, bool kPacked_>
struct ReplayModelConfig : Config<kMaxReplayK, false, false, kPacked_> {
  using Io = Io_;
  using Entry = Entry_;
  static constexpr bool kModel = true;
  static constexpr Number kIo = kNumberOf<Io>;
  static constexpr ReplayModel kKind{kIo, kNumberOf<Entry>, kPacked_};
};

/// Divisor of one.
inline constexpr uint64_t kByOne = Divisor::of(1).magic;

/// The parameters, with constants for all that a step of models has in common.
template <class C>
__device__ __forceinline__ ReplayParams as_model(const ReplayParams& given) {
  ReplayParams p = given;
  DecodeParams& step = p.step;
  step.K = step.V = kMaxReplayK;
  step.tiles_per_head = 1;
  step.by_tiles_per_head.magic = kByOne;
  step.grid.tiles = 1;
  step.grid.column_bits = C::kKBits;
  step.q.number = step.k.number = step.v.number = step.o.number = C::kIo;
  const Number state = C::kPacked ? C::kIo : Number::kFloat32;
  step.state.initial.pool.number = step.state.final.pool.number = state;
  step.gate_form = GateForm::kRaw;
  step.beta_form = BetaForm::kLogit;
  step.gate.number = step.beta.number = C::kIo;
  step.l2norm = step.delta_rule = true;
  step.state.num_accepted.data = nullptr;
  step.rows.cu_seqlens.data = nullptr;
  step.head_map_cyclic = step.by_element = step.layer = step.prefetch = false;
  step.packed = C::kPacked;
  p.k.number = p.delta.number = C::kKind.entries;
  p.k.entry_stride = kMaxReplayK * step.H;
  p.delta.entry_stride = kMaxReplayK * step.H * step.r;
  p.position.is_64bit = p.checkpoint.is_64bit = p.next_checkpoint.is_64bit = false;
  return p;
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_REPLAY_MODEL_CUH_
