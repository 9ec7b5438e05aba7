// Deals out items of gradient_tiles.cuh: where their operands lie, and how these come.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_GRADIENT_ITEMS_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_GRADIENT_ITEMS_CUH_

#include "cuda/kernels/backward/gates.cuh"
#include "cuda/kernels/backward/tiles.cuh"

namespace sluice::cuda::backward {

/// Sums of rows, those of either half of the columns.
using HalfSums = float[2][kTokens];

struct GradientTiles {
  struct Rows {
    RowTiles d_o, N, Y;  ///< Y: dN first
  };
  Rows rows[2];  ///< of items by turns
  RowTiles q, k;
  RowTiles S[kWidths];    ///< [k / 64][v / 64]: that enters
  RowTiles D[kWidths];    ///< likewise: the gradient of the one that leaves
  uint8_t X[kTileBytes];  ///< [i][j]
  uint8_t Z[kTileBytes];  ///< with beta
  uint8_t L[kTileBytes];  ///< (I + A)^-1, then Z without beta
  struct {
    float G[kTokens], beta[kTokens];
  } numbers[2];  ///< of items by turns; past the end G is the last one's, beta 1
  HalfSums query, key, correction, leave, value;
  float warps[kWarps];
};
static_assert(sizeof(GradientTiles) <= kGradientTileBytes);

/// A chunk and head, none where tokens = 0.
struct GradientItem {
  Chunk chunk;
  int64_t head, entry;  ///< entry: of the chunk's states
};

/// The first item from `number` on that has tokens; *number becomes its own.
__device__ __forceinline__ GradientItem find_item(const StageParams& p, int64_t items,
                                                  int64_t* number) {
  GradientItem item{};
  for (; *number < items; *number += gridDim.x) {
    item.chunk = device::chunk_of(p, *number / p.HV);
    item.head = *number % p.HV;
    if (item.chunk.tokens == 0) continue;
    const int64_t before = device::chunks_before(p, item.chunk.seq);
    item.entry = device::state_at(p, item.chunk, before, item.head);
    return item;
  }
  item.chunk.tokens = 0;
  return item;
}

/// A CTA's item and a warp's part of it.
struct GradientPart {
  GradientTiles& s;
  const GradientTiles::Rows& rows;
  const float *G, *beta;
  Chunk chunk;
  int64_t head;
  int row, half;  ///< the warp's
  __device__ __forceinline__ int low() const { return row + tile::lane_row(); }
};

/// Requests a matrix [K][V] of 16-bit numbers.
__device__ __forceinline__ void request_state(RowTiles (&to)[kWidths], const void* states,
                                              int64_t offset, int64_t V) {
  const auto* const from = static_cast<const uint16_t*>(states) + offset;
#pragma unroll 1
  for (int i = 0; i < kWidths * kWidths; ++i) {
    const int k = i / kWidths, v = i % kWidths;
    device::request_matrix<kThreads>(to[k].at(v), from + 64 * (k * V + v), V);
  }
}

// Each of the next three is one group of copies, without copies where there is no item.

__device__ __forceinline__ void request_token_rows(const BackwardParams& b,
                                                   const GradientItem& item,
                                                   GradientTiles::Rows& to) {
  if (item.chunk.tokens > 0) {
    const TokenRows& N = b.delta_rule ? b.stage.v_new : b.stage.values;
    request_rows<kThreads>(to.d_o, b.d_o, item.chunk, item.head);
    request_rows<kThreads>(to.N, N, item.chunk, item.head);
    request_rows<kThreads>(to.Y, b.dN, item.chunk, item.head);
  }
  ptx::close_copies();
}
__device__ __forceinline__ void request_entering(const BackwardParams& b, const GradientItem& item,
                                                 GradientTiles& s) {
  if (item.chunk.tokens > 0) {
    if (b.delta_rule) {
      device::request_tile<kThreads>(ptx::shared_address(s.L), b.stage.A_inverse, item.chunk,
                                     item.head, 0, 0);
    }
    request_state(s.S, b.stage.h.data, item.entry, b.stage.V);
  }
  ptx::close_copies();
}
__device__ __forceinline__ void request_leaving(const BackwardParams& b, const GradientItem& item,
                                                GradientTiles& s) {
  if (item.chunk.tokens > 0) {
    const int64_t keys = device::key_head(b.stage, item.head);
    request_rows<kThreads>(s.q, b.stage.q, item.chunk, keys);
    request_rows<kThreads>(s.k, b.stage.k, item.chunk, keys);
    request_state(s.D, b.dh.data, item.entry, b.stage.V);
  }
  ptx::close_copies();
}

/// G of token t, for thread t, and beta, for thread 64 + t.
__device__ __forceinline__ float request_number(const StageParams& p, const GradientItem& item) {
  const auto thread = static_cast<int>(threadIdx.x);
  const int token = thread % kTokens, last = item.chunk.tokens - 1;
  if (thread >= 2 * kTokens || last < 0) return 0.0f;
  if (thread < kTokens) {
    if (p.g_cumsum.data == nullptr) return 0.0f;
    return device::token_number(p.g_cumsum, item.chunk, item.head, min(token, last));
  }
  if (p.beta.data == nullptr || token > last) return 1.0f;
  return device::token_number(p.beta, item.chunk, item.head, token);
}
__device__ __forceinline__ void put_number(GradientTiles& s, int turn, float x) {
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread >= 2 * kTokens) return;
  (thread < kTokens ? s.numbers[turn].G : s.numbers[turn].beta)[thread % kTokens] = x;
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_GRADIENT_ITEMS_CUH_
