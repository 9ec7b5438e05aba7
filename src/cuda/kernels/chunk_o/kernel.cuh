// chunk_o from given states on Hopper.
//
// Math      o = scale (diag(exp G) q h + (exp(G_i - G_j) q k^T, i >= j) v), chunks of 64 tokens
// Roles     persistent grid, an item is 64 or 128 columns of one (chunk, head). Warpgroup 0: a warp
//           that loads, one that sums gates. The other two compute items by turns
// Pipeline  (arrows are stages of one mbarrier ring) loads, sums --> P = q k^T in registers,
//           o = q h, o += P v --> o tile --> copy engine
// Memory    SharedMemoryPlan: two stages of 80 KB at K = V = 128, of which one is always on its way
// Floor     docs/kernels/stages.md: bytes
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_O_KERNEL_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_O_KERNEL_CUH_

#include "cuda/device/chunk_numbers.cuh"
#include "cuda/device/follow.cuh"
#include "cuda/device/instance.h"
#include "cuda/kernels/chunk_o/config.h"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/matrix.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma_shared_shapes.cuh"
#include "cuda/tile/block_tile.cuh"
#include "cuda/tile/products.cuh"
#include "cuda/tile/shared_tile.cuh"

namespace sluice::cuda::chunk_o {

/// An item and the chunk that it is of. Whole warps.
template <class C>
__device__ __forceinline__ Item item_at(const device::StageParams& p, int64_t number,
                                        device::Chunk* chunk) {
  const int64_t slices = p.V / C::kV;
  *chunk = device::chunk_of(p, number / slices / p.HV);
  return {chunk->tokens, static_cast<int32_t>(chunk->row), static_cast<int32_t>(chunk->batch),
          static_cast<int32_t>(number / slices % p.HV),
          static_cast<int32_t>(number % slices) * C::kV};
}

/// Loads q, k, v and h of an item; one thread.
template <class C>
__device__ __forceinline__ void load_item(const OutputParams& p, const Item& item, int64_t state,
                                          Stage<C>& to, uint64_t* full) {
  const int group = static_cast<int>(device::key_head(p.stage, item.head));
  const int block = item.column / 64;
  ptx::mbarrier_arrive_expect(full, C::kStageBytes);
  ptx::tma_load(to.q, &p.q, {0, item.row, 0, group, item.batch}, full);
  ptx::tma_load(to.k, &p.k, {0, item.row, 0, group, item.batch}, full);
  ptx::tma_load(to.h, &p.h, {0, 0, block, item.head, static_cast<int32_t>(state)}, full);
  ptx::tma_load(to.v, &p.v, {0, item.row, block, item.head, item.batch}, full);
}

/// Loading warp.
template <class C>
__device__ __forceinline__ void load_role(const OutputParams& p, SharedMemoryPlan<C>& s,
                                          int64_t items) {
  tile::RingCursor<C::kStages> cursor;
  const bool first_lane = (threadIdx.x & 31u) == 0;
  for (int64_t number = blockIdx.x; number < items; number += gridDim.x) {
    device::Chunk chunk;
    const Item item = item_at<C>(p.stage, number, &chunk);
    if (item.tokens == 0) continue;
    const int64_t state =
        chunk.batch * p.h_per_batch + device::chunks_before(p.stage, chunk.seq) + chunk.number;
    if (first_lane) {
      // SYNC ring.empty: the warpgroup is done with the stage's previous item
      cursor.acquire(s.ring);
      s.item[cursor.stage] = item;
      // SYNC ring.full: the item is there, and completes when the copy engine has written
      load_item<C>(p, item, state, s.stage[cursor.stage], &s.ring.full[cursor.stage]);
    }
    cursor.next();
  }
  // One end for each warpgroup.
  for (int i = 0; i < C::kGroups; ++i) {
    if (first_lane) {
      cursor.acquire(s.ring);
      s.item[cursor.stage].tokens = 0;
      ptx::mbarrier_arrive(&s.ring.full[cursor.stage]);
    }
    cursor.next();
  }
}

/// Warp of gates. PERF gates of one item are on their way while it waits for a stage.
template <class C>
__device__ __forceinline__ void gate_role(const OutputParams& p, SharedMemoryPlan<C>& s,
                                          int64_t items) {
  tile::RingCursor<C::kStages> cursor;
  for (int64_t number = blockIdx.x; number < items; number += gridDim.x) {
    device::Chunk chunk;
    const Item item = item_at<C>(p.stage, number, &chunk);
    if (item.tokens == 0) continue;
    const device::LaneGates gates = device::request_gates(p.stage, chunk, item.head);
    // SYNC ring.empty: the warpgroup is done with the stage's previous item
    cursor.acquire(s.ring);
    device::put_sums(p.stage, gates, s.G[cursor.stage]);
    // SYNC ring.full: sums of gates are there
    cursor.commit(s.ring);
    cursor.next();
  }
  for (int i = 0; i < C::kGroups; ++i) {
    cursor.acquire(s.ring);
    cursor.commit(s.ring);
    cursor.next();
  }
}

/// A step of out (+)= A H, 16 rows of H.
__device__ __forceinline__ void recall_step(auto io, float (&out)[64], uint64_t a, uint64_t h,
                                            int accumulate) {
  ptx::wgmma_ss_n128_mn<0>(io, out, a, h, accumulate);
}
__device__ __forceinline__ void recall_step(auto io, float (&out)[32], uint64_t a, uint64_t h,
                                            int accumulate) {
  ptx::wgmma_ss_n64_mn<0>(io, out, a, h, accumulate);
}

/// out = Q H for a q tile and a state.
template <class C>
__device__ __forceinline__ void issue_recall(float (&out)[C::kV / 2], const Stage<C>& stage) {
  const uint64_t q = tile::k_major(ptx::shared_address(stage.q));
  const uint64_t h = tile::mn_major(ptx::shared_address(stage.h), C::kHBlockBytes);
#pragma unroll
  for (uint32_t step = 0; step < C::kK / 16; ++step) {
    const uint32_t at = step / 4 * C::kHalfTileBytes + step % 4 * 32;
    recall_step(typename C::Io{}, out, tile::advance(q, at),
                tile::advance(h, step * 16 * tile::kRowBytes), step != 0);
  }
  ptx::wgmma_commit();
}

/// A step of out += P V, 16 tokens.
template <int kA>
__device__ __forceinline__ void mix_step(auto io, float (&out)[64], const uint32_t (&P)[16],
                                         uint64_t v) {
  ptx::wgmma_rs_n128_mn<0, kA>(io, out, P, v, 1);
}
template <int kA>
__device__ __forceinline__ void mix_step(auto io, float (&out)[32], const uint32_t (&P)[16],
                                         uint64_t v) {
  ptx::wgmma_rs_n64_mn<0, kA>(io, out, P, v, 1);
}

/// out += P V for packed P.
template <class C>
__device__ __forceinline__ void issue_mix(float (&out)[C::kV / 2], const uint32_t (&P)[16],
                                          const Stage<C>& stage) {
  typename C::Io io{};
  const uint64_t v = tile::mn_major(ptx::shared_address(stage.v), C::kHalfTileBytes);
  constexpr uint32_t kStep = 16 * tile::kRowBytes;
  mix_step<0>(io, out, P, v);
  mix_step<4>(io, out, P, tile::advance(v, kStep));
  mix_step<8>(io, out, P, tile::advance(v, 2 * kStep));
  mix_step<12>(io, out, P, tile::advance(v, 3 * kStep));
  ptx::wgmma_commit();
}

/// This thread's first row of a result.
__device__ __forceinline__ int lane_row() {
  return static_cast<int>((threadIdx.x & 127u) >> 5) * 16 +
         static_cast<int>((threadIdx.x & 31u) >> 2);
}

/// Scores with decays and mask, as a left operand.
template <class C>
__device__ __forceinline__ void decay_scores(uint32_t (&P)[16], const float (&x)[32],
                                             const float* G) {
  const int row = lane_row(), column0 = static_cast<int>(threadIdx.x & 3u) * 2;
  const float g_row[2] = {G[row], G[row + 8]};
#pragma unroll
  for (int t = 0; t < 8; ++t) {
    const int column = 8 * t + column0;
    const float2 g = *reinterpret_cast<const float2*>(&G[column]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int difference = row + 8 * i - column;
      // WHY a choice: above the diagonal the exponential may be infinite.
      const float first = difference >= 0 ? device::decay(g_row[i] - g.x) * x[4 * t + 2 * i] : 0.0f;
      const float second =
          difference >= 1 ? device::decay(g_row[i] - g.y) * x[4 * t + 2 * i + 1] : 0.0f;
      P[2 * t + i] = tile::Packed<typename C::Io>::pack(first, second);
    }
  }
}

/// Rows times factors.
template <size_t kSize>
__device__ __forceinline__ void scale_rows(float (&x)[kSize], float first, float second) {
#pragma unroll
  for (size_t i = 0; i < kSize; ++i) x[i] *= i / 2 % 2 == 0 ? first : second;
}

/// What zero_tail() wants of a tile: here v's.
template <class C>
struct ValueTile {
  static constexpr int kK = C::kV;
  static constexpr uint32_t kHalfTileBytes = C::kHalfTileBytes;
};

/// The tail of an item's o tile by hand.
template <class C>
__device__ __forceinline__ void store_tail(const device::TokenRows& o, const Item& item,
                                           const uint8_t* tile) {
  auto* const out =
      static_cast<uint16_t*>(o.data) + device::at(o, item.batch, item.row, item.head) + item.column;
  constexpr int kPieces = C::kV / 8;
  for (int i = static_cast<int>(threadIdx.x & 127u); i < item.tokens * kPieces; i += 128) {
    const auto row = static_cast<uint32_t>(i / kPieces), piece = static_cast<uint32_t>(i % kPieces);
    const uint8_t* from =
        tile + piece / 8 * C::kHalfTileBytes + tile::swizzled_piece(row, piece % 8);
    *reinterpret_cast<uint4*>(out + row * o.token_stride + 8 * piece) =
        *reinterpret_cast<const uint4*>(from);
  }
}

/// o from registers to memory, through the warpgroup's tile. `barrier`: of this warpgroup.
template <class C>
__device__ __forceinline__ void send_output(const OutputParams& p, const Item& item, uint8_t* tile,
                                            const float (&out)[C::kV / 2], uint32_t barrier) {
  const bool first_thread = (threadIdx.x & 127u) == 0;
  if (first_thread) ptx::bulk_wait_read();
  // SYNC barrier: the store before has read the tile
  ptx::named_barrier_sync(barrier, 128);
  const int warp = static_cast<int>((threadIdx.x & 127u) >> 5);
#pragma unroll
  for (int half = 0; half < C::kV / 64; ++half) {
    const tile::BlockTile blocks(tile + half * C::kHalfTileBytes);
#pragma unroll
    for (int block = 0; block < 4; ++block) {
      uint32_t packed[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = half * 32 + block * 8 + 2 * i;
        packed[i] = tile::Packed<typename C::Io>::pack(out[at], out[at + 1]);
      }
      ptx::stmatrix_x4(blocks.block(warp, block), packed);
    }
  }
  ptx::fence_proxy_async();
  // SYNC barrier: the tile is written
  ptx::named_barrier_sync(barrier, 128);
  if (item.tokens < C::kChunk) {
    store_tail<C>(p.stage.o, item, tile);
  } else if (first_thread) {
    ptx::tma_store(&p.o, tile, {0, item.row, item.column / 64, item.head, item.batch});
    ptx::bulk_commit();
  }
}

/// One item, from its stage to o in registers.
template <class C>
__device__ __forceinline__ void compute(const OutputParams& p, Stage<C>& stage, const float* G,
                                        int tokens, uint32_t barrier, float (&out)[C::kV / 2]) {
  float scores[32];
  uint32_t P[16];
  ptx::wgmma_fence();
  tile::issue_product<C>(scores, stage.q, stage.k);
  ptx::wgmma_commit();
  issue_recall<C>(out, stage);
  if (tokens < C::kChunk) {
    // Rows past the end are another sequence's, and may be NaN.
    tile::zero_tail<ValueTile<C>>(stage.v, tokens);
    ptx::fence_proxy_async();
    ptx::named_barrier_sync(barrier, 128);
  }
  ptx::wgmma_wait<1>();
  ptx::pin(scores);
  decay_scores<C>(P, scores, G);
  ptx::wgmma_wait<0>();
  ptx::pin(out);
  const int row = lane_row();
  scale_rows(out, device::decay(G[row]), device::decay(G[row + 8]));
  ptx::wgmma_fence();
  issue_mix<C>(out, P, stage);
  ptx::wgmma_wait<0>();
  ptx::pin(out);
  ptx::pin(P);
  scale_rows(out, p.stage.scale, p.stage.scale);
}

/// Warpgroup `group` of those that compute.
template <class C>
__device__ __forceinline__ void compute_role(const OutputParams& p, SharedMemoryPlan<C>& s,
                                             int group) {
  const uint32_t barrier = 1 + static_cast<uint32_t>(group);
  tile::RingCursor<C::kStages> cursor;
  float out[C::kV / 2];
  for (int turn = 0;; turn ^= 1, cursor.next()) {
    if (turn != group) continue;
    // SYNC ring.full: the warpgroup waits for its item
    cursor.wait(s.ring);
    const Item item = s.item[cursor.stage];
    if (item.tokens == 0) break;
    compute<C>(p, s.stage[cursor.stage], s.G[cursor.stage], item.tokens, barrier, out);
    // SYNC ring.empty: this warp's reads of the stage are over
    cursor.release(s.ring);
    send_output<C>(p, item, s.o[group], out, barrier);
  }
  // The copy engine reads shared memory, which the CTA takes with it.
  if ((threadIdx.x & 127u) == 0) ptx::bulk_wait_read();
}

/// See the head of this file. Items are slots x heads x slices of V.
template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    chunk_o_kernel(const __grid_constant__ OutputParams p, int64_t items) {
  auto& s = *reinterpret_cast<SharedMemoryPlan<C>*>(ptx::dynamic_memory());
  if (threadIdx.x == 0) {
    s.ring.init(2, 4);
    ptx::fence_mbarrier_init();
    for (const CUtensorMap* map : {&p.q, &p.k, &p.v, &p.h, &p.o}) ptx::prefetch_tensor_map(map);
  }
  __syncthreads();
  device::follow();
  const uint32_t warpgroup = threadIdx.x >> 7, warp = threadIdx.x >> 5;
  if (warpgroup == 0) {
    ptx::decrease_registers<C::kServiceRegisters>();
    if (warp == 0) load_role<C>(p, s, items);
    if (warp == 1) gate_role<C>(p, s, items);
  } else {
    ptx::increase_registers<C::kComputeRegisters>();
    compute_role<C>(p, s, static_cast<int>(warpgroup) - 1);
  }
}

/// The instance of a Config.
template <class C>
device::Instance make_instance() noexcept {
  return {reinterpret_cast<const void*>(&chunk_o_kernel<C>), sizeof(SharedMemoryPlan<C>),
          C::kThreads};
}

}  // namespace sluice::cuda::chunk_o

#endif  // SLUICE_CUDA_KERNELS_CHUNK_O_KERNEL_CUH_
