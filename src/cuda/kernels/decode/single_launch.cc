// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/single_launch.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <initializer_list>

#include "cuda/kernels/decode/instances.h"

namespace sluice::cuda::decode {

namespace {

SingleInstance instance_of(const SingleKind& kind) noexcept {
  if (kind.cut == SingleCut::kStream) {
    return kind.tokens == Number::kBfloat16 ? single_stream_bf16(kind.state)
                                            : single_stream_fp16(kind.state);
  }
  return kind.tokens == Number::kBfloat16 ? single_bf16(kind) : single_fp16(kind);
}

SingleInstance layer_of(const SingleKind& kind) noexcept {
  return kind.tokens == Number::kBfloat16 ? single_layer_bf16(kind.state)
                                          : single_layer_fp16(kind.state);
}

int load(const void* kernel) noexcept {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, kernel);
}

/// Lets kStream's instances have their shared memory. PERF once for a device: a microsecond.
int allow_streams() noexcept {
  static std::atomic<uint64_t> known{0};  ///< a bit a device
  int device = 0;
  if (const int error = cudaGetDevice(&device); error != cudaSuccess) return error;
  const uint64_t bit = device < 64 ? uint64_t{1} << device : 0;
  if ((known.load(std::memory_order_relaxed) & bit) != 0) return cudaSuccess;
  for (const Number tokens : {Number::kBfloat16, Number::kFloat16}) {
    for (const Number state : {Number::kFloat32, tokens}) {
      const SingleInstance instance = instance_of({state, tokens, SingleCut::kStream});
      const int error =
          cudaFuncSetAttribute(instance.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(instance.shared_bytes));
      if (error != cudaSuccess) return error;
    }
  }
  known.fetch_or(bit, std::memory_order_relaxed);
  return cudaSuccess;
}

/// @param grid CTAs; x: of a cluster, if that many are one
/// @param params the kernel's only one
int enqueue(const SingleInstance& instance, dim3 grid, bool cluster, void* params,
            void* stream) noexcept {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = grid.x;
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(instance.threads);
  config.dynamicSmemBytes = instance.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes;
  config.numAttrs = cluster && grid.x > 1 ? 2 : 1;
  return cudaLaunchKernelExC(&config, instance.kernel, &params);
}

}  // namespace

int load_single_kernels() noexcept {
  for (const Number state : {Number::kFloat32, Number::kBfloat16, Number::kFloat16}) {
    for (const Number tokens : {Number::kBfloat16, Number::kFloat16}) {
      for (const SingleCut cut :
           {SingleCut::kNarrow, SingleCut::kWide, SingleCut::kMany, SingleCut::kStream}) {
        const SingleKind kind{state, tokens, cut};
        if (!has_single(kind)) continue;
        int error = load(instance_of(kind).kernel);
        if (error == cudaSuccess) error = load(layer_of(kind).kernel);
        if (error != cudaSuccess) return error;
      }
    }
  }
  return allow_streams();
}

int launch_single(const SingleParams& params, const SingleKind& kind, int64_t sequences,
                  void* stream) noexcept {
  if (sequences == 0) return cudaSuccess;
  const SingleInstance instance = instance_of(kind);
  SingleParams copy = params;
  if (kind.cut == SingleCut::kStream) {
    if (const int error = allow_streams(); error != cudaSuccess) return error;
    return enqueue(instance, dim3(params.ctas), false, &copy, stream);
  }
  const dim3 grid(params.r * instance.ctas_of_head, params.H, static_cast<unsigned>(sequences));
  return enqueue(instance, grid, false, &copy, stream);
}

int launch_single(const SingleLayerParams& params, const SingleKind& kind, int64_t sequences,
                  void* stream) noexcept {
  if (sequences == 0) return cudaSuccess;
  SingleLayerParams copy = params;
  const dim3 grid(params.r, params.H, static_cast<unsigned>(sequences));
  return enqueue(layer_of(kind), grid, true, &copy, stream);
}

}  // namespace sluice::cuda::decode
