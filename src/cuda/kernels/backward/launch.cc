// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/backward/launch.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/kernels/backward/config.h"
#include "cuda/kernels/backward/instances.h"

namespace sluice::cuda::backward {
namespace {

const void* function_of(Kernel kernel) noexcept {
  switch (kernel) {
    case Kernel::kPrepare:
      return prepare();
    case Kernel::kLocal:
      return local();
    case Kernel::kChain:
      return chain();
    case Kernel::kGradients:
      return gradients();
    case Kernel::kKeys:
      return keys_of_heads();
    default:
      return head_sums();
  }
}

}  // namespace

int load_kernels() noexcept {
  for (int kernel = 0; kernel < kKernels; ++kernel) {
    cudaFuncAttributes attributes{};
    const cudaError_t error =
        cudaFuncGetAttributes(&attributes, function_of(static_cast<Kernel>(kernel)));
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

int launch(Kernel kernel, const BackwardParams& params, const Target& target,
           void* stream) noexcept {
  constexpr int64_t kMaxGrid = (int64_t{1} << 31) - 1, kWithoutLeave = 48 * 1024;
  const Launch plan = plan_launch(kernel, params);
  if (plan.items == 0) return cudaSuccess;
  const void* const function = function_of(kernel);
  if (plan.shared_bytes > kWithoutLeave) {
    const cudaError_t error = cudaFuncSetAttribute(
        function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(plan.shared_bytes));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(std::min(plan.items, kMaxGrid)));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = static_cast<size_t>(plan.shared_bytes);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &overlap;
  config.numAttrs = target.follows ? 1 : 0;
  BackwardParams copy = params;
  int64_t items = plan.items;
  void* arguments[] = {&copy, &items};
  return cudaLaunchKernelExC(&config, function, arguments);
}

}  // namespace sluice::cuda::backward
