// Tokens in a row, computed as if they were one sequence's: which of the outputs are stored. An
// output never looks past its sequence's first W - 1 tokens, and those are the head's.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_STORED_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_STORED_CUH_

#include "cuda/kernels/conv1d/sequence.cuh"

namespace sluice::cuda::conv1d {

/// Which of the tokens a thread stores, a bit each.
struct Stored {
  uint32_t live, zero;
};

template <int kCount>
__device__ __forceinline__ Stored stored_of(const ConvParams& p, int64_t batch, int64_t row) {
  Stored stored{};
  Span span{-1, 0, row};
  bool padding = false;
#pragma unroll 1
  for (int i = 0; i < kCount && row + i < p.T; ++i) {
    if (row + i >= span.end) {
      span = span_at(p, batch, row + i);
      padding = span.n >= 0 && is_padding(p, span.n);
    }
    if (span.n < 0 || row + i < span.begin + p.W - 1) continue;
    (padding ? stored.zero : stored.live) |= 1u << i;
    // The rest of those inside a sequence is like this token.
    if (i == 0 && row + kCount <= span.end) {
      (padding ? stored.zero : stored.live) = (1u << kCount) - 1;
      break;
    }
  }
  return stored;
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_STORED_CUH_
