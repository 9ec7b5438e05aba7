// The decode kernel with a replay ring: 1 to 8 tokens of every sequence from a state that is read
// once and written rarely. docs/kernels/decode.md has its format and byte account.
//
// Math      A_i: product of the decays behind entry i, ahead of the token.
//           S^T k = A_0 S0^T k + sum_i A_i (k_i.k) delta_i, the same with q;
//           delta = beta (v - alpha S^T k), o = scale (alpha S^T q + (k.q) delta).
//           Fold: S0 <- A_0 S0 + sum_i A_i k_i delta_i^T ahead of the first token.
// Roles     a CTA has one tile of a head, as kernel.cuh has; a warp normalises a token and has
//           pairs of entries and tokens; at the end a thread has a column.
// Pipeline  wait for earlier launches -> slots and cursors -> state, entries, tokens requested ->
//           barrier -> keys, weights -> barrier -> shares -> products with S0 -> barrier ->
//           columns, one token after the other -> (fold) state stored
// Memory    dynamic shared memory: RingSizes, 26 KiB at T = 1, 55 KiB at T = 4
// Floor     state read: 64 KiB per (sequence, value head) in float32; entries 768 bytes each.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_RING_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_RING_CUH_

#include "cuda/kernels/decode/kernel.cuh"
#include "cuda/kernels/decode/ring_stage.cuh"

namespace sluice::cuda::decode {

/// S0^T k and S0^T q of all tokens to shared memory, without factors: of [K,V] every warp's sums.
template <class C>
__device__ __forceinline__ void multiply_state(const RingParams& p, const RingStage& r,
                                               const Unit& unit, const Lane<C>& lane,
                                               Tile<C>& tile) {
  const int bits = p.step.grid.column_bits;
#pragma unroll 1
  for (int i = 0; i < 2 * unit.seq.tokens; ++i) {
    const float* const x = i % 2 == 0 ? r.s.k(i / 2) : r.s.q(i / 2);
    if constexpr (C::kVk) {
      const int columns = lane.warp_columns();
      const int own = lane.index % 16 * C::kPerLoad + lane.index / 16 % C::kPerLoad;
      const float sum = sum_columns<C, InFloat32>(lane, tile, x);
      if (own < columns && lane_of<C>(own) == lane.index) {
        r.s.partials[(i << bits) + lane.warp * columns + own] = sum;
      }
    } else {
      float sum[4];
      sum_rows<C, InFloat32>(lane, tile, x, sum);
      ptx::sum_from_bit(bits - 2, sum);
      if (lane.index >> (bits - 2) == 0) {
        write_four(r.s.partials + ((i * C::kWarps + lane.warp) << bits) + lane.column, sum);
      }
    }
  }
}

/// The sum of a column over kWarps warps, a binary tree.
template <int kWarps>
__device__ __forceinline__ float sum_column(const float* partials, int bits) {
  if constexpr (kWarps == 1) {
    return partials[0];
  } else {
    return sum_column<kWarps / 2>(partials, bits) +
           sum_column<kWarps / 2>(partials + (kWarps / 2 << bits), bits);
  }
}

/// A column of all tokens, one after the other: outputs and deltas.
template <class C>
__device__ __forceinline__ void run_column(const RingParams& p, const RingStage& r,
                                           const Unit& unit, const Place& at,
                                           const RingCursor& cursor, int column) {
  constexpr int kSums = C::kVk ? 1 : C::kWarps;
  const int bits = p.step.grid.column_bits;
  if (at.column + column >= p.step.V) return;
#pragma unroll 1
  for (int t = 0; t < unit.seq.tokens; ++t) {
    const float* const partials = r.s.partials + (2 * t * kSums << bits) + column;
    const float4 f = r.factors[t];
    const float weight = r.weights[t * RingStage::kWeights];
    const float alpha = r.s.alpha[t * p.step.r + at.member];
    float u = weight * (f.x * sum_column<kSums>(partials, bits));
    float w = alpha * weight * (f.y * sum_column<kSums>(partials + (kSums << bits), bits));
#pragma unroll 4
    for (int e = 0; e < cursor.live + t; ++e) {
      const float2 share = r.shares[t * kMaxRingEntries + e];
      const float delta = r.deltas[(e << bits) + column];
      u = fmaf(share.x, delta, u);
      w = fmaf(share.y, delta, w);
    }
    float v = r.s.v(t)[column];
    if (p.step.delta_rule) v = r.s.beta[t * p.step.r + at.member] * (v - alpha * u);
    device::store_number(p.step.o.data,
                         row_offset(p.step.o, unit.seq, t, at.head, at.column + column),
                         p.step.o.number, fmaf(f.z, v, w));
    const int e = cursor.live + t;
    v = device::rounded(p.delta.number, v);
    r.deltas[(e << bits) + column] = v;
    const int64_t entry =
        entry_offset(p.delta, unit.seq.write, cursor.place(e), at.head, p.step.V) + at.column;
    device::store_number(p.delta.data, entry + column, p.delta.number, v);
  }
}

/// The tile with all live entries in it.
template <class C>
__device__ __forceinline__ void fold_tile(const RingParams& p, const RingStage& r,
                                          const RingCursor& cursor, const Lane<C>& lane,
                                          Tile<C>& tile) {
  const int bits = p.step.grid.column_bits;
  float decay = r.weights[0];
#pragma unroll 1
  for (int e = 0; e <= cursor.live; ++e) {
    // The first round only decays.
    const float weight = e == 0 ? 0.0f : r.weights[e];
    const float* const key = r.keys + max(e - 1, 0) * C::kK + lane.row;
    const float* const delta = r.deltas + (max(e - 1, 0) << bits);
    float k[4], d[4] = {};
    if (C::kVk) {
      read_four(key, k);
    } else if (e > 0) {
      read_four(delta + lane.column, d);
#pragma unroll
      for (int i = 0; i < 4; ++i) d[i] *= weight;
    }
#pragma unroll
    for (int m = 0; m < kVectors; ++m) {
      if (m >= lane.vectors) break;
      if (!C::kVk && m % 4 == 0) read_four(key + m, k);
      float x[4];
      InFloat32::get(tile.words[m], x);
      if (e == 0) {
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] *= decay;
      } else if (C::kVk) {
        const int column =
            lane.warp * lane.warp_columns() + m * C::kPerLoad + lane.index / C::kLanes;
        const float scaled = weight * delta[column];
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = fmaf(k[i], scaled, x[i]);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = fmaf(k[m % 4], d[i], x[i]);
      }
      InFloat32::set(tile.words[m], x);
    }
  }
}

