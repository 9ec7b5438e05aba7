// A shifted state of up to four columns in registers, and in the memory orders that packs fit:
// columns outside ([slots,L,D] in memory), where a column of a thread's channels is one pack, and
// inside ([slots,D,L]), where they are L packs in a row.
//
// WHY inside goes through shared memory: a thread's 48 bytes are 16-byte pieces 48 bytes apart, so
// each access of a warp would touch half of every sector; here a warp moves 512 bytes in a row.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_COLUMNS_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_COLUMNS_CUH_

#include "cuda/kernels/conv1d/packs.cuh"

namespace sluice::cuda::conv1d {

/// The last four columns, newest last: column[3]. Those that a state has not are zeros.
template <class Pack>
struct Columns {
  Pack column[kMaxWidth];
};

/// Half-words k and m of a run of words, k low.
__device__ __forceinline__ uint32_t pair_of(const uint32_t* words, int k, int m) {
  const uint32_t low = k % 2 == 0 ? 0x10 : 0x32, high = m % 2 == 0 ? 0x5400 : 0x7600;
  return __byte_perm(words[k / 2], words[m / 2], low | high);
}

/// kL columns of a pack's channels from their words in memory order, channel by channel.
template <int kL, class Pack>
__device__ __forceinline__ void split_columns(const uint32_t (&words)[4 * kL], Columns<Pack>& c) {
#pragma unroll
  for (int l = 0; l < kL; ++l) {
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (Pack::kIsFloat) {
        w[i] = words[i * kL + l];
      } else {
        w[i] = pair_of(words, 2 * i * kL + l, (2 * i + 1) * kL + l);
      }
    }
    c.column[kMaxWidth - kL + l].words = {w[0], w[1], w[2], w[3]};
  }
}

/// Its inverse.
template <int kL, class Pack>
__device__ __forceinline__ void join_columns(const Columns<Pack>& c, uint32_t (&words)[4 * kL]) {
  uint32_t w[4 * kL];  // column after column
#pragma unroll
  for (int l = 0; l < kL; ++l) {
    const uint4 column = c.column[kMaxWidth - kL + l].words;
    w[4 * l] = column.x, w[4 * l + 1] = column.y;
    w[4 * l + 2] = column.z, w[4 * l + 3] = column.w;
  }
#pragma unroll
  for (int i = 0; i < 4 * kL; ++i) {
    if constexpr (Pack::kIsFloat) {
      words[i] = w[i % kL * 4 + i / kL];
    } else {
      const int k = 2 * i, m = 2 * i + 1;  // element j is channel j / kL of column j % kL
      words[i] = pair_of(w, k % kL * 8 + k / kL, m % kL * 8 + m / kL);
    }
  }
}

/// The kL columns of a warp's channels, `pieces` packs in a row, by way of its part of shared
/// memory. Whole warps only.
template <int kL, class Pack>
__device__ __forceinline__ void load_inside(const char* from, int pieces, uint4* stage, int lane,
                                            Columns<Pack>& c) {
  uint4 piece[kL] = {};
#pragma unroll
  for (int i = 0; i < kL; ++i) {
    const int at = i * 32 + lane;
    if (at < pieces) piece[i] = Pack::load_written(from + at * 16).words;
  }
  __syncwarp();  // nobody reads the sequence before any more
#pragma unroll
  for (int i = 0; i < kL; ++i) stage[i * 32 + lane] = piece[i];
  __syncwarp();
  uint32_t words[4 * kL];
#pragma unroll
  for (int i = 0; i < kL; ++i) {
    const uint4 own = stage[lane * kL + i];
    words[4 * i] = own.x, words[4 * i + 1] = own.y;
    words[4 * i + 2] = own.z, words[4 * i + 3] = own.w;
  }
  split_columns<kL>(words, c);
}

template <int kL, class Pack>
__device__ __forceinline__ void store_inside(char* to, int pieces, uint4* stage, int lane,
                                             const Columns<Pack>& c) {
  uint32_t words[4 * kL];
  join_columns<kL>(c, words);
  __syncwarp();  // a state that was not read leaves the sequence before in there
#pragma unroll
  for (int i = 0; i < kL; ++i) {
    stage[lane * kL + i] = {words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]};
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kL; ++i) {
    const int at = i * 32 + lane;
    if (at < pieces) Pack{stage[at]}.store_raw(to + at * 16);
  }
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_COLUMNS_CUH_
