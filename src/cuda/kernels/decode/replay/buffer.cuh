// Moves replay entries between global and shared memory, and forms the products over them that all
// columns of a head share.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_REPLAY_BUFFER_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_REPLAY_BUFFER_CUH_

#include "cuda/kernels/decode/replay/params.h"
#include "cuda/kernels/decode/replay/tile.cuh"
#include "cuda/kernels/decode/step.cuh"
#include "cuda/kernels/decode/tokens.cuh"
#include "cuda/ptx/async_copy.cuh"

namespace sluice::cuda::decode {

/// The live entries of a sequence, and what the call does with them.
struct ReplayCursor {
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

/// A sequence's cursors as they lie in memory, on their way.
struct CursorRequest {
  int64_t position, checkpoint;

  __device__ __forceinline__ CursorRequest(const ReplayParams& p, int64_t sequence)
      : position(device::load_index(p.position, sequence)),
        checkpoint(device::load_index(p.checkpoint, sequence)) {}
  /// Clamped to what the replay buffer can hold.
  __device__ __forceinline__ ReplayCursor settle(const ReplayParams& p, bool starts) const {
    ReplayCursor c;
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
};

/// The CTA's shared memory; sizes: ReplaySizes.
struct ReplayBuffer {
  TokenBuffer s;  ///< rows, alpha, beta; partials: sums with S0, [row_parts][tokens][k, q][columns]
  int tokens, row_parts;  ///< row_parts: warps that share 32 columns
  /// Entries, [kMaxReplayEntries] rows, the call's behind the live ones.
  float *keys, *deltas;
  float2* products;  ///< [warps][tokens][entries], k_i.k and k_i.q over a warp's rows
  float4* factors;   ///< [tokens] of k, of q, of delta in the token's own output
  /// [entries][kMaxReplayTokens]: what delta of an entry counts in S^T k and in the output of a
  /// token. The last place, where no entry is earlier than a token, is S0's.
  float2* shares;
  /// [tokens + 1][1 + entries]: products of the decays behind S0, and behind each entry, ahead of a
  /// token.
  float* weights;
  float* decays;  ///< of live entries

  static constexpr int kWeights = kMaxReplayEntries + 1, kStateShare = kMaxReplayEntries - 1;

