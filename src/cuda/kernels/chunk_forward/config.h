// Tile constants, shared-memory plan and barriers of the fused prefill kernel.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_CONFIG_H_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_CONFIG_H_

#include "cuda/tile/pipeline.cuh"
#include "cuda/tile/swizzle.hpp"

namespace sluice::cuda::chunk_forward {

inline constexpr uint32_t kSmemBytesSm90 = 227 * 1024;

/// One kernel: dtype of q, k, v, o, whether q and k are normalised, and all named constants.
/// PERF l2norm as a run-time branch -> template parameter: predicated loads and multiplies left the
/// aux warpgroup's longest phase.
template <class Io_, bool kL2Norm_>
struct Config {
  using Io = Io_;
  static constexpr bool kL2Norm = kL2Norm_;
  static constexpr int kChunk = 64;     ///< tokens per chunk
  static constexpr int kHeadDim = 128;  ///< K = V
  static constexpr int kKStages = 3, kQStages = 3, kVStages = 2;
  static constexpr int kMixStages = 3;  ///< Tmat, P and factors, written by the aux warpgroup
  static constexpr int kGateStages = 4;
  static constexpr int kWorkSlots = 8;
  static constexpr int kThreads = 512;
  static constexpr int kServiceRegisters = 32, kAuxRegisters = 96, kStateRegisters = 192;
  static constexpr uint32_t kHalfTileBytes = kChunk * tile::kRowBytes;  ///< 64 tokens x 64 columns
  static constexpr uint32_t kTileBytes = 2 * kHalfTileBytes;
};

/// Barriers of bar.sync; 0 is __syncthreads.
enum class NamedBarrier : uint32_t {
  kNorms = 1,
  kPairLow,
  kPairHigh,
  kOutputLow,
  kOutputHigh,
  kTurnLow,
  kTurnHigh,
  kCount
};
static_assert(static_cast<uint32_t>(NamedBarrier::kCount) <= 16);

/// Warps by role. Warpgroup 0 serves, 1 and 2 hold the state, 3 prepares.
enum class ServiceWarp : uint32_t { kLoad = 0, kGate = 1, kFinishEven = 2, kFinishOdd = 3 };
inline constexpr int kStateWarps = 8, kAuxWarps = 4, kFinishWarps = 2;
/// Warps that read the ring of work items: all but the one that fills it.
inline constexpr int kWorkReaders = 15;

/// One (sequence, value head).
struct WorkItem {
  int32_t seq;  ///< -1: no more work
  int32_t head;
  int32_t batch;  ///< batch entry that holds the rows
  int32_t row;    ///< first row within the batch entry
  int32_t tokens;
  int32_t padded;  ///< 1: write zero rows and nothing else

  __device__ __forceinline__ bool valid() const { return seq >= 0; }
  /// Chunks to compute.
  __device__ __forceinline__ int chunks() const { return padded ? 0 : (tokens + 63) >> 6; }
  /// Valid rows of chunk c.
  __device__ __forceinline__ int rows(int c) const { return min(tokens - c * 64, 64); }
};

/// Cumulative gate in units of log2, beta, and factors of Gamma of one chunk. Off the diagonal
/// blocks, Gamma_ij = e^{G_i - G_e} e^{G_e - G_j} with e the last token of j's block: j <= e < i,
/// so both exponents are <= 0 and neither factor can overflow.
struct GateStage {
  alignas(16) float G[64];
  float beta[64];
  float column[64];  ///< e^{G_e - G_j}, e the last token of j's block of 16
  float row[3][64];  ///< e^{G_i - G_e}, e the last token of block 0, 1 or 2; 1 for i <= e
};

/// What the state warpgroups need of a chunk besides q, k, v.
struct MixStage {
  uint8_t Tmat[8192];            ///< [i][j] io, swizzled; blocks above the diagonal are not written
  uint8_t P[8192];               ///< like Tmat
  alignas(16) float recall[64];  ///< e^G rk: columns of S^T Kc^T
  float query[64];               ///< e^G rq scale: columns of S^T Q^T
  float write[64];               ///< e^{G_C - G} rk: rows of Nw in the state update
  float decay;                   ///< e^{G_C}
  float padding[255 - 3 * 64];
};
static_assert(sizeof(MixStage) % tile::kAtomBytes == 0);

/// Shared memory of one CTA.
template <class C>
struct SharedMemoryPlan {
  alignas(1024) uint8_t k[C::kKStages][C::kTileBytes];  ///< [half][token][64], TMA, swizzled
  uint8_t q[C::kQStages][C::kTileBytes];
  uint8_t v[C::kVStages][C::kTileBytes];
  uint8_t o[C::kTileBytes];  ///< of the chunk before, half by half
  MixStage mix[C::kMixStages];
  uint8_t blocks[2][8192];  ///< fp16 [i][j], swizzled: A, replaced by its inverse; by chunk parity
  alignas(16) float diagonal[4][16][20];  ///< A's diagonal blocks, transposed; padded rows
  float norms[2][2][64];                  ///< by chunk parity: rk, rq
  GateStage gates[C::kGateStages];
  WorkItem work[C::kWorkSlots];
  alignas(8) tile::RingBarriers<C::kKStages> k_ring;
  tile::RingBarriers<C::kQStages> q_ring;
  tile::RingBarriers<C::kVStages> v_ring;
  tile::RingBarriers<C::kMixStages> mix_ring;
  tile::RingBarriers<C::kGateStages> gate_ring;
  tile::RingBarriers<2> block_ring;  ///< of `blocks`
  tile::RingBarriers<C::kWorkSlots> work_ring;
};
static_assert(sizeof(SharedMemoryPlan<Config<uint16_t, false>>) <= kSmemBytesSm90);

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_CONFIG_H_
