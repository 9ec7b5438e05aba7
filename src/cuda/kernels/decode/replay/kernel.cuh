// Steps 1 to 8 tokens of every sequence with a replay buffer: a state is read once and written
// rarely, the delta rule alone or a whole layer. docs/kernels/replay.md has its format and byte
// account.
//
// Math      A_i: product of the decays behind entry i, ahead of the token.
//           S^T k = A_0 S0^T k + sum_i A_i (k_i.k) delta_i, the same with q;
//           delta = beta (v - alpha S^T k), o = scale (alpha S^T q + (k.q) delta).
//           Fold: S0 <- A_0 S0 + sum_i A_i k_i delta_i^T ahead of the first token.
// Roles     a CTA has one tile of a head, as kernel.cuh has; a warp has 32 of its columns and a
//           share of the rows, and normalises a token; at the end two lanes have a column.
// Pipeline  wait for earlier launches -> slots and cursors -> entries, state, tokens requested ->
//           keys, weights -> barrier (of layers two) -> products of entries, products with S0,
//           (fold) state stored -> barrier -> shares -> barrier -> columns, one token after the
//           other -> (layer) norm, conv states
// Products  on tensor cores, of TF32 halves: products.cuh
// Memory    dynamic shared memory: ReplaySizes, 23 KiB at T = 1, 37 KiB at T = 4
// Floor     state read: 64 KiB per (sequence, value head) in float32; entries 768 bytes each.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_REPLAY_KERNEL_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_REPLAY_KERNEL_CUH_

#include "cuda/kernels/decode/kernel.cuh"
#include "cuda/kernels/decode/replay/buffer.cuh"
#include "cuda/kernels/decode/replay/model.cuh"
#include "cuda/kernels/decode/replay/products.cuh"

namespace sluice::cuda::decode {

/// The sum of a column over the warps that share it, a binary tree.
__device__ __forceinline__ float sum_column(const float* partials, int row_parts, int stride) {
  float sum = partials[0];
  if (row_parts > 1) sum += partials[stride];
  if (row_parts > 2) sum += partials[2 * stride] + partials[3 * stride];
  if (row_parts > 4) {
    sum += (partials[4 * stride] + partials[5 * stride]) +
           (partials[6 * stride] + partials[7 * stride]);
  }
  return sum;
}

/// S^T k and S^T q of a column ahead of the round's tokens, without what those write; a neighbour
/// lane has the other entries.
__device__ __forceinline__ void sum_entries(const ReplayBuffer& r, const ReplayCursor& cursor,
                                            int tokens, int first, int column,
                                            float (&sums)[2 * kRound]) {
  const int half = static_cast<int>(threadIdx.x % 2);
#pragma unroll
  for (int i = 0; i < kRound; ++i) {
    sums[2 * i] = sums[2 * i + 1] = 0.0f;
    if (first + i >= tokens) continue;
    const float sum = sum_column(r.partial(0, first + i) + half * r.s.columns + column, r.row_parts,
                                 r.tokens * r.partial_row());
    const float2 share = *r.share(ReplayBuffer::kStateShare, first + i);
    if (half == 0) {
      sums[2 * i] = share.x * sum;
    } else {
      sums[2 * i + 1] = share.y * sum;
    }
  }
#pragma unroll 2
  for (int e = half; e < cursor.live + first; e += 2) {
    const float delta = r.delta(e)[column];
#pragma unroll
    for (int i = 0; i < kRound; ++i) {
      if (first + i >= tokens) break;
      const float2 share = *r.share(e, first + i);
      sums[2 * i] = fmaf(share.x, delta, sums[2 * i]);
      sums[2 * i + 1] = fmaf(share.y, delta, sums[2 * i + 1]);
    }
  }
  ptx::sum_over_lanes<0, 1>(sums);
}

/// A column's output of a token; both of its lanes call it. Of a layer it goes to shared memory for
/// the norm, with the sum of squares of four columns.
template <class C>
__device__ __forceinline__ void emit_column(const ReplayParams& p, const ReplayBuffer& r,
                                            const Unit& unit, const Place& at, int t, int column,
                                            float o) {
  const DecodeParams& step = p.step;
  const int lane = static_cast<int>(threadIdx.x % 32), left = step.V - at.column - column;
  if constexpr (C::kLayer) {
    const float x = step.norm.round_input ? device::rounded(step.norm.out.number, o) : o;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float square_of = ptx::from_lane(x, lane / 8 * 8 + 2 * i);
      if (i < left) sum = fmaf(square_of, square_of, sum);
    }
    if (lane % 2 == 0) r.s.o[t * r.s.columns + column] = o;
    if (lane % 8 == 0) r.s.squares[(t * r.s.columns + column) / 4] = sum;
  } else if (lane % 2 == 0 && left > 0) {
    device::store_number(step.o.data, row_offset(step.o, unit.seq, t, at.head, at.column + column),
                         step.o.number, o);
  }
}