  __device__ __forceinline__ int partial_row() const { return 2 * s.columns + kPartialPad; }
  __device__ __forceinline__ float* key(int e) const { return keys + e * (s.K + kKeyPad); }
  __device__ __forceinline__ float* delta(int e) const {
    return deltas + e * (s.columns + kDeltaPad);
  }
  /// Sums with k of a token, by the warps that have part `row_part` of the rows; those with q follow.
  __device__ __forceinline__ float* partial(int row_part, int t) const {
    return s.partials + (row_part * tokens + t) * partial_row();
  }
  __device__ __forceinline__ float2* share(int e, int t) const {
    return shares + e * kMaxReplayTokens + t;
  }
};

template <class C>
__device__ __forceinline__ ReplayBuffer make_replay_buffer(const ReplayParams& p) {
  ReplayBuffer r;
  const int tokens = p.step.rows.max_tokens, bits = p.step.grid.column_bits;
  r.tokens = tokens, r.row_parts = C::kWarps >> (bits - kMinColumnBits);
  r.s.K = C::kK, r.s.columns = 1 << bits;
  r.s.row = 2 * C::kK + r.s.columns;
  r.s.partials = reinterpret_cast<float*>(ptx::dynamic_memory());
  r.s.rows = r.s.partials + r.row_parts * tokens * r.partial_row();
  if (C::kLayer) {
    r.s.gates = r.s.rows + tokens * r.s.row;
    r.s.o = r.s.gates + tokens * r.s.columns;
    r.s.squares = r.s.o + tokens * r.s.columns;
    r.s.conv = reinterpret_cast<uint4*>(r.s.squares + tokens * r.s.columns / 4);
    r.keys = reinterpret_cast<float*>(r.s.conv + (p.step.grid.ctas > 1 ? C::kK : 0));
  } else {
    r.keys = r.s.rows + tokens * r.s.row;
  }
  r.deltas = r.keys + kMaxReplayEntries * (C::kK + kKeyPad);
  float* const after = r.deltas + kMaxReplayEntries * (r.s.columns + kDeltaPad);
  r.products = reinterpret_cast<float2*>(after);
  r.factors = reinterpret_cast<float4*>(r.products + C::kWarps * tokens * kMaxReplayEntries);
  r.shares = reinterpret_cast<float2*>(r.factors + tokens);
  r.weights = reinterpret_cast<float*>(r.shares + kMaxReplayEntries * kMaxReplayTokens);
  r.decays = r.weights + (tokens + 1) * ReplayBuffer::kWeights;
  r.s.alpha = r.decays + kMaxReplayEntries;
  r.s.beta = r.s.alpha + tokens * p.step.r;
  return r;
}

/// Element 0 of entry number `place` of a head.
__device__ __forceinline__ int64_t entry_offset(const ReplayArray& a, int64_t slot, int place,
                                                int head, int D) {
  return slot * a.slot_stride + int64_t{place} * a.entry_stride + int64_t{head} * D;
}

/// Rows of keys and deltas of all live entries in turn, a warp some of them, a lane four numbers.
template <class C>
struct EntryRow {
  bool is_key;
  int e;
  float* to;  ///< in shared memory
  bool fits;  ///< whether the lane has numbers of the row
  __device__ __forceinline__ EntryRow(const ReplayBuffer& r, int row)
      : is_key(row % 2 == 0), e(row / 2) {
    const int four = 4 * static_cast<int>(threadIdx.x % 32);
    to = (is_key ? r.key(e) : r.delta(e)) + four;
    fits = four < (is_key ? C::kK : r.s.columns);
  }
};

/// Requests live entries as they lie in memory, zeros past K and V. WHY not through registers:
/// those have the state.
template <class C>
__device__ __forceinline__ void request_entries(const ReplayParams& p, const ReplayBuffer& r,
                                                const Unit& unit, const Place& at,
                                                const ReplayCursor& cursor) {
  const int four = 4 * static_cast<int>(threadIdx.x % 32);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x / 32); i < 2 * cursor.live; i += C::kWarps) {
    const EntryRow<C> row(r, i);
    if (!row.fits) continue;
    const Chosen<C, ReplayArray> a = row.is_key ? p.k : p.delta;
    const int place = cursor.place(row.e), column = row.is_key ? 0 : at.column;
    const int64_t head =
        entry_offset(a, unit.seq.write, place, row.is_key ? unit.key_head : at.head,
                     row.is_key ? p.step.K : p.step.V);
    const bool exists = column + four < (row.is_key ? p.step.K : p.step.V);
    const int64_t element = exists ? head + column + four : 0;
    if (a.number == Number::kFloat32) {
      ptx::copy_async<16>(row.to, static_cast<const float*>(a.data) + element, exists);
    } else {
      ptx::copy_async<8>(row.to, static_cast<const uint16_t*>(a.data) + element, exists);
    }
  }
}

/// Waits for request_entries(), and makes float32 of 16 bits where they lie.
template <class C>
__device__ __forceinline__ void settle_entries(const ReplayParams& p, const ReplayBuffer& r,
                                               const ReplayCursor& cursor) {
  ptx::wait_for_all_copies();
  if (p.k.number == Number::kFloat32 && p.delta.number == Number::kFloat32) return;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x / 32); i < 2 * cursor.live; i += C::kWarps) {
    const EntryRow<C> row(r, i);
    const Number number = row.is_key ? p.k.number : p.delta.number;
    if (!row.fits || number == Number::kFloat32) continue;
    uint32_t words[4] = {__float_as_uint(row.to[0]), __float_as_uint(row.to[1])};
    if (number == Number::kBfloat16) {
      unpack_four<__nv_bfloat16>(words);
    } else {
      unpack_four<__half>(words);
    }
    float x[4];
    InFloat32::get(words, x);
    write_four(row.to, x);
  }
}

