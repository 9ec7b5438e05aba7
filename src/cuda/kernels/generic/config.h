// States the shape of one instance of the generic kernel.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GENERIC_CONFIG_H_
#define SLUICE_CUDA_KERNELS_GENERIC_CONFIG_H_

#include <cstddef>
#include <cstdint>

namespace sluice::cuda::generic {

inline constexpr int kThreads = 128;
inline constexpr int kLanes = 8;                   ///< lanes that share a column of S
inline constexpr int kGroups = kThreads / kLanes;  ///< column groups of a CTA
inline constexpr int64_t kMaxK = 512;              ///< K of the largest instance

/// A CTA owns kSlice columns of one head's state; each thread kRows rows of kColumns of them.
template <int kK_>
struct Config {
  static constexpr int kK = kK_;  ///< K rounded up
  static constexpr int kRows = kK / kLanes;
  static constexpr int kColumns = kRows <= 8 ? 4 : (kRows <= 32 ? 2 : 1);
  static constexpr int kSlice = kGroups * kColumns;
  static constexpr int kBlock = kK <= 128 ? 16 : 2048 / kK;  ///< tokens buffered at a time
  static constexpr int kParts = 4 / kColumns;                ///< partial sums of one column
  /// Rows of q, and of k, that a warp loads at once.
  static constexpr int kRowsTogether = kK <= 64 ? 4 : (kK == 128 ? 2 : 1);
  /// CTAs per multiprocessor that the registers must allow.
  static constexpr int kResident = kK <= 128 ? 4 : 2;
  static_assert(kRows % 4 == 0 && 64 % kBlock == 0 && kColumns * kParts == 4);
};

/// Bytes of dynamic shared memory that key-wise gates of head dimension K <= kMaxK take.
template <int kK>
constexpr size_t key_bytes_of() noexcept {
  return sizeof(float) * kK * (Config<kK>::kBlock + 1);
}
constexpr size_t key_bytes(int64_t K) noexcept {
  if (K <= 32) return key_bytes_of<32>();
  if (K <= 64) return key_bytes_of<64>();
  if (K <= 128) return key_bytes_of<128>();
  return K <= 256 ? key_bytes_of<256>() : key_bytes_of<512>();
}

/// Columns of a CTA for head dimension K <= kMaxK.
constexpr int slice_of(int64_t K) noexcept {
  if (K <= 64) return Config<64>::kSlice;
  return K <= 256 ? Config<256>::kSlice : Config<512>::kSlice;
}

}  // namespace sluice::cuda::generic

#endif  // SLUICE_CUDA_KERNELS_GENERIC_CONFIG_H_
