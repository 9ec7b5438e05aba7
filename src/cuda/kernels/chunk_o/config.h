// States tile constants, shared memory and parameters of the kernel of outputs from given states, and names
// its instances (inst/).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_O_CONFIG_H_
#define SLUICE_CUDA_KERNELS_CHUNK_O_CONFIG_H_

#include <cuda.h>

#include "cuda/device/instance.h"
#include "cuda/device/stage_params.h"
#include "cuda/tile/pipeline.cuh"
#include "cuda/tile/shared_tile.cuh"

namespace sluice::cuda::chunk_o {

/// One kernel: dtype of q, k, v, h, o, head sizes. A work item has kV_ columns of V.
template <class Io_, int kK_, int kV_>
struct Config {
  using Io = Io_;
  static constexpr int kK = kK_, kV = kV_;
  static constexpr int kChunk = 64;  ///< tokens per chunk
  static constexpr int kGroups = 2;  ///< warpgroups that compute, items by turns
  static constexpr int kSlots = kK + kV == 128 ? 4 : kK + kV == 192 ? 3 : 2;
  static constexpr int kThreads = 128 * (1 + kGroups);
  static constexpr int kServiceRegisters = 56, kComputeRegisters = 216;
  using KeyTile = tile::SwizzledTile<Io, kChunk, kK>;  ///< [token][k]: q and k
  using ValueTile = tile::SwizzledTile<Io, kChunk, kV>;

  static_assert((kK == 64 || kK == 128) && (kV == 64 || kV == 128));
};

/// Some columns of o of one (chunk, value head).
struct Item {
  int32_t tokens;  ///< 0: no more work
  int32_t row;     ///< first row within the batch entry
  int32_t batch, head, column;
};

/// One item's operands.
template <class C>
struct Slot {
  typename C::KeyTile q, k;
  typename C::ValueTile v;
  tile::SwizzledTile<typename C::Io, C::kK, C::kV> h;
};

/// Shared memory of one CTA.
template <class C>
struct SharedMemoryPlan {
  Slot<C> slots[C::kSlots];
  typename C::ValueTile o[C::kGroups];
  alignas(16) float G[C::kSlots][128];  ///< sums of gates
  Item item[C::kSlots];
  alignas(8) tile::RingBarriers<C::kSlots> ring;
};
static_assert(sizeof(SharedMemoryPlan<Config<uint16_t, 128, 128>>) <= tile::kSharedBytesSm90);
static_assert(sizeof(SharedMemoryPlan<Config<uint16_t, 128, 64>>) <= tile::kSharedBytesSm90);
static_assert(sizeof(SharedMemoryPlan<Config<uint16_t, 64, 128>>) <= tile::kSharedBytesSm90);

/// Arguments of the kernel.
struct OutputParams {
  CUtensorMap q, k, v, o;  ///< boxes of 64 tokens x the columns of an item
  CUtensorMap h;           ///< boxes of K rows x the columns of an item; chunks count as batch
  device::StageParams stage;
  int32_t h_per_batch;  ///< states between those of neighbouring batch entries
};

using device::InstancesBySize;

/// By K, and by columns of V of a work item: 64, then 128.
const InstancesBySize& bf16() noexcept;
const InstancesBySize& fp16() noexcept;

}  // namespace sluice::cuda::chunk_o

#endif  // SLUICE_CUDA_KERNELS_CHUNK_O_CONFIG_H_
