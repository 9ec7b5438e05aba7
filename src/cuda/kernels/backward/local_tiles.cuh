// Computes dN inside chunks by tensor cores: scale P^T d_o, P = tril(exp(G_i - G_j) q_i . k_j).
//
// Roles     a CTA of 128 threads has one (chunk, head), a warp 16 tokens j of dN
// Pipeline  request q, k | d_o -> P^T of the warp's rows, in registers a left operand -> 64 columns
//           of dN at a time, out by way of q's tiles
// Memory    48 KB of tiles: four CTAs on a multiprocessor hide each other's waits
// Floor     docs/kernels/backward.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_LOCAL_TILES_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_LOCAL_TILES_CUH_

#include "cuda/kernels/backward/tiles.cuh"

namespace sluice::cuda::backward {

struct LocalTiles {
  RowTiles q, k, d_o;
  float G[device::kMostTokens];
};
static_assert(sizeof(LocalTiles) <= kLocalTileBytes);

/// P^T of 16 keys from `row` on: rows are keys j, columns queries i.
template <class Io>
__device__ __forceinline__ tile::WarpOperand scores_of_keys(const LocalTiles& s, float scale,
                                                            int row) {
  WarpAccumulator<8> part;
  part.clear();
  for (int w = 0; w < kWidths; ++w) {
    product<Io, false, true, 8>(part, s.k.at(w), row, s.q.at(w), 0);
  }
  part.for_each_pair([&](int r, int i, float& x, float& y) {
    const int j = row + r;
    // WHY a choice: below the diagonal the exponential may be infinite.
    x = i >= j ? scale * decay(s.G[i] - s.G[j]) * x : 0.0f;
    y = i + 1 >= j ? scale * decay(s.G[i + 1] - s.G[j]) * y : 0.0f;
  });
  return tile::pack<Io>(part);
}

/// Items are slots x heads.
template <class Io>
__global__ void __launch_bounds__(kLocalThreads, 4)
    local_tiles_kernel(const __grid_constant__ BackwardParams b, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& s = *reinterpret_cast<LocalTiles*>(dynamic_shared);
  const StageParams& p = b.stage;
  const int row = 16 * tile::warp();
  device::follow();
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const Chunk chunk = device::chunk_of(p, item / p.HV);
    const int64_t head = item % p.HV, keys = device::key_head(p, head);
    if (chunk.tokens == 0) continue;
    request_rows<kLocalThreads>(s.q, p.q, chunk, keys);
    request_rows<kLocalThreads>(s.k, p.k, chunk, keys);
    ptx::close_copies();
    request_rows<kLocalThreads>(s.d_o, b.d_o, chunk, head);
    ptx::close_copies();
    if (tile::warp() == 0) device::load_sums(p, chunk, head, s.G);
    ptx::wait_for_copies<1>();
    __syncthreads();  // SYNC: q, k and G are there
    const tile::WarpOperand scores = scores_of_keys<Io>(s, p.scale, row);
    ptx::wait_for_copies<0>();
    __syncthreads();  // SYNC: d_o is there, nobody reads q
    for (int w = 0; w < kWidths; ++w) {
      WarpAccumulator<8> out;
      out.clear();
      tile::multiply<Io, 8>(out, scores, s.d_o.at(w), 0);
      tile::put_part<Io>(s.q.at(w), row, 0, out);
      device::store_rows<8>(s.q.tile[w], row, 0, b.dN, chunk, head, row, int64_t{64} * w);
    }
    __syncthreads();
  }
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_LOCAL_TILES_CUH_
