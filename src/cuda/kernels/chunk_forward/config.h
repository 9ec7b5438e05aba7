// States tile constants, shared memory and barriers of the one-launch prefill kernel.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_CONFIG_H_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_CONFIG_H_

#include <type_traits>

#include "cuda/device/output_rows.cuh"
#include "cuda/device/work_items.cuh"
#include "cuda/tile/pipeline.cuh"
#include "cuda/tile/shared_tile.cuh"

namespace sluice::cuda::chunk_forward {

using device::OutputBarrier, device::PrefillParams, device::WorkItem;

struct GateSlot;
struct NormedGateSlot;

/// One kernel: dtype of q, k, v, o, whether q and k are normalised, head sizes, what it computes,
/// and all named constants. A work item has kV_ columns of V; heads with more make several items.
/// Without kOutput_ it is the transition pass: states of segments, no o, and q is not read.
/// PERF l2norm as a run-time branch -> template parameter: predicated loads and multiplies left the
/// aux warpgroup's longest phase.
/// kHasLeading_: it computes first segments that lead, of a transition pass or of the main pass behind.
template <class Io_, bool kL2Norm_, int kK_, int kV_, bool kOutput_ = true,
          bool kHasLeading_ = !kOutput_>
struct Config {
  using Io = Io_;
  static constexpr bool kL2Norm = kL2Norm_, kOutput = kOutput_, kHasLeading = kHasLeading_;
  static constexpr int kK = kK_, kV = kV_;
  /// Whose items the first CTAs of a transition pass may take: see device::leading_items().
  using Leading = Config<Io, kL2Norm, kK, kV, true, true>;
  static constexpr int kChunk = 64;  ///< tokens per chunk
  static constexpr int kStateGroups = kV / 64, kStateWarps = 4 * kStateGroups;
  static constexpr int kWorkReaders =
      7 + kStateWarps;  ///< all but the loader, which fills the ring
  static constexpr int kKSlots = 4, kQSlots = 3, kVSlots = 2;
  static constexpr int kFactorSlots = 3, kTmatSlots = 2, kPSlots = 2;
  static constexpr int kGateSlots = 4;
  static constexpr int kWorkSlots = 8;
  static constexpr int kThreads = 512;
  static constexpr int kServiceRegisters = 64, kAuxRegisters = 64, kStateRegisters = 192;
  using Gate = std::conditional_t<kL2Norm, NormedGateSlot, GateSlot>;
  using KeyTile = tile::SwizzledTile<Io, kChunk, kK>;  ///< [token][k]: k and q
  using ValueTile = tile::SwizzledTile<Io, kChunk, kV>;
  using SquareTile = tile::SwizzledTile<Io, kChunk, kChunk>;

