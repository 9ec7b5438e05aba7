// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/conv1d/instances.h"
#include "cuda/kernels/conv1d/kernel.cuh"
#include "cuda/kernels/conv1d/patch.cuh"
#include "cuda/kernels/conv1d/update.cuh"

namespace sluice::cuda::conv1d {
namespace {

template <class Pack, Items kItems>
const void* instance() noexcept {
  return reinterpret_cast<const void*>(conv_kernel<Pack, kItems>);
}

}  // namespace

const void* rows_of_floats() noexcept { return instance<FloatPack, Items::kRows>(); }
const void* rows_of_bfloats() noexcept { return instance<BfloatPack, Items::kRows>(); }
const void* rows_of_halves() noexcept { return instance<HalfPack, Items::kRows>(); }
const void* rows_of_elements() noexcept { return instance<ElementPack, Items::kRows>(); }
const void* lines_of_bfloats() noexcept { return instance<BfloatPack, Items::kLines>(); }
const void* lines_of_halves() noexcept { return instance<HalfPack, Items::kLines>(); }
const void* lines_of_elements() noexcept { return instance<ElementPack, Items::kLines>(); }
const void* heads_of_floats() noexcept { return instance<FloatPack, Items::kNone>(); }
const void* heads_of_bfloats() noexcept { return instance<BfloatPack, Items::kNone>(); }
const void* heads_of_halves() noexcept { return instance<HalfPack, Items::kNone>(); }
const void* updates(Number number, const UpdateForm& form) noexcept {
  return reinterpret_cast<const void*>(number == Number::kBfloat16
                                           ? update_kernel_of<BfloatPack>(form)
                                           : update_kernel_of<HalfPack>(form));
}
const void* patches(Number number, bool cut) noexcept {
  return reinterpret_cast<const void*>(number == Number::kBfloat16
                                           ? patch_kernel_of<BfloatPack>(cut)
                                           : patch_kernel_of<HalfPack>(cut));
}

}  // namespace sluice::cuda::conv1d
