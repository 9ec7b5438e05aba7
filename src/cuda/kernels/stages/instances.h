// Names the stage kernels for the host; all take (StageParams, int64 items).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_INSTANCES_H_
#define SLUICE_CUDA_KERNELS_STAGES_INSTANCES_H_

namespace sluice::cuda::stages {

// Any dtype and stride.
const void* cumsum() noexcept;
const void* solve(int C) noexcept;
const void* plain_solve_wy(int C) noexcept;
const void* plain_kkt() noexcept;
const void* plain_wy() noexcept;
const void* plain_chain(bool key_wise) noexcept;
const void* plain_outputs(bool key_wise) noexcept;
const void* join() noexcept;
const void* scale_keys() noexcept;  ///< before key_states()

// Chunks of 64 tokens in the case of models (compact.h); they take other arguments.
const void* compact_cumsum() noexcept;
const void* compact_kkt(bool is_bf16) noexcept;
const void* compact_wy(bool is_bf16) noexcept;

// By tensor cores; `wide`: K = 128, else 64; `narrow`: a CTA has 32 columns of V, else 64.
const void* bf16_kkt() noexcept;
const void* bf16_wy() noexcept;
const void* bf16_solve_wy(int C) noexcept;  ///< C of 64 or 128
const void* bf16_outputs() noexcept;
const void* bf16_states(bool wide, bool narrow) noexcept;
const void* bf16_key_states(bool wide) noexcept;  ///< of key-wise gates, narrow
const void* bf16_gla(bool wide) noexcept;
const void* fp16_kkt() noexcept;
const void* fp16_wy() noexcept;
const void* fp16_solve_wy(int C) noexcept;  ///< C of 64 or 128
const void* fp16_outputs() noexcept;
const void* fp16_states(bool wide, bool narrow) noexcept;
const void* fp16_key_states(bool wide) noexcept;
const void* fp16_gla(bool wide) noexcept;

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_INSTANCES_H_