  static_assert((kK == 64 || kK == 128) && (kV == 64 || kV == 128));
};

/// Barriers of bar.sync beside those of outputs; 0 is __syncthreads.
enum class NamedBarrier : uint32_t {
  kTurnLow = static_cast<uint32_t>(OutputBarrier::kCount),
  kTurnHigh,
  kCount
};
static_assert(static_cast<uint32_t>(NamedBarrier::kCount) <= 16);

/// Warps by role. Warpgroup 0 serves, 1 and 2 hold the state, 3 prepares.
enum class ServiceWarp : uint32_t { kLoad = 0, kGate = 1, kFinishEven = 2, kFinishOdd = 3 };
inline constexpr int kAuxWarps = 4;

/// Cumulative gate in units of log2, beta, and factors of Gamma of one chunk. Off the diagonal
/// blocks, Gamma_ij = e^{G_i - G_e} e^{G_e - G_j} with e the last token of j's block: j <= e < i,
/// so both exponents are <= 0 and neither factor can overflow.
struct GateSlot {
  alignas(16) float G[64];
  float beta[64];
  float column[64];  ///< e^{G_e - G_j}, e the last token of j's block of 16
  float row[3][64];  ///< e^{G_i - G_e}, e the last token of block 0, 1 or 2; 1 for i <= e
};
/// ... and inverse norms of k and q, zero past the end, alone and times those factors. PERF the gate
/// warp has time for these products, which each warp of the aux warpgroup would take again.
struct NormedGateSlot : GateSlot {
  float key_norm[64], query_norm[64];
  float column_key[64];  ///< column times the norm of k
  float row_query[112];  ///< row[b] times the norm of q, of tokens behind block b: row_query_at()
};
/// Where row[b] of token 0 would be in NormedGateSlot::row_query.
__device__ __forceinline__ constexpr int row_query_at(int b) { return b == 0 ? 0 : 16 * b + 16; }
/// Those norms, if there are any.
__device__ __forceinline__ const float* key_norms(const GateSlot&) { return nullptr; }
__device__ __forceinline__ const float* key_norms(const NormedGateSlot& s) { return s.key_norm; }
__device__ __forceinline__ const float* query_norms(const GateSlot&) { return nullptr; }
__device__ __forceinline__ const float* query_norms(const NormedGateSlot& s) {
  return s.query_norm;
}
/// `column` for A, and `row[b]` for P: times the norm, if there is one.
__device__ __forceinline__ const float* key_columns(const GateSlot& s) { return s.column; }
__device__ __forceinline__ const float* key_columns(const NormedGateSlot& s) {
  return s.column_key;
}
__device__ __forceinline__ const float* query_rows(const GateSlot& s, int b) { return s.row[b]; }
__device__ __forceinline__ const float* query_rows(const NormedGateSlot& s, int b) {
  return s.row_query + row_query_at(b);
}

/// What the state warpgroups multiply rows and columns of a chunk by.
struct FactorSlot {
  alignas(16) float recall[64];  ///< e^G rk: columns of S^T Kc^T
  float query[64];               ///< e^G rq scale: columns of S^T Q^T
  float write[64];               ///< e^{G_C - G} rk: rows of Nw in the state update
  float decay;                   ///< e^{G_C}
};

/// An 8x8 block of A on the diagonal, of which only the part below it is defined. WHY padded: four
/// blocks are read at once.
struct DiagonalBlock {
  alignas(16) float row[8][8];
  float padding[4];
};

/// Shared memory of one CTA.
template <class C>
struct SharedMemoryPlan {
  typename C::KeyTile k[C::kKSlots], q[C::kQSlots];
  typename C::ValueTile v[C::kVSlots];
  typename C::ValueTile o;                     ///< of the chunk before, each warp its own columns
  typename C::SquareTile Tmat[C::kTmatSlots];  ///< [i][j]; blocks above the diagonal stay zero
  typename C::SquareTile P[C::kPSlots];        ///< like Tmat
  tile::SwizzledTile<__half, 64, 64>
      blocks[2];  ///< [i][j]: A, replaced by its inverse; by chunk parity
  FactorSlot factors[C::kFactorSlots];
  DiagonalBlock diagonal[2][8];  ///< by chunk parity
  typename C::Gate gates[C::kGateSlots];
  WorkItem work[C::kWorkSlots];
  alignas(8) tile::RingBarriers<C::kKSlots> k_ring;
  tile::RingBarriers<C::kQSlots> q_ring;
  tile::RingBarriers<C::kVSlots> v_ring;
  tile::RingBarriers<C::kFactorSlots> factor_ring;
  tile::RingBarriers<C::kTmatSlots> tmat_ring;
  tile::RingBarriers<C::kPSlots> p_ring;
  tile::RingBarriers<C::kGateSlots> gate_ring;
  tile::RingBarriers<2> block_ring;  ///< of `blocks` and `diagonal`
  tile::RingBarriers<C::kWorkSlots> work_ring;
};
static_assert(sizeof(SharedMemoryPlan<Config<uint16_t, true, 128, 128>>) <= tile::kSharedBytesSm90);

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_CONFIG_H_
