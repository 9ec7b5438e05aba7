// Summarises pieces by the transition pass: plans its work, and joins the maps of a piece's leaves.
//
// Math      N and M of each leaf are the transition pass's. Of leaves 0, 1, ..: X = [N_0 | M_0], then
//           X <- [N_i | 0] + M_i X, float32, which ends as [N | M] of the piece
// Roles     planner: a warp per (piece, head). join: a CTA per (piece, head, 16 columns of N or M)
// Memory    the tables of device/segments.hpp: a leaf is the segment that ends at its boundary
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_SUMMARY_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_SUMMARY_CUH_

#include "cuda/device/affine_step.cuh"
#include "cuda/kernels/chunk_forward/horizon.cuh"
#include "cuda/kernels/chunk_forward/summary_params.h"

namespace sluice::cuda::chunk_forward {

static_assert(kSummaryColumns == device::kAffineColumns);

/// A piece as its warp or CTA sees it.
struct PieceView {
  WorkItem item;
  int64_t wanted;  ///< bits; 0 past the last piece
  int first;       ///< its first boundary
  int chunks, leaves;
  int length;  ///< chunks of a leaf

  __device__ __forceinline__ int tail() const { return first + leaves; }
};

/// Whether no offset before that of piece n is larger than the next. PERF as many loads as pieces, by
/// the lanes together. WHY: of others two pieces might share boundaries.
__device__ __forceinline__ bool ascends(const PrefillParams& p, int n) {
  bool ascending = true;
  if (p.cu_seqlens.data != nullptr) {
    for (int i = static_cast<int>(threadIdx.x) % 32; i <= n; i += 32) {
      ascending &= device::load_index(p.cu_seqlens, i) <= device::load_index(p.cu_seqlens, i + 1);
    }
  }
  return __ballot_sync(~0u, !ascending) == 0;
}

/// All lanes of a warp together.
__device__ __forceinline__ PieceView piece_of(const PrefillParams& p, const SummaryParams& out,
                                              int n, int head) {
  PieceView piece{};
  if (n >= p.N) return piece;
  piece.wanted = out.wanted.data == nullptr ? kWantsAddend | kWantsTransition
                                            : device::load_index(out.wanted, n);
  if (out.addend == nullptr) piece.wanted &= ~kWantsAddend;
  if (out.transition == nullptr) piece.wanted &= ~kWantsTransition;
  piece.item = locate(p, n, head);
  if (!ascends(p, n)) piece.item.tokens = 0;
  piece.chunks = (piece.item.tokens + 63) / 64;
  piece.length = max(p.segments.cut.length, (piece.chunks + kMostLeaves - 1) / kMostLeaves);
  piece.leaves = (piece.chunks + piece.length - 1) / piece.length;
  // Dense pieces of a batch are as many rows further as if they were packed.
  const int64_t row = p.cu_seqlens.data == nullptr ? int64_t{n} * p.T : piece.item.row;
  piece.first = static_cast<int>(first_boundary(n, row, p.segments.cut.length));
  return piece;
}

/// Items of the transition pass for one boundary: N, and M.
__device__ __forceinline__ void list_items(const PrefillParams& p, int boundary, int head,
                                           bool adds, bool turns) {
  const int columns = p.segments.cut.transition_columns;
  const int added = adds ? p.V / columns : 0, factors = turns ? p.K / columns : 0;
  device::Transition* const out =
      p.segments.transitions +
      atomicAdd(&p.segments.header->transitions, static_cast<uint32_t>(added + factors));
#pragma unroll 1
  for (int i = 0; i < added + factors; ++i) {
    const int is_factor = i >= added ? 1 : 0;
    out[i] = {boundary, head, (i - is_factor * added) * columns, is_factor};
  }
}

/// One lane: the leaves of a piece as segments, and what its head asks for.
__device__ __forceinline__ void write_piece(const PrefillParams& p, const PieceView& piece,
                                            int early) {
  const int seq = piece.item.seq, head = piece.item.head, length = piece.length;
  const bool adds = (piece.wanted & kWantsAddend) != 0,
             turns = (piece.wanted & kWantsTransition) != 0;
  const int tail = piece.tail();
  p.segments.horizon[int64_t{tail} * p.HV + head] = early;
  if (head == 0) {
#pragma unroll 1
    for (int i = 0; i < piece.leaves; ++i) {
      const int first = i * length, count = min(length, piece.chunks - first);
      p.segments.left[piece.first + i] = {seq, first, count, -1, piece.first + i};
    }
    // Of no chunks of its own: it starts as early as the horizon says.
    p.segments.left[tail] = {seq, piece.chunks, 0, tail, tail};
  }
  if (early > 0) {
    if (adds) list_items(p, tail, head, true, false);
    return;
  }
#pragma unroll 1
  for (int i = 0; i < piece.leaves; ++i) {
    list_items(p, piece.first + i, head, adds, turns || (adds && i > 0));
  }
}

/// One warp for each piece and head. `early` chunks before its end, a head that forgets starts from
/// zero; the last, partial chunk only adds to what is forgotten.
template <class Horizon>
__device__ __forceinline__ void place_pieces(const PrefillParams& p, const SummaryParams& out) {
  ptx::launch_dependents();
  ptx::wait_for_dependencies();
  const auto warp = static_cast<int>((blockIdx.x * kHorizonThreads + threadIdx.x) >> 5);
  const PieceView piece = piece_of(p, out, warp / p.HV, warp % p.HV);
  if (piece.wanted == 0) return;
  int early = 0;
  if (p.segments.cut.may_forget) {
    const int whole = piece.item.tokens / 64;
    const int found = Horizon{}(p, piece.item, whole, whole);
    if (found > 0) early = found + piece.chunks - whole;
  }
  if (!tile::is_first_lane()) return;
  write_piece(p, piece, early);
  if (out.forgotten != nullptr) {
    out.forgotten[piece.item.seq * out.forgotten_piece + piece.item.head * out.forgotten_head] =
        early > 0 ? 1 : 0;
  }
}

__global__ void __launch_bounds__(kHorizonThreads)
    summary_planner_kernel(const __grid_constant__ PrefillParams p,
                           const __grid_constant__ SummaryParams out) {
  place_pieces<ScalarHorizon>(p, out);
}

__global__ void __launch_bounds__(kHorizonThreads)
    key_summary_planner_kernel(const __grid_constant__ PrefillParams p,
                               const __grid_constant__ SummaryParams out) {
  place_pieces<KeyHorizon>(p, out);
}

/// Sixteen columns of N, or of M, of one piece and head.
struct MapColumns {
  bool is_factor;
  int column;
};

/// X = columns of a leaf's N or M, or of no leaf's: zeros, or the identity.
__device__ __forceinline__ void load_leaf(const PrefillParams& p, int boundary, int head,
                                          const MapColumns& of, bool exists,
                                          device::AffineColumns X) {
  const int64_t pair = int64_t{boundary} * p.HV + head;
  for (int at = static_cast<int>(threadIdx.x); at < p.K * device::kAffineColumns;
       at += device::kAffineThreads) {
    // PERF N lies by rows, M by columns.
    const int k = of.is_factor ? at % p.K : at / device::kAffineColumns;
    const int c = of.is_factor ? at / p.K : at % device::kAffineColumns;
    float x = of.is_factor && k == of.column + c ? 1.0f : 0.0f;
    if (exists) {
      x = of.is_factor ? device::factor_at(p, boundary, head)[int64_t{of.column + c} * p.K + k]
                       : p.segments.added[(pair * p.K + k) * p.V + of.column + c];
    }
    X[k][c] = x;
  }
}

__device__ __forceinline__ void store_map(const PrefillParams& p, const SummaryParams& out,
                                          const WorkItem& item, const MapColumns& of,
                                          device::AffineColumns X) {
  const int64_t columns = of.is_factor ? p.K : p.V;
  float* const to = of.is_factor ? out.transition + item.seq * out.transition_stride
                                 : out.addend + item.seq * out.addend_stride;
  for (int at = static_cast<int>(threadIdx.x); at < p.K * device::kAffineColumns;
       at += device::kAffineThreads) {
    const int k = at / device::kAffineColumns, c = at % device::kAffineColumns;
    to[(int64_t{item.head} * p.K + k) * columns + of.column + c] = X[k][c];
  }
}

/// Shared memory of a CTA of the join.
template <int kK>
struct SummaryJoinMemory {
  float columns[2][kK][device::kAffineColumns];  ///< before and after a leaf
  device::AffineTile tile;
};

/// BOUND: K and V are multiples of 16.
template <int kK>
__global__ void __launch_bounds__(device::kAffineThreads)
    summary_join_kernel(const __grid_constant__ PrefillParams p,
                        const __grid_constant__ SummaryParams out) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& s = *reinterpret_cast<SummaryJoinMemory<kK>*>(dynamic_shared);
  ptx::launch_dependents();
  ptx::wait_for_dependencies();
  device::AffineColumns in = s.columns[0], next = s.columns[1];
  const int slices = (p.V + p.K) / device::kAffineColumns;
  const auto pair = static_cast<int>(blockIdx.x) / slices,
             slice = static_cast<int>(blockIdx.x) % slices;
  const int added = p.V / device::kAffineColumns;
  const MapColumns of{slice >= added,
                      (slice >= added ? slice - added : slice) * device::kAffineColumns};
  const PieceView piece = piece_of(p, out, pair / p.HV, pair % p.HV);
  if ((piece.wanted & (of.is_factor ? kWantsTransition : kWantsAddend)) == 0) return;
  const int head = piece.item.head;
  const bool forgotten = p.segments.horizon[int64_t{piece.tail()} * p.HV + head] > 0;
  if (forgotten) {
    // A matrix of zeros is an addend of no leaf.
    const MapColumns zeros{false, of.column};
    load_leaf(p, piece.tail(), head, of.is_factor ? zeros : of, !of.is_factor, in);
  } else {
    load_leaf(p, piece.first, head, of, piece.leaves > 0, in);
    for (int i = 1; i < piece.leaves; ++i) {
      // N_i, or zeros in the columns of M.
      const MapColumns zeros{false, of.column};
      load_leaf(p, piece.first + i, head, of.is_factor ? zeros : of, !of.is_factor, next);
      __syncthreads();
      device::add_affine({device::factor_at(p, piece.first + i, head), true}, kK, in, next, s.tile);
      const device::AffineColumns done = in;
      in = next, next = done;
    }
  }
  __syncthreads();
  store_map(p, out, piece.item, of, in);
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_SUMMARY_CUH_
