// Lays out the shared memory of prefix.cuh and runs its compute warpgroups: outputs of 64 rows each,
// S^T of 64 columns of V each.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_PREFIX_BLOCKS_CUH_
#define SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_PREFIX_BLOCKS_CUH_

#include "cuda/kernels/linear_attention/config.h"
#include "cuda/kernels/linear_attention/state.cuh"
#include "cuda/tile/block_tile.cuh"
#include "cuda/tile/products.cuh"
#include "cuda/tile/shared_products.cuh"
#include "cuda/tile/shared_tile.cuh"

namespace sluice::cuda::linear_attention {

/// Chunks of a block, whose outputs are computed at once: one for each compute warpgroup.
inline constexpr int kBlockChunks = 2;
inline constexpr int kPrefixThreads = 384;
inline constexpr int kPrefixServiceRegisters = 56, kPrefixComputeRegisters = 224;
// What a CTA starts with: 168 a thread. It never gets more.
static_assert(kPrefixServiceRegisters + 2 * kPrefixComputeRegisters <= 3 * 168);
/// Tiles of k and v on their way into the state.
inline constexpr int kPrefixSlots = 4;

/// What tokens of a chunk are multiplied by in the state that enters a later block.
struct PrefixWeights {
  alignas(16) float write[64];
  float kept;  ///< what the state before the chunk is multiplied by
};

/// Shared memory of one CTA. k of the block makes room for its entering state, and v for o.
template <class C>
struct PrefixMemory {
  struct Slot {
    typename C::KeyTile k;
    typename C::ValueTile v;
  };
  typename C::KeyTile q[kBlockChunks];
  typename C::KeyTile k[kBlockChunks];    ///< then S, of kK rows and kV columns
  typename C::ValueTile v[kBlockChunks];  ///< then o
  Slot slots[kPrefixSlots];
  GateSlot gates[kBlockChunks];
  PrefixWeights weights[kPrefixSlots];
  alignas(8) tile::RingBarriers<1> block;
  tile::RingBarriers<kPrefixSlots> ring;
};
static_assert(sizeof(PrefixMemory<Config<uint16_t, 128, 128>>) <= tile::kSharedBytesSm90);

/// Named barriers: barriers are ready for the gate warp and for the compute warpgroups; of both
/// compute warpgroups; of each.
enum class PrefixBarrier : uint32_t { kGates = 1, kReady = 2, kState = 3, kOutput = 4 };

/// A CTA's part of a sequence and value head: blocks of two chunks.
struct PrefixPart {
  WorkItem item;   ///< the whole sequence
  int first, end;  ///< chunks; `end` may be one more than there are
  bool last;       ///< has the end of the sequence, whose state is wanted

  /// Chunks that are summed up before the block that begins with chunk `begin`: from this one on.
  __device__ __forceinline__ int low(int begin) const {
    return begin == first ? 0 : begin - kBlockChunks;
  }
  /// Where the last round begins, in which there is no block but the state that leaves.
  __device__ __forceinline__ int stop() const { return last ? end + kBlockChunks : end; }
};

/// This CTA's. The grid is heads x slices of V, parts, and sequences; the last parts, which take
/// longest, begin first. A part has segments.cut.prefix_blocks blocks.
template <class C>
__device__ __forceinline__ PrefixPart prefix_part(const PrefillParams& p) {
  PrefixPart out{};
  out.item.seq = out.item.batch = static_cast<int32_t>(blockIdx.z);
  out.item.head = static_cast<int32_t>(blockIdx.x);
  out.item.tokens = p.T;
  if (p.V > C::kV) {
    const uint32_t slices = static_cast<uint32_t>(p.V) / C::kV;
    out.item.head = static_cast<int32_t>(blockIdx.x / slices);
    out.item.column = static_cast<int32_t>(blockIdx.x % slices) * C::kV;
  }
  const int length = p.segments.cut.prefix_blocks * kBlockChunks, chunks = (p.T + 63) / 64;
  const uint32_t part = gridDim.y - 1 - blockIdx.y;
  out.first = static_cast<int>(part) * length;
  out.end = min(out.first + length, chunks + chunks % kBlockChunks);
  out.last = blockIdx.y == 0 && p.final.data != nullptr;
  return out;
}

/// A compute warpgroup's places.
struct PrefixCursors {
  tile::RingCursor<1> block;
  tile::RingCursor<kPrefixSlots> tile;
  OutputPlace place;

