// Puts the convolution state of two neighbouring channels of a 16-bit type into columns: a word has
// both channels' numbers of one column, the first channel's in the low half.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_CONV_PAIR_CUH_
#define SLUICE_CUDA_DEVICE_CONV_PAIR_CUH_

#include <cstdint>

namespace sluice::cuda::device {

inline constexpr int kPairWords =
    4;  ///< of a state of four columns; of three the first is not used

/// The columns of a state, oldest first, from its words in memory order.
/// @param L 3 or 4 columns, of three the last three words
/// @param inside a channel's columns are neighbours; else a column's channels are, and words are
///        columns
/// @param columns at least four words
__device__ __forceinline__ void pair_columns(int L, bool inside,
                                             const uint32_t (&words)[kPairWords],
                                             uint32_t* columns) {
  const auto& [w0, w1, w2, w3] = words;
  columns[0] = w0, columns[1] = w1, columns[2] = w2, columns[3] = w3;
  if (!inside) return;
  if (L == 3) {  // a0 a1, a2 b0, b1 b2
    columns[1] = __byte_perm(w1, w2, 0x7610);
    columns[2] = __byte_perm(w1, w3, 0x5432);
    columns[3] = __byte_perm(w2, w3, 0x7610);
  } else {  // a0 a1, a2 a3, b0 b1, b2 b3
    columns[0] = __byte_perm(w0, w2, 0x5410);
    columns[1] = __byte_perm(w0, w2, 0x7632);
    columns[2] = __byte_perm(w1, w3, 0x5410);
    columns[3] = __byte_perm(w1, w3, 0x7632);
  }
}

/// The inverse of pair_columns().
__device__ __forceinline__ uint4 pair_words(int L, bool inside, const uint32_t* c) {
  if (!inside) return make_uint4(c[0], c[1], c[2], c[3]);
  if (L == 3) {
    return make_uint4(0, __byte_perm(c[1], c[2], 0x5410), __byte_perm(c[3], c[1], 0x7610),
                      __byte_perm(c[2], c[3], 0x7632));
  }
  return make_uint4(__byte_perm(c[0], c[1], 0x5410), __byte_perm(c[2], c[3], 0x5410),
                    __byte_perm(c[0], c[1], 0x7632), __byte_perm(c[2], c[3], 0x7632));
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_CONV_PAIR_CUH_