/// Gates of the CTA's value head and decays of live entries on their way, of one warp: lane e has
/// entry e, lane 16 + t token t.
struct ReplayScalars {
  GateInputs gate{};
  float decay = 1.0f;
  int token = -1;  ///< -1: none

  __device__ __forceinline__ void request(const DecodeParams& p, const Unit& unit, int member) {
    const int t = static_cast<int>(threadIdx.x % 32) - kMaxReplayEntries;
    token = t < unit.seq.tokens ? max(t, -1) : -1;
    if (token >= 0) gate = request_gate(p, unit, token * p.r + member);
  }
  __device__ __forceinline__ void request_decay(const ReplayParams& p, const Unit& unit,
                                                const Place& at, const ReplayCursor& cursor) {
    const int e = static_cast<int>(threadIdx.x % 32);
    if (e >= cursor.live) return;
    const int64_t entry = entry_offset(p.decay, unit.seq.write, cursor.place(e), at.head, 1);
    decay = static_cast<const float*>(p.decay.data)[entry];
  }
  /// Also ReplayBuffer::weights: a lane has S0 or an entry, and goes through the decays behind it.
  __device__ __forceinline__ void settle(const DecodeParams& p, const Unit& unit,
                                         const ReplayBuffer& r, const ReplayCursor& cursor,
                                         int member) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    if (token >= 0) settle_gate(p, unit, r.s, token * p.r + member, gate);
    if (lane < cursor.live) r.decays[lane] = decay;
    // SYNC warp: decays of all entries and tokens
    __syncwarp();
    const int entries = cursor.live + unit.seq.tokens, e = lane - 1;
    if (e >= entries) return;
    float product = 1.0f;
#pragma unroll 1
    for (int i = e + 1; i <= entries; ++i) {
      const int t = i - cursor.live;
      if (t >= 0) r.weights[t * ReplayBuffer::kWeights + 1 + e] = product;
      if (i < entries) product *= t < 0 ? r.decays[i] : r.s.alpha[t * p.r + member];
    }
  }
};

/// Factors of a token, by a whole warp, and its key as later tokens see it: to shared memory, and
/// by the first CTA of a key head to the replay buffer. Lanes have every 32nd number of k and q.
template <class C>
__device__ __forceinline__ void enter_token(const ReplayParams& p, const ReplayBuffer& r,
                                            const Unit& unit, const ReplayCursor& cursor, int t,
                                            const float (&k)[4], const float (&q)[4]) {
  const int lane = static_cast<int>(threadIdx.x % 32), e = cursor.live + t;
  float sums[3] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sums[0] = fmaf(k[i], k[i], sums[0]);
    sums[1] = fmaf(q[i], q[i], sums[1]);
    sums[2] = fmaf(k[i], q[i], sums[2]);
  }
  ptx::sum_over_lanes<0, 5>(sums);
  float of_k = 1.0f, of_q = p.step.scale;
  if (p.step.l2norm) {
    of_k = rsqrtf(sums[0] + p.step.l2norm_eps);
    of_q *= rsqrtf(sums[1] + p.step.l2norm_eps);
  }
  if (lane == 0) r.factors[t] = make_float4(of_k, of_q, of_q * (of_k * sums[2]), 0.0f);
  const int64_t entry = entry_offset(p.k, unit.seq.write, cursor.place(e), unit.key_head, p.step.K);
#pragma unroll
  for (int i = 0; i < C::kK / 32; ++i) {
    const int row = 32 * i + lane;
    const float key = device::rounded(p.k.number, of_k * k[i]);
    r.key(e)[row] = key;
    if (unit.rank == 0 && row < p.step.K) {
      device::store_number(p.k.data, entry + row, p.k.number, key);
    }
  }
}

/// enter_token() of all tokens, whose rows the token buffer has.
template <class C>
__device__ __forceinline__ void enter_buffered_tokens(const ReplayParams& p, const ReplayBuffer& r,
                                                      const Unit& unit,
                                                      const ReplayCursor& cursor) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll 1
  for (int t = static_cast<int>(threadIdx.x / 32); t < unit.seq.tokens; t += C::kWarps) {
    float k[4] = {}, q[4] = {};
#pragma unroll
    for (int i = 0; i < C::kK / 32; ++i) {
      k[i] = r.s.k(t)[32 * i + lane], q[i] = r.s.q(t)[32 * i + lane];
    }
    enter_token<C>(p, r, unit, cursor, t, k, q);
  }
}

