// States tile constants, shared memory and parameters of Hopper's kernel of chunk_h, and names its instances
// (inst/).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_H_CONFIG_H_
#define SLUICE_CUDA_KERNELS_CHUNK_H_CONFIG_H_

#include <cuda.h>

#include "cuda/device/instance.h"
#include "cuda/device/stage_params.h"
#include "cuda/tile/pipeline.cuh"
#include "cuda/tile/shared_tile.cuh"

namespace sluice::cuda::chunk_h {

/// One kernel: dtype of k, w, u, v_new and h, head sizes. A work item has kV_ columns of V, each
/// warpgroup of states 64 of them.
template <class Io_, int kK_, int kV_>
struct Config {
  using Io = Io_;
  static constexpr int kK = kK_, kV = kV_;
  static constexpr int kChunk = 64;  ///< tokens per chunk
  static constexpr int kGroups = kV / 64;
  static constexpr int kSlots = kK == 128 && kV == 128 ? 2 : 4;
  /// Of the service warpgroup, chunks by turns. WHY no more than slots: with a chunk of the round
  /// after next in hand, parities of the ring's barriers would say nothing.
  static constexpr int kGateWarps = kSlots < 3 ? kSlots : 3;
  static constexpr int kThreads = 128 * (1 + kGroups);
  static constexpr int kServiceRegisters = 56, kStateRegisters = 216;
  using KeyTile = tile::SwizzledTile<Io, kChunk, kK>;  ///< [token][k]: k and w
  using ValueTile = tile::SwizzledTile<Io, kChunk, kV>;

  static_assert((kK == 64 || kK == 128) && (kV == 64 || kV == 128));
};

/// One chunk's operands.
template <class C>
struct Slot {
  typename C::KeyTile k, w;
  typename C::ValueTile u;
};

/// Factors of a chunk's tokens.
struct alignas(16) Factors {
  float write[128];  ///< exp(G_C - G_i) of 64 tokens; before that, G
  float decay;       ///< exp(G_C)
};

/// Shared memory of one CTA.
template <class C>
struct SharedMemoryPlan {
  Slot<C> slots[C::kSlots];
  tile::SwizzledTile<typename C::Io, C::kK, 64> h[C::kGroups][2];  ///< chunks by turns
  tile::SwizzledTile<typename C::Io, C::kChunk, 64> v_new[C::kGroups][2];
  Factors factors[C::kSlots];
  alignas(8) tile::RingBarriers<C::kSlots> ring;
};
static_assert(sizeof(SharedMemoryPlan<Config<uint16_t, 128, 128>>) <= tile::kSharedBytesSm90);
static_assert(sizeof(SharedMemoryPlan<Config<uint16_t, 128, 64>>) <= tile::kSharedBytesSm90);

/// Arguments of the kernel. Maps of what is absent are not looked at.
struct StatesParams {
  CUtensorMap k, w;      ///< boxes of 64 tokens x K
  CUtensorMap u, v_new;  ///< boxes of 64 tokens x 64 columns
  CUtensorMap h;         ///< boxes of K rows x 64 columns; chunks count as batch
  device::StageParams stage;
  int32_t h_per_batch;  ///< states between those of neighbouring batch entries
};

using device::InstancesBySize;

/// By K, and by columns of V of a work item: 64, then 128.
const InstancesBySize& bf16() noexcept;
const InstancesBySize& fp16() noexcept;

}  // namespace sluice::cuda::chunk_h

#endif  // SLUICE_CUDA_KERNELS_CHUNK_H_CONFIG_H_
