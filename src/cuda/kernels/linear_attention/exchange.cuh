// Brings the CTAs of a cluster, each a segment of one sequence and value head, the states that
// enter their segments: S_{i+1} = N_i + M_i S_i in float32, as the join of segments.hpp has it, inside
// one launch. Every CTA carries its share of the state's numbers over all boundaries: the others
// send it theirs of N, and it sends the states to where they enter.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_EXCHANGE_CUH_
#define SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_EXCHANGE_CUH_

#include "cuda/kernels/linear_attention/state.cuh"
#include "cuda/ptx/cluster.cuh"

namespace sluice::cuda::linear_attention {

/// A CTA's place in its cluster.
struct ClusterPlace {
  uint32_t rank, ctas;
  /// Segments are so short that their tiles of k and v stay where they are between the passes.
  bool keeps;
};

/// A CTA's segment and place.
struct ClusterSegment {
  WorkItem item;
  ClusterPlace place;

  __device__ __forceinline__ bool adds() const {
    return place.rank + 1 < place.ctas && item.padded == 0;
  }
  /// Passes over the chunks that are read twice.
  __device__ __forceinline__ int passes() const { return adds() && !place.keeps ? 2 : 1; }
};

/// The accumulators of the state warpgroups as pieces of four numbers a thread, and bytes of a
/// piece.
template <class C>
inline constexpr uint32_t kPieces = C::kK / 8;
inline constexpr uint32_t kPieceBytes = 2 * 128 * 16;
/// CTA i of a cluster carries pieces i * share .. (i + 1) * share - 1, as far as there are any.
template <class C>
__device__ __forceinline__ uint32_t share_of(uint32_t ctas) {
  return (kPieces<C> + ctas - 1) / ctas;
}
/// Pieces of N that arrive at a carrier: its share from each of the others but the last. With K of
/// 64 that is ten for six CTAs, at most.
inline constexpr uint32_t kMostAddedSlots = 10;

/// Shared memory of one CTA: what the main pass has, and the cluster's exchange. What arrives lies
/// in tiles that nobody uses meanwhile: N of all segments in the q tiles; the entering state in the
/// last v tile and o and, with K of 128, in two k tiles or the first two v tiles.
template <class C>
struct ClusterMemory {
  SharedMemoryPlan<C> tiles;
  ClusterSegment segment;
  /// N of all segments where the q tiles have no room for it.
  uint8_t more[C::kK == 128 ? 16 : kMostAddedSlots * kPieceBytes];
  float kept[kMostClusterCtas];  ///< M of every segment but the last
  alignas(8) uint64_t added;     ///< N and M of all segments are there
  uint64_t entered;              ///< the entering state is there
  uint64_t added_read, entered_read;

  __device__ __forceinline__ void init(const ClusterPlace& place) {
    ptx::mbarrier_init(&added, 1);
    ptx::mbarrier_init(&entered, 1);
    ptx::mbarrier_init(&added_read, C::kStateWarps);
    ptx::mbarrier_init(&entered_read, C::kStateWarps);
    const uint32_t share = share_of<C>(place.ctas), first = min(place.rank * share, kPieces<C>),
                   own = min(share, kPieces<C> - first);
    ptx::mbarrier_arrive_expect(&added,
                                (place.ctas - 1) * (own * kPieceBytes + uint32_t{sizeof(float)}));
    ptx::mbarrier_arrive_expect(&entered, kPieces<C> * kPieceBytes);
    ptx::fence_mbarrier_init();
  }
};
static_assert(sizeof(ClusterMemory<Config<uint16_t, 128, 128>>) <= tile::kSharedBytesSm90);

/// Where this thread's numbers of pieces lie.
template <class C>
struct PieceAddresses {
  static constexpr uint32_t kCount = kPieces<C>;

  ClusterMemory<C>& s;
  ClusterPlace place;
  uint32_t share;
  int half;

  __device__ __forceinline__ PieceAddresses(ClusterMemory<C>& memory, const ClusterPlace& at,
                                            int half_)
      : s(memory), place(at), share(share_of<C>(at.ctas)), half(half_) {}

