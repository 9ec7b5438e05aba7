// Runs linear attention of short sequences and few heads in one launch, unexchanged: the CTA of
// a part of a sequence sums up the state that enters it from all tokens before it, k and v of which
// it reads itself. docs/kernels/linear_attention.md.
//
// Math      S = sum_j e^(G_e - G_j) k_j v_j^T over the tokens before a block of 128, whose outputs
//           are then those of one chunk: O = scale diag(e^G) Q S + P V
// Order     chunks before a block are summed from its own backwards: weights are exponentials of
//           sums that grow with the distance, whatever was before them
// Roles     warp 0: loader; warp 1: gates. Warpgroups 1, 2: 64 rows of a
//           block's outputs and 64 columns of the state each
// Memory    PrefixMemory, 227 KB
// PERF      code that runs for the first time is fetched from memory, and a short call has little
//           else to wait for: no work items, no planner, rows past the end are left to the copy
//           engine
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_PREFIX_CUH_
#define SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_PREFIX_CUH_

#include "cuda/device/instance.h"
#include "cuda/kernels/linear_attention/prefix_blocks.cuh"
#include "cuda/kernels/linear_attention/service.cuh"
#include "cuda/ptx/cluster.cuh"

namespace sluice::cuda::linear_attention {

/// Initialises all barriers; one thread.
template <class C>
__device__ __forceinline__ void init_barriers(PrefixMemory<C>& s) {
  s.block.init(2, 2);
  s.ring.init(2, 8);
  ptx::fence_mbarrier_init();
}

/// Loads the tiles of all blocks and of what is before them; one thread.
template <class C>
__device__ __forceinline__ void load_blocks(const PrefillParams& p, PrefixMemory<C>& s) {
  const PrefixPart part = prefix_part<C>(p);
  const WorkItem& item = part.item;
  const int group = device::key_head(p, item.head);
  tile::RingCursor<1> block;
  tile::RingCursor<kPrefixSlots> tile;
#pragma unroll 1
  for (int begin = part.first; begin < part.stop(); begin += kBlockChunks) {
    if (begin < part.end) {
      // SYNC block.empty: the compute warpgroups are done with the tiles of the block before
      block.acquire(s.block);
      uint64_t* const full = &s.block.full[0];
      ptx::mbarrier_arrive_expect(full,
                                  kBlockChunks * (2 * C::KeyTile::kBytes + C::ValueTile::kBytes));
#pragma unroll 1
      for (int i = 0; i < kBlockChunks; ++i) {
        const int row = (begin + i) * C::kChunk;
        ptx::tma_load(s.q[i].bytes, &p.q, {0, row, 0, group, item.batch}, full);
        ptx::tma_load(s.k[i].bytes, &p.k, {0, row, 0, group, item.batch}, full);
        ptx::tma_load(s.v[i].bytes, &p.v, {0, row, item.column / 64, item.head, item.batch}, full);
      }
      block.next();
    }
    const int low = part.low(begin);
#pragma unroll 1
    for (int c = begin - 1; c >= low; --c) {
      // SYNC ring.empty: the compute warpgroups are done with the slot's tiles before
      tile.acquire(s.ring);
      uint64_t* const full = &s.ring.full[tile.slot];
      auto& slot = s.slots[tile.slot];
      const int row = c * C::kChunk;
      ptx::mbarrier_arrive_expect(full, C::KeyTile::kBytes + C::ValueTile::kBytes);
      ptx::tma_load(slot.k.bytes, &p.k, {0, row, 0, group, item.batch}, full);
      ptx::tma_load(slot.v.bytes, &p.v, {0, row, item.column / 64, item.head, item.batch}, full);
      tile.next();
    }
  }
}

/// Weights of a chunk before a block, `after`: log2 of what its last token keeps until there, which
/// becomes that of the token before the chunk.
__device__ __forceinline__ void put_weights(PrefixWeights& out, float2 sums, float& after) {
  constexpr float kLog2e = 1.4426950408889634f;
  const int lane = tile::lane();
  const float2 G = make_float2(sums.x * kLog2e, sums.y * kLog2e);
  const float last = __shfl_sync(~0u, G.y, 31);
  *reinterpret_cast<float2*>(&out.write[2 * lane]) =
      make_float2(tile::exp2_fast(after + (last - G.x)), tile::exp2_fast(after + (last - G.y)));
  after += last;
  if (lane == 0) out.kept = tile::exp2_fast(after);
}

/// Gate warp.
template <class C>
__device__ __forceinline__ void gate_blocks(const PrefillParams& p, PrefixMemory<C>& s) {
  const PrefixPart part = prefix_part<C>(p);
  const int lane = tile::lane();
  const RawGate raw = device::load_raw_gate(p, part.item.head);
  const GateSource source(p, part.item);
  tile::RingCursor<1> block;
  tile::RingCursor<kPrefixSlots> tile;
  bool ready = false;
#pragma unroll 1
  for (int begin = part.first; begin < part.stop(); begin += kBlockChunks) {
    const int top = begin < part.end ? begin + kBlockChunks - 1 : begin - 1, low = part.low(begin);
    float after = 0.0f;
    LaneGates gates[kGatesAhead];
#pragma unroll
    for (int i = 0; i < kGatesAhead; ++i) gates[i] = source.request(max(top - i, low));
    if (!ready) {
      // SYNC kGates: the mbarriers are ready
      ptx::named_barrier_sync(static_cast<uint32_t>(PrefixBarrier::kGates), 64);
      ready = true;
    }
#pragma unroll 1
    for (int round = top; round >= low; round -= kGatesAhead) {
#pragma unroll
      for (int i = 0; i < kGatesAhead; ++i) {
        const int c = round - i;
        if (c < low) break;
        const int left = part.item.tokens - c * 64;
        float2 sums = sum_gates(source, raw, gates[i], c, left - 2 * lane);
        if (left <= 0) sums = make_float2(0.0f, 0.0f);
        gates[i] = source.request(max(c - kGatesAhead, low));
        if (c >= begin) {
          // SYNC block.empty: the compute warpgroups are done with the gates of the block before
          if (c == top) block.acquire(s.block);
          put_gates(s.gates[c - begin], sums, p.scale);
          if (c > begin) continue;
          // SYNC block.full: gates of the block are written
          block.commit(s.block);
          block.next();
        } else {
          // SYNC ring.empty: the compute warpgroups are done with the slot's weights before
          tile.acquire(s.ring);
          put_weights(s.weights[tile.slot], sums, after);
          // SYNC ring.full: weights are written
          tile.commit(s.ring);
          tile.next();
        }
      }
    }
  }
}

/// See the head of this file. Launch with kPrefixThreads threads, sizeof(PrefixMemory) bytes of
/// dynamic shared memory (1024-byte aligned); grid: see prefix_part().
template <class C>
__global__ void __launch_bounds__(kPrefixThreads, 1)
    prefix_kernel(const __grid_constant__ PrefillParams p) {
  static_assert(C::kV == 128, "a compute warpgroup has 64 columns of the state, and 64 rows");
  auto& s = *reinterpret_cast<PrefixMemory<C>*>(ptx::dynamic_memory());
  const int warp = tile::warp(), warpgroup = tile::warpgroup();
  if (warpgroup == 0) {
    ptx::decrease_registers<kPrefixServiceRegisters>();
    if (warp == 0) {
      if (threadIdx.x == 0) init_barriers<C>(s);
      __syncwarp();
      // SYNC kGates, kReady: the mbarriers are ready
      ptx::named_barrier_arrive(static_cast<uint32_t>(PrefixBarrier::kGates), 64);
      ptx::named_barrier_arrive(static_cast<uint32_t>(PrefixBarrier::kReady), 288);
      if (threadIdx.x == 0) load_blocks<C>(p, s);
    } else if (warp == 1) {
      gate_blocks<C>(p, s);
    }
  } else {
    ptx::increase_registers<kPrefixComputeRegisters>();
    compute_blocks<C>(p, s, warpgroup - 1);
  }
}

/// The instance of a Config.
template <class C>
device::Instance make_prefix_instance() noexcept {
  return {device::address_of(prefix_kernel<C>), sizeof(PrefixMemory<C>), kPrefixThreads};
}

}  // namespace sluice::cuda::linear_attention

#endif  // SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_PREFIX_CUH_
