// Encodes tensor maps of the copy engine for token-first tensors. The driver's encoder is found at
// run time, so nothing links against libcuda.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_TENSOR_MAP_H_
#define SLUICE_CUDA_TILE_TENSOR_MAP_H_

#include <cuda.h>

#include <cstdint>

#include "cuda/tile/token_map.hpp"

namespace sluice::cuda::tile {

/// Encodes `tensor` as dimensions (64, T, D / 64, heads, B) with boxes of 64 columns x `rows`
/// tokens x `column_blocks`, 128-byte swizzle. Rows outside [0, T) read as zero and are not
/// written. Needs a 16-byte aligned base and strides that are multiples of 8 elements.
/// @return false if the driver has no encoder or refuses the tensor.
bool encode_token_map(CUtensorMap* map, const TokenTensor& tensor, uint32_t rows,
                      uint32_t column_blocks) noexcept;

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_TENSOR_MAP_H_
