// The replay ring's entries between global and shared memory, and the products over them that all
// columns of a head share.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_RING_STAGE_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_RING_STAGE_CUH_

#include "cuda/kernels/decode/ring_params.h"
#include "cuda/kernels/decode/stage.cuh"
#include "cuda/kernels/decode/step.cuh"

namespace sluice::cuda::decode {

/// The live entries of a sequence, and what the call does with them.
struct RingCursor {
  int L, live;
  int first;         ///< entry number of the first live one
  int64_t position;  ///< tokens before the call
  bool folds;

  /// Entry number of the e-th from the first live one on.
  __device__ __forceinline__ int place(int e) const {
    const int at = first + e;
    return at < L ? at : at - L;
  }
};

/// Cursors, clamped to what the ring can hold.
__device__ __forceinline__ RingCursor find_cursor(const RingParams& p, int64_t sequence,
                                                  bool starts) {
  const int64_t position = device::load_index(p.position, sequence);
  const int64_t checkpoint = device::load_index(p.checkpoint, sequence);
  RingCursor c;
  c.L = p.L;
  c.position = min(max(position, int64_t{0}), int64_t{INT32_MAX});
  const int most = p.L - p.step.rows.max_tokens;
  const int64_t before = min(c.position - checkpoint, c.position);
  const int live = static_cast<int>(min(max(before, int64_t{0}), int64_t{most}));
  c.live = starts ? live : 0;
  c.first =
      static_cast<int>(static_cast<uint32_t>(c.position - c.live) % static_cast<uint32_t>(p.L));
  c.folds = p.always || !starts || live > most - p.step.rows.max_tokens;
  return c;
}

/// The CTA's shared memory; sizes: RingSizes.
struct RingStage {
  Stage s;               ///< partials, rows, alpha, beta
  float4* factors;       ///< [tokens] of k, of q, of delta in the token's own output
  float *keys, *deltas;  ///< entries, [L][K] and [L][columns], the call's behind the live ones
  /// [tokens][entries]: what delta of an entry counts in S^T k and in the output of a token.
  float2* shares;
  /// [tokens + 1][1 + entries]: products of the decays behind S0, and behind each entry, ahead of a
  /// token.
  float* weights;
  float* decays;  ///< of live entries

  static constexpr int kWeights = kMaxRingEntries + 1;
};

template <class C>
__device__ __forceinline__ RingStage make_ring_stage(const RingParams& p) {
  RingStage r;
  const int tokens = p.step.rows.max_tokens;
  r.s.K = C::kK, r.s.columns = 1 << p.step.grid.column_bits;
  r.s.row = 2 * C::kK + r.s.columns;
  r.s.partials = reinterpret_cast<float*>(ptx::dynamic_memory());
  r.s.rows = r.s.partials + 2 * tokens * r.s.columns * (C::kVk ? 1 : C::kWarps);
  r.keys = r.s.rows + tokens * r.s.row;
  r.deltas = r.keys + p.L * C::kK;
  float* const after = r.deltas + p.L * r.s.columns;
  r.factors = reinterpret_cast<float4*>(after);
  r.shares = reinterpret_cast<float2*>(after + 4 * tokens);
  r.weights = after + 4 * tokens + 2 * tokens * kMaxRingEntries;
  r.decays = r.weights + (tokens + 1) * RingStage::kWeights;
  r.s.alpha = r.decays + kMaxRingEntries;
  r.s.beta = r.s.alpha + tokens * p.step.r;
  return r;
}

/// A warp's share of some live entries, on its way: rows of keys and deltas in turn, a lane four
/// numbers of each. WHY not through the read-only cache: this launch writes other entries.
template <class C>
struct EntryRequest {
  /// PERF two rows a warp at a time: all entries at once would cost eight registers more
  static constexpr int kRows = 2;
  uint32_t words[kRows][4];
};

/// Element 0 of entry number `place` of a head.
__device__ __forceinline__ int64_t entry_offset(const RingArray& a, int64_t slot, int place,
                                                int head, int D) {
  return slot * a.slot_stride + int64_t{place} * a.entry_stride + int64_t{head} * D;
}

/// Entries first .. first + C::kWarps - 1, as far as they are live.
template <class C>
__device__ __forceinline__ void request_entries(const RingParams& p, const Unit& unit,
                                                const Place& at, const RingCursor& cursor,
                                                int first, EntryRequest<C>& out) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const uint64_t policy = ptx::evict_first();
  const int64_t slot = unit.seq.write;
#pragma unroll
  for (int i = 0; i < EntryRequest<C>::kRows; ++i) {
    const int row = 2 * first + warp + C::kWarps * i;
    const bool is_key = row % 2 == 0;
    const RingArray& a = is_key ? p.k : p.delta;
    const int columns = min(1 << p.step.grid.column_bits, p.step.V - at.column);
#pragma unroll
    for (int word = 0; word < 4; ++word) out.words[i][word] = 0;
    if (row >= 2 * cursor.live || 4 * lane >= (is_key ? p.step.K : columns)) continue;
    const int64_t head =
        entry_offset(a, slot, cursor.place(row / 2), is_key ? unit.key_head : at.head,
                     is_key ? p.step.K : p.step.V);
    const int64_t element = head + (is_key ? 0 : at.column) + 4 * lane;
    const char* const address =
        static_cast<const char*>(a.data) + element * (a.number == Number::kFloat32 ? 4 : 2);
    if (a.number == Number::kFloat32) {
      ptx::load_stream_16(out.words[i], address, policy);
    } else {
      ptx::load_stream_8(out.words[i], address, policy);
    }
  }
}