  __device__ __forceinline__ explicit PrefixCursors(int group) : place(group) {}
};

/// Decayed scores of the rows of chunk `to` with the columns of chunk `from`, as a left operand.
/// NUM: sums of gates go no further than a chunk: between chunks e^(G_i + (G_C - G_j)).
template <class C>
__device__ __forceinline__ void decay_block(tile::Operand<typename C::Io, 64>& P,
                                            const tile::Accumulator<64>& scores,
                                            const PrefixMemory<C>& s, int to, int from,
                                            float scale) {
  const auto& x = scores.x;
  const int row = tile::group_row();
  const float* const G = s.gates[from].G;
  const float between = to == from ? 0.0f : G[63];
  const float g_row[2] = {s.gates[to].G[row], s.gates[to].G[row + 8]};
  const int below = to == from ? 0 : 64;
#pragma unroll
  for (int t = 0; t < 8; ++t) {
    const int column = 8 * t + tile::lane_column();
    const float2 g = *reinterpret_cast<const float2*>(&G[column]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int difference = below + row + 8 * i - column;
      const float first = tile::exp2_fast(g_row[i] + (between - g.x)) * scale * x[4 * t + 2 * i],
                  second =
                      tile::exp2_fast(g_row[i] + (between - g.y)) * scale * x[4 * t + 2 * i + 1];
      // WHY a choice: above the diagonal the exponential may be infinite.
      P.x[2 * t + i] = tile::Packed<typename C::Io>::pack(difference >= 0 ? first : 0.0f,
                                                          difference >= 1 ? second : 0.0f);
    }
  }
}

/// o = what the block's own tokens give to the rows of chunk `group`.
template <class C>
__device__ __forceinline__ void mix_block(const PrefillParams& p, PrefixMemory<C>& s, int group,
                                          tile::Accumulator<C::kV>& o) {
  o.clear();
#pragma unroll 1
  for (int from = group; from >= 0; --from) {
    tile::Accumulator<64> scores;
    tile::Operand<typename C::Io, 64> P;
    ptx::wgmma_fence();
    tile::issue_product(scores, s.q[group], s.k[from]);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    tile::pin(scores);
    decay_block<C>(P, scores, s, group, from, p.scale);
    tile::pin(P);
    ptx::wgmma_fence();
    tile::issue_update(o, P, s.v[from]);
    ptx::wgmma_wait<0>();
    tile::pin(o);
    tile::pin(P);
  }
}

/// S^T += V^T diag(write) K of `tiles` chunks; what the state before them is multiplied by.
template <class C>
__device__ __forceinline__ float sum_tiles(PrefixMemory<C>& s, PrefixCursors& at, int tiles,
                                           tile::Accumulator<C::kK>& S) {
  tile::Operand<typename C::Io, 64> r, w;
  float kept = 1.0f;
#pragma unroll 1
  for (; tiles > 0; --tiles) {
    // SYNC ring.full: the compute warpgroups wait for k, v and weights
    at.tile.wait(s.ring);
    auto& slot = s.slots[at.tile.slot];
    const PrefixWeights& weights = s.weights[at.tile.slot];
    load_values(r, slot.v.address() + at.place.v_offset, C::kChunk);
    scale_values(w, r, weights.write);
    kept = weights.kept;
    tile::pin(w);
    ptx::wgmma_fence();
    tile::issue_update(S, w, slot.k);
    ptx::wgmma_wait<0>();
    tile::pin(S);
    tile::pin(w);
    // SYNC ring.empty: this warp's reads of the tiles are over
    at.tile.release(s.ring);
    at.tile.next();
  }
  return kept;
}

/// Adds what is left of the zeros before the first token. NUM: nothing, but decays that are no
/// numbers leave no number of them.
template <class C>
__device__ __forceinline__ void add_start(tile::Accumulator<C::kK>& S, float kept) {
  const float start = kept != kept ? kept : 0.0f;
#pragma unroll
  for (float& x : S.x) x += start;
}

/// The state that enters a block, in the place of its k.
template <class C>
using StateTile = tile::SwizzledTile<typename C::Io, C::kK, C::kV>;
template <class C>
__device__ __forceinline__ StateTile<C>& entering_state(PrefixMemory<C>& s) {
  static_assert(sizeof(StateTile<C>) == sizeof(s.k));
  return *reinterpret_cast<StateTile<C>*>(s.k);
}

/// S of this warpgroup's columns, rounded, to its tile.
template <class C>
__device__ __forceinline__ void put_state(PrefixMemory<C>& s, int group,
                                          const tile::Accumulator<C::kK>& S) {
  using Pack = tile::Packed<typename C::Io>;
  const int warp = tile::warp_of_group();
  const tile::BlockTile blocks(entering_state(s).block(group));
#pragma unroll
  for (int b = 0; b < C::kK / 16; ++b) {
    const float* const x = S.x + 8 * b;
    const uint32_t packed[4] = {Pack::pack(x[0], x[1]), Pack::pack(x[4], x[5]),
                                Pack::pack(x[2], x[3]), Pack::pack(x[6], x[7])};
    ptx::stmatrix_x4_trans(blocks.block(b, warp), packed);
  }
}

/// o += diag(e^G scale) Q S for the rows of chunk `group`.
template <class C>
__device__ __forceinline__ void recall_block(PrefixMemory<C>& s, int group,
                                             tile::Accumulator<C::kV>& o) {
  tile::Accumulator<C::kV> out;
  ptx::wgmma_fence();
  tile::issue_read(out, s.q[group], entering_state(s));
  const int row = tile::group_row();
  const float before = group == 0 ? 1.0f : s.gates[0].decay;
  const float factor[2] = {s.gates[group].query[row] * before,
                           s.gates[group].query[row + 8] * before};
  ptx::wgmma_wait<0>();
  tile::pin(out);
#pragma unroll
  for (int i = 0; i < C::kV / 2; ++i) o.x[i] = fmaf(factor[i / 2 % 2], out.x[i], o.x[i]);
}

/// o from registers to memory through tile v of chunk `group`; the block's tiles go back.
template <class C>
__device__ __forceinline__ void send_block(const PrefillParams& p, PrefixMemory<C>& s,
                                           const PrefixPart& part, int begin, int group,
                                           const PrefixCursors& at,
                                           const tile::Accumulator<C::kV>& o) {
  tile::put_rows(s.v[group], o);
  ptx::fence_proxy_async();
  // SYNC kOutput: the warpgroup's part of o is written, and it has read the block's tiles
  ptx::named_barrier_sync(static_cast<uint32_t>(PrefixBarrier::kOutput) + group, 128);
  if (!tile::is_first_of_group()) return;
#pragma unroll
  for (int half = 0; half < C::kV / 64; ++half) {
    ptx::tma_store(&p.o, s.v[group].block(half),
                   {0, (begin + group) * C::kChunk, part.item.column / 64 + half, part.item.head,
                    part.item.batch});
  }
  ptx::bulk_commit();
  ptx::bulk_wait_read();
  // SYNC block.empty: the loader may have the block's tiles, and the gate warp its gates
  ptx::mbarrier_arrive(&s.block.empty[at.block.slot]);
}

/// Compute warpgroup `group`.
template <class C>
__device__ __forceinline__ void compute_blocks(const PrefillParams& p, PrefixMemory<C>& s,
                                               int group) {
  const PrefixPart part = prefix_part<C>(p);
  PrefixCursors at(group);
  tile::Accumulator<C::kK> S;
  tile::Accumulator<C::kV> o;
  S.clear();
  // SYNC kReady: the mbarriers are ready
  ptx::named_barrier_sync(static_cast<uint32_t>(PrefixBarrier::kReady), 288);
  float keep = 1.0f;
#pragma unroll 1
  for (int begin = part.first; begin < part.stop(); begin += kBlockChunks) {
    const bool is_block = begin < part.end;
    if (is_block) {
      // SYNC block.full: the compute warpgroups wait for the block's tiles and gates
      at.block.wait(s.block);
      mix_block<C>(p, s, group, o);
    }
    S.scale(keep);
    const float kept = sum_tiles<C>(s, at, begin - part.low(begin), S);
    if (begin == part.first) add_start<C>(S, kept);
    if (!is_block) break;
    keep = s.gates[0].decay * s.gates[1].decay;
    // SYNC kState: both warpgroups are done with k and v of the block, which make room
    ptx::named_barrier_sync(static_cast<uint32_t>(PrefixBarrier::kState), 256);
    if (begin > 0) {
      put_state<C>(s, group, S);
      ptx::fence_proxy_async();
      // SYNC kState: the state is written
      ptx::named_barrier_sync(static_cast<uint32_t>(PrefixBarrier::kState), 256);
      recall_block<C>(s, group, o);
    }
    send_block<C>(p, s, part, begin, group, at, o);
    at.block.next();
  }
  if (part.last) device::store_final(p, part.item, group, S);
}

}  // namespace sluice::cuda::linear_attention

#endif  // SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_PREFIX_BLOCKS_CUH_