/// Outputs and deltas of a column, four tokens at a time; two lanes have it.
template <class C>
__device__ __forceinline__ void run_column(const ReplayParams& p, const ReplayBuffer& r,
                                           const Unit& unit, const Place& at,
                                           const ReplayCursor& cursor, int column) {
  const int tokens = unit.seq.tokens, half = static_cast<int>(threadIdx.x % 2);
#pragma unroll 1
  for (int first = 0; first < tokens; first += kRound) {
    float sums[2 * kRound], deltas[kRound];
    sum_entries(r, cursor, tokens, first, column, sums);
#pragma unroll
    for (int i = 0; i < kRound; ++i) {
      const int t = first + i, e = cursor.live + t;
      if (t >= tokens) break;
      float u = sums[2 * i], w = sums[2 * i + 1];
#pragma unroll
      for (int j = 0; j < i; ++j) {
        const float2 share = *r.share(cursor.live + first + j, t);
        u = fmaf(share.x, deltas[j], u);
        w = fmaf(share.y, deltas[j], w);
      }
      float v = r.s.v(t)[column];
      const float alpha = r.s.alpha[t * p.step.r + at.member];
      if (p.step.delta_rule) v = r.s.beta[t * p.step.r + at.member] * (v - alpha * u);
      const float o = fmaf(r.factors[t].z, v, w);
      deltas[i] = device::rounded(p.delta.number, v);
      emit_column<C>(p, r, unit, at, t, column, o);
      if (half == 0) continue;
      r.delta(e)[column] = deltas[i];
      if (at.column + column >= p.step.V) continue;
      const int64_t entry =
          entry_offset(p.delta, unit.seq.write, cursor.place(e), at.head, p.step.V) + at.column;
      device::store_number(p.delta.data, entry + column, p.delta.number, deltas[i]);
    }
    // SYNC warp: deltas of this round, for the next one's lanes
    __syncwarp();
  }
}

/// Everything that needs S0: its products, and the fold.
template <class C, class Form>
__device__ __forceinline__ void use_state(const ReplayParams& p, const ReplayBuffer& r,
                                          const Unit& unit, const ReplayCursor& cursor,
                                          const ReplayLane<C>& lane, Tile<C>& state) {
  multiply_state<C, Form>(p, r, unit, lane, state);
  if (!cursor.folds) return;
  fold_tile<C, Form>(r, cursor, lane, state);
  store_replay_tile(p.step, unit, lane, state);
}

/// Decays of the tokens to the replay buffer, and the next checkpoint.
__device__ __forceinline__ void enter_scalars(const ReplayParams& p, const ReplayBuffer& r,
                                              const Unit& unit, const Place& at,
                                              const ReplayCursor& cursor) {
  const int t = static_cast<int>(threadIdx.x);
  if (t < unit.seq.tokens && at.column == 0) {
    const int64_t entry =
        entry_offset(p.decay, unit.seq.write, cursor.place(cursor.live + t), at.head, 1);
    static_cast<float*>(p.decay.data)[entry] = r.s.alpha[t * p.step.r + at.member];
  }
  if (t > 0 || unit.key_head > 0 || unit.rank > 0 || p.next_checkpoint.data == nullptr) return;
  const int64_t index = unit.seq.index * p.next_checkpoint.stride;
  const int64_t next = cursor.position - (cursor.folds ? 0 : cursor.live);
  void* const data = const_cast<void*>(p.next_checkpoint.data);
  if (p.next_checkpoint.is_64bit) {
    static_cast<int64_t*>(data)[index] = next;
  } else {
    static_cast<int32_t*>(data)[index] = static_cast<int32_t>(next);
  }
}

/// Requests everything and fills the token buffer, of a layer but for what depends on norms. Padding: does
/// nothing.
template <class C>
__device__ __forceinline__ ReplayCursor fill_replay_buffer(const ReplayParams& params, Unit& unit,
                                                           const ReplayBuffer& r,
                                                           const ReplayLane<C>& lane,
                                                           Tile<C>& state) {
  const DecodeParams& p = params.step;
  const Place at = place_of(p, unit, unit.first);
  // The last warp has the least to do otherwise.
  const bool has_scalars = lane.warp == C::kWarps - 1;
  const device::SlotEntries slots = device::request_slots(p.state, unit.seq.index);
  const CursorRequest cursors(params, unit.seq.index);
  ReplayScalars scalars;
  if (has_scalars) scalars.request(p, unit, at.member);
  using Request = std::conditional_t<C::kLayer, LayerRequest<C>, ReplayTokens<C>>;
  Request request(p, unit, r.s);
  device::find_slots(p.state, slots, &unit.seq);
  if (unit.seq.padded) return {};
  request.request_states(p, unit, r.s, slots);
  // PERF ahead of all that can wait
  load_replay_tile(p, unit, lane, state);
  const ReplayCursor cursor = cursors.settle(params, slots.has_initial);
  request_entries<C>(params, r, unit, at, cursor);
  if (has_scalars) scalars.request_decay(params, unit, at, cursor);
  if (has_scalars) scalars.settle(p, unit, r, cursor, at.member);
  if constexpr (C::kLayer) {
    request.settle(p, unit, r.s);
  } else {
    request.settle(params, unit, r, cursor);
  }
  settle_entries<C>(params, r, cursor);
  return cursor;
}

