// Fetches the driver's encoder once, and encodes tensor maps with it.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/tile/tensor_map.h"

#include <cuda_runtime_api.h>

#include "cuda/tile/recent_maps.hpp"

namespace sluice::cuda::tile {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode encoder() noexcept {
  static const Encode found = [] {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult result{};
    // CUDA 12.5 has the first function, 13 no longer the second; the encoder is that of 12.0 by both.
#if CUDART_VERSION >= 12050
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &address,
                                                               12000, cudaEnableDefault, &result);
#else
    const cudaError_t error =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &address, cudaEnableDefault, &result);
#endif
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess
               ? reinterpret_cast<Encode>(address)
               : nullptr;
  }();
  return found;
}

thread_local RecentMaps<CUtensorMap> recent;

}  // namespace

bool encode_token_map(CUtensorMap* map, const TokenTensor& tensor, uint32_t rows,
                      uint32_t column_blocks) noexcept {
  const MapKey key{tensor, rows, column_blocks};
  if (const CUtensorMap* known = recent.find(key); known != nullptr) {
    *map = *known;
    return true;
  }
  const Encode encode = encoder();
  if (encode == nullptr) return false;
  const TokenMap parts = token_map(tensor, rows, column_blocks);
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  const auto type =
      tensor.is_bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const CUresult result =
      encode(map, type, 5, tensor.data, parts.extents.data(), parts.strides.data(),
             parts.box.data(), steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) return false;
  recent.keep(key, *map);
  return true;
}

}  // namespace sluice::cuda::tile
