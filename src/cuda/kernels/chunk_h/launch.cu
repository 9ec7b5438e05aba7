// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/chunk_h/launch.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/follow.h"
#include "cuda/kernels/chunk_h/config.h"
#include "cuda/kernels/chunk_h/instances.h"

namespace sluice::cuda::chunk_h {
namespace {

bool encode_maps(StatesParams& p, const Tiles& tiles) noexcept {
  const auto K = static_cast<uint32_t>(p.stage.K);
  const bool back = tiles.q.data != nullptr;
  return (!back || (tile::encode_token_map(&p.q, tiles.q, 64, K / 64) &&
                    tile::encode_token_map(&p.d_o, tiles.d_o, 64, 1))) &&
         tile::encode_token_map(&p.k, tiles.k, 64, K / 64) &&
         tile::encode_token_map(&p.w, tiles.w, 64, K / 64) &&
         tile::encode_token_map(&p.u, tiles.u, 64, 1) &&
         (tiles.v_new.data == nullptr || tile::encode_token_map(&p.v_new, tiles.v_new, 64, 1)) &&
         (tiles.h.data == nullptr || tile::encode_token_map(&p.h, tiles.h, K, 1));
}

}  // namespace

int load_kernels() noexcept {
  const auto load = [](const Instance& instance) {
    cudaFuncAttributes attributes{};
    return cudaFuncGetAttributes(&attributes, instance.kernel);
  };
  for (const int way : {0, 1, 2, 3}) {
    for (const auto get : {bf16, fp16}) {
      const cudaError_t error = load(get(way / 2 != 0, way % 2 != 0 ? 128 : 64));
      if (error != cudaSuccess) return error;
    }
  }
  const cudaError_t error = load(bf16_back());
  return error == cudaSuccess ? load(fp16_back()) : error;
}

int launch(const device::StageParams& params, const Tiles& tiles, int32_t h_per_batch,
           const Target& target, void* stream) noexcept {
  const bool back = tiles.q.data != nullptr;
  const int columns = back ? 64 : columns_of(params, target.multiprocessors);
  const int64_t items = params.N * params.HV * (params.V / columns);
  if (items == 0) return cudaSuccess;
  StatesParams p{};
  p.stage = params;
  p.h_per_batch = h_per_batch;
  if (params.T > 0 && !encode_maps(p, tiles)) return cudaErrorInvalidValue;
  const bool is_bf16 = tiles.k.is_bf16;
  const Instance& instance = back ? (is_bf16 ? bf16_back : fp16_back)()
                                  : (is_bf16 ? bf16 : fp16)(params.K == 128, columns);
  const auto ctas = static_cast<unsigned>(std::min<int64_t>(items, target.multiprocessors));
  const Extent extent{dim3(ctas), static_cast<int>(instance.threads), instance.shared_bytes};
  return launch_following(instance.kernel, extent, target, stream, p, items);
}

}  // namespace sluice::cuda::chunk_h
