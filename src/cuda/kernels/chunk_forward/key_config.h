// States records, tile constants and shared memory of the prefill with key-wise gates.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_CONFIG_H_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_CONFIG_H_

#include <type_traits>

#include "cuda/kernels/chunk_forward/config.h"

namespace sluice::cuda::chunk_forward {

/// What the preparation leaves of a chunk and head in the workspace, each part the image of its
/// swizzled tile.
template <int kK>
struct alignas(128) KeyRecord {
  uint8_t q[128 * kK];       ///< scale e^G q
  uint8_t k[128 * kK];       ///< e^G k
  uint8_t k_late[128 * kK];  ///< e^{G_C - G} k
  uint8_t Tmat[8192], P[8192];
  float decay[kK];  ///< e^{G_C}
};
static_assert(sizeof(KeyRecord<128>) == device::key_record_bytes(128));
static_assert(sizeof(KeyRecord<64>) == device::key_record_bytes(64));

/// The preparation: one CTA a chunk and head. Warp w has the tokens of block w % 4 of 16, and one
/// half of the channels.
template <class Io_, bool kL2Norm_, int kK_>
struct KeyPrepareConfig {
  using Io = Io_;
  static constexpr bool kL2Norm = kL2Norm_;
  static constexpr int kK = kK_, kThreads = 256;
  static constexpr int kPeakWarps = kK / 64;  ///< that have the gates of a token
  /// Steps of a loop at once. WHY not two always: they would not fit the registers.
  static constexpr int kUnrolled = kL2Norm && std::is_same_v<Io, __nv_bfloat16> ? 2 : 1;
  static constexpr int kSteps = kK / 32;    ///< of 16 channels, a warp
  static constexpr int kSumPitch = kK + 8;  ///< WHY 8 more: rows of 8 lanes meet no bank twice
  using KeyTile = tile::SwizzledTile<Io, 64, kK>;
  using SquareTile = tile::SwizzledTile<Io, 64, 64>;
};

/// Numbers that one warp of a pair leaves to the other: 6 of the diagonal block and 8 of each block
/// left of it, a lane.
inline constexpr int kExchanged = 30;

/// Shared memory of the preparation. Parts whose time is over make room for others.
template <class C>
struct KeyPrepareMemory {
  typename C::KeyTile q, k, k_late;
  union alignas(1024) {
    tile::SwizzledTile<__half, 64, C::kK> faded;  ///< k times its decay up to the end of its block
    struct {
      tile::SwizzledTile<__half, 64, 64> blocks;  ///< A, as in SharedMemoryPlan
      typename C::SquareTile Tmat;
    };
  };
  union alignas(1024) {
    typename C::SquareTile P;
    struct {
      /// Decays of channels over the blocks before one, and over those after it.
      float before[4][C::kK], after[4][C::kK];
      __half between[3][C::kK];  ///< over block 1, block 2, and both
    };
  };
  union {
    float sums[64][C::kSumPitch];  ///< of log2 gates inside blocks of 16 tokens
    float exchange[4][2][kExchanged][32];
  };
  DiagonalBlock diagonal[8];
  float totals[4][C::kK];  ///< sums of whole blocks
  float decay[C::kK];
  float norms[2][64];    ///< k, q: what rows of the products are scaled by
  float lengths[2][64];  ///< and what the products are then
  float beta[64];
  uint32_t peaks[C::kPeakWarps][64];  ///< of each token, see find_peaks()
  alignas(8) uint64_t loaded;
};

/// The kernel that carries the state, a work item as in Config. kDelta is false in linear attention.
template <class Io_, bool kDelta_, int kK_, int kV_, bool kOutput_ = true>
struct KeyConfig {
  using Io = Io_;
  static constexpr bool kDelta = kDelta_, kOutput = kOutput_;
  static constexpr int kK = kK_, kV = kV_, kChunk = 64;
  static constexpr int kStateGroups = kV / 64, kStateWarps = 4 * kStateGroups;
  static constexpr int kStages = 2, kWorkSlots = 8;
  static constexpr int kThreads = 128 * (1 + kStateGroups);
  static constexpr int kServiceRegisters = 56, kStateRegisters = 224;
  using KeyTile = tile::SwizzledTile<Io, kChunk, kK>;
  using ValueTile = tile::SwizzledTile<Io, kChunk, kV>;
  using SquareTile = tile::SwizzledTile<Io, kChunk, kChunk>;
};

/// A record, and v.
template <class C>
struct KeyChunkTiles {
  typename C::KeyTile q, k, k_late;
  typename C::SquareTile Tmat, P;
  typename C::ValueTile v;
  alignas(16) float decay[C::kK];
};

/// Shared memory of one CTA.
template <class C>
struct KeySharedMemory {
  KeyChunkTiles<C> tiles[C::kStages];
  typename C::ValueTile o;
  WorkItem work[C::kWorkSlots];
  alignas(8) tile::RingBarriers<C::kStages> ring;
  tile::RingBarriers<C::kWorkSlots> work_ring;
};

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_CONFIG_H_
