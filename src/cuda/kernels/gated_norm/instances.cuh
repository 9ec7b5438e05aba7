// Lists the instances of the gated norm kernels.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GATED_NORM_INSTANCES_CUH_
#define SLUICE_CUDA_KERNELS_GATED_NORM_INSTANCES_CUH_

#include "cuda/kernels/gated_norm/any_form.cuh"
#include "cuda/kernels/gated_norm/launch.h"
#include "cuda/kernels/gated_norm/one_type.cuh"

namespace sluice::cuda::gated_norm {

using NormKernel = void (*)(NormParams);

/// Of a 16-bit type.
template <Number kType>
inline constexpr NormKernel kKernels[] = {token_rows_kernel<kType, 1>, token_rows_kernel<kType, 4>,
                                          one_axis_kernel<kType, 16>, one_axis_kernel<kType, 32>};
inline constexpr int kInstances = 4;

inline NormKernel kernel_of(const PlannedNorm& norm) noexcept {
  const NormParams& p = norm.params;
  if (norm.form == Form::kAny) return any_form_kernel;
  const int at =
      norm.form == Form::kOneAxis ? (p.V == 128 ? 2 : 3) : (norm.form == Form::kFourTokens ? 1 : 0);
  return p.x.number == Number::kBfloat16 ? kKernels<Number::kBfloat16>[at]
                                         : kKernels<Number::kFloat16>[at];
}

}  // namespace sluice::cuda::gated_norm

#endif  // SLUICE_CUDA_KERNELS_GATED_NORM_INSTANCES_CUH_
