// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/conv1d/instances.h"
#include "cuda/kernels/conv1d/kernel.cuh"

namespace sluice::cuda::conv1d {

const void* rows_of_floats() noexcept {
  return reinterpret_cast<const void*>(conv_kernel<FloatPack, false>);
}
const void* rows_of_shorts() noexcept {
  return reinterpret_cast<const void*>(conv_kernel<ShortPack, false>);
}
const void* rows_of_elements() noexcept {
  return reinterpret_cast<const void*>(conv_kernel<ElementPack, false>);
}
const void* lines_of_shorts() noexcept {
  return reinterpret_cast<const void*>(conv_kernel<ShortPack, true>);
}
const void* lines_of_elements() noexcept {
  return reinterpret_cast<const void*>(conv_kernel<ElementPack, true>);
}

}  // namespace sluice::cuda::conv1d
