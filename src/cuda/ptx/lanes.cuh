// Sums over lanes of a warp (PTX ISA 9.7.9.6).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_LANES_CUH_
#define SLUICE_CUDA_PTX_LANES_CUH_

namespace sluice::cuda::ptx {

/// Replaces each of kCount (at most 16) numbers by its sum over the lanes that differ in kBits bits
/// of their number from bit kFirst on; the same bits in all of them. Whole warps only.
template <int kFirst, int kBits, int kCount>
__device__ __forceinline__ void sum_over_lanes(float (&x)[kCount]) {
#pragma unroll
  for (int bit = kFirst; bit < kFirst + kBits; ++bit) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] += __shfl_xor_sync(~0u, x[i], 1 << bit);
  }
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_LANES_CUH_
