// Scales keys of chunk_h with key-wise gates for states.cuh: k <- exp(G_C - G) * k, G by channel.
//
// Math      o[token, head, l] = exp(G_C[l] - G_token[l]) k[token, key head, l], rounded to k's dtype
// Roles     a CTA has one (chunk, head); a thread two channels of a token at a time
// Memory    none shared; reads 4 + e bytes a number, writes e
// Floor     docs/kernels/stages.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_SCALE_KEYS_CUH_
#define SLUICE_CUDA_KERNELS_STAGES_SCALE_KEYS_CUH_

#include "cuda/device/chunks.cuh"
#include "cuda/device/follow.cuh"
#include "cuda/kernels/stages/config.h"

namespace sluice::cuda::stages {

using device::at, device::Chunk, device::chunk_of, device::key_head, device::StageParams;

/// Items are slots x heads.
__global__ void __launch_bounds__(kPlainThreads)
    scale_keys_kernel(const __grid_constant__ StageParams p, int64_t items) {
  device::follow();
  const auto pairs = static_cast<int>(p.K / 2);
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const Chunk chunk = chunk_of(p, item / p.HV);
    const int64_t head = item % p.HV;
    if (chunk.tokens == 0) continue;
    const auto* const sums = static_cast<const float*>(p.g_cumsum.data);
    const int64_t last = at(p.g_cumsum, chunk.batch, chunk.row + chunk.tokens - 1, head);
    for (auto i = static_cast<int>(threadIdx.x); i < chunk.tokens * pairs; i += kPlainThreads) {
      const int64_t row = chunk.row + i / pairs;
      const int l = i % pairs * 2;
      const int64_t G = at(p.g_cumsum, chunk.batch, row, head);
      const int64_t from = at(p.k, chunk.batch, row, key_head(p, head));
      const int64_t to = at(p.o, chunk.batch, row, head);
#pragma unroll
      for (int j = l; j < l + 2; ++j) {
        const float k = device::load_number(p.k.data, from + j, p.k.number);
        device::store_number(p.o.data, to + j, p.k.number, expf(sums[last + j] - sums[G + j]) * k);
      }
    }
  }
}

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_SCALE_KEYS_CUH_
