// Names the gated norm kernels; all take (NormParams).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GATED_NORM_INSTANCES_H_
#define SLUICE_CUDA_KERNELS_GATED_NORM_INSTANCES_H_

#include "cuda/kernels/gated_norm/launch.h"

namespace sluice::cuda::gated_norm {

const void* any_form() noexcept;
/// Of bfloat16 or float16.
const void* token_rows(Number number, bool four) noexcept;
const void* one_axis(Number number, int64_t V) noexcept;

}  // namespace sluice::cuda::gated_norm

#endif  // SLUICE_CUDA_KERNELS_GATED_NORM_INSTANCES_H_
