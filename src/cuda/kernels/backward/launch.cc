// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/backward/launch.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/kernels/backward/config.h"
#include "cuda/kernels/backward/instances.h"

namespace sluice::cuda::backward {
namespace {

/// What an instance depends on.
struct Variant {
  bool is_bf16, narrow;  ///< narrow: instances.h
};

const void* function_of(Kernel kernel, Variant v) noexcept {
  switch (kernel) {
    case Kernel::kPrepare:
      return prepare(v.narrow);
    case Kernel::kLocal:
      return local();
    case Kernel::kChain:
      return chain();
    case Kernel::kGradients:
      return gradients();
    case Kernel::kKeys:
      return keys_of_heads(v.narrow);
    case Kernel::kLocalTiles:
      return v.is_bf16 ? bf16_local() : fp16_local();
    case Kernel::kChainTiles:
      return v.is_bf16 ? bf16_chain(v.narrow) : fp16_chain(v.narrow);
    case Kernel::kGradientTiles:
      return v.is_bf16 ? bf16_gradients() : fp16_gradients();
    default:
      return head_sums();
  }
}

Variant variant_of(Kernel kernel, const BackwardParams& p) noexcept {
  const bool narrow =
      kernel == Kernel::kChainTiles ? p.stage.columns < device::kColumns : p.stage.K <= kNarrowK;
  return {p.d_o.number == Number::kBfloat16, narrow};
}

}  // namespace

int load_kernels() noexcept {
  for (int i = 0; i < 4 * kKernels; ++i) {
    cudaFuncAttributes attributes{};
    const Variant variant{i % 2 != 0, i / 2 % 2 != 0};
    const cudaError_t error =
        cudaFuncGetAttributes(&attributes, function_of(static_cast<Kernel>(i / 4), variant));
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

int launch(Kernel kernel, const BackwardParams& params, const Target& target,
           void* stream) noexcept {
  constexpr int64_t kMaxGrid = (int64_t{1} << 31) - 1, kWithoutLeave = 48 * 1024;
  const Launch plan = plan_launch(kernel, params);
  if (plan.items == 0) return cudaSuccess;
  const void* const function = function_of(kernel, variant_of(kernel, params));
  if (plan.shared_bytes > kWithoutLeave) {
    const cudaError_t error = cudaFuncSetAttribute(
        function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(plan.shared_bytes));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  const int64_t most = kernel == Kernel::kGradientTiles ? target.multiprocessors : kMaxGrid;
  config.gridDim = dim3(static_cast<unsigned>(std::min(plan.items, most)));
  config.blockDim = dim3(static_cast<unsigned>(plan.threads));
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
