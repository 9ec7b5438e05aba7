// Serves the kernel of gradients: loads operands, makes factors of tokens, and adds up gradients of
// gates.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_GRADIENT_ITEMS_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_GRADIENT_ITEMS_CUH_

#include "cuda/kernels/backward/gates.cuh"
#include "cuda/kernels/backward/gradient_work.cuh"
#include "cuda/kernels/backward/ready_chunks.cuh"
#include "cuda/ptx/stream.cuh"
#include "cuda/ptx/tma.cuh"

namespace sluice::cuda::backward {

// ---------------------------------------------------------------------------------- loader ----

template <class C>
struct LoadCursors {
  tile::RingCursor<C::kRowSlots> rows;
  tile::RingCursor<1> S, D, keys;
};

/// Requests the operands of one turn of an item; one thread. WHY q and k last: theirs are the
/// places that come back last.
template <class C>
__device__ __forceinline__ void request_turn(const GradientParams& p, GradientShared<C>& s,
                                             LoadCursors<C>& at, const GradientItem& item,
                                             int turn) {
  const int32_t head = value_head(p.all.stage, item.key, turn);
  const ptx::BoxOrigin rows{0, item.row, 0, head, item.batch},
      state{0, 0, 0, head, state_of<C>(p, item)};
  // SYNC row_ring.empty: both groups are done with the slot's previous rows
  at.rows.acquire(s.row_ring);
  uint64_t* const full = &s.row_ring.full[at.rows.slot];
  auto& to = s.rows[at.rows.slot];
  // SYNC row_ring.full, S_ring.full, D_ring.full, key_ring.full: complete with the copies
  ptx::mbarrier_arrive_expect(full, uint32_t{sizeof to});
  ptx::tma_load(to.d_o.bytes, &p.d_o, rows, full);
  ptx::tma_load(to.e.bytes, &p.e, rows, full);
  if constexpr (C::kDelta) ptx::tma_load(to.dv.bytes, &p.dv, rows, full);
  at.rows.next();
  // SYNC S_ring.empty, D_ring.empty: products and <S, D'> are done with the states before
  at.S.acquire(s.S_ring);
  ptx::mbarrier_arrive_expect(&s.S_ring.full[0], s.S.kBytes);
  ptx::tma_load(s.S.bytes, &p.S, state, &s.S_ring.full[0]);
  at.S.next();
  at.D.acquire(s.D_ring);
  ptx::mbarrier_arrive_expect(&s.D_ring.full[0], s.D.kBytes);
  ptx::tma_load(s.D.bytes, &p.D, state, &s.D_ring.full[0]);
  at.D.next();
  if (turn > 0) return;
  const ptx::BoxOrigin keys{0, item.row, 0, item.key, item.batch};
  // SYNC key_ring.empty: the item before has stored its gradients of q and k
  at.keys.acquire(s.key_ring);
  ptx::mbarrier_arrive_expect(&s.key_ring.full[0], s.q.kBytes + s.k.kBytes);
  ptx::tma_load(s.q.bytes, &p.q, keys, &s.key_ring.full[0]);
  ptx::tma_load(s.k.bytes, &p.k, keys, &s.key_ring.full[0]);
  at.keys.next();
}

/// Loading warp. An item is dealt out before the one ahead of it is loaded.
template <class C>
__device__ __forceinline__ void load_role(const GradientParams& p, GradientShared<C>& s,
                                          int64_t items) {
  tile::RingCursor<C::kWorkSlots> work;
  LoadCursors<C> at;
  ItemDealer<C> dealer(p, items);
  ChunkWaiter chunks;
  const auto deal = [&] {
    const GradientItem item = dealer.next();
    if (item.tokens > 0) {
      chunks.wait(p.all, item.number,
                  [&](int turn) { return value_head(p.all.stage, item.key, turn); });
    }
    // SYNC work_ring.empty: all readers have copied the slot's previous item
    work.acquire(s.work_ring);
    if (tile::is_first_lane()) s.work[work.slot] = item;
    // SYNC work_ring.full: the item is in the slot
    work.commit(s.work_ring);
    work.next();
    return item;
  };
  for (GradientItem item = deal(); item.tokens > 0;) {
    if (tile::is_first_lane()) request_turn(p, s, at, item, 0);
    const GradientItem next = deal();
    if (tile::is_first_lane()) {
      for (int turn = 1; turn < p.all.stage.r; ++turn) request_turn(p, s, at, item, turn);
    }
    __syncwarp();
    item = next;
  }
  if (p.all.ready != nullptr) chunks.end();
}

// ------------------------------------------------------------------------------------ keys ----

/// <S, D'>, this warp's half of it.
template <class C>
__device__ __forceinline__ float state_product(const GradientShared<C>& s, int half) {
  using Pack = tile::Packed<typename C::Io>;
  constexpr int kPieces = static_cast<int>(StateTile<typename C::Io>::kBytes) / 32;
  const auto *const S = reinterpret_cast<const uint4*>(s.S.bytes) + half * kPieces,
                    *const D = reinterpret_cast<const uint4*>(s.D.bytes) + half * kPieces;
  float sums[4] = {};
#pragma unroll 2
  for (int i = tile::lane(); i < kPieces; i += 32) {
    const uint4 x = S[i], y = D[i];
    const uint32_t a[4] = {x.x, x.y, x.z, x.w}, c[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      sums[word] = fmaf(Pack::first(a[word]), Pack::first(c[word]), sums[word]);
      sums[word] = fmaf(Pack::second(a[word]), Pack::second(c[word]), sums[word]);
    }
  }
  return warp_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

/// Zeroes a row: others' numbers may be NaN.
template <class Io>
__device__ __forceinline__ void zero_row(TokenTile<Io>& rows, uint32_t row) {
#pragma unroll 1
  for (uint32_t piece = 0; piece < 16; ++piece) {
    *reinterpret_cast<uint4*>(rows.block(static_cast<int>(piece / 8)) + row * tile::kRowBytes +
                              piece % 8 * 16) = make_uint4(0, 0, 0, 0);
  }
}

/// Brings this warp's half of the caller's dv to what it is, where the chain has left another.
template <class C>
__device__ __forceinline__ void undo_strengths(const BackwardParams& b, const GradientShared<C>& s,
                                               const GradientItem& item, int64_t head, int slot,
                                               int half) {
  using Pack = tile::Packed<typename C::Io>;
  const float* const undo = s.factors[slot].undo;
  const float back = s.factors[slot].back;
  const int own = 32 * half + tile::lane();
  const uint32_t wanted = __ballot_sync(~0u, own < item.tokens && back * undo[own] != 1.0f);
  if (wanted == 0) return;
  const auto column = static_cast<uint32_t>(4 * tile::lane());
  const uint8_t* const block = s.rows[slot].dv.block(static_cast<int>(column / 64));
#pragma unroll 1
  for (int row = 32 * half; row < 32 * half + 32; ++row) {
    if ((wanted >> (row % 32) & 1u) == 0 || column >= b.stage.V) continue;
    const uint2 x = *reinterpret_cast<const uint2*>(
        block + tile::swizzled_element(static_cast<uint32_t>(row), column % 64));
    const float factor = back * undo[row];
    auto* const to =
        static_cast<uint16_t*>(b.dv.data) + at(b.dv, item.batch, item.row + row, head) + column;
    *reinterpret_cast<uint2*>(to) = {
        Pack::pack(factor * Pack::first(x.x), factor * Pack::second(x.x)),
        Pack::pack(factor * Pack::first(x.y), factor * Pack::second(x.y))};
  }
}

/// Two warps: small dv and <S, D'> of every head, and tails of q and k. WHY after the first states:
/// these come first, and their place is wanted.
template <class C>
__device__ __forceinline__ void key_role(const GradientParams& p, GradientShared<C>& s, int half) {
  const BackwardParams& b = p.all;
  ItemReader<C> items(s);
  tile::RingCursor<1> keys, states;
  tile::RingCursor<C::kSumSlots> sums;
  tile::RingCursor<C::kRowSlots> rows;
  const bool own_values = C::kDelta && b.dv.data != nullptr && b.dv.data == b.dv_tile.data;
  for (GradientItem item = items.next(); item.tokens > 0; item = items.next(), keys.next()) {
    for (int turn = 0; turn < b.stage.r; ++turn, states.next(), sums.next(), rows.next()) {
      // SYNC row_ring.full, factor_ring.full: dv and its factors are there
      rows.wait(s.row_ring);
      rows.wait(s.factor_ring);
      if constexpr (C::kDelta) {
        if (own_values) {
          undo_strengths(b, s, item, value_head(b.stage, item.key, turn), rows.slot, half);
        }
      }
      // SYNC row_ring.empty, factor_ring.empty: this warp's reads are over
      rows.release(s.row_ring);
      rows.release(s.factor_ring);
      // SYNC S_ring.full, D_ring.full: the states are there
      states.wait(s.S_ring);
      states.wait(s.D_ring);
      const float product = b.g.data != nullptr ? state_product<C>(s, half) : 0.0f;
      // SYNC S_ring.empty, D_ring.empty: this warp's reads are over
      states.release(s.S_ring);
      states.release(s.D_ring);
      // SYNC sum_ring.empty: sums of the head before the last have been read
      sums.acquire(s.sum_ring);
      if (tile::is_first_lane()) s.sums[sums.slot].product[half] = product;
      // SYNC sum_ring.full: <S, D'> is there
      sums.commit(s.sum_ring);
      if (turn > 0) continue;
      // SYNC key_ring.full: q and k are there
      keys.wait(s.key_ring);
      const int row = 32 * half + tile::lane();
      if (row >= item.tokens) {
        zero_row(s.q, static_cast<uint32_t>(row));
        zero_row(s.k, static_cast<uint32_t>(row));
        ptx::fence_proxy_async();
      }
      // SYNC ready_ring.full: this warp's rows of q and k are as products want them
      keys.commit(s.ready_ring);
    }
  }
}

// ----------------------------------------------------------------------------------- gates ----

template <class Io>
__device__ __forceinline__ void put_factors(float scale, float gain, const LaneNumbers& numbers,
                                            GradientFactors& f) {
  const float last = numbers.last(), score = scale * gain;
  if (tile::is_first_lane()) {
    f.score = score;
    f.back = 1.0f / gain;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int token = tile::lane() + 32 * i;
    const float G = numbers.G[i], decayed = decay(G);
    f.G[token] = G;
    f.beta[token] = numbers.beta[i];
    f.query[token] = score * decayed;
    const ValueStrength<Io> value(numbers.beta[i]);
    f.recall[token] = -decayed * value.undo;
    f.write[token] = numbers.beta[i] * decay(last - G);
    f.undo[token] = value.undo;
    f.stored[token] = value.stored;
  }
}

/// Gradients of gates and write strengths of a head. A lane has two tokens, the last lane the first
/// ones: tokens after them are of the lanes before.
struct GateSums {
  GivenGate given[2];

  __device__ __forceinline__ static int token(int back) {
    return kTokens - 1 - 2 * tile::lane() - back;
  }

  __device__ __forceinline__ void request(const BackwardParams& b, const Chunk& chunk,
                                          int64_t head) {
#pragma unroll
    for (int back = 0; back < 2; ++back) {
      const int i = token(back);
      given[back] = given_gate(b, chunk, head, i);
    }
  }
  /// @param number of the chunk among all
  __device__ __forceinline__ void store(const BackwardParams& b, const Chunk& chunk, int64_t number,
                                        int64_t head, const GradientSums& s,
                                        const GradientFactors& f) const {
    const auto gate = [&](int i) {
      if (i >= chunk.tokens) return 0.0f;
      const float correction = b.delta_rule ? s.correction[i] : 0.0f;
      return s.query[i] - s.key[i] + correction;
    };
    const auto leave = [&](int i) { return i < chunk.tokens ? s.leave[i] : 0.0f; };
    float dg = 0.0f;
    if (b.g.data != nullptr) {
      const float whole = warp_sum(leave(tile::lane()) + leave(tile::lane() + 32)) +
                          decay(f.G[kTokens - 1]) * (s.product[0] + s.product[1]);
      dg = whole + tile::sum_before_lane(gate(token(0)) + gate(token(1)));
    }
    float by_bias = 0.0f, by_rate = 0.0f;
#pragma unroll
    for (int back = 0; back < 2; ++back) {
      const int i = token(back);
      if (b.g.data != nullptr) dg += gate(i);
      if (i >= chunk.tokens) continue;
      const float dbeta = b.delta_rule ? s.value[i] / f.stored[i] : 0.0f;
      const device::RawSlopes slopes =
          store_gate(b, chunk, head, i, given[back], f.back * dg, f.back * dbeta);
      by_bias += f.back * dg * slopes.gate;
      by_rate += f.back * dg * slopes.A_log;
    }
    if (b.chunk_sums == nullptr) return;
    by_bias = warp_sum(by_bias);
    by_rate = warp_sum(by_rate);
    if (!tile::is_first_lane()) return;
    *reinterpret_cast<float2*>(b.chunk_sums + 2 * (number * b.stage.HV + head)) = {by_bias,
                                                                                   by_rate};
  }
};

/// The chain's number. WHY not by __ldg: it may have been written since this kernel began.
__device__ __forceinline__ float given_scale(const BackwardParams& b, int64_t seq, int64_t head) {
  return __uint_as_float(static_cast<uint32_t>(ptx::peek_32(b.scales + seq * b.stage.HV + head)));
}

/// A warp: factors of every head, one ahead, and its gradients of gates.
template <class C>
__device__ __forceinline__ void gate_role(const GradientParams& p, GradientShared<C>& s) {
  const BackwardParams& b = p.all;
  ItemReader<C> items(s);
  tile::RingCursor<C::kFactorSlots> factors;
  tile::RingCursor<C::kSumSlots> sums;
  static_assert(C::kFactorSlots == C::kSumSlots);
  const auto make = [&](const GradientItem& item, int turn) {
    const int32_t head = value_head(b.stage, item.key, turn);
    const LaneNumbers numbers = request_numbers(b.stage, chunk_of_item(item), head);
    const float gain = C::kScales ? given_scale(b, item.sequence, head) : 1.0f;
    // SYNC factor_ring.empty: the readers are done with the head before the last
    factors.acquire(s.factor_ring);
    put_factors<typename C::Io>(b.stage.scale, gain, numbers, s.factors[factors.slot]);
    // SYNC factor_ring.full: factors are there
    factors.commit(s.factor_ring);
    factors.next();
  };
  GradientItem item = items.next();
  if (item.tokens > 0) make(item, 0);
  for (int turn = 0; item.tokens > 0; sums.next()) {
    const bool is_last = turn + 1 == b.stage.r;
    const GradientItem next = is_last ? items.next() : item;
    const int next_turn = is_last ? 0 : turn + 1;
    const Chunk chunk = chunk_of_item(item);
    const int64_t head = value_head(b.stage, item.key, turn);
    GateSums gates;
    gates.request(b, chunk, head);
    if (next.tokens > 0) make(next, next_turn);
    // SYNC sum_ring.full: all sums of the head are there
    sums.wait(s.sum_ring);
    // WHY the sums' slot: factors of the head are two rounds of make() from being overwritten.
    gates.store(b, chunk, item.number, head, s.sums[sums.slot], s.factors[sums.slot]);
    // SYNC sum_ring.empty: they have been read
    sums.release(s.sum_ring);
    item = next, turn = next_turn;
  }
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_GRADIENT_ITEMS_CUH_
