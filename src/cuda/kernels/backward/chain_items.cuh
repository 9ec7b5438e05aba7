// Deals out items of chains, loads their operands and factors, and sends what leaves.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_CHAIN_ITEMS_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_CHAIN_ITEMS_CUH_

#include "cuda/device/state_io.cuh"
#include "cuda/kernels/backward/gates.cuh"
#include "cuda/kernels/backward/tile_numbers.cuh"
#include "cuda/ptx/lanes.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/tile/fragment.cuh"

namespace sluice::cuda::backward {

/// A sequence, a head and the first of the columns.
struct ChainItem {
  Chunk sequence;  ///< all of its tokens as one chunk
  int head, column, chunks;
  int32_t state;  ///< of its first chunk
  __device__ __forceinline__ int rows(int chunk) const {
    return min(sequence.tokens - chunk * kTokens, kTokens);
  }
  /// The chunk of a step.
  template <class C>
  __device__ __forceinline__ int chunk(int step) const {
    return C::kBack ? chunks - 1 - step : step;
  }
};

template <class C>
__device__ __forceinline__ ChainItem chain_item(const StageParams& p, int64_t number) {
  const int64_t slices = p.V / C::kV, seq = number / slices / p.HV;
  ChainItem item{};
  item.sequence.tokens = static_cast<int>(device::tokens_of(p, seq, &item.sequence));
  item.head = static_cast<int>(number / slices % p.HV);
  item.column = static_cast<int>(number % slices) * C::kV;
  item.chunks = (item.sequence.tokens + kTokens - 1) / kTokens;
  return item;
}

/// Loading warp.
template <class C>
__device__ __forceinline__ void chain_load_role(const ChainParams& p, ChainShared<C>& s,
                                                int64_t items) {
  tile::RingCursor<C::kStages> cursor;
  if (!tile::is_first_lane()) return;
  for (int64_t number = blockIdx.x; number < items; number += gridDim.x) {
    const ChainItem item = chain_item<C>(p.all.stage, number);
    const auto keys = static_cast<int32_t>(device::key_head(p.all.stage, item.head)),
               batch = static_cast<int32_t>(item.sequence.batch);
    for (int step = 0; step < item.chunks; ++step, cursor.next()) {
      const auto row =
          static_cast<int32_t>(item.sequence.row) + item.template chunk<C>(step) * kTokens;
      // SYNC ring.empty: the states and the scores are done with the stage's previous chunk
      cursor.acquire(s.ring);
      ChainStage<C>& to = s.stage[cursor.stage];
      uint64_t* const full = &s.ring.full[cursor.stage];
      // SYNC ring.full: completes when the copy engine has written
      ptx::mbarrier_arrive_expect(full, uint32_t{sizeof(ChainStage<C>)});
      ptx::tma_load(to.k.bytes, &p.k, {0, row, 0, keys, batch}, full);
      if constexpr (C::kBack) ptx::tma_load(to.q.bytes, &p.q, {0, row, 0, keys, batch}, full);
      for (int group = 0; group < C::kGroups; ++group) {
        const ptx::BoxOrigin at{0, row, item.column / 64 + group, item.head, batch};
        ptx::tma_load(to.rows.block(group), &p.rows, at, full);
        if constexpr (C::kBack && C::kDelta) ptx::tma_load(to.e.block(group), &p.e, at, full);
      }
      if constexpr (C::kDelta) ptx::tma_load(to.B.bytes, &p.B, {0, row, 0, item.head, batch}, full);
    }
  }
}

/// Factors of a chunk; one warp.
template <class C>
__device__ __forceinline__ void put_factors(float scale, const LaneNumbers& numbers,
                                            ChainFactors& f) {
  const float last = numbers.last();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int token = tile::lane() + 32 * i;
    const float G = numbers.G[i], decayed = decay(G);
    f.G[token] = G;
    f.write[token] = (C::kBack ? 1.0f : numbers.beta[i]) * decay(last - G);
    f.query[token] = scale * decayed;
    f.recall[token] = -decayed;
    f.beta[token] = numbers.beta[i];
  }
  if (tile::is_first_lane()) f.decay = decay(last);
}

/// Warp `own` of those of gates. PERF several: a chunk is shorter than the latency of its gates.
template <class C>
__device__ __forceinline__ void chain_gate_role(const ChainParams& p, ChainShared<C>& s,
                                                int64_t items, int own) {
  tile::RingCursor<C::kStages> cursor;
  int turn = 0;
  for (int64_t number = blockIdx.x; number < items; number += gridDim.x) {
    const ChainItem item = chain_item<C>(p.all.stage, number);
    for (int step = 0; step < item.chunks;
         ++step, cursor.next(), turn = turn == C::kGateWarps - 1 ? 0 : turn + 1) {
      if (turn != own) continue;
      const int c = item.template chunk<C>(step);
      Chunk chunk = item.sequence;
      chunk.row += c * kTokens;
      chunk.tokens = item.rows(c);
      const LaneNumbers numbers = request_numbers(p.all.stage, chunk, item.head);
      // SYNC ring.empty: the states and the scores are done with the stage's previous chunk
      cursor.acquire(s.ring);
      put_factors<C>(p.all.stage.scale, numbers, s.factors[cursor.stage]);
      // SYNC ring.full: factors are there
      cursor.commit(s.ring);
    }
  }
}

