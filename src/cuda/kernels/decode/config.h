// Describes one instance of the decode kernel for any case, and its shared memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_CONFIG_H_
#define SLUICE_CUDA_KERNELS_DECODE_CONFIG_H_

#include <cstddef>
#include <cstdint>

namespace sluice::cuda::decode {

inline constexpr int kMaxThreads = 256;
inline constexpr int kVectors = 16;        ///< of four numbers of S, that a thread has at most
inline constexpr int kMinColumnBits = 5;   ///< of a tile: 32 columns, whole lines of float32
inline constexpr int64_t kMaxK = 256;      ///< K of the largest instance
inline constexpr int kMaxTokens = 16;      ///< of a sequence
inline constexpr int kMaxClusterCtas = 8;  ///< what every GPU with clusters takes
inline constexpr size_t kMaxSharedBytes = 227 * 1024;

/// Rows of a tile that a warp of the [K,V] layout has; K is that of an instance: 64, 128, 256.
constexpr int warp_rows(int K) noexcept { return K > 128 ? 32 : 16; }
/// Warps of a CTA.
constexpr int warps_of(int K) noexcept { return K / warp_rows(K); }
/// Columns of the widest tile, as a power of two: such that a thread has kVectors.
constexpr int max_column_bits(int K) noexcept { return K > 128 ? 6 : 7; }

/// One kernel: K rounded up, and the layout of states. A CTA has a tile of S at a time, all of its
/// rows and 32, 64 or 128 columns, in vectors of four neighbours in memory: step.cuh.
template <int kK_, bool kVk_, bool kLayer_, bool kPacked_ = false, bool kKeyGates_ = false>
struct Config {
  static constexpr int kK = kK_, kKBits = kK < 128 ? 6 : (kK == 128 ? 7 : 8);
  static constexpr bool kVk = kVk_;        ///< [V,K], else [K,V]
  static constexpr bool kLayer = kLayer_;  ///< conv, delta rule and norm, else the delta rule
  /// One token, states of one 16-bit dtype, [K,V], no layer: they stay as they are in registers, so
  /// that half as many CTAs more are resident. (The others' registers do not allow more.)
  static constexpr bool kPacked = kPacked_;
  /// Rows of S have gates of their own, no layer: a token's buffer has a row of decays.
  static constexpr bool kKeyGates = kKeyGates_;
  static constexpr int kParts = kKeyGates ? 4 : 3;  ///< rows of a token: q, k, v, gates
  /// Parameters are constants where models leave no choice: replay/model.cuh.
  static constexpr bool kModel = false;
  /// Whether it also reads and writes states number by number, any K up to kK and any address: of
  /// layers, which no other kernel has, and for the largest K alone.
  static constexpr bool kByElement = kLayer && kK == 256;
  static constexpr int kWarpRows = warp_rows(kK), kWarps = warps_of(kK), kThreads = 32 * kWarps;
  /// [V,K]: lanes along a column, loads of a column, columns of a load.
  static constexpr int kLanes = kK < 128 ? kK / 4 : 32;
  static constexpr int kPieces = kK > 128 ? kK / 128 : 1, kPerLoad = 32 / kLanes;
  /// PERF bodies of the loop over the sums with k and with q: one takes fewer registers.
  static constexpr int kSumBodies = kLayer ? 1 : 2;
  /// CTAs that the registers of a multiprocessor must hold: 512 threads; 768 packed; 256 of the
  /// instance that reads states number by number.
  static constexpr int kResident = (kPacked ? 3 : (kByElement ? 1 : 2)) * kMaxThreads / kThreads;
};

/// Which instance of a K and a layout; all but kLayer are of the delta rule alone.
enum class AnyForm : int32_t {
  kStep,
  kPacked,    ///< Config::kPacked, of [K,V] alone
  kKeyGates,  ///< Config::kKeyGates
  kLayer,
};
inline constexpr int kAnyForms = 4;

/// A divisor known to the host. BOUND: exact for dividend times divisor below 2^40.
struct Divisor {
  uint64_t magic = 0;
  static constexpr int kShift = 40;
  static constexpr Divisor of(int d) noexcept {
    return {((uint64_t{1} << kShift) + static_cast<uint64_t>(d) - 1) / static_cast<uint64_t>(d)};
  }
};

/// How a launch is cut up: unit = (sequence, key head), its tiles = those of its r value heads.
struct Grid {
  int ctas = 1;         ///< of a unit; a cluster where they must know of each other
  int tiles = 1;        ///< of a CTA, at most
  int column_bits = 7;  ///< a tile has 2^column_bits columns

  constexpr int columns() const noexcept { return tiles << column_bits; }
};

/// Sizes of a CTA's shared memory.
struct TokenBufferSizes {
  int K;  ///< rounded up as Config::kK is
  int max_tokens;
  int r;
  Grid grid;
  bool layer;  ///< conv, norm
  bool key_gates = false;

  /// Partial sums of a tile: of two tokens in turn, two products, every warp.
  constexpr int partials() const noexcept { return 4 * warps_of(K) << grid.column_bits; }
  /// New conv states of q and k, which wait for the cluster: conv_pairs.cuh.
  constexpr int conv_words() const noexcept { return layer && grid.ctas > 1 ? 4 * K : 0; }
  /// Numbers of a token: q, k, v of the CTA's columns, gates; o, its squares, norm factors.
  constexpr int per_token() const noexcept {
    const int columns = grid.columns();
    return (key_gates ? 3 : 2) * K + columns + 2 * r + (layer ? 2 * columns + columns / 4 : 0);
  }
  constexpr size_t bytes() const noexcept {
    return sizeof(float) * static_cast<size_t>(partials() + conv_words()) +
           static_cast<size_t>(max_tokens) *
               (sizeof(int64_t) + sizeof(float) * static_cast<size_t>(per_token()));
  }
};

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_CONFIG_H_
