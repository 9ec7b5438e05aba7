// Tile constants and shared-memory plan of relay.cuh.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_RELAY_CONFIG_H_
#define SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_RELAY_CONFIG_H_

#include "cuda/kernels/linear_attention/config.h"

namespace sluice::cuda::linear_attention {

/// One kernel: dtype of q, k, v, o, and K. A work item has 64 columns of V.
template <class Io_, int kK_>
struct RelayConfig {
  using Io = Io_;
  static constexpr bool kOutput = true;
  static constexpr int kK = kK_, kV = 64;
  static constexpr int kChunk = 64;        ///< tokens per chunk
  static constexpr int kOutputGroups = 2;  ///< warpgroups
  static constexpr int kWorkReaders = 14;  ///< gate and value warp, outputs, state
  static constexpr int kKStages = 4, kQStages = 4, kVStages = 4, kGateStages = 4;
  static constexpr int kStateStages = 2;
  static constexpr int kWorkSlots = 8;
  static constexpr int kThreads = 512;
  static constexpr int kServiceRegisters = 56, kOutputRegisters = 144, kStateRegisters = 168;
  static constexpr uint32_t kHalfTileBytes = kChunk * tile::kRowBytes;  ///< 64 tokens x 64 columns
  static constexpr uint32_t kKTileBytes = kK / 64 * kHalfTileBytes;
  static constexpr uint32_t kVTileBytes = kHalfTileBytes;

  static_assert(kK == 64 || kK == 128);
};

}  // namespace sluice::cuda::linear_attention

namespace sluice::cuda::chunk_forward {

/// Shared memory of one CTA; members as the loader wants them.
template <class Io, int kK>
struct SharedMemoryPlan<linear_attention::RelayConfig<Io, kK>> {
  using C = linear_attention::RelayConfig<Io, kK>;
  alignas(1024) uint8_t k[C::kKStages][C::kKTileBytes];  ///< [64 columns][token][64], TMA, swizzled
  uint8_t q[C::kQStages][C::kKTileBytes];
  uint8_t v[C::kVStages][C::kVTileBytes];
  uint8_t S[C::kStateStages][C::kKTileBytes];  ///< [64 of K][column of V][64], swizzled
  uint8_t o[C::kOutputGroups][C::kVTileBytes];
  linear_attention::GateStage gates[C::kGateStages];
  WorkItem work[C::kWorkSlots];
  alignas(8) tile::RingBarriers<C::kKStages> k_ring;
  tile::RingBarriers<C::kQStages> q_ring;
  tile::RingBarriers<C::kVStages> v_ring;
  tile::RingBarriers<C::kGateStages> gate_ring;
  tile::RingBarriers<C::kStateStages> state_ring;
  tile::RingBarriers<C::kWorkSlots> work_ring;
};
static_assert(sizeof(SharedMemoryPlan<linear_attention::RelayConfig<uint16_t, 128>>) <=
              kSmemBytesSm90);

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_RELAY_CONFIG_H_
