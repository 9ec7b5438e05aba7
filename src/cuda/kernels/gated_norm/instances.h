// The gated norm kernels; all take (NormParams).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GATED_NORM_INSTANCES_H_
#define SLUICE_CUDA_KERNELS_GATED_NORM_INSTANCES_H_

namespace sluice::cuda::gated_norm {

const void* four_bfloats() noexcept;
const void* four_halves() noexcept;
const void* one_bfloats() noexcept;
const void* one_halves() noexcept;
const void* even_bfloats_of_128() noexcept;
const void* even_bfloats_of_256() noexcept;
const void* even_halves_of_128() noexcept;
const void* even_halves_of_256() noexcept;
const void* rows_by_packs() noexcept;
const void* rows_by_elements() noexcept;

}  // namespace sluice::cuda::gated_norm

#endif  // SLUICE_CUDA_KERNELS_GATED_NORM_INSTANCES_H_