/// Decays of the tokens to the ring, and the next checkpoint.
__device__ __forceinline__ void enter_scalars(const RingParams& p, const RingStage& r,
                                              const Unit& unit, const Place& at,
                                              const RingCursor& cursor) {
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

/// Requests everything and fills the stage but for what depends on norms. Padding: does nothing.
template <class C>
__device__ __forceinline__ RingCursor stage_ring(const RingParams& params, Unit& unit,
                                                 const RingStage& r, const Lane<C>& lane,
                                                 Tile<C>& state) {
  const DecodeParams& p = params.step;
  const int entry = C::kThreads - 1 - static_cast<int>(threadIdx.x);
  const device::SlotEntries slots = device::request_slots(p.state, unit.seq.index);
  const RingCursor cursor = find_cursor(params, unit.seq.index, slots.has_initial);
  const GateInputs gate = request_gate(p, unit, entry);
  TokenRequest<C> tokens(p, unit, r.s);
  device::find_slots(p.state, slots, &unit.seq);
  if (unit.seq.padded) return cursor;
  load_tile(p, unit, unit.first, lane, state);
  const Place at = place_of(p, unit, unit.first);
  EntryRequest<C> entries;
  request_entries(params, unit, at, cursor, 0, entries);
  const float decay = request_decay(params, unit, at, cursor);
  settle_gate(p, unit, r.s, entry, gate);
  for (int i = entry + C::kThreads; i < unit.seq.tokens * p.r; i += C::kThreads) {
    settle_gate(p, unit, r.s, i, request_gate(p, unit, i));
  }
  tokens.settle(p, unit, r.s);
  settle_entries(params, r, cursor, 0, entries);
#pragma unroll 1
  for (int first = C::kWarps; first < cursor.live; first += C::kWarps) {
    request_entries(params, unit, at, cursor, first, entries);
    settle_entries(params, r, cursor, first, entries);
  }
  if (static_cast<int>(threadIdx.x) < cursor.live) r.decays[threadIdx.x] = decay;
  return cursor;
}

/// @param p by value, in constant memory. Launch with a grid of step.grid.ctas x H x N CTAs of
///          C::kThreads threads and RingSizes::bytes() of dynamic shared memory.
template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kResident)
    ring_kernel(const __grid_constant__ RingParams p) {
  Unit unit = unit_of(p.step);
  if (p.step.prefetch) prefetch_all<C>(p.step, unit);
  // SYNC grid: what earlier launches wrote is visible
  ptx::wait_for_dependencies();
  ptx::launch_dependents();
  device::find_rows(p.step.rows, &unit.seq);
  const RingStage r = make_ring_stage<C>(p);
  const Lane<C> lane(p.step.grid);
  Tile<C> state;
  state.clear();
  const RingCursor cursor = stage_ring(p, unit, r, lane, state);
  if (unit.seq.padded) {
    write_zeros<C>(p.step, unit, r.s);
    return;
  }
  const Place at = place_of(p.step, unit, unit.first);
  // SYNC CTA: tokens, gates and live entries are complete
  __syncthreads();
  weigh_entries(p, r, cursor, unit.seq.tokens, at.member);
  enter_keys(p, r, unit, at, cursor, lane);
  // SYNC CTA: keys of all entries, factors and weights are complete
  __syncthreads();
  share_entries(p, r, unit, at.member, cursor, lane);
  unpack_tile(p.step, state);
  multiply_state(p, r, unit, lane, state);
  // SYNC CTA: shares and products are complete
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x);
  if (column < r.s.columns) run_column<C>(p, r, unit, at, cursor, column);
  enter_scalars(p, r, unit, at, cursor);
  if (!cursor.folds) return;
  fold_tile(p, r, cursor, lane, state);
  store_tile(p.step, unit, unit.first, lane, unit.seq.write, state);
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_RING_CUH_
