// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/single_launch.h"

#include <cuda_runtime_api.h>

#include <initializer_list>

#include "cuda/kernels/decode/instances.h"

namespace sluice::cuda::decode {

namespace {

SingleInstance instance_of(const SingleKind& kind) noexcept {
  return kind.tokens == Number::kBfloat16 ? single_bf16(kind) : single_fp16(kind);
}

}  // namespace

int load_single_kernels() noexcept {
  for (const Number state : {Number::kFloat32, Number::kBfloat16, Number::kFloat16}) {
    for (const Number tokens : {Number::kBfloat16, Number::kFloat16}) {
      for (const SingleCut cut : {SingleCut::kNarrow, SingleCut::kWide}) {
        const SingleKind kind{state, tokens, cut};
        if (!has_single(kind)) continue;
        cudaFuncAttributes attributes{};
        const cudaError_t error = cudaFuncGetAttributes(&attributes, instance_of(kind).kernel);
        if (error != cudaSuccess) return error;
      }
    }
  }
  return cudaSuccess;
}

int launch_single(const SingleParams& params, const SingleKind& kind, int64_t sequences,
                  void* stream) noexcept {
  if (sequences == 0) return cudaSuccess;
  const SingleInstance instance = instance_of(kind);
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim =
      dim3(params.r * instance.ctas_of_head, params.H, static_cast<unsigned>(sequences));
  config.blockDim = dim3(instance.threads);
  config.dynamicSmemBytes = instance.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &overlap;
  config.numAttrs = 1;
  SingleParams copy = params;
  void* arguments[] = {&copy};
  return cudaLaunchKernelExC(&config, instance.kernel, arguments);
}

}  // namespace sluice::cuda::decode