/// The decay of the thread's live entry.
__device__ __forceinline__ float request_decay(const RingParams& p, const Unit& unit,
                                               const Place& at, const RingCursor& cursor) {
  const int e = static_cast<int>(threadIdx.x);
  if (e >= cursor.live) return 1.0f;
  const int64_t entry = entry_offset(p.decay, unit.seq.write, cursor.place(e), at.head, 1);
  return static_cast<const float*>(p.decay.data)[entry];
}

/// What request_entries() asked for, to shared memory in float32, zeros past K and V.
template <class C>
__device__ __forceinline__ void settle_entries(const RingParams& p, const RingStage& r,
                                               const RingCursor& cursor, int first,
                                               EntryRequest<C>& in) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int i = 0; i < EntryRequest<C>::kRows; ++i) {
    const int row = 2 * first + warp + C::kWarps * i;
    const bool is_key = row % 2 == 0;
    const Number number = is_key ? p.k.number : p.delta.number;
    const int count = is_key ? C::kK : r.s.columns;
    if (row >= 2 * cursor.live || 4 * lane >= count) continue;
    if (number == Number::kBfloat16) {
      unpack_four<__nv_bfloat16>(in.words[i]);
    } else if (number == Number::kFloat16) {
      unpack_four<__half>(in.words[i]);
    }
    float x[4];
    InFloat32::get(in.words[i], x);
    write_four((is_key ? r.keys : r.deltas) + row / 2 * count + 4 * lane, x);
  }
}

/// RingStage::weights: a thread has S0 or an entry, and goes through the decays behind it.
__device__ __forceinline__ void weigh_entries(const RingParams& p, const RingStage& r,
                                              const RingCursor& cursor, int tokens, int member) {
  const int entries = cursor.live + tokens, e = static_cast<int>(threadIdx.x) - 1;
  if (e >= entries) return;
  float product = 1.0f;
#pragma unroll 1
  for (int i = e + 1; i <= entries; ++i) {
    const int t = i - cursor.live;
    if (t >= 0) r.weights[t * RingStage::kWeights + 1 + e] = product;
    if (i < entries) product *= t < 0 ? r.decays[i] : r.s.alpha[t * p.step.r + member];
  }
}

/// Factors of the warp's tokens, and their keys as later tokens see them: to shared memory, and by
/// the first CTA of a key head to the ring.
template <class C>
__device__ __forceinline__ void enter_keys(const RingParams& p, const RingStage& r,
                                           const Unit& unit, const Place& at,
                                           const RingCursor& cursor, const Lane<C>& lane) {
#pragma unroll 1
  for (int t = lane.warp; t < unit.seq.tokens; t += C::kWarps) {
    const TokenFactors f = factors_of(p.step, r.s, t, at.member, lane);
    if (lane.index == 0) r.factors[t] = make_float4(f.k, f.q, f.q * f.k_q, 0.0f);
    const int row = 4 * lane.index, e = cursor.live + t;
    if (row >= C::kK) continue;
    float k[4];
    read_four(r.s.k(t) + row, k);
#pragma unroll
    for (int i = 0; i < 4; ++i) k[i] = device::rounded(p.k.number, f.k * k[i]);
    write_four(r.keys + e * C::kK + row, k);
    if (unit.rank != 0) continue;
    const int64_t entry =
        entry_offset(p.k, unit.seq.write, cursor.place(e), unit.key_head, p.step.K);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (row + i < p.step.K) device::store_number(p.k.data, entry + row + i, p.k.number, k[i]);
    }
  }
}

/// RingStage::shares of every token's earlier entries; a warp has a pair at a time.
template <class C>
__device__ __forceinline__ void share_entries(const RingParams& p, const RingStage& r,
                                              const Unit& unit, int member,
                                              const RingCursor& cursor, const Lane<C>& lane) {
  const int row = 4 * (lane.index % C::kLanes);
#pragma unroll 1
  for (int t = 0; t < unit.seq.tokens; ++t) {
    float k[4], q[4];
    read_four(r.s.k(t) + row, k);
    read_four(r.s.q(t) + row, q);
    const float4 f = r.factors[t];
#pragma unroll 1
    for (int e = lane.warp; e < cursor.live + t; e += C::kWarps) {
      float key[4], sums[2] = {};
      read_four(r.keys + e * C::kK + row, key);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[0] = fmaf(key[i], k[i], sums[0]);
        sums[1] = fmaf(key[i], q[i], sums[1]);
      }
      ptx::sum_over_lanes<0, C::kLanes == 16 ? 4 : 5>(sums);
      if (lane.index != 0) continue;
      const float weight = r.weights[t * RingStage::kWeights + 1 + e];
      const float alpha = r.s.alpha[t * p.step.r + member];
      r.shares[t * kMaxRingEntries + e] =
          make_float2(weight * (f.x * sums[0]), alpha * weight * (f.y * sums[1]));
    }
  }
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_RING_STAGE_CUH_