/// Places of a warpgroup of states.
struct ChainPlace {
  int group;         ///< 64 columns of the item's
  uint32_t barrier;  ///< named, of this warpgroup
  uint32_t offset;   ///< tile::turned_piece()
  int turn = 0;      ///< which tile this chunk's rows go through
};

/// The state at a chunk from its tile to memory. On return the turn's tile of rows may be written.
template <class C>
__device__ __forceinline__ void send_state(const ChainParams& p, ChainShared<C>& s,
                                           const ChainPlace& place, const ChainItem& item,
                                           int chunk) {
  ptx::fence_proxy_async();
  // PERF with two tiles of rows send_rows() has waited for this one a chunk ago.
  if (C::kOutStages == 1 && tile::is_first_of_group()) ptx::bulk_wait_read();
  // SYNC place.barrier: the tile of the state is written, that of rows has been read
  ptx::named_barrier_sync(place.barrier, 128);
  if (!tile::is_first_of_group()) return;
  ptx::tma_store(&p.state, s.state[place.group].bytes,
                 {0, 0, item.column / 64 + place.group, item.head, item.state + chunk});
  ptx::bulk_commit();
}

/// dv^T of a chunk to rows of any dtype, number by number.
__device__ __forceinline__ void store_values(const TokenRows& dv, const ChainItem& item,
                                             int64_t row, int column, int rows,
                                             tile::Accumulator<64>& a) {
  const int64_t start = at(dv, item.sequence.batch, row, item.head) + column;
  a.for_each([&](int v, int token, float x) {
    if (token >= rows) return;
    device::store_number(dv.data, start + token * dv.token_stride + v, dv.number, x);
  });
}

/// Rows of a chunk, transposed, to `to`. On return the tile of the state may be written, and what
/// warps have put into shared memory before is there for the others.
template <class C>
__device__ __forceinline__ void send_rows(const ChainParams& p, ChainShared<C>& s,
                                          const ChainPlace& place, const ChainItem& item, int chunk,
                                          const TokenRows& to,
                                          const tile::Operand<typename C::Io, 64>& rows) {
  const int count = item.rows(chunk), column = item.column + 64 * place.group;
  const int64_t row = item.sequence.row + int64_t{kTokens} * chunk;
  auto& out = s.out[place.group][place.turn];
  rows.store_turned(out.address() + place.offset);
  ptx::fence_proxy_async();
  if (tile::is_first_of_group()) ptx::bulk_wait_read();
  // SYNC place.barrier: the tile of rows is written, that of the state has been read
  ptx::named_barrier_sync(place.barrier, 128);
  if (to.data == nullptr) return;
  if (count < kTokens) {
    copy_rows(out.bytes, to, at(to, item.sequence.batch, row, item.head) + column, count);
  } else if (tile::is_first_of_group()) {
    ptx::tma_store(&p.out, out.bytes,
                   {0, static_cast<int32_t>(row), column / 64, item.head,
                    static_cast<int32_t>(item.sequence.batch)});
    ptx::bulk_commit();
  }
}

/// dv^T of a chunk, and its gradients of write strengths, to memory. On return the tile of D' may
/// be written.
template <class C>
__device__ __forceinline__ void send_values(const ChainParams& p, ChainShared<C>& s,
                                            const ChainPlace& place, const ChainItem& item,
                                            int chunk, tile::Accumulator<64>& a) {
  const BackwardParams& b = p.all;
  const int rows = item.rows(chunk), column = item.column + 64 * place.group;
  const int64_t row = item.sequence.row + int64_t{kTokens} * chunk;
  if (b.dv.data != nullptr && b.dv.data != b.dv_tile.data) {
    store_values(b.dv, item, row, column, rows, a);
  }
  tile::Operand<typename C::Io, 64> packed;
  packed.pack(a);
  send_rows<C>(p, s, place, item, chunk, b.dv_tile, packed);
  const int token = tile::thread_of_group();
  if (!C::kDelta || b.dbeta_parts.data == nullptr || token >= rows) return;
  const auto& parts = s.dbeta[place.group];
  put_float(b.dbeta_parts, item.sequence.batch, row + token, 2 * item.head + column / 64,
            parts[0][token] + parts[1][token] + parts[2][token] + parts[3][token]);
}

/// Calls use(data, place) with a sequence's state of a pool, if there is one, as an array of its
/// type.
template <class C, class Use>
__device__ __forceinline__ void with_state(const StageParams& p, const BoundedPool& bounded,
                                           const ChainItem& item, int group, const Use& use) {
  const device::StatePool& pool = bounded.pool;
  if (pool.data == nullptr) return;
  const device::StatePlace place(static_cast<int>(p.K), static_cast<int>(p.V), p.row_step == 1,
                                 item.column + 64 * group);
  const int64_t start = item.sequence.seq * pool.slot_stride + item.head * p.K * p.V + place.origin;
  if (pool.number == Number::kFloat32) {
    use(static_cast<float*>(pool.data) + start, place);
  } else if (pool.number == Number::kBfloat16) {
    use(static_cast<__nv_bfloat16*>(pool.data) + start, place);
  } else {
    use(static_cast<__half*>(pool.data) + start, place);
  }
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_CHAIN_ITEMS_CUH_
