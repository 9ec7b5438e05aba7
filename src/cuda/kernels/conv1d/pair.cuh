// Works on two neighbouring channels of one 16-bit type in a word: their state's columns in
// registers and in memory, and their weights. PERF a third of the code of whole packs, and code that
// runs once is fetched from memory line by line.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_PAIR_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_PAIR_CUH_

#include "cuda/device/conv_pair.cuh"
#include "cuda/kernels/conv1d/sequence.cuh"
#include "cuda/kernels/conv1d/taps.cuh"

namespace sluice::cuda::conv1d {

/// The last four columns of two neighbouring channels, the newest last. Of three columns the first
/// is zero.
struct PairColumns {
  uint32_t word[kMaxWidth];
};

/// How a pool has columns: L of them, 3 or 4, each of neighbouring channels (outside), or a
/// channel's together (inside).
struct PairForm {
  int L;
  bool outside;
};

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
    return {{0, __byte_perm(a, b, 0x7610), __byte_perm(a, c, 0x5432), __byte_perm(b, c, 0x7610)}};
  }
  const uint4 w = *reinterpret_cast<const uint4*>(at);
  return {{__byte_perm(w.x, w.z, 0x5410), __byte_perm(w.x, w.z, 0x7632),
           __byte_perm(w.y, w.w, 0x5410), __byte_perm(w.y, w.w, 0x7632)}};
}

__device__ __forceinline__ void store_pair(const ConvPool& pool, const PairForm& form, int64_t slot,
                                           int64_t d, const PairColumns& columns) {
  char* at = pair_at(pool, slot, d);
  auto* words = reinterpret_cast<uint32_t*>(at);
  if (form.outside) {
    const int64_t step = pool.column_stride / 2;
    const int skipped = form.L == 3 ? 1 : 0;
#pragma unroll
    for (int i = 0; i < kMaxWidth; ++i) {
      if (i >= skipped) words[(i - skipped) * step] = columns.word[i];
    }
  } else if (form.L == 3) {
    const uint4 w = device::pair_words(3, true, columns.word);
    words[0] = w.y, words[1] = w.z, words[2] = w.w;
  } else {
    ptx::store_16(at, device::pair_words(4, true, columns.word));
  }
}

/// The pair's float32 weights. Channel by channel they lie behind each other.
__device__ __forceinline__ Taps<2> float_taps(const ConvParams& p, int64_t d) {
  const auto* const weights = static_cast<const float4*>(p.weight) + d;
  const float4 a = __ldg(weights), b = __ldg(weights + 1);
  return {{{a.x, b.x}, {a.y, b.y}, {a.z, b.z}, {a.w, b.w}}, {}};
}

/// The pair's weights, right-aligned as Taps are, and bias. PERF not by device::pair_columns(): its
/// array moves the loads about, and 512 tokens take 5 % longer.
template <class Pack>
__device__ __forceinline__ Taps<2> pair_taps(const ConvParams& p, int64_t d) {
  if (p.weight_number == Number::kFloat32) {
    Taps<2> taps = float_taps(p, d);
    if (p.bias.data != nullptr) {
      const float2 bias = __ldg(static_cast<const float2*>(p.bias.data) + d / 2);
      taps.bias[0] = bias.x, taps.bias[1] = bias.y;
    }
    return taps;
  }
  const uint4 w = __ldg(reinterpret_cast<const uint4*>(static_cast<const char*>(p.weight) + 8 * d));
  Taps<2> taps{};
  Pack::unpack_word(__byte_perm(w.x, w.z, 0x5410), taps.tap[0]);
  Pack::unpack_word(__byte_perm(w.x, w.z, 0x7632), taps.tap[1]);
  Pack::unpack_word(__byte_perm(w.y, w.w, 0x5410), taps.tap[2]);
  Pack::unpack_word(__byte_perm(w.y, w.w, 0x7632), taps.tap[3]);
  if (p.bias.data != nullptr) {
    Pack::unpack_word(__ldg(static_cast<const uint32_t*>(p.bias.data) + d / 2), taps.bias);
  }
  return taps;
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_PAIR_CUH_
