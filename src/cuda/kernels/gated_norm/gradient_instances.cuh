// Lists the kernels of the gated norm's gradients.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GATED_NORM_GRADIENT_INSTANCES_CUH_
#define SLUICE_CUDA_KERNELS_GATED_NORM_GRADIENT_INSTANCES_CUH_

#include "cuda/device/column_sums.cuh"
#include "cuda/kernels/gated_norm/gradient_launch.h"
#include "cuda/kernels/gated_norm/gradient_rows.cuh"

namespace sluice::cuda::gated_norm_backward {

/// 32 numbers of dweight.
inline __global__ void __launch_bounds__(device::kSumWarps * 32)
    sums_kernel(const __grid_constant__ NormGradientParams p) {
  device::follow();
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  device::add_columns(p.sums, p.sum_rows, p.forward.V, reinterpret_cast<float*>(dynamic_shared),
                      [&](int64_t column, float sum) {
                        device::store_number(p.dweight, column * p.dweight_stride, p.dweight_number,
                                             sum);
                      });
}

inline NormGradientKernel kernel_of(Form form) noexcept {
  if (form == Form::kAny) return any_form_kernel;
  return form == Form::kBfloat16 ? packs_kernel<Number::kBfloat16> : packs_kernel<Number::kFloat16>;
}

}  // namespace sluice::cuda::gated_norm_backward

#endif  // SLUICE_CUDA_KERNELS_GATED_NORM_GRADIENT_INSTANCES_CUH_
