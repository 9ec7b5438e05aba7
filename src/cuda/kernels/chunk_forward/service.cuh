// The service warpgroup's loader and gate warp.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_SERVICE_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_SERVICE_CUH_

#include "cuda/kernels/chunk_forward/gates.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/tile/number.cuh"

namespace sluice::cuda::chunk_forward {

/// Requests one tile of 64 tokens.
template <int kStages>
__device__ __forceinline__ void load_tile(uint8_t* destination, const CUtensorMap* map,
                                          tile::RingBarriers<kStages>& ring,
                                          tile::RingCursor<kStages>& cursor, ptx::BoxOrigin at,
                                          uint32_t bytes) {
  // SYNC ring.empty: the loader waits until all readers of the stage's previous tile are done
  cursor.acquire(ring);
  // SYNC ring.full: completes when the copy engine has written the tile
  ptx::mbarrier_arrive_expect(&ring.full[cursor.stage], bytes);
  ptx::tma_load(destination, map, at, &ring.full[cursor.stage]);
  cursor.next();
}

/// Brings the initial state of an item into the L2, ahead of the state warpgroups' plain loads.
__device__ __forceinline__ void prefetch_initial(const PrefillParams& p, const WorkItem& item) {
  if (p.initial.data == nullptr || p.has_initial_state != nullptr || item.padded ||
      item.column != 0 || item.source != StateSource::kInitial) {
    return;
  }
  const int64_t at = initial_at(p, item.seq, item.head);
  const uint32_t size = p.initial.number == Number::kFloat32 ? 4 : 2;
  const char* address = static_cast<const char*>(p.initial.data) + at * size;
  if (reinterpret_cast<uintptr_t>(address) % 16 == 0) {
    ptx::prefetch_l2(address, static_cast<uint32_t>(p.K * p.V) * size);
  }
}

/// Loader, one thread: deals the work items and requests k and q of every chunk. WHY not v: its
/// stages come back a chunk later, and would hold up k and q, which the aux warpgroup needs early.
template <class C>
__device__ __forceinline__ void load_role(const PrefillParams& p, SharedMemoryPlan<C>& s) {
  tile::RingCursor<C::kWorkSlots> work;
  tile::RingCursor<C::kKStages> k;
  tile::RingCursor<C::kQStages> q;
  uint32_t ticket = blockIdx.x;
  WorkItem item;
  do {
    item = item_of<C>(p, ticket);
    // SYNC work_ring.empty: all readers have copied the slot's previous item
    work.acquire(s.work_ring);
    s.work[work.stage] = item;
    // SYNC work_ring.full: the item is in the slot
    ptx::mbarrier_arrive(&s.work_ring.full[work.stage]);
    work.next();
    const int group = key_head(p, item.head);
    const int chunks = item.valid() ? item.chunks() : 0;
    if (item.valid()) prefetch_initial(p, item);
    const auto request_k = [&](int c) {
      const ptx::BoxOrigin at{0, item.row + c * C::kChunk, 0, group, item.batch};
      load_tile(s.k[k.stage], &p.k, s.k_ring, k, at, C::kKTileBytes);
    };
    if (chunks > 0) request_k(0);
    for (int c = 0; c < chunks; ++c) {
      // WHY a chunk ahead of q: k is needed first and its stages come back last.
      if (c + 1 < chunks) request_k(c + 1);
      if constexpr (C::kOutput) {
        const ptx::BoxOrigin at{0, item.row + c * C::kChunk, 0, group, item.batch};
        load_tile(s.q[q.stage], &p.q, s.q_ring, q, at, C::kKTileBytes);
      }
    }
    if (item.valid()) ticket = next_ticket<C>(p, ticket);
  } while (item.valid());
}

/// Requests v of chunk c; one thread. A factor's v is zero: the copy engine fills boxes outside the
/// tensor with zeros, here those of a head that there is not.
template <class C>
__device__ __forceinline__ void load_v(const PrefillParams& p, SharedMemoryPlan<C>& s,
                                       tile::RingCursor<C::kVStages>& v, const WorkItem& item,
                                       int c) {
  const int head = !C::kOutput && item.sink == StateSink::kFactor ? p.HV : item.head;
  const ptx::BoxOrigin at{0, item.row + c * C::kChunk, item.column / 64, head, item.batch};
  load_tile(s.v[v.stage], &p.v, s.v_ring, v, at, C::kVTileBytes);
}

/// The log gate and beta of one row.
struct GateValue {
  float g, beta;
};

/// Gate warp: cumulative gates and betas of every chunk, lane l for tokens 2l and 2l + 1; then v of
/// the chunk before.
template <class C>
__device__ __forceinline__ void gate_role(const PrefillParams& p, SharedMemoryPlan<C>& s) {
  const int lane = static_cast<int>(threadIdx.x & 31u);
  WorkReader<C> work(s);
  tile::RingCursor<C::kGateStages> cursor;
  tile::RingCursor<C::kVStages> v;
  for (WorkItem item = work.next(); item.valid(); item = work.next()) {
    const RawGate raw = raw_gate(p, item.head);
    const char* gate_at = scalar_address(p, p.gate, item) + 2 * lane * p.gate.token_bytes;
    const char* beta_at = scalar_address(p, p.beta, item) + 2 * lane * p.beta.token_bytes;
    const int chunks = item.chunks();
    float gate[2] = {}, beta[2] = {};
    int left = item.tokens - 2 * lane;
    const auto fetch = [&]() {
      if (p.gate.data != nullptr) fetch_pair(gate, gate_at, p.gate, left);
      if (p.beta.data != nullptr) fetch_pair(beta, beta_at, p.beta, left);
    };
    fetch();
    for (int c = 0; c < chunks; ++c) {
      GateValue value[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        value[e] = {log_gate(p, raw, gate[e]), write_strength(p.beta_form, p.beta_factor, beta[e])};
        if (e >= left) value[e] = {0.0f, 0.0f};
      }
      left -= 64;
      gate_at += 64 * p.gate.token_bytes;
      beta_at += 64 * p.beta.token_bytes;
      fetch();
      float sum = value[0].g + value[1].g;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const float other = __shfl_up_sync(~0u, sum, step);
        if (lane >= step) sum += other;
      }
      constexpr float kLog2e = 1.4426950408889634f;
      // SYNC gate_ring.empty: the aux warpgroup has read the stage's previous chunk
      cursor.acquire(s.gate_ring);
      GateStage& out = s.gates[cursor.stage];
      const float2 G = make_float2((sum - value[1].g) * kLog2e, sum * kLog2e);
      *reinterpret_cast<float2*>(&out.G[2 * lane]) = G;
      const float block_end = __shfl_sync(~0u, G.y, lane | 7);
      *reinterpret_cast<float2*>(&out.column[2 * lane]) =
          make_float2(tile::exp2_fast(block_end - G.x), tile::exp2_fast(block_end - G.y));
#pragma unroll
      for (int b = 0; b < 3; ++b) {
        const float end = __shfl_sync(~0u, G.y, 8 * b + 7);
        *reinterpret_cast<float2*>(&out.row[b][2 * lane]) = make_float2(
            tile::exp2_fast(fminf(G.x - end, 0.0f)), tile::exp2_fast(fminf(G.y - end, 0.0f)));
      }
      *reinterpret_cast<float2*>(&out.beta[2 * lane]) = make_float2(value[0].beta, value[1].beta);
      // SYNC gate_ring.full: G and beta of the chunk are written
      cursor.commit(s.gate_ring);
      cursor.next();
      if (c > 0 && lane == 0) load_v(p, s, v, item, c - 1);
    }
    if (chunks > 0 && lane == 0) load_v(p, s, v, item, chunks - 1);
    __syncwarp();
  }
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_SERVICE_CUH_
