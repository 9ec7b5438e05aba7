// Brings a chunk's numbers per token, G and beta, to shared memory; decays.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_CHUNK_NUMBERS_CUH_
#define SLUICE_CUDA_DEVICE_CHUNK_NUMBERS_CUH_

#include "cuda/device/chunks.cuh"
#include "cuda/ptx/convert.cuh"

namespace sluice::cuda::device {

struct TokenNumbers {
  float G[kMostTokens], beta[kMostTokens];
};

/// G and beta of the item's chunk; all threads, which meet at the end.
__device__ __forceinline__ void load_numbers(const StageParams& p, const Chunk& chunk, int64_t head,
                                             TokenNumbers& s) {
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread < 32) load_sums(p, chunk, head, s.G);
  for (int i = thread - 32; i >= 0 && i < kMostTokens; i += static_cast<int>(blockDim.x) - 32) {
    const bool given = p.beta.data != nullptr && i < chunk.tokens;
    s.beta[i] = given ? token_number(p.beta, chunk, head, i) : 1.0f;
  }
  __syncthreads();
}

/// Writes G where the stage does (cumsum_kkt); all threads.
__device__ __forceinline__ void store_sums(const StageParams& p, const Chunk& chunk, int64_t head,
                                           const TokenNumbers& s) {
  if (p.sums.data == nullptr) return;
  for (auto i = static_cast<int>(threadIdx.x); i < chunk.tokens;
       i += static_cast<int>(blockDim.x)) {
    static_cast<float*>(p.sums.data)[at(p.sums, chunk.batch, chunk.row + i, head)] = s.G[i];
  }
}

/// e^x by the special function unit. NUM: 2 ulp and |x| 2^-24 more, beside operands of 16 bits;
/// exactly 1 at 0; denormals are 0.
__device__ __forceinline__ float decay(float x) {
  constexpr float kLog2E = 1.4426950408889634f;
  return ptx::exp2_fast(x * kLog2E);
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_CHUNK_NUMBERS_CUH_
