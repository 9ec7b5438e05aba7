// States records, tile constants and shared memory of the prefill with key-wise gates.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_CONFIG_H_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_CONFIG_H_

#include <type_traits>

#include "cuda/kernels/chunk_forward/config.h"
#include "cuda/kernels/chunk_forward/instances.h"

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

/// The preparation: one CTA a chunk and head, a warp for each block of 16 tokens.
template <class Io_, bool kL2Norm_, int kK_>
struct KeyPrepareConfig {
  using Io = Io_;
  static constexpr bool kL2Norm = kL2Norm_;
  static constexpr int kK = kK_, kThreads = 128;
  /// CTAs of a multiprocessor.
  static constexpr int kResident = key_preparations(std::is_same_v<Io, __nv_bfloat16>);
  /// Whether numbers on their way to q~ and k^ are sums of two fp16 numbers. WHY: rounded twice, they
  /// would have 1.4 times the error that type Io itself causes; beside bfloat16's it is nothing.
  static constexpr bool kRests = std::is_same_v<Io, __half>;
  using Decay = std::conditional_t<kRests, float, __half>;  ///< of a channel over blocks
  using KeyTile = tile::SwizzledTile<Io, 64, kK>;
  using SquareTile = tile::SwizzledTile<Io, 64, 64>;
};

/// The parts of a record: k and q come in the places of k~ and q~.
template <class C>
struct KeyTiles {
  typename C::KeyTile q, k, k_late;
  typename C::SquareTile Tmat, P;
};

/// What a block's rows are scaled by in products, to unit length, so that fp16 holds them whatever
/// their size is.
struct RowNorms {
  float k[16], q[16];
};

/// What a warp knows of its block before the blocks' products begin.
struct alignas(16) BlockNotes {
  float totals[128];  ///< sums of log2 decays
  RowNorms norms;
  float own[16];          ///< each token's query times its key, both of unit length
  uint32_t peaks[8][32];  ///< of eight tokens, by lane: see raise_peaks()
  float peak;             ///< sum over the tokens of log2 of their largest decay
};

/// The chunk and head that a CTA of the preparation has in hand; its ticket, -1: none.
struct KeyTurn {
  WorkItem item;
  int32_t ticket;
  uint32_t phase;  ///< of the barrier for its tiles
};

/// What the warps of the preparation tell each other of a chunk. The notes' time is over when A comes.
template <class C>
struct KeyTables {
  union alignas(1024) {
    tile::SwizzledTile<__half, 64, 64> blocks;  ///< A, as in SharedMemoryPlan
    BlockNotes notes[4];
  };
  /// Decays of channels over the blocks before block 1, 2, 3, and over those after block 0, 1, 2.
  typename C::Decay before[3][C::kK], after[3][C::kK];
  __half between[2][C::kK];  ///< over block 1, and over block 2
  float beta[64];
  float lengths[2][C::kL2Norm ? 1 : 64];  ///< of rows of k and q that are not normalised
  KeyTurn turn;
  alignas(8) uint64_t loaded;
};

/// What fp16 leaves of the numbers in the places of q~ and k^.
template <class C, bool kRests = C::kRests>
struct KeyRests {
  typename C::KeyTile q_rest, k_late_rest;
};
template <class C>
struct KeyRests<C, false> {};

/// Shared memory of the preparation.
template <class C>
struct KeyPrepareMemory : KeyRests<C> {
  KeyTiles<C> tiles;
  KeyTables<C> tables;
};

/// The kernel that carries the state, a work item as in Config. kDelta is false in linear attention.
template <class Io_, bool kDelta_, int kK_, int kV_, bool kOutput_ = true>
struct KeyConfig {
  using Io = Io_;
  static constexpr bool kDelta = kDelta_, kOutput = kOutput_;
  static constexpr int kK = kK_, kV = kV_, kChunk = 64;
  static constexpr int kStateGroups = kV / 64, kStateWarps = 4 * kStateGroups;
  static constexpr int kSlots = 2, kWorkSlots = 8;
  static constexpr int kThreads = 128 * (1 + kStateGroups);
  static constexpr int kServiceRegisters = 56, kStateRegisters = 224;
  using KeyTile = tile::SwizzledTile<Io, kChunk, kK>;
  using ValueTile = tile::SwizzledTile<Io, kChunk, kV>;
  using SquareTile = tile::SwizzledTile<Io, kChunk, kChunk>;
};

/// A record, and v.
template <class C>
struct KeyChunkTiles : KeyTiles<C> {
  typename C::ValueTile v;
  alignas(16) float decay[C::kK];
};

/// Shared memory of one CTA.
template <class C>
struct KeySharedMemory {
  KeyChunkTiles<C> tiles[C::kSlots];
  typename C::ValueTile o;
  WorkItem work[C::kWorkSlots];
  alignas(8) tile::RingBarriers<C::kSlots> ring;
  tile::RingBarriers<C::kWorkSlots> work_ring;
};

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_CONFIG_H_
