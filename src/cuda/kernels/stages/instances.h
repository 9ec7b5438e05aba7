// Finds the stage kernels for the host, by the translation units (inst/) that compile them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_INSTANCES_H_
#define SLUICE_CUDA_KERNELS_STAGES_INSTANCES_H_

#include "cuda/device/instance.h"
#include "cuda/kernels/stages/launch.h"

namespace sluice::cuda::stages {

/// What chooses between the instances of a kernel. wide: K = 128, narrow: 32 columns of chunk_h in
/// place of 64.
struct Variant {
  bool is_bf16, wide, narrow, key_wise;
  int C;
};

// All take (StageParams, int64 items), that of kCumsum SumGates in between.
const void* plain_instance(Kernel kernel, const Variant& variant) noexcept;
const void* solve_instance(Kernel kernel, const Variant& variant) noexcept;
const void* key_state_instance(Kernel kernel, const Variant& variant) noexcept;
/// The others by tensor cores.
const void* bf16_instance(Kernel kernel, const Variant& variant) noexcept;
const void* fp16_instance(Kernel kernel, const Variant& variant) noexcept;

// Chunks of 64 tokens in the case of models (compact.h); they take other arguments.
const void* compact_cumsum() noexcept;
const void* compact_kkt(bool is_bf16) noexcept;
const void* compact_wy(bool is_bf16) noexcept;

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_INSTANCES_H_
