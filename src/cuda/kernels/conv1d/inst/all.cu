// Compiles the convolution kernels.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/conv1d/any_form.cuh"
#include "cuda/kernels/conv1d/channel_first.cuh"
#include "cuda/kernels/conv1d/channel_last.cuh"
#include "cuda/kernels/conv1d/instances.h"
#include "cuda/kernels/conv1d/update.cuh"

namespace sluice::cuda::conv1d {
namespace {

const void* as_pointer(ConvKernel kernel) noexcept { return reinterpret_cast<const void*>(kernel); }

}  // namespace

const void* any_form() noexcept { return as_pointer(any_form_kernel); }
const void* channel_first(Number number) noexcept {
  return as_pointer(number == Number::kBfloat16 ? channel_first_kernel<BfloatPack>
                                                : channel_first_kernel<HalfPack>);
}
const void* channel_last(Number number, bool apart) noexcept {
  return as_pointer(number == Number::kBfloat16 ? channel_last_kernel_of<BfloatPack>(apart)
                                                : channel_last_kernel_of<HalfPack>(apart));
}
const void* update(Number number, const UpdateForm& form) noexcept {
  return as_pointer(number == Number::kBfloat16 ? update_kernel_of<BfloatPack>(form)
                                                : update_kernel_of<HalfPack>(form));
}

}  // namespace sluice::cuda::conv1d
