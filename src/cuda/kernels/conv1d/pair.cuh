// Two neighbouring channels of one 16-bit type in a word: their state's columns in registers and in
// memory, and their weights. What threads of decode steps and of short heads work on: PERF a third
// of the code of whole packs, and code that runs once is fetched from memory line by line.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_PAIR_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_PAIR_CUH_

#include "cuda/kernels/conv1d/sequence.cuh"
#include "cuda/kernels/conv1d/taps.cuh"

namespace sluice::cuda::conv1d {

/// The last four columns of two neighbouring channels, the newest last; a word has both channels'
/// numbers of one column. Of three columns the first is zero.
struct PairColumns {
  uint32_t word[kMaxWidth];
};

/// How a pool has columns: L of them, 3 or 4, each of neighbouring channels (outside), or a
/// channel's together (inside).
struct PairForm {
  int L;
  bool outside;
};

/// Halves of two words: bytes 2 i, 2 i + 1 of a (i = 0, 1) or b (i = 2, 3), low half first.
template <int kLow, int kHigh>
__device__ __forceinline__ uint32_t halves(uint32_t a, uint32_t b) {
  constexpr uint32_t kBytes =
      (2 * kLow) | (2 * kLow + 1) << 4 | (2 * kHigh) << 8 | (2 * kHigh + 1) << 12;
  return __byte_perm(a, b, kBytes);
}

/// Where the pair's columns lie in a pool.
__device__ __forceinline__ char* pair_at(const ConvPool& pool, int64_t slot, int64_t d) {
  return static_cast<char*>(pool.data) + 2 * (slot * pool.slot_stride + d * pool.channel_stride);
}

__device__ __forceinline__ PairColumns load_pair(const ConvPool& pool, const PairForm& form,
                                                 int64_t slot, int64_t d) {
  const char* at = pair_at(pool, slot, d);
  const auto* words = reinterpret_cast<const uint32_t*>(at);
  if (form.outside) {
    const int64_t step = pool.column_stride / 2;
    if (form.L == 3) return {{0, words[0], words[step], words[2 * step]}};
    return {{words[0], words[step], words[2 * step], words[3 * step]}};
  }
  if (form.L == 3) {
    const uint32_t a = words[0], b = words[1], c = words[2];  // a0 a1, a2 b0, b1 b2
    return {{0, halves<0, 3>(a, b), halves<1, 2>(a, c), halves<0, 3>(b, c)}};
  }
  const uint4 w = *reinterpret_cast<const uint4*>(at);
  return {{halves<0, 2>(w.x, w.z), halves<1, 3>(w.x, w.z), halves<0, 2>(w.y, w.w),
           halves<1, 3>(w.y, w.w)}};
}

__device__ __forceinline__ void store_pair(const ConvPool& pool, const PairForm& form, int64_t slot,
                                           int64_t d, const PairColumns& columns) {
  char* at = pair_at(pool, slot, d);
  auto* words = reinterpret_cast<uint32_t*>(at);
  const uint32_t(&c)[kMaxWidth] = columns.word;
  if (form.outside) {
    const int64_t step = pool.column_stride / 2;
    const int skipped = form.L == 3 ? 1 : 0;
#pragma unroll
    for (int i = 0; i < kMaxWidth; ++i) {
      if (i >= skipped) words[(i - skipped) * step] = c[i];
    }
  } else if (form.L == 3) {
    words[0] = halves<0, 2>(c[1], c[2]);
    words[1] = halves<0, 3>(c[3], c[1]);
    words[2] = halves<1, 3>(c[2], c[3]);
  } else {
    ptx::store_16(at, make_uint4(halves<0, 2>(c[0], c[1]), halves<0, 2>(c[2], c[3]),
                                 halves<1, 3>(c[0], c[1]), halves<1, 3>(c[2], c[3])));
  }
}

/// The pair's weights, right-aligned as Taps are, and bias.
template <class Pack>
__device__ __forceinline__ Taps<2> pair_taps(const ConvParams& p, int64_t d) {
  const uint4 w = __ldg(reinterpret_cast<const uint4*>(static_cast<const char*>(p.weight) + 8 * d));
  Taps<2> taps{};
  Pack::split(halves<0, 2>(w.x, w.z), taps.tap[0]);
  Pack::split(halves<1, 3>(w.x, w.z), taps.tap[1]);
  Pack::split(halves<0, 2>(w.y, w.w), taps.tap[2]);
  Pack::split(halves<1, 3>(w.y, w.w), taps.tap[3]);
  if (p.bias.data != nullptr) {
    Pack::split(__ldg(static_cast<const uint32_t*>(p.bias.data) + d / 2), taps.bias);
  }
  return taps;
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_PAIR_CUH_
