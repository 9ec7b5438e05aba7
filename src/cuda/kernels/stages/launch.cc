// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/stages/launch.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/kernels/stages/instances.h"

namespace sluice::cuda::stages {
namespace {

constexpr int kKernels = static_cast<int>(Kernel::kGla) + 1;

const void* plain_function(Kernel kernel) noexcept {
  constexpr const void* (*kPlain[])() noexcept = {cumsum,      solve,         plain_kkt, plain_wy,
                                                  plain_chain, plain_outputs, join};
  return kPlain[static_cast<int>(kernel)]();
}

const void* function_of(Kernel kernel, bool is_bf16, bool wide) noexcept {
  switch (kernel) {
    case Kernel::kKkt:
      return is_bf16 ? bf16_kkt() : fp16_kkt();
    case Kernel::kWy:
      return is_bf16 ? bf16_wy() : fp16_wy();
    case Kernel::kOutputs:
      return is_bf16 ? bf16_outputs() : fp16_outputs();
    case Kernel::kStates:
      return is_bf16 ? bf16_states(wide) : fp16_states(wide);
    case Kernel::kGla:
      return is_bf16 ? bf16_gla(wide) : fp16_gla(wide);
    default:
      return plain_function(kernel);
  }
}

/// Allows a kernel the shared memory of its launch; most need no leave.
cudaError_t allow(const void* function, int64_t bytes) noexcept {
  constexpr int64_t kWithoutLeave = 48 * 1024;
  if (bytes <= kWithoutLeave) return cudaSuccess;
  return cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

}  // namespace

int load_kernels() noexcept {
  for (int kernel = 0; kernel < kKernels; ++kernel) {
    for (const int variant : {0, 1, 2, 3}) {
      cudaFuncAttributes attributes{};
      const void* const function =
          function_of(static_cast<Kernel>(kernel), variant % 2 != 0, variant / 2 != 0);
      const cudaError_t error = cudaFuncGetAttributes(&attributes, function);
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

int launch(Kernel kernel, const StageParams& params, const Target& target, void* stream) noexcept {
  const Launch plan = plan_launch(kernel, params);
  if (plan.items == 0) return cudaSuccess;
  const bool is_bf16 = params.k.number == Number::kBfloat16;
  const void* const function = function_of(kernel, is_bf16, params.K == 128);
  if (const cudaError_t error = allow(function, plan.shared_bytes); error != cudaSuccess) {
    return error;
  }
  constexpr int64_t kMaxGrid = (int64_t{1} << 31) - 1;
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(std::min(plan.items, kMaxGrid)));
  config.blockDim = dim3(static_cast<unsigned>(plan.threads));
  config.dynamicSmemBytes = static_cast<size_t>(plan.shared_bytes);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &overlap;
  config.numAttrs = target.follows ? 1 : 0;
  StageParams copy = params;
  int64_t items = plan.items;
  void* arguments[] = {&copy, &items};
  return cudaLaunchKernelExC(&config, function, arguments);
}

}  // namespace sluice::cuda::stages
