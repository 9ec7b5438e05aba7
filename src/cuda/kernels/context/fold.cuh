// Folds the maps of pieces into the states that enter them (docs/math.md section 9).
//
// Math      S <- addend + transition S (reverse: transition^T), float32, step by step of a chain
// Roles     one CTA per (chain, value head, 16 columns of V); no CTA waits for another
// Memory    S before and after a step in shared memory, M in tiles of 128 x 32
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONTEXT_FOLD_CUH_
#define SLUICE_CUDA_KERNELS_CONTEXT_FOLD_CUH_

#include "cuda/device/affine_step.cuh"
#include "cuda/device/follow.cuh"
#include "cuda/kernels/context/launch.h"

namespace sluice::cuda::context {

using device::AffineColumns, device::AffineTile, device::kAffineColumns, device::kAffineThreads;
using device::load_index;

/// A CTA's chain, head and columns.
struct FoldItem {
  int64_t chain, head;
  int column;
};

/// Calls use(row, column, number) for the columns of a CTA that exist.
template <class Use>
__device__ __forceinline__ void for_columns(const FoldParams& p, const FoldItem& item,
                                            AffineColumns S, const Use& use) {
  for (int at = static_cast<int>(threadIdx.x); at < p.K * kAffineColumns; at += kAffineThreads) {
    const int k = at / kAffineColumns, c = at % kAffineColumns;
    if (item.column + c < p.V) use(k, item.column + c, S[k][c]);
  }
}

__device__ __forceinline__ int64_t state_element(const FoldParams& p, const BoundedPool& pool,
                                                 int64_t slot, const FoldItem& item) {
  return slot * pool.pool.slot_stride + item.head * p.K * p.V;
}

__device__ __forceinline__ void load_columns(const FoldParams& p, const FoldItem& item,
                                             AffineColumns S) {
  const auto& pool = p.initial.pool;
  const int64_t start = state_element(p, p.initial, item.chain, item);
  for_columns(p, item, S, [&](int k, int v, float& x) {
    const int64_t element = start + k * p.row_step + v * p.column_step;
    x = pool.data == nullptr ? 0.0f : device::load_number(pool.data, element, pool.number);
  });
}

__device__ __forceinline__ void store_columns(const FoldParams& p, const FoldItem& item,
                                              const BoundedPool& to, int64_t slot,
                                              AffineColumns S) {
  if (to.pool.data == nullptr || slot < 0 || slot >= to.slots) return;
  const int64_t start = state_element(p, to, slot, item);
  for_columns(p, item, S, [&](int k, int v, float& x) {
    const int64_t element = start + k * p.row_step + v * p.column_step;
    device::store_number(to.pool.data, element, to.pool.number, x);
  });
}

/// out = addend, or addend + transition in.
__device__ __forceinline__ void apply_piece(const FoldParams& p, const FoldItem& item,
                                            int64_t piece, AffineColumns in, AffineColumns out,
                                            AffineTile& tile) {
  const float* const N = p.addend + piece * p.addend_stride + item.head * p.K * p.V;
  for_columns(p, item, out, [&](int k, int v, float& x) { x = __ldg(N + int64_t{k} * p.V + v); });
  const PieceFlags& flags = p.forgotten;
  const bool forgotten =
      flags.data != nullptr &&
      flags.data[piece * flags.piece_stride + item.head * flags.head_stride] != 0;
  __syncthreads();
  if (forgotten) return;
  const float* const M = p.transition + piece * p.transition_stride + item.head * p.K * p.K;
  device::add_affine({M, p.reverse}, p.K, in, out, tile);
}

/// Dynamic shared memory: two states of K x 16.
__global__ void __launch_bounds__(kAffineThreads)
    fold_kernel(const __grid_constant__ FoldParams p) {
  extern __shared__ __align__(16) float dynamic_shared[];
  __shared__ AffineTile tile;
  device::follow();
  auto in = reinterpret_cast<AffineColumns>(dynamic_shared), out = in + p.K;
  const int slices = (p.V + kAffineColumns - 1) / kAffineColumns;
  const int64_t unit = blockIdx.x / static_cast<unsigned>(slices);
  const FoldItem item{
      unit / p.HV, unit % p.HV,
      static_cast<int>(blockIdx.x % static_cast<unsigned>(slices)) * kAffineColumns};
  // PERF columns past V stay zero: they take part in every product.
  for (int at = static_cast<int>(threadIdx.x); at < 2 * p.K * kAffineColumns;
       at += kAffineThreads) {
    dynamic_shared[at] = 0.0f;
  }
  __syncthreads();
  const int64_t begin = min(max(load_index(p.cu_chains, item.chain), int64_t{0}), p.S);
  const int64_t end = min(max(load_index(p.cu_chains, item.chain + 1), begin), p.S);
  load_columns(p, item, in);
  __syncthreads();
  for (int64_t i = begin; i < end; ++i) {
    const int64_t step = p.reverse ? end - 1 - (i - begin) : i;
    store_columns(p, item, p.entering, load_index(p.route_states, step), in);
    const int64_t piece = load_index(p.route_pieces, step);
    if (piece < 0 || piece >= p.P) continue;
    apply_piece(p, item, piece, in, out, tile);
    const AffineColumns done = in;
    in = out, out = done;
    __syncthreads();
  }
  store_columns(p, item, p.final, item.chain, in);
}

}  // namespace sluice::cuda::context

#endif  // SLUICE_CUDA_KERNELS_CONTEXT_FOLD_CUH_
