// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/ring_launch.h"

#include <cuda_runtime_api.h>

#include <initializer_list>

namespace sluice::cuda::decode {
namespace {

constexpr size_t kPlainSharedBytes = 48 * 1024;  ///< what needs no attribute

const void* kernel_for(int K, bool is_vk) noexcept {
  if (K == 64) return is_vk ? ring_k64_vk() : ring_k64_kv();
  return is_vk ? ring_k128_vk() : ring_k128_kv();
}

int allow_shared(const void* kernel) noexcept {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(kMaxSharedBytes));
}

}  // namespace

int load_ring_kernels() noexcept {
  for (const int K : {64, kMaxRingK}) {
    for (const bool is_vk : {false, true}) {
      if (const int error = allow_shared(kernel_for(K, is_vk)); error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

int launch_ring(const RingParams& params, int64_t sequences, bool is_vk, void* stream) noexcept {
  if (sequences == 0) return cudaSuccess;
  const RingSizes sizes = ring_sizes(params, is_vk);
  const void* const kernel = kernel_for(sizes.K, is_vk);
  if (sizes.bytes() > kPlainSharedBytes) {
    if (const int error = allow_shared(kernel); error != cudaSuccess) return error;
  }
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(params.step.grid.ctas),
                        static_cast<unsigned>(params.step.H), static_cast<unsigned>(sequences));
  config.blockDim = dim3(static_cast<unsigned>(32 * warps_of(sizes.K)));
  config.dynamicSmemBytes = sizes.bytes();
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &overlap;
  config.numAttrs = 1;
  RingParams copy = params;
  void* arguments[] = {&copy};
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

}  // namespace sluice::cuda::decode
