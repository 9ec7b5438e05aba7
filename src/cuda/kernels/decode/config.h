// Shape of one instance of the decode kernel, and its shared memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_CONFIG_H_
#define SLUICE_CUDA_KERNELS_DECODE_CONFIG_H_

#include <cstddef>
#include <cstdint>

namespace sluice::cuda::decode {

inline constexpr int kMaxThreads = 256;
inline constexpr int kTileColumns = 16;    ///< columns of S that a warp has at a time
inline constexpr int64_t kMaxK = 256;      ///< K of the largest instance
inline constexpr int kMaxTokens = 16;      ///< of a sequence
inline constexpr int kMaxClusterCtas = 8;  ///< what every GPU with clusters takes
inline constexpr size_t kMaxSharedBytes = 227 * 1024;

/// One kernel: K rounded up, and the layout of states. A warp has a tile of S, all of its rows and
/// 16 columns: eight lanes lie along K, four along V, and a lane has rows 32 j + 4 key + e and
/// columns 4 column + i for e, i < 4. Four neighbours in memory are one load in either layout.
template <int kK_, bool kVk_, bool kLayer_>
struct Config {
  static constexpr int kK = kK_;
  static constexpr bool kVk = kVk_;        ///< [V,K], else [K,V]
  static constexpr bool kLayer = kLayer_;  ///< conv, delta rule and norm, else the delta rule
  /// Whether it also reads and writes states number by number, any K up to kK and any address: of
  /// layers, which no other kernel has, and for the largest K alone.
  static constexpr bool kByElement = kLayer && kK == 256;
  static constexpr int kSteps = kK / 32;       ///< j
  static constexpr int kVectors = 4 * kSteps;  ///< loads of a lane
  /// Lanes along the contiguous dimension are neighbours, so that a load's addresses are too.
  static constexpr int kKeyBit = kVk ? 0 : 2, kColumnBit = kVk ? 3 : 0;
  /// CTAs of kMaxThreads that the registers of a multiprocessor must hold.
  static constexpr int kResident = kK <= 128 ? 2 : 1;
};

/// A divisor known to the host. BOUND: exact for dividend times divisor below 2^40.
struct Divisor {
  uint64_t magic = 0;
  static constexpr int kShift = 40;
  static constexpr Divisor of(int d) noexcept {
    return {((uint64_t{1} << kShift) + static_cast<uint64_t>(d) - 1) / static_cast<uint64_t>(d)};
  }
};

/// Sizes of a CTA's shared memory.
struct StageSizes {
  int K;  ///< rounded up as Config::kK is
  int max_tokens;
  int r;
  int tiles;   ///< that the CTA has at most
  bool layer;  ///< conv, norm

  constexpr int columns() const noexcept { return tiles * kTileColumns; }
  /// Numbers of a token's row: q, k, v of the CTA's columns.
  constexpr int row() const noexcept { return 2 * K + columns(); }
  constexpr size_t bytes() const noexcept {
    const int per_token = row() + 2 * r + (layer ? columns() + tiles : 0);
    return static_cast<size_t>(max_tokens) *
           (sizeof(int64_t) + sizeof(float) * static_cast<size_t>(per_token));
  }
};

/// How a launch is cut up: unit = (sequence, key head), its tiles = those of its r value heads.
struct Grid {
  int ctas = 1;   ///< of a unit; a cluster where they must know of each other
  int tiles = 1;  ///< of a CTA, at most
  int threads = 128;
};

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_CONFIG_H_
