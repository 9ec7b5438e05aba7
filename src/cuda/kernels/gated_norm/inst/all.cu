// Compiles the gated norm kernels.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/gated_norm/any_form.cuh"
#include "cuda/kernels/gated_norm/instances.h"
#include "cuda/kernels/gated_norm/one_type.cuh"

namespace sluice::cuda::gated_norm {
namespace {

using NormKernel = void (*)(NormParams);

const void* as_pointer(NormKernel kernel) noexcept { return reinterpret_cast<const void*>(kernel); }

template <Number kType>
NormKernel one_axis_of(int64_t V) noexcept {
  return V == 128 ? one_axis_kernel<kType, 16> : one_axis_kernel<kType, 32>;
}

template <Number kType>
NormKernel token_rows_of(bool four) noexcept {
  return four ? token_rows_kernel<kType, 4> : token_rows_kernel<kType, 1>;
}

}  // namespace

const void* any_form() noexcept { return as_pointer(any_form_kernel); }
const void* token_rows(Number number, bool four) noexcept {
  return as_pointer(number == Number::kBfloat16 ? token_rows_of<Number::kBfloat16>(four)
                                                : token_rows_of<Number::kFloat16>(four));
}
const void* one_axis(Number number, int64_t V) noexcept {
  return as_pointer(number == Number::kBfloat16 ? one_axis_of<Number::kBfloat16>(V)
                                                : one_axis_of<Number::kFloat16>(V));
}

}  // namespace sluice::cuda::gated_norm
