// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/ring_launch.h"

#include <cuda_runtime_api.h>

#include <initializer_list>

namespace sluice::cuda::decode {
namespace {

constexpr size_t kPlainSharedBytes = 48 * 1024;  ///< what needs no attribute

const void* kernel_for(int K, bool is_vk, bool layer, bool packed) noexcept {
  if (K == 64) return is_vk ? ring_k64_vk(layer, packed) : ring_k64_kv(layer, packed);
  return is_vk ? ring_k128_vk(layer, packed) : ring_k128_kv(layer, packed);
}

const void* model_kernel_for(const RingKind& kind) noexcept {
  return kind.tokens == Number::kBfloat16 ? ring_model_bf16(kind) : ring_model_fp16(kind);
}

int allow_shared(const void* kernel) noexcept {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(kMaxSharedBytes));
}

}  // namespace

int load_ring_kernels() noexcept {
  for (const int K : {64, kMaxRingK}) {
    for (int form = 0; form < 8; ++form) {
      const int error =
          allow_shared(kernel_for(K, form / 4 != 0, form / 2 % 2 != 0, form % 2 != 0));
      if (error != cudaSuccess) return error;
    }
  }
  for (const Number tokens : {Number::kBfloat16, Number::kFloat16}) {
    for (const Number entries : {Number::kFloat32, tokens}) {
      for (const bool packed : {false, true}) {
        const int error = allow_shared(model_kernel_for({tokens, entries, packed}));
        if (error != cudaSuccess) return error;
      }
    }
  }
  return cudaSuccess;
}

int launch_ring(const RingParams& params, int64_t sequences, bool is_vk, void* stream) noexcept {
  if (sequences == 0) return cudaSuccess;
  const RingSizes sizes = ring_sizes(params);
  const void* const kernel =
      fits_ring_model(params, is_vk)
          ? model_kernel_for(ring_kind(params))
          : kernel_for(sizes.K, is_vk, params.step.layer, params.step.packed);
  if (sizes.bytes() > kPlainSharedBytes) {
    if (const int error = allow_shared(kernel); error != cudaSuccess) return error;
  }
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = static_cast<unsigned>(params.step.grid.ctas);
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(params.step.grid.ctas),
                        static_cast<unsigned>(params.step.H), static_cast<unsigned>(sequences));
  config.blockDim = dim3(static_cast<unsigned>(32 * warps_of(sizes.K)));
  config.dynamicSmemBytes = sizes.bytes();
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes;
  config.numAttrs = params.step.layer && params.step.grid.ctas > 1 ? 2 : 1;
  RingParams copy = params;
  void* arguments[] = {&copy};
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

}  // namespace sluice::cuda::decode
