// Lays out shared memory and places of a CTA of prefix.cuh.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_PREFIX_MEMORY_CUH_
#define SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_PREFIX_MEMORY_CUH_

#include "cuda/kernels/linear_attention/config.h"

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

}  // namespace sluice::cuda::linear_attention

#endif  // SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_PREFIX_MEMORY_CUH_