/// Rows of the delta rule alone, a warp's first ones requested before anything is known of states:
/// q and k of a token, or its v.
template <class C>
struct ReplayTokens {
  RowRequest<C> rows[2];

  __device__ __forceinline__ ReplayTokens(const DecodeParams& p, const Unit& unit,
                                          const TokenBuffer&) {
    request(p, unit, static_cast<int>(threadIdx.x / 32));
  }
  __device__ __forceinline__ void request_states(const DecodeParams&, const Unit&,
                                                 const TokenBuffer&, const device::SlotEntries&) {}
  __device__ __forceinline__ void request(const DecodeParams& p, const Unit& unit, int item) {
    const int t = item - unit.seq.tokens;
    request_row(p, unit, t < 0 ? 3 * item : 3 * t + 2, rows[0]);
    if (t < 0) request_row(p, unit, 3 * item + 1, rows[1]);
  }
  /// All of the warp's rows to shared memory, with what enter_token() makes of them.
  __device__ __forceinline__ void settle(const ReplayParams& p, const Unit& unit,
                                         const ReplayBuffer& r, const ReplayCursor& cursor) {
    const int tokens = unit.seq.tokens;
#pragma unroll 1
    for (int item = static_cast<int>(threadIdx.x / 32); item < 2 * tokens;) {
      const int t = item - tokens;
      settle_row(p.step, unit, r.s, t < 0 ? 3 * item : 3 * t + 2, rows[0]);
      if (t < 0) {
        settle_row(p.step, unit, r.s, 3 * item + 1, rows[1]);
        float k[4], q[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          q[i] = number_of(p.step.q.number, rows[0].numbers[i]);
          k[i] = number_of(p.step.q.number, rows[1].numbers[i]);
        }
        enter_token<C>(p, r, unit, cursor, item, k, q);
      }
      item += C::kWarps;
      if (item < 2 * tokens) request(p.step, unit, item);
    }
  }
};

/// The sum of kWarps products, a binary tree.
template <int kWarps>
__device__ __forceinline__ float2 sum_products(const float2* products, int stride) {
  if constexpr (kWarps == 1) {
    return products[0];
  } else {
    const float2 a = sum_products<kWarps / 2>(products, stride);
    const float2 b = sum_products<kWarps / 2>(products + kWarps / 2 * stride, stride);
    return make_float2(a.x + b.x, a.y + b.y);
  }
}

/// ReplayBuffer::shares; a thread has an entry and a token.
template <class C>
__device__ __forceinline__ void share_entries(const ReplayParams& p, const ReplayBuffer& r,
                                              const Unit& unit, int member,
                                              const ReplayCursor& cursor) {
  static_assert(C::kThreads >= kMaxReplayEntries * kMaxReplayTokens);
  const int e = static_cast<int>(threadIdx.x) % kMaxReplayEntries;
  const int t = static_cast<int>(threadIdx.x) / kMaxReplayEntries;
  const bool is_state = e == ReplayBuffer::kStateShare;
  if (t >= unit.seq.tokens || (!is_state && e >= cursor.live + t)) return;
  const float4 f = r.factors[t];
  const float weight = r.weights[t * ReplayBuffer::kWeights + (is_state ? 0 : 1 + e)];
  const float alpha = r.s.alpha[t * p.step.r + member];
  float2 sum = make_float2(1.0f, 1.0f);
  if (!is_state) {
    sum = sum_products<C::kWarps>(r.products + t * kMaxReplayEntries + e,
                                  r.tokens * kMaxReplayEntries);
  }
  *r.share(e, t) = make_float2(weight * (f.x * sum.x), alpha * weight * (f.y * sum.y));
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_REPLAY_BUFFER_CUH_
