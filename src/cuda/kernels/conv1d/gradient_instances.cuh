// Lists the kernels of the convolution's gradients.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_GRADIENT_INSTANCES_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_GRADIENT_INSTANCES_CUH_

#include "cuda/device/column_sums.cuh"
#include "cuda/kernels/conv1d/gradient_launch.h"
#include "cuda/kernels/conv1d/gradient_slab.cuh"

namespace sluice::cuda::conv1d_backward {

/// dweight and dbias of 32 of the kSums D sums.
inline __global__ void __launch_bounds__(device::kSumWarps * 32)
    sums_kernel(const __grid_constant__ ConvGradientParams p) {
  device::follow();
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  const int64_t D = p.forward.D;
  device::add_columns(p.sums, p.slabs, kSums * D, reinterpret_cast<float*>(dynamic_shared),
                      [&](int64_t column, float sum) {
                        const int64_t w = column / D - (kMaxWidth - p.forward.W), d = column % D;
                        if (column / D == kMaxWidth) {
                          if (p.dbias == nullptr) return;
                          device::store_number(p.dbias, d * p.dbias_stride, p.dbias_number, sum);
                        } else if (w >= 0 && p.dweight != nullptr) {
                          const int64_t at = d * p.dweight_strides[0] + w * p.dweight_strides[1];
                          device::store_number(p.dweight, at, p.dweight_number, sum);
                        }
                      });
}

inline ConvGradientKernel kernel_of(Form form) noexcept {
  if (form == Form::kAny) return slab_kernel<AnyNumbers>;
  return form == Form::kBfloat16 ? slab_kernel<Packs<Number::kBfloat16>>
                                 : slab_kernel<Packs<Number::kFloat16>>;
}

}  // namespace sluice::cuda::conv1d_backward

#endif  // SLUICE_CUDA_KERNELS_CONV1D_GRADIENT_INSTANCES_CUH_
