// Runs linear attention of long sequences and few heads in one launch: segments of one (sequence,
// value head) are the CTAs of one cluster. docs/kernels/linear_attention.md.
//
// Pass 1   what every segment but the last adds to the state, N, from k and v
// Exchange states at the boundaries, see exchange.cuh
// Pass 2   the kernel of kernel.cuh on every segment, from the state that enters it
// Roles    those of kernel.cuh, which go through both passes; no work items are dealt
// Progress the CTAs of a cluster run at once; none waits for a CTA of another
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_CLUSTER_CUH_
#define SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_CLUSTER_CUH_

#include "cuda/kernels/linear_attention/exchange.cuh"
#include "cuda/kernels/linear_attention/kernel.cuh"
#include "cuda/ptx/barrier.cuh"

namespace sluice::cuda::linear_attention {

/// Chunks whose tiles stay between the passes, at most.
inline constexpr uint32_t kKeptChunks = 2;
/// Chunks of q, k and v that the L2 is asked for ahead of pass 2.
inline constexpr int kChunksAhead = 3;

/// This CTA's.
template <class C>
__device__ __forceinline__ ClusterSegment cluster_segment(const PrefillParams& p) {
  const auto ctas = static_cast<uint32_t>(p.segments.cut.cluster_ctas),
             slices = static_cast<uint32_t>(p.V / C::kV), heads = static_cast<uint32_t>(p.HV);
  const uint32_t unit = blockIdx.x / ctas, rank = blockIdx.x % ctas, pair = unit / slices;
  ClusterSegment out{
      device::locate(p, static_cast<int>(pair / heads), static_cast<int>(pair % heads)),
      {rank, ctas, false}};
  out.item.column = static_cast<int32_t>(unit % slices) * C::kV;
  const auto chunks = static_cast<uint32_t>((out.item.tokens + 63) / 64);
  // WHY so: where there are fewer chunks than CTAs the last one has the last chunk, which may be a
  // partial one. BOUND: less than 2^25 chunks, 8 CTAs.
  const uint32_t first = chunks * rank / ctas, end = chunks * (rank + 1) / ctas;
  device::cut_item(out.item, static_cast<int>(first), static_cast<int>(end - first), 0);
  out.item.sink = rank + 1 == ctas ? device::StateSink::kFinal : device::StateSink::kNone;
  out.place.keeps = (chunks + ctas - 1) / ctas <= kKeptChunks;
  return out;
}

/// Barriers and the segment; one thread.
template <class C>
__device__ __forceinline__ void begin_segment(const PrefillParams& p, ClusterMemory<C>& m) {
  ptx::prefetch_tensor_map(&p.k);
  ptx::prefetch_tensor_map(&p.v);
  const ClusterSegment segment = cluster_segment<C>(p);
  init_barriers<C>(m.tiles);
  m.init(segment.place);
  m.segment = segment;
  ptx::prefetch_tensor_map(&p.q);
  ptx::prefetch_tensor_map(&p.o);
}

/// All threads of a CTA: its barriers are ready, for the other CTAs too. PERF not an arrival that
/// releases: it would wait until all requests on their way have been answered, and the fence after
/// the barriers' initialisation is enough.
template <class C>
__device__ __forceinline__ void begin_roles() {
  // SYNC barrier 0, as __syncthreads has it, by each role in its own branch
  ptx::role_barrier_sync(0, C::kThreads);
  // SYNC cluster: this CTA runs, and its barriers are ready
  ptx::cluster_arrive_relaxed();
}

/// Loader, one thread: k of both passes, and q. PERF one place that requests: code that runs for
/// the first time is fetched from memory, and the first q is waited for.
template <class C>
__device__ __forceinline__ void load_segment(const PrefillParams& p, ClusterMemory<C>& m) {
  static_assert(C::kKSlots == C::kQSlots);
  SharedMemoryPlan<C>& s = m.tiles;
  const ClusterSegment& segment = m.segment;
  const WorkItem& item = segment.item;
  const int group = device::key_head(p, item.head), chunks = item.chunks(),
            once = segment.passes() == 2 ? chunks : 0, ahead = min(chunks, C::kKSlots);
  const auto box = [&](int c) {
    return ptx::BoxOrigin{0, item.row + c * C::kChunk, 0, group, item.batch};
  };
  tile::RingCursor<C::kKSlots> k, q;
  int next_k = -once, next_q = 0;  // k of pass 1 counts up to 0
  const auto is_next_q = [&] {
    return next_k >= ahead && next_q + 1 < next_k + (next_k == chunks);
  };
#pragma unroll 1
  for (int left = once + 2 * chunks; left > 0; --left) {
    const bool is_q = is_next_q();
    if (is_q && next_q == 0) {
      // SYNC added_read: the loader waits until what arrived in the q tiles has been read
      tile::wait_phase(&m.added_read, 0);
    }
    const int c = is_q ? next_q++ : next_k < 0 ? next_k++ + once : next_k++;
    tile::RingCursor<C::kKSlots> at = is_q ? q : k;
    tile::load_tile(is_q ? s.q[at.slot] : s.k[at.slot], is_q ? &p.q : &p.k,
                    is_q ? s.q_ring : s.k_ring, at, box(c));
    (is_q ? q : k) = at;
    if (left == once + 2 * chunks) {
      // Behind the first request: what is wanted later.
      if (segment.place.rank == 0) device::prefetch_initial(p, item);
      for (int i = 0; i < min(chunks, kChunksAhead); ++i) ptx::tma_prefetch(&p.q, box(i));
    }
  }
}

/// Value warp, one lane: v of both passes.
template <class C>
__device__ __forceinline__ void load_values_of(const PrefillParams& p, ClusterMemory<C>& m) {
  const ClusterSegment& segment = m.segment;
  const WorkItem& item = segment.item;
  const int chunks = item.chunks(), passes = segment.passes();
  tile::RingCursor<C::kVSlots> v;
#pragma unroll 1
  for (int pass = 0; pass < passes; ++pass) {
    if (pass + 1 == passes && !segment.place.keeps && chunks > 0) {
      for (int c = 0; c < min(chunks, kChunksAhead); ++c) {
        ptx::tma_prefetch(&p.v,
                          {0, item.row + c * C::kChunk, item.column / 64, item.head, item.batch});
      }
      // SYNC entered_read: the value warp waits until what arrived in the v tiles has been read
      tile::wait_phase(&m.entered_read, 0);
    }
    for (int c = 0; c < chunks; ++c) device::load_v<C>(p, m.tiles, v, item, c);
  }
}

/// Gate warp: gates of both passes, and M to the other CTAs.
template <class C>
__device__ __forceinline__ void gates_of(const PrefillParams& p, ClusterMemory<C>& m) {
  const ClusterSegment& segment = m.segment;
  tile::RingCursor<C::kGateSlots> cursor;
  const int passes = segment.passes();
#pragma unroll 1
  for (int pass = 0; pass < passes; ++pass) {
    const float total = gate_item<C, true>(p, m.tiles, cursor, segment.item);
    if (pass > 0 || !segment.adds()) continue;
    // SYNC cluster: all CTAs of the cluster run, and their barriers are ready
    ptx::cluster_wait();
    const auto lane = static_cast<uint32_t>(tile::lane());
    if (lane < segment.place.ctas) {
      ptx::store_async(&m.kept[segment.place.rank], expf(total), &m.added, lane);
    }
  }
}

/// Service warpgroup.
template <class C>
__device__ __forceinline__ void serve_segment(const PrefillParams& p, ClusterMemory<C>& m) {
  const auto warp = static_cast<ServiceWarp>(tile::warp());
  if (threadIdx.x == 0) begin_segment<C>(p, m);
  __syncwarp();
  begin_roles<C>();
  if (warp == ServiceWarp::kGate) gates_of<C>(p, m);
  if (!tile::is_first_lane()) return;
  if (warp == ServiceWarp::kLoad) load_segment<C>(p, m);
  if (warp == ServiceWarp::kValues) load_values_of<C>(p, m);
}

/// Scores warpgroup. In pass 1 it gives back what it is asked about.
template <class C>
__device__ __forceinline__ void scores_of(const PrefillParams& p, ClusterMemory<C>& m) {
  SharedMemoryPlan<C>& s = m.tiles;
  // Nobody writes the blocks above the diagonal, but products read them.
  for (uint32_t i = threadIdx.x & 127u; i < sizeof(s.P) / 16; i += 128) {
    reinterpret_cast<uint4*>(s.P)[i] = make_uint4(0, 0, 0, 0);
  }
  ptx::fence_proxy_async();
  begin_roles<C>();
  const ClusterSegment& segment = m.segment;
  ScoreCursors<C> at;
  if (segment.passes() == 2) {
    const int chunks = segment.item.chunks();
    for (int c = 0; c < chunks; ++c) {
      // SYNC k_ring.full, k_ring.empty: the scores warpgroup has no use for the tile
      at.k.wait(s.k_ring);
      at.k.release(s.k_ring);
      at.k.next();
      // SYNC gate_ring.full, gate_ring.empty: nor for the gates
      at.gate.wait(s.gate_ring);
      at.gate.release(s.gate_ring);
      at.gate.next();
    }
  }
  // One item, and none after it.
  int32_t seq = segment.item.seq;
  score_items<C>(p, s, at, [&] {
    WorkItem item = segment.item;
    item.seq = seq;
    seq = -1;
    return item;
  });
}

/// N of a segment whose chunks are all whole, in x.S.
template <class C>
__device__ __forceinline__ void sum_segment(const PrefillParams& p, SharedMemoryPlan<C>& s,
                                            StateCursors<C>& at, const ClusterSegment& segment,
                                            int half, StateRegisters<C>& x) {
  const int chunks = segment.item.chunks();
  if (segment.place.rank == 0) {
    device::load_initial(p, segment.item, half, x.S);
  } else {
    x.S.clear();
  }
  StateCursors<C> own = at;
  tile::Operand<typename C::Io, 64> r, w;
#pragma unroll 1
  for (int c = 0; c < chunks; ++c) {
    decay_state<C>(s, own, x);
    // SYNC v_ring.full: state warpgroups wait for v
    own.v.wait(s.v_ring);
    load_values(r, s.v[own.v.slot].address() + own.output.v_offset, C::kChunk);
    scale_values(w, r, s.gates[own.gate.slot].write);
    // SYNC k_ring.full: state warpgroups wait for k
    own.k.wait(s.k_ring);
    tile::pin(w);
    ptx::wgmma_fence();
    tile::issue_update(x.S, w, s.k[own.k.slot]);
    ptx::wgmma_wait<0>();
    tile::pin(x.S);
    tile::pin(w);
    if (!segment.place.keeps) {
      // SYNC k_ring.empty, v_ring.empty, gate_ring.empty: this warp's reads of them are over
      own.k.release(s.k_ring);
      own.v.release(s.v_ring);
      own.gate.release(s.gate_ring);
    }
    own.k.next();
    own.v.next();
    own.gate.next();
  }
  if (!segment.place.keeps) at = own;
}

/// State warpgroup `half`.
template <class C>
__device__ __forceinline__ void states_of(const PrefillParams& p, ClusterMemory<C>& m, int half) {
  begin_roles<C>();
  // SYNC cluster: all CTAs of the cluster run, and their barriers are ready
  ptx::cluster_wait();
  const ClusterSegment& segment = m.segment;
  const WorkItem& item = segment.item;
  if (item.padded) {
    device::store_rows(p, item, 0, item.tokens, half, nullptr);
    return;
  }
  StateCursors<C> at(half);
  StateRegisters<C> x;
  if (segment.adds()) sum_segment<C>(p, m.tiles, at, segment, half, x);
  exchange_states<C>(p, item, m, segment.place, half, x.S);
  run_chunks<C>(p, m.tiles, at, item, half, x);
}

/// See the head of this file. Launch with Config::kThreads threads, sizeof(ClusterMemory) bytes of
/// dynamic shared memory (1024-byte aligned), clusters of segments.cut.cluster_ctas CTAs and as many
/// clusters as there are sequences, heads and slices of 128 columns.
template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    cluster_kernel(const __grid_constant__ PrefillParams p) {
  auto& m = *reinterpret_cast<ClusterMemory<C>*>(ptx::dynamic_memory());
  const int warpgroup = tile::warpgroup();
  if (warpgroup == 0) {
    ptx::decrease_registers<C::kServiceRegisters>();
    serve_segment<C>(p, m);
  } else if (warpgroup == 1) {
    ptx::decrease_registers<C::kScoreRegisters>();
    scores_of<C>(p, m);
  } else {
    ptx::increase_registers<C::kStateRegisters>();
    states_of<C>(p, m, warpgroup - 2);
  }
}

/// The instance of a Config.
template <class C>
device::Instance make_cluster_instance() noexcept {
  return {device::address_of(cluster_kernel<C>), sizeof(ClusterMemory<C>), C::kThreads};
}

}  // namespace sluice::cuda::linear_attention

#endif  // SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_CLUSTER_CUH_
