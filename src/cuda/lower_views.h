// Views of validated problems as kernels take them; shared by the lowerings of the operators around
// the delta rule.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_LOWER_VIEWS_H_
#define SLUICE_CUDA_LOWER_VIEWS_H_

#include "core/problem.hpp"
#include "cuda/device/views.h"

namespace sluice::cuda {

inline device::Number number_type(sluice_dtype dtype) noexcept {
  constexpr int kBf16Code = 4;
  if (dtype.bits == 32) return device::Number::kFloat32;
  return dtype.code == kBf16Code ? device::Number::kBfloat16 : device::Number::kFloat16;
}

inline device::IndexVector indices_of(const core::Tensor& t) noexcept {
  return core::present(t) ? device::IndexVector{t.data, t.stride[0], t.dtype.bits == 64}
                          : device::IndexVector{};
}

inline device::HeadScalar vector_of(const core::Tensor& t) noexcept {
  return core::present(t) ? device::HeadScalar{t.data, t.stride[0], number_type(t.dtype)}
                          : device::HeadScalar{};
}

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_LOWER_VIEWS_H_
