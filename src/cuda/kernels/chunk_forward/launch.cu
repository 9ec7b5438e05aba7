// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/chunk_forward/launch.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <initializer_list>

#include "cuda/kernels/chunk_forward/instances.h"
#include "cuda/kernels/chunk_forward/plan.cuh"

namespace sluice::cuda::chunk_forward {
namespace {

/// Multiprocessors of the current device; -1 if it cannot be asked.
int multiprocessors() noexcept {
  int device = 0, count = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return -1;
  if (cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
    return -1;
  }
  return count;
}

bool encode_maps(ChunkForwardParams& p, const Tiles& tiles) noexcept {
  p.o_data = tiles.o.data;
  p.o_batch_stride = tiles.o.batch_stride;
  p.o_token_stride = tiles.o.token_stride;
  p.o_head_stride = tiles.o.head_stride;
  return tile::encode_token_map(&p.q, tiles.q, 64, 2) &&
         tile::encode_token_map(&p.k, tiles.k, 64, 2) &&
         tile::encode_token_map(&p.v, tiles.v, 64, 2) &&
         tile::encode_token_map(&p.o, tiles.o, 64, 1);
}

/// The instance for these tiles.
const Instance& choose(const Tiles& tiles) noexcept {
  if (tiles.q.is_bf16) return tiles.l2norm ? bf16_d128_l2norm() : bf16_d128();
  return tiles.l2norm ? fp16_d128_l2norm() : fp16_d128();
}

}  // namespace

size_t workspace_bytes(int64_t sequences) noexcept { return plan_bytes(sequences); }

int load_kernels() noexcept {
  for (const Instance* instance :
       {&bf16_d128(), &bf16_d128_l2norm(), &fp16_d128(), &fp16_d128_l2norm()}) {
    cudaFuncAttributes attributes{};
    const cudaError_t error = cudaFuncGetAttributes(&attributes, instance->kernel);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

int launch(ChunkForwardParams params, const Tiles& tiles, void* workspace, void* stream) noexcept {
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  const int64_t items = int64_t{params.N} * params.HV;
  if (items == 0) return cudaSuccess;
  const int count = multiprocessors();
  if (count <= 0) return cudaErrorInvalidDevice;
  if (params.T > 0 && !encode_maps(params, tiles)) return cudaErrorInvalidValue;
  params.order = nullptr;
  params.ticket = nullptr;
  // WHY not for one round of items: every multiprocessor takes one, in whatever order.
  const bool planned = params.cu_seqlens.data != nullptr && params.N > 1 && items > count;
  if (planned) {
    params.ticket = static_cast<uint32_t*>(workspace);
    auto* order = reinterpret_cast<int32_t*>(static_cast<char*>(workspace) + kTicketBytes);
    params.order = order;
    plan_kernel<<<1, kPlanThreads, 0, cuda_stream>>>(params.cu_seqlens, params.N, params.T, order,
                                                     params.ticket);
  }
  const Instance& instance = choose(tiles);
  const auto bytes = static_cast<int>(instance.shared_bytes);
  cudaError_t error =
      cudaFuncSetAttribute(instance.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(std::min<int64_t>(items, count)));
  config.blockDim = dim3(instance.threads);
  config.dynamicSmemBytes = instance.shared_bytes;
  config.stream = cuda_stream;
  config.attrs = &overlap;
  config.numAttrs = planned ? 1 : 0;
  void* arguments[] = {&params};
  error = cudaLaunchKernelExC(&config, instance.kernel, arguments);
  return error != cudaSuccess ? error : cudaPeekAtLastError();
}

}  // namespace sluice::cuda::chunk_forward
