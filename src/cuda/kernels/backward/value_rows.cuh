// Stores dv of the delta rule where the copy engine cannot: from the rows that the chain has left in the
// workspace, with strengths as the caller wants them.
//
// Roles     a CTA has one (chunk, value head), a warp every fourth row of it
// Memory    registers
// Floor     bytes of dv, twice
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_VALUE_ROWS_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_VALUE_ROWS_CUH_

#include "cuda/kernels/backward/gates.cuh"
#include "cuda/kernels/backward/segments.cuh"
#include "cuda/kernels/backward/tile_numbers.cuh"

namespace sluice::cuda::backward {

inline constexpr int kValueThreads = 128;

/// A row times a factor, four columns a lane.
template <class Io>
__device__ __forceinline__ void store_value_row(const uint16_t* from, uint16_t* to, float factor) {
  using Pack = tile::Packed<Io>;
  const uint2 x = *reinterpret_cast<const uint2*>(from);
  const uint32_t pairs[2] = {Pack::pack(factor * Pack::first(x.x), factor * Pack::second(x.x)),
                             Pack::pack(factor * Pack::first(x.y), factor * Pack::second(x.y))};
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = static_cast<uint16_t>(pairs[i / 2] >> 16 * (i % 2));
}

/// Items are slots x value heads.
template <class Io>
__global__ void __launch_bounds__(kValueThreads)
    value_rows_kernel(const __grid_constant__ BackwardParams b, int64_t items) {
  const StageParams& p = b.stage;
  device::follow();
  const int column = 4 * tile::lane();
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const Chunk chunk = device::chunk_of(p, first_slot(b) + item / p.HV);
    const int64_t head = item % p.HV;
    if (chunk.tokens == 0 || !is_inside(b.window, chunk) || column >= p.V) continue;
    const float back = b.scales == nullptr ? 1.0f : 1.0f / b.scales[chunk.seq * p.HV + head];
    for (int i = tile::warp(); i < chunk.tokens; i += kValueThreads / 32) {
      const int64_t row = chunk.row + i;
      const float beta = p.beta.data != nullptr ? number_at(p.beta, chunk.batch, row, head) : 1.0f;
      store_value_row<Io>(
          static_cast<const uint16_t*>(b.dv_tile.data) + at(b.dv_tile, chunk.batch, row, head) +
              column,
          static_cast<uint16_t*>(b.dv.data) + at(b.dv, chunk.batch, row, head) + column,
          back * ValueStrength<Io>(beta).undo);
    }
  }
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_VALUE_ROWS_CUH_
