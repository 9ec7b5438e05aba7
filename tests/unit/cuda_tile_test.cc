// Measures the arithmetic of shared-memory tiles: swizzled offsets, matrix descriptors and tensor
// maps, against models of what the hardware does with them. No GPU and no CUDA header is needed.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <set>
#include <vector>

#include "cuda/tile/recent_maps.hpp"
#include "cuda/tile/swizzle.hpp"
#include "cuda/tile/token_map.hpp"

namespace sluice::cuda::tile {
namespace {

/// The 128-byte swizzle on a shared address: bits 4 to 6 exclusive-or bits 7 to 9.
uint32_t hardware_swizzle(uint32_t address) { return address ^ ((address >> 3) & 0x70u); }

/// Fields of a matrix descriptor, in bytes.
struct Fields {
  uint32_t address, leading, stride;
  uint64_t mode;

  explicit Fields(uint64_t d)
      : address(static_cast<uint32_t>(d & 0x3fffu) << 4),
        leading(static_cast<uint32_t>((d >> 16) & 0x3fffu) << 4),
        stride(static_cast<uint32_t>((d >> 32) & 0x3fffu) << 4),
        mode(d >> 62) {}
};

TEST(CudaSwizzle, IsTheHardwaresAndAPermutation) {
  std::set<uint32_t> seen;
  for (uint32_t row = 0; row < 64; ++row) {
    for (uint32_t piece = 0; piece < 8; ++piece) {
      EXPECT_EQ(swizzled_piece(row, piece), hardware_swizzle(row * 128 + piece * 16));
      seen.insert(swizzled_piece(row, piece));
    }
    for (uint32_t column = 0; column < 64; ++column) {
      EXPECT_EQ(swizzled_element(row, column), hardware_swizzle(row * 128 + column * 2));
    }
  }
  EXPECT_EQ(seen.size(), 64u * 8u);
  EXPECT_EQ(*seen.rbegin(), 64u * 128u - 16u);
}

/// Eight rows' pieces of one column, what an ldmatrix reads, lie in all 32 banks.
TEST(CudaSwizzle, ColumnsOfPiecesMeetNoBankTwice) {
  for (uint32_t row = 0; row < 64; row += 8) {
    for (uint32_t piece = 0; piece < 8; ++piece) {
      std::set<uint32_t> groups;
      for (uint32_t i = 0; i < 8; ++i) groups.insert(swizzled_piece(row + i, piece) % 128);
      EXPECT_EQ(groups.size(), 8u);
    }
  }
}

TEST(CudaDescriptor, FieldsHoldBytes) {
  const Fields k(k_major(0x2c400)), mn(mn_major(0x38000, 8192));
  EXPECT_EQ(k.address, 0x2c400u);
  EXPECT_EQ(k.stride, 1024u);
  EXPECT_EQ(k.mode, 1u);
  EXPECT_EQ(mn.address, 0x38000u);
  EXPECT_EQ(mn.leading, 8192u);
  EXPECT_EQ(mn.stride, 1024u);
  EXPECT_EQ(mn.mode, 1u);
}

/// Any tile of the 227 KB fits the address field, and advancing never carries out of it.
TEST(CudaDescriptor, AdvanceMovesTheAddressAlone) {
  for (uint32_t address = 0; address < 227 * 1024; address += kAtomBytes) {
    for (const uint32_t bytes : {0u, 32u, 64u, 96u, 2048u, 8192u, 8192u + 96u}) {
      const Fields at(advance(k_major(address), bytes));
      EXPECT_EQ(at.address, address + bytes);
      EXPECT_EQ(at.stride, Fields(k_major(address)).stride);
      EXPECT_EQ(at.leading, Fields(k_major(address)).leading);
    }
  }
}

/// wgmma's walk over a K-major operand (PTX ISA, canonical layouts) meets element (row, k) where
/// the tile has it: rows in atoms of eight, steps of 16 elements by advance(), the swizzle last.
TEST(CudaDescriptor, KMajorWalkMeetsTheTilesElements) {
  constexpr uint32_t kBase = 5 * kAtomBytes;
  for (uint32_t row = 0; row < 64; ++row) {
    for (uint32_t k = 0; k < 64; ++k) {
      const Fields d(advance(k_major(kBase), k / 16 * 32));
      const uint32_t linear = d.address + row / 8 * d.stride + row % 8 * 128 + k % 16 * 2;
      EXPECT_EQ(hardware_swizzle(linear), kBase + swizzled_element(row, k));
    }
  }
}

/// The same for an MN-major operand of 64 x 128 elements in two halves: steps of 16 rows.
TEST(CudaDescriptor, MnMajorWalkMeetsTheTilesElements) {
  constexpr uint32_t kBase = 3 * kAtomBytes, kHalf = 64 * kRowBytes;
  for (uint32_t row = 0; row < 64; ++row) {
    for (uint32_t n = 0; n < 128; ++n) {
      const Fields d(advance(mn_major(kBase, kHalf), row / 16 * 16 * kRowBytes));
      const uint32_t linear = d.address + n / 64 * d.leading + row % 16 / 8 * d.stride +
                              row % 8 * kRowBytes + n % 64 * 2;
      EXPECT_EQ(hardware_swizzle(linear), kBase + n / 64 * kHalf + swizzled_element(row, n % 64));
    }
  }
}

/// Byte offset of (b, t, h, d) by the tensor's own strides.
uint64_t offset_in(const TokenTensor& x, int64_t b, int64_t t, int64_t h, int64_t d) {
  return static_cast<uint64_t>(b * x.batch_stride + t * x.token_stride + h * x.head_stride + d) * 2;
}

/// The same by the map: dimensions (64, T, D / 64, heads, B).
uint64_t offset_by(const TokenMap& m, int64_t b, int64_t t, int64_t h, int64_t d) {
  return static_cast<uint64_t>(d % 64) * 2 + static_cast<uint64_t>(t) * m.strides[0] +
         static_cast<uint64_t>(d / 64) * m.strides[1] + static_cast<uint64_t>(h) * m.strides[2] +
         static_cast<uint64_t>(b) * m.strides[3];
}

/// What cuTensorMapEncodeTiled asks of a map with 128-byte swizzle.
void expect_encodable(const TokenMap& m) {
  for (const uint64_t extent : m.extents) {
    EXPECT_GE(extent, 1u);
    EXPECT_LE(extent, uint64_t{1} << 32);
  }
  for (const uint64_t stride : m.strides) {
    EXPECT_EQ(stride % 16, 0u);
    EXPECT_GE(stride, 16u);
    EXPECT_LT(stride, uint64_t{1} << 40);
  }
  for (const uint32_t size : m.box) {
    EXPECT_GE(size, 1u);
    EXPECT_LE(size, 256u);
  }
  EXPECT_EQ(m.box[0] * 2, kRowBytes);
}

TEST(CudaTokenMap, AddressesEveryLayoutAsTheTensorDoes) {
  const TokenTensor dense{nullptr, 2, 100, 6, 128, 100 * 6 * 128, 6 * 128, 128};
  const TokenTensor head_first{nullptr, 2, 100, 6, 128, 100 * 6 * 128, 128, 100 * 128};
  const TokenTensor fused_row{nullptr, 1, 100, 4, 128, 0, 12 * 128, 128};
  const TokenTensor wide{nullptr, 1, 300000, 64, 128, int64_t{300000} * 64 * 128, 64 * 128, 128};
  for (const TokenTensor& tensor : {dense, head_first, fused_row, wide}) {
    const TokenMap map = token_map(tensor, 64, 2);
    expect_encodable(map);
    for (int64_t i = 0; i < 1000; ++i) {
      const int64_t b = i % tensor.batch, t = (i * 7919) % tensor.tokens;
      const int64_t h = (i * 31) % tensor.heads, d = (i * 17) % tensor.dim;
      EXPECT_EQ(offset_by(map, b, t, h, d), offset_in(tensor, b, t, h, d));
    }
  }
}

TEST(CudaTokenMap, ExtentsAndBoxesAreTheTensors) {
  const TokenTensor tensor{nullptr, 3, 65, 5, 128, 65 * 5 * 128, 5 * 128, 128};
  const TokenMap map = token_map(tensor, 64, 1);
  EXPECT_EQ(map.extents, (std::array<uint64_t, 5>{64, 65, 2, 5, 3}));
  EXPECT_EQ(map.box, (std::array<uint32_t, 5>{64, 64, 1, 1, 1}));
}

/// A dimension of extent 1 may come with stride 0, or one that no map may have.
TEST(CudaTokenMap, StridesOfExtentOneDoNotMatter) {
  for (const int64_t stride : {int64_t{0}, int64_t{3}, int64_t{-5}, int64_t{1} << 45}) {
    expect_encodable(token_map({nullptr, 1, 1, 1, 128, stride, stride, stride}, 64, 2));
  }
}

TEST(CudaRecentMaps, AreThoseOfTheSameTensorAndBoxAlone) {
  static std::byte memory[4096];
  const MapKey key{{memory, 2, 64, 4, 128, 32768, 512, 128, true}, 64, 2};
  RecentMaps<int> recent;
  EXPECT_EQ(recent.find(key), nullptr);
  recent.keep(key, 7);
  ASSERT_NE(recent.find(key), nullptr);
  EXPECT_EQ(*recent.find(key), 7);
  std::vector<MapKey> others(11, key);
  others[0].tensor.data = memory + 256;
  others[1].tensor.batch = 3;
  others[2].tensor.tokens = 63;
  others[3].tensor.heads = 5;
  others[4].tensor.dim = 64;
  others[5].tensor.batch_stride = 65536;
  others[6].tensor.token_stride = 1024;
  others[7].tensor.head_stride = 256;
  others[8].tensor.is_bf16 = false;
  others[9].rows = 128;
  others[10].column_blocks = 1;
  for (const MapKey& other : others) EXPECT_EQ(recent.find(other), nullptr);
  recent.keep(key, 8);
  EXPECT_EQ(*recent.find(key), 8);
}

TEST(CudaRecentMaps, KeepTheLastOfMany) {
  static std::byte memory[1000 * 16];
  RecentMaps<int> recent;
  for (int i = 0; i < 1000; ++i) {
    const MapKey key{{memory + 16 * i, 1, 64, 1, 128, 8192, 128, 128, true}, 64, 1};
    recent.keep(key, i);
    ASSERT_NE(recent.find(key), nullptr);
    EXPECT_EQ(*recent.find(key), i);
  }
  int kept = 0;
  for (int i = 0; i < 1000; ++i) {
    const MapKey key{{memory + 16 * i, 1, 64, 1, 128, 8192, 128, 128, true}, 64, 1};
    const int* const found = recent.find(key);
    kept += found != nullptr;
    if (found != nullptr) {
      EXPECT_EQ(*found, i);
    }
  }
  EXPECT_EQ(kept, 64);
}

}  // namespace
}  // namespace sluice::cuda::tile