/// CTAs that the registers of a multiprocessor must hold.
template <class C>
inline constexpr int kReplayResident = 2 * kMaxThreads / C::kThreads;

/// One CTA's call.
/// @param grid step.grid
template <class C>
__device__ __forceinline__ void run_replay(const ReplayParams& p, const Grid& grid) {
  Unit unit = unit_of(p.step);
  if (p.step.prefetch) prefetch_all<C>(p.step, unit);
  // SYNC grid: what earlier launches wrote is visible
  ptx::wait_for_dependencies();
  ptx::launch_dependents();
  device::find_rows(p.step.rows, &unit.seq);
  const ReplayBuffer r = make_replay_buffer<C>(p);
  const ReplayLane<C> lane(grid);
  Tile<C> state;
  const ReplayCursor cursor = fill_replay_buffer(p, unit, r, lane, state);
  if (unit.seq.padded) {
    write_zeros<C>(p.step, unit, r.s);
    return;
  }
  const Place at = place_of(p.step, unit, unit.first);
  // SYNC cluster 1: this thread has read, and used, its columns of the conv states
  if (C::kLayer && p.step.grid.ctas > 1) ptx::cluster_arrive_relaxed();
  if constexpr (C::kLayer) {
    // SYNC CTA: tokens are complete, and v columns of conv states are read
    __syncthreads();
    enter_buffered_tokens<C>(p, r, unit, cursor);
  }
  // SYNC CTA: tokens, weights and all entries but the tokens' deltas are complete
  __syncthreads();
  multiply_entries(p, r, unit, lane);
  if constexpr (!C::kPacked) {
    use_state<C, InFloat32>(p, r, unit, cursor, lane, state);
  } else if (p.step.state.final.pool.number == Number::kBfloat16) {
    use_state<C, In16Bits<__nv_bfloat16>>(p, r, unit, cursor, lane, state);
  } else {
    use_state<C, In16Bits<__half>>(p, r, unit, cursor, lane, state);
  }
  // SYNC CTA: the warps' products of entries and sums with S0 are complete
  __syncthreads();
  share_entries<C>(p, r, unit, at.member, cursor);
  // SYNC CTA: shares are complete
  __syncthreads();
  for (int pair = static_cast<int>(threadIdx.x); pair < 2 * r.s.columns; pair += C::kThreads) {
    run_column<C>(p, r, unit, at, cursor, pair / 2);
  }
  enter_scalars(p, r, unit, at, cursor);
  if constexpr (C::kLayer) {
    if (hands_over(p.step, unit)) hand_over();
    finish_layer<C>(p.step, unit, r.s);
  }
}

/// @param p by value, in constant memory; where C::kModel, a step of models of C::kKind. Launch with
///          a grid of step.grid.ctas x H x N CTAs of C::kThreads threads and ReplaySizes::bytes() of
///          dynamic shared memory; of a layer with more than one CTA a unit, in clusters of
///          step.grid.ctas.
template <class C>
__global__ void __launch_bounds__(C::kThreads, kReplayResident<C>)
    replay_kernel(const __grid_constant__ ReplayParams p) {
  if constexpr (C::kModel) {
    // WHY the grid as it is given: with constant bounds of its loops over a tile the compiler makes
    // all low parts at once, and spills them.
    run_replay<C>(as_model<C>(p), p.step.grid);
  } else {
    run_replay<C>(p, p.step.grid);
  }
}

template <class C>
const void* replay_instance() noexcept {
  return reinterpret_cast<const void*>(&replay_kernel<C>);
}

/// The instances of a K and a layout.
template <int kK, bool kVk>
const void* replay_instance(bool layer, bool packed) noexcept {
  if (layer) {
    return packed ? replay_instance<Config<kK, kVk, true, true>>()
                  : replay_instance<Config<kK, kVk, true>>();
  }
  return packed ? replay_instance<Config<kK, kVk, false, true>>()
                : replay_instance<Config<kK, kVk, false>>();
}

/// The instances of models for tokens of type Io.
template <class Io>
const void* replay_model_instance(const ReplayModel& model) noexcept {
  if (model.entries == Number::kFloat32) {
    return model.packed ? replay_instance<ReplayModelConfig<Io, float, true>>()
                        : replay_instance<ReplayModelConfig<Io, float, false>>();
  }
  return model.packed ? replay_instance<ReplayModelConfig<Io, Io, true>>()
                      : replay_instance<ReplayModelConfig<Io, Io, false>>();
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_REPLAY_KERNEL_CUH_
