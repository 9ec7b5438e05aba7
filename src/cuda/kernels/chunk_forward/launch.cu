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
  const auto k_blocks = static_cast<uint32_t>(p.K) / 64,
             v_blocks = static_cast<uint32_t>(item_columns(p.V)) / 64;
  return tile::encode_token_map(&p.q, tiles.q, 64, k_blocks) &&
         tile::encode_token_map(&p.k, tiles.k, 64, k_blocks) &&
         tile::encode_token_map(&p.v, tiles.v, 64, v_blocks) &&
         tile::encode_token_map(&p.o, tiles.o, 64, 1);
}

using GetInstance = const Instance& (*)(bool l2norm) noexcept;
/// By dtype, K and columns of a work item: bfloat16 first, larger ones first.
constexpr GetInstance kInstances[2][2][2] = {
    {{bf16_k128_v128, bf16_k128_v64}, {bf16_k64_v128, bf16_k64_v64}},
    {{fp16_k128_v128, fp16_k128_v64}, {fp16_k64_v128, fp16_k64_v64}}};

/// The instance for these tiles.
const Instance& choose(const ChunkForwardParams& p, const Tiles& tiles) noexcept {
  return kInstances[tiles.q.is_bf16 ? 0 : 1][p.K == 128 ? 0 : 1][item_columns(p.V) == 128 ? 0 : 1](
      tiles.l2norm);
}

}  // namespace

size_t workspace_bytes(int64_t sequences) noexcept { return plan_bytes(sequences); }

int load_kernels() noexcept {
  for (const auto& of_type : kInstances) {
    for (const auto& of_k : of_type) {
      for (const GetInstance get : of_k) {
        for (const bool l2norm : {false, true}) {
          cudaFuncAttributes attributes{};
          const cudaError_t error = cudaFuncGetAttributes(&attributes, get(l2norm).kernel);
          if (error != cudaSuccess) return error;
        }
      }
    }
  }
  return cudaSuccess;
}

int launch(ChunkForwardParams params, const Tiles& tiles, void* workspace, void* stream) noexcept {
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  const int64_t items = int64_t{params.N} * params.HV * (params.V / item_columns(params.V));
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
  const Instance& instance = choose(params, tiles);
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
