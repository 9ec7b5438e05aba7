// States what a tensor map of the copy engine consists of, as plain numbers: tested without a GPU.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_TOKEN_MAP_HPP_
#define SLUICE_CUDA_TILE_TOKEN_MAP_HPP_

#include <array>
#include <cstdint>

namespace sluice::cuda::tile {

/// A [B, T, heads, D] tensor of a 16-bit type, innermost stride 1; strides in elements.
struct TokenTensor {
  void* data = nullptr;
  int64_t batch = 0, tokens = 0, heads = 0, dim = 0;
  int64_t batch_stride = 0, token_stride = 0, head_stride = 0;
  bool is_bf16 = true;

  bool operator==(const TokenTensor&) const = default;
};

/// Dimensions (64, T, D / 64, heads, B), innermost first; strides in bytes, of all but the first.
struct TokenMap {
  std::array<uint64_t, 5> extents{};
  std::array<uint64_t, 4> strides{};
  std::array<uint32_t, 5> box{};
};

/// Columns of one box: 128 bytes, the width of the swizzle.
inline constexpr uint32_t kMapColumns = 64;

/// The map of `tensor` with boxes of 64 columns x `rows` tokens x `column_blocks`. A dimension of
/// extent 1 may come with any stride; the encoder wants a legal one, and gets 128 bytes.
constexpr TokenMap token_map(const TokenTensor& tensor, uint32_t rows,
                             uint32_t column_blocks) noexcept {
  const auto bytes = [](int64_t extent, int64_t stride) {
    return extent > 1 ? static_cast<uint64_t>(stride) * 2 : uint64_t{2 * kMapColumns};
  };
  TokenMap map;
  map.extents = {kMapColumns, static_cast<uint64_t>(tensor.tokens),
                 static_cast<uint64_t>(tensor.dim / kMapColumns),
                 static_cast<uint64_t>(tensor.heads), static_cast<uint64_t>(tensor.batch)};
  map.strides = {bytes(tensor.tokens, tensor.token_stride), 2 * kMapColumns,
                 bytes(tensor.heads, tensor.head_stride), bytes(tensor.batch, tensor.batch_stride)};
  map.box = {kMapColumns, rows, column_blocks, 1, 1};
  return map;
}

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_TOKEN_MAP_HPP_
