// Prepares for tensor cores: q and k by their l2 norm, where both come as rows of 256 aligned bytes,
// and g and beta. Any other rows: prepare.cuh.
//
// Roles     a CTA has a row of tokens; half a warp a row of q or k, 16 bytes a lane
// Memory    registers. PERF few of them, and two rows a lane on their way: the latency of memory is
//           what such a kernel waits for
// Floor     bytes of q and k, twice
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_PREPARE_TILES_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_PREPARE_TILES_CUH_

#include "cuda/kernels/backward/gates.cuh"
#include "cuda/tile/lanes.cuh"
#include "cuda/tile/number.cuh"

namespace sluice::cuda::backward {

/// x times one over its norm, which the row's lanes get; half a warp has a row.
template <class Io>
__device__ __forceinline__ float normalise_row(uint4& x, float eps) {
  using Pack = tile::Packed<Io>;
  uint32_t words[4] = {x.x, x.y, x.z, x.w};
  // NUM two sums, in the order of prepare.cuh's lanes: bits do not depend on where rows lie.
  float sums[2] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sums[i / 2] = fmaf(Pack::first(words[i]), Pack::first(words[i]), sums[i / 2]);
    sums[i / 2] = fmaf(Pack::second(words[i]), Pack::second(words[i]), sums[i / 2]);
  }
#pragma unroll
  for (int step = 8; step > 0; step /= 2) {
    sums[0] += __shfl_xor_sync(~0u, sums[0], step);
    sums[1] += __shfl_xor_sync(~0u, sums[1], step);
  }
  const float factor = 1.0f / sqrtf(sums[0] + sums[1] + eps);
#pragma unroll
  for (uint32_t& word : words) {
    word = Pack::pack(factor * Pack::first(word), factor * Pack::second(word));
  }
  x = {words[0], words[1], words[2], words[3]};
  return factor;
}

/// Items are rows of tokens of all batch entries.
template <class Io>
__global__ void __launch_bounds__(kThreads, 6)
    prepare_tiles_kernel(const __grid_constant__ BackwardParams p, int64_t items) {
  constexpr int kRows = 2, kTurn = 2 * kWarps;  // rows of a lane, and of the CTA at a time
  device::follow();
  const int H = static_cast<int>(p.stage.H);
  const int own = 2 * tile::warp() + tile::lane() / 16, column = tile::lane() % 16 * 8;
  const int64_t in_use = rows_in_use(p.stage);
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int64_t batch = item / p.stage.T, row = item % p.stage.T;
    if (row >= in_use) continue;
    for (int first = 0; first < 2 * H; first += kRows * kTurn) {
      uint4 x[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int head = min(first + i * kTurn + own, 2 * H - 1);
        const TokenRows& from = head < H ? p.raw_q : p.raw_k;
        x[i] = __ldg(reinterpret_cast<const uint4*>(
            static_cast<const uint16_t*>(from.data) +
            at(from, batch, row, head < H ? head : head - H) + column));
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const float factor = normalise_row<Io>(x[i], p.l2norm_eps);
        const int head = first + i * kTurn + own;
        if (head >= 2 * H) continue;
        const TokenRows& to = head < H ? p.q_normal : p.k_normal;
        *reinterpret_cast<uint4*>(static_cast<uint16_t*>(to.data) +
                                  at(to, batch, row, head < H ? head : head - H) + column) = x[i];
        if (column == 0) put_float(p.norms, batch, row, head, factor);
      }
    }
    prepare_gates(p, batch, row);
  }
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_PREPARE_TILES_CUH_
