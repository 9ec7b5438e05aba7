// Updates: one token of each sequence, as a decode step has it. Head items do the same for any
// form; PERF this is a tenth of their code, and code that runs once is fetched from memory line by
// line. SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_UPDATE_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_UPDATE_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/kernels/conv1d/sequence.cuh"
#include "cuda/kernels/conv1d/taps.cuh"

namespace sluice::cuda::conv1d {

/// The last four columns of two neighbouring channels, the newest last; a word has both channels'
/// numbers of one column. Of three columns the first is zero.
struct PairColumns {
  uint32_t word[kMaxWidth];
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

__device__ __forceinline__ PairColumns load_pair(const ConvParams& p, int64_t slot, int64_t d) {
  const char* at = pair_at(p.initial, slot, d);
  const auto* words = reinterpret_cast<const uint32_t*>(at);
  if (p.head_form == HeadForm::kColumnsOutside) {
    const int64_t step = p.initial.column_stride / 2;
    if (p.L == 3) return {{0, words[0], words[step], words[2 * step]}};
    return {{words[0], words[step], words[2 * step], words[3 * step]}};
  }
  if (p.L == 3) {
    const uint32_t a = words[0], b = words[1], c = words[2];  // a0 a1, a2 b0, b1 b2
    return {{0, halves<0, 3>(a, b), halves<1, 2>(a, c), halves<0, 3>(b, c)}};
  }
  const uint4 w = *reinterpret_cast<const uint4*>(at);
  return {{halves<0, 2>(w.x, w.z), halves<1, 3>(w.x, w.z), halves<0, 2>(w.y, w.w),
           halves<1, 3>(w.y, w.w)}};
}

__device__ __forceinline__ void store_pair(const ConvParams& p, int64_t slot, int64_t d,
                                           const PairColumns& columns) {
  char* at = pair_at(p.final, slot, d);
  auto* words = reinterpret_cast<uint32_t*>(at);
  const uint32_t(&c)[kMaxWidth] = columns.word;
  if (p.head_form == HeadForm::kColumnsOutside) {
    const int64_t step = p.final.column_stride / 2;
    const int skipped = p.L == 3 ? 1 : 0;
#pragma unroll
    for (int i = 0; i < kMaxWidth; ++i) {
      if (i >= skipped) words[(i - skipped) * step] = c[i];
    }
  } else if (p.L == 3) {
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

/// A thread has two channels of a sequence: W = 4, one part, types and strides by is_update().
/// BOUND: fewer than 2^31 warps.
template <class Pack>
__global__ void __launch_bounds__(kThreads) update_kernel(const __grid_constant__ ConvParams p) {
  device::follow();
  const auto index = static_cast<uint32_t>(p.first_warp) + blockIdx.x * kWarps + threadIdx.x / 32,
             warps = static_cast<uint32_t>(p.head_warps);
  if (index >= static_cast<uint32_t>(p.warps)) return;
  const uint32_t n = index / warps;
  const int64_t d = 2 * (int64_t{index - n * warps} * 32 + threadIdx.x % 32);
  if (d >= p.D) return;
  const ChannelPart& part = p.part[0];
  char* out = static_cast<char*>(part.out.data) + 2 * (n * part.out.batch_stride + d);
  if (is_padding(p, n)) {
    *reinterpret_cast<uint32_t*>(out) = 0;
    return;
  }
  const Slots slots = slots_of(p, n);
  const uint32_t x = __ldg(reinterpret_cast<const uint32_t*>(static_cast<const char*>(part.x.data) +
                                                             2 * (n * part.x.batch_stride + d)));
  const Taps<2> taps = pair_taps<Pack>(p, d);
  PairColumns c{};
  if (slots.read >= 0) c = load_pair(p, slots.read, d);
  c = {{c.word[1], c.word[2], c.word[3], x}};
  if (slots.write >= 0) store_pair(p, slots.write, d, c);
  float input[kMaxWidth][2], y[2];
#pragma unroll
  for (int i = 0; i < kMaxWidth; ++i) Pack::split(c.word[i], input[i]);
  convolve(p, taps, input[0], input[1], input[2], input[3], y);
  *reinterpret_cast<uint32_t*>(out) = Pack::joined(y);
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_UPDATE_CUH_
