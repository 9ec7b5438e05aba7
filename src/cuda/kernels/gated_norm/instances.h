// The gated norm kernels; all take (NormParams).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GATED_NORM_INSTANCES_H_
#define SLUICE_CUDA_KERNELS_GATED_NORM_INSTANCES_H_

namespace sluice::cuda::gated_norm {

const void* walk_bfloats() noexcept;
const void* walk_halves() noexcept;
const void* rows_by_packs() noexcept;
const void* rows_by_elements() noexcept;

}  // namespace sluice::cuda::gated_norm

#endif  // SLUICE_CUDA_KERNELS_GATED_NORM_INSTANCES_H_
