// States tile constants, shared memory and warps of the linear attention kernel. Work
// items, the segment table, loader, state and output moves are those of all prefill kernels.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_CONFIG_H_
#define SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_CONFIG_H_

#include "cuda/device/work_items.cuh"
#include "cuda/tile/pipeline.cuh"
#include "cuda/tile/shared_tile.cuh"

namespace sluice::cuda::linear_attention {

using device::PrefillParams, device::WorkItem;

/// One kernel: dtype of q, k, v, o, head sizes, what it computes, and all named constants. A work
/// item has kV_ columns of V. Without kOutput_ it is the transition pass: what segments add to the
/// state and by how much they decay it; no o, and q is not read.
template <class Io_, int kK_, int kV_, bool kOutput_ = true>
struct Config {
  using Io = Io_;
  static constexpr bool kOutput = kOutput_;
  static constexpr int kK = kK_, kV = kV_;
  static constexpr int kChunk = 64;  ///< tokens per chunk
  static constexpr int kStateGroups = kV / 64, kStateWarps = 4 * kStateGroups;
  static constexpr int kScoreWarps = kOutput ? 4 : 0;
  /// Of work items: gate and value warp, scores and state warpgroups.
  static constexpr int kWorkReaders = 2 + kScoreWarps + kStateWarps;
  static constexpr int kKSlots = kV == 64 ? 5 : 4, kQSlots = 4, kVSlots = kV == 64 ? 4 : 3;
  static constexpr int kPSlots = 2, kGateSlots = 4;
  static constexpr int kWorkSlots = 8;
  static constexpr int kThreads = 128 * (2 + kStateGroups);
  static constexpr int kServiceRegisters = 56, kScoreRegisters = 72;
  static constexpr int kStateRegisters = kV == 64 ? 240 : 192;
  using KeyTile = tile::SwizzledTile<Io, kChunk, kK>;  ///< [token][k]: k and q
  using ValueTile = tile::SwizzledTile<Io, kChunk, kV>;
  using SquareTile = tile::SwizzledTile<Io, kChunk, kChunk>;

  static_assert((kK == 64 || kK == 128) && (kV == 64 || kV == 128));
};

/// Most CTAs of a cluster of the kernel whose segments of a sequence are one cluster.
inline constexpr int kMostClusterCtas = 8;

/// Warps of the service warpgroup; the last one has nothing to do. Warpgroup 1 has the scores, the
/// others the state.
enum class ServiceWarp : uint32_t { kLoad = 0, kGate = 1, kValues = 2 };

/// Cumulative gate in units of log2, and what rows and columns of a chunk are multiplied by.
struct GateSlot {
  alignas(16) float G[64];
  float query[64];  ///< e^G scale: columns of S^T Q^T
  float write[64];  ///< e^{G_C - G}: columns of V^T in the state update
  float decay;      ///< e^{G_C}
};

/// Shared memory of one CTA.
template <class C>
struct SharedMemoryPlan {
  typename C::KeyTile k[C::kKSlots], q[C::kQSlots];
  typename C::ValueTile v[C::kVSlots];
  typename C::ValueTile o;               ///< of the chunk before, each warp its own columns
  typename C::SquareTile P[C::kPSlots];  ///< [i][j]; blocks above the diagonal stay zero
  GateSlot gates[C::kGateSlots];
  WorkItem work[C::kWorkSlots];
  alignas(8) tile::RingBarriers<C::kKSlots> k_ring;
  tile::RingBarriers<C::kQSlots> q_ring;
  tile::RingBarriers<C::kVSlots> v_ring;
  tile::RingBarriers<C::kPSlots> p_ring;
  tile::RingBarriers<C::kGateSlots> gate_ring;
  tile::RingBarriers<C::kWorkSlots> work_ring;
};
static_assert(sizeof(SharedMemoryPlan<Config<uint16_t, 128, 128>>) <= tile::kSharedBytesSm90);
static_assert(sizeof(SharedMemoryPlan<Config<uint16_t, 128, 64>>) <= tile::kSharedBytesSm90);

}  // namespace sluice::cuda::linear_attention

#endif  // SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_CONFIG_H_
