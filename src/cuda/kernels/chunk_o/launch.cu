// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/chunk_o/launch.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/follow.h"
#include "cuda/kernels/chunk_o/config.h"
#include "cuda/kernels/chunk_o/instances.h"

namespace sluice::cuda::chunk_o {
namespace {

bool encode_maps(OutputParams& p, const Tiles& tiles, uint32_t columns) noexcept {
  const auto K = static_cast<uint32_t>(p.stage.K);
  return tile::encode_token_map(&p.q, tiles.q, 64, K / 64) &&
         tile::encode_token_map(&p.k, tiles.k, 64, K / 64) &&
         tile::encode_token_map(&p.v, tiles.v, 64, columns / 64) &&
         tile::encode_token_map(&p.o, tiles.o, 64, columns / 64) &&
         tile::encode_token_map(&p.h, tiles.h, K, columns / 64);
}

}  // namespace

int load_kernels() noexcept {
  for (const int way : {0, 1, 2, 3}) {
    for (const auto get : {bf16, fp16}) {
      cudaFuncAttributes attributes{};
      const Instance& instance = get(way / 2 != 0, way % 2 != 0 ? 128 : 64);
      const cudaError_t error = cudaFuncGetAttributes(&attributes, instance.kernel);
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

int launch(const device::StageParams& params, const Tiles& tiles, int32_t h_per_batch,
           const Target& target, void* stream) noexcept {
  const int columns = columns_of(params.V);
  const int64_t slots = params.cu_seqlens.data != nullptr ? params.slots : params.N * params.slots;
  const int64_t items = slots * params.HV * (params.V / columns);
  if (items == 0 || params.T == 0) return cudaSuccess;
  OutputParams p{};
  p.stage = params;
  p.h_per_batch = h_per_batch;
  if (!encode_maps(p, tiles, static_cast<uint32_t>(columns))) return cudaErrorInvalidValue;
  const Instance& instance = (tiles.q.is_bf16 ? bf16 : fp16)(params.K == 128, columns);
  const auto ctas = static_cast<unsigned>(std::min<int64_t>(items, target.multiprocessors));
  const Extent extent{dim3(ctas), static_cast<int>(instance.threads), instance.shared_bytes};
  return launch_following(instance.kernel, extent, target, stream, p, items);
}

}  // namespace sluice::cuda::chunk_o
