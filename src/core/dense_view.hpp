// Makes views of dense host memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CORE_DENSE_VIEW_HPP_
#define SLUICE_CORE_DENSE_VIEW_HPP_

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "sluice/sluice.h"

namespace sluice::core {

/// A dense view [shape..] on the CPU.
inline sluice_tensor dense_view(void* data, sluice_dtype dtype,
                                std::span<const int64_t> shape) noexcept {
  sluice_tensor view{};
  view.data = data;
  view.device = {SLUICE_DEVICE_CPU, 0};
  view.dtype = dtype;
  view.rank = static_cast<uint16_t>(shape.size());
  std::copy(shape.begin(), shape.end(), view.shape);
  int64_t stride = 1;
  for (int axis = view.rank; axis-- > 0; stride *= view.shape[axis]) view.stride[axis] = stride;
  return view;
}
inline sluice_tensor dense_view(void* data, sluice_dtype dtype,
                                std::initializer_list<int64_t> shape) noexcept {
  return dense_view(data, dtype, std::span(shape.begin(), shape.size()));
}

}  // namespace sluice::core

#endif  // SLUICE_CORE_DENSE_VIEW_HPP_
