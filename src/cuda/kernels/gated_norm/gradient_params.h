// Describes a call to the kernels of the gated norm's gradients: one POD.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GATED_NORM_GRADIENT_PARAMS_H_
#define SLUICE_CUDA_KERNELS_GATED_NORM_GRADIENT_PARAMS_H_

#include "cuda/kernels/gated_norm/params.h"

namespace sluice::cuda::gated_norm_backward {

using device::Number;
using gated_norm::kPack, gated_norm::kPackedV, gated_norm::kThreads, gated_norm::kWarps;

inline constexpr int64_t kGroupRows = 32;  ///< that a warp, or a part of one, goes through

struct NormGradientParams {
  gated_norm::NormParams forward;  ///< the forward call without out; `lanes`: that share a row
  gated_norm::NormRows d_out, dx, dz;
  void* dweight;  ///< may be null
  int64_t dweight_stride;
  Number dweight_number;
  float* sums;  ///< [ctas, V], of any form [ctas kWarps, V]; null where dweight is
  int64_t sum_rows;
  int64_t ctas;
};

using NormGradientKernel = void (*)(NormGradientParams);

}  // namespace sluice::cuda::gated_norm_backward

#endif  // SLUICE_CUDA_KERNELS_GATED_NORM_GRADIENT_PARAMS_H_