  /// This thread's numbers of the i-th of pieces in a row.
  __device__ __forceinline__ float4* at(uint8_t* base, uint32_t i) const {
    return reinterpret_cast<float4*>(base) + (i * 2 + static_cast<uint32_t>(half)) * 128 +
           (threadIdx.x & 127u);
  }
  /// Where a carrier has piece `own` of its share of N of segment `source`.
  __device__ __forceinline__ float4* added(uint32_t source, uint32_t own) const {
    return at(C::kK == 128 ? s.tiles.q[0].bytes : s.more, source * share + own);
  }
  /// Where the entering state has piece i.
  __device__ __forceinline__ float4* entering(uint32_t i) const {
    static_assert(C::kV == 128 && C::kVSlots == 3 && C::kKSlots == 4);
    uint8_t* const last = s.tiles.v[2].bytes;
    if (kCount == 8 || i >= 8) return at(last, i % 8);
    return at(place.keeps ? s.tiles.k[2].bytes : s.tiles.v[0].bytes, i);
  }
};

/// Sends N of this CTA's segment to the carriers.
template <class C>
__device__ __forceinline__ void send_added(const PieceAddresses<C>& pieces,
                                           const tile::Accumulator<C::kK>& S) {
#pragma unroll
  for (uint32_t i = 0; i < PieceAddresses<C>::kCount; ++i) {
    const uint32_t carrier = i / pieces.share;
    const float4 x = make_float4(S.x[4 * i], S.x[4 * i + 1], S.x[4 * i + 2], S.x[4 * i + 3]);
    const uint32_t own = i - carrier * pieces.share;
    ptx::store_async(pieces.added(pieces.place.rank, own), x, &pieces.s.added, carrier);
  }
}

/// This thread's numbers of a piece of the sequence's initial state.
template <class C>
__device__ __forceinline__ float4 initial_piece(const PrefillParams& p, const WorkItem& item,
                                                const PieceAddresses<C>& pieces, uint32_t i) {
  if (device::starts_from_zeros(p, item.seq)) return make_float4(0, 0, 0, 0);
  const device::StatePlace place(p.K, p.V, p.state_is_vk, item.column + pieces.half * 64);
  const int64_t base = device::initial_at(p, item.seq, item.head) + place.origin;
  float x[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    x[e] = device::load_number(p.initial.data, base + place.offset(static_cast<int>(4 * i) + e),
                               p.initial.number);
  }
  return make_float4(x[0], x[1], x[2], x[3]);
}

/// Carries this CTA's pieces over all boundaries and sends the states to where they enter. The
/// first segment's N starts from the initial state and needs no M.
template <class C>
__device__ __forceinline__ void carry_states(const PrefillParams& p, const WorkItem& item,
                                             const PieceAddresses<C>& pieces) {
  ClusterMemory<C>& s = pieces.s;
  const uint32_t segments = pieces.place.ctas - 1;
  const uint32_t first = pieces.place.rank * pieces.share;
  // SYNC added: carriers wait for N and M of all segments
  tile::wait_phase(&s.added, 0);
#pragma unroll 1
  for (uint32_t own = 0; own < pieces.share; ++own) {
    const uint32_t i = first + own;
    if (i >= PieceAddresses<C>::kCount) break;
    float4* const to = pieces.entering(i);
    const float4 initial = initial_piece<C>(p, item, pieces, i);
    float4 N[kMostClusterCtas - 1];
#pragma unroll
    for (uint32_t j = 0; j < kMostClusterCtas - 1; ++j) {
      if (j < segments) N[j] = *pieces.added(j, own);
    }
    float4 S = N[0];
#pragma unroll
    for (uint32_t j = 0; j < kMostClusterCtas - 1; ++j) {
      if (j >= segments) break;
      if (j > 0) {
        const float kept = s.kept[j];
        S = make_float4(fmaf(kept, S.x, N[j].x), fmaf(kept, S.y, N[j].y), fmaf(kept, S.z, N[j].z),
                        fmaf(kept, S.w, N[j].w));
      }
      ptx::store_async(to, S, &s.entered, j + 1);
    }
    // WHY sent, and not loaded where it enters: the last CTA may overwrite it once it has started.
    ptx::store_async(to, initial, &s.entered, 0);
  }
}

/// Gives tiles that the exchange has used to the copy engine: one arrival for the calling warp.
__device__ __forceinline__ void give_tiles(uint64_t* barrier) {
  ptx::fence_proxy_async();
  __syncwarp();
  if (tile::is_first_lane()) ptx::mbarrier_arrive(barrier);
}

/// The state that enters this CTA's segment, from N of it. All threads of a state warpgroup.
template <class C>
__device__ __forceinline__ void exchange_states(const PrefillParams& p, const WorkItem& item,
                                                ClusterMemory<C>& s, const ClusterPlace& place,
                                                int half, tile::Accumulator<C::kK>& S) {
  const PieceAddresses<C> pieces(s, place, half);
  if (place.rank + 1 < place.ctas) send_added<C>(pieces, S);
  carry_states<C>(p, item, pieces);
  // SYNC added_read: the loader may have the q tiles
  give_tiles(&s.added_read);
  // SYNC entered: the state warpgroups wait for the state that enters
  tile::wait_phase(&s.entered, 0);
#pragma unroll
  for (uint32_t i = 0; i < PieceAddresses<C>::kCount; ++i) {
    const float4 x = *pieces.entering(i);
    S.x[4 * i] = x.x, S.x[4 * i + 1] = x.y, S.x[4 * i + 2] = x.z, S.x[4 * i + 3] = x.w;
  }
  // SYNC entered_read: loader and value warp may have the k and v tiles
  give_tiles(&s.entered_read);
}

}  // namespace sluice::cuda::linear_attention

#endif  // SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_EXCHANGE_CUH_
