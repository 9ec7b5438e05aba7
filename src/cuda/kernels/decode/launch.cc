// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/launch.h"

#include <cuda_runtime_api.h>

#include "cuda/kernels/decode/instances.h"
#include "cuda/kernels/decode/plan_grid.hpp"

namespace sluice::cuda::decode {
namespace {

constexpr size_t kPlainSharedBytes = 48 * 1024;  ///< what needs no attribute

using GetInstance = const void* (*)(bool layer, bool packed) noexcept;
/// By K and layout, [K,V] first.
constexpr GetInstance kInstances[3][2] = {{k64_kv, k64_vk}, {k128_kv, k128_vk}, {k256_kv, k256_vk}};

const void* kernel_for(int rounded, bool is_vk, bool layer, bool packed) noexcept {
  return kInstances[rounded == 64 ? 0 : (rounded == 128 ? 1 : 2)][is_vk ? 1 : 0](layer, packed);
}

}  // namespace

int load_kernels() noexcept {
  for (const auto& of_k : kInstances) {
    for (const GetInstance get : of_k) {
      for (const int form : {0, 1, 2}) {
        const cudaError_t error = cudaFuncSetAttribute(get(form == 1, form == 2),
                                                       cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                       static_cast<int>(kMaxSharedBytes));
        if (error != cudaSuccess) return error;
      }
    }
  }
  return cudaSuccess;
}

int launch(const DecodeParams& params, int64_t sequences, bool is_vk, bool layer,
           void* stream) noexcept {
  if (sequences == 0) return cudaSuccess;
  const int K = rounded_k(params.K, params.by_element);
  const void* const kernel = kernel_for(K, is_vk, layer, params.packed);
  const StageSizes sizes{K, params.rows.max_tokens, params.r, params.grid, layer};
  if (sizes.bytes() > kPlainSharedBytes) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMaxSharedBytes));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = static_cast<unsigned>(params.grid.ctas);
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(params.grid.ctas), static_cast<unsigned>(params.H),
                        static_cast<unsigned>(sequences));
  config.blockDim = dim3(static_cast<unsigned>(32 * warps_of(K)));
  config.dynamicSmemBytes = sizes.bytes();
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes;
  config.numAttrs = layer && params.grid.ctas > 1 ? 2 : 1;
  DecodeParams copy = params;
  void* arguments[] = {&copy};
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

}  // namespace sluice::cuda::decode
