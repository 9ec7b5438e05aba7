// Describes a call to the kernels of the convolution's gradients: one POD.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_GRADIENT_PARAMS_H_
#define SLUICE_CUDA_KERNELS_CONV1D_GRADIENT_PARAMS_H_

#include "cuda/kernels/conv1d/params.h"

namespace sluice::cuda::conv1d_backward {

using conv1d::kMaxWidth, conv1d::kThreads, conv1d::kWarps;
using device::Number;

inline constexpr int kPack = 4;  ///< channels of a thread that moves packs
/// Tokens that a thread walks through; PERF more where slabs enough are left.
inline constexpr int64_t kSlabTokens = 64, kLongSlabTokens = 128, kManyTokens = 4096;
inline constexpr int kSums = kMaxWidth + 1;  ///< of a channel: right-aligned weights, the bias

struct ConvGradientParams {
  conv1d::ConvParams forward;  ///< the forward call; one part, without out
  conv1d::TokenChannels d_out, dx;
  conv1d::ConvPool d_final, dinitial;
  void *dweight, *dbias;  ///< each may be null
  int64_t dweight_strides[2], dbias_stride;
  Number dweight_number, dbias_number;
  float* sums;            ///< [slabs, kSums, D], null where neither is wanted
  int64_t slab_tokens;    ///< by T alone, since the order of sums follows
  int64_t slabs;          ///< of all batch entries
  int64_t slabs_each;     ///< of one
  int64_t channel_warps;  ///< for a slab, and for the state of a sequence
  int64_t warps;          ///< all of them
};

using ConvGradientKernel = void (*)(ConvGradientParams);

}  // namespace sluice::cuda::conv1d_backward

#endif  // SLUICE_CUDA_KERNELS_CONV1D_GRADIENT_PARAMS_H_
