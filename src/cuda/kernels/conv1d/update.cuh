// Convolves one token of each sequence, as a decode step has it. any_form.cuh does the same
// for any form; PERF an instance of these is a thirtieth of its code, and code that runs once is
// fetched from memory line by line.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_UPDATE_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_UPDATE_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/kernels/conv1d/launch.h"
#include "cuda/kernels/conv1d/pair.cuh"

namespace sluice::cuda::conv1d {

/// The output of two channels from their last four inputs.
template <class Pack>
__device__ __forceinline__ uint32_t convolve_pair(const ConvParams& p, const Taps<2>& taps,
                                                  const PairColumns& c) {
  float input[kMaxWidth][2], y[2];
#pragma unroll
  for (int i = 0; i < kMaxWidth; ++i) Pack::split(c.word[i], input[i]);
  convolve(p, taps, input[0], input[1], input[2], input[3], y);
  return Pack::joined(y);
}

/// The token of two channels.
__device__ __forceinline__ uint32_t pair_input(const ConvParams& p, int64_t n, int64_t d) {
  const TokenChannels& x = p.part[0].x;
  return __ldg(reinterpret_cast<const uint32_t*>(static_cast<const char*>(x.data) +
                                                 2 * (n * x.batch_stride + d)));
}

/// A thread has two channels of sequence blockIdx.y: W = 4, one part, types and strides by
/// is_update().
/// @tparam kIndexed slots are looked up, states may be absent; else sequence n has slot n of both
template <class Pack, int kL, bool kOutside, bool kIndexed>
__global__ void __launch_bounds__(kThreads) update_kernel(const __grid_constant__ ConvParams p) {
  device::follow();
  constexpr PairForm kForm{kL, kOutside};
  const int64_t n = blockIdx.y, d = 2 * (int64_t{blockIdx.x} * kThreads + threadIdx.x);
  if (d >= p.D) return;
  const TokenChannels& y = p.part[0].out;
  char* out = static_cast<char*>(y.data) + 2 * (n * y.batch_stride + d);
  Slots slots{n, n};
  if constexpr (kIndexed) {
    if (is_padding(p, n)) {
      *reinterpret_cast<uint32_t*>(out) = 0;
      return;
    }
    slots = slots_of(p, n);
  }
  PairColumns c{};
  if (slots.read >= 0) c = load_pair(p.initial, kForm, slots.read, d);
  const uint32_t x = pair_input(p, n, d);
  const Taps<2> taps = pair_taps<Pack>(p, d);
  c = {{c.word[1], c.word[2], c.word[3], x}};
  if (slots.write >= 0) store_pair(p.final, kForm, slots.write, d, c);
  *reinterpret_cast<uint32_t*>(out) = convolve_pair<Pack>(p, taps, c);
}

/// Likewise of states that are rings, columns outside: the input goes where the oldest was.
template <class Pack>
__global__ void __launch_bounds__(kThreads)
    ring_update_kernel(const __grid_constant__ ConvParams p) {
  device::follow();
  const int64_t n = blockIdx.y, d = 2 * (int64_t{blockIdx.x} * kThreads + threadIdx.x);
  if (d >= p.D) return;
  const TokenChannels& y = p.part[0].out;
  char* out = static_cast<char*>(y.data) + 2 * (n * y.batch_stride + d);
  if (is_padding(p, n)) {
    *reinterpret_cast<uint32_t*>(out) = 0;
    return;
  }
  const auto L = static_cast<int>(p.L);
  int position = L == 0 ? 0 : static_cast<int>(device::load_index(p.ring_position, n) % L);
  if (position < 0) position += L;
  const Slots slots = slots_of(p, n);
  const uint32_t x = pair_input(p, n, d);
  const Taps<2> taps = pair_taps<Pack>(p, d);
  uint32_t old[kMaxWidth] = {};  // by column
  const auto* from = reinterpret_cast<const uint32_t*>(pair_at(p.initial, slots.read, d));
#pragma unroll
  for (int i = 0; i < kMaxWidth; ++i) {
    if (slots.read >= 0 && i < L) old[i] = from[i * (p.initial.column_stride / 2)];
  }
  PairColumns c{};
#pragma unroll
  for (int age = 1; age < kMaxWidth; ++age) {
    const int column = position - age + (position < age ? L : 0);
#pragma unroll
    for (int i = 0; i < kMaxWidth; ++i) {
      if (i == column) c.word[kMaxWidth - 1 - age] = old[i];
    }
  }
  c.word[kMaxWidth - 1] = x;
  *reinterpret_cast<uint32_t*>(out) = convolve_pair<Pack>(p, taps, c);
  if (slots.write < 0) return;
  const bool in_place = slots.read == slots.write && p.initial.data == p.final.data;
  auto* to = reinterpret_cast<uint32_t*>(pair_at(p.final, slots.write, d));
#pragma unroll
  for (int i = 0; i < kMaxWidth; ++i) {
    const bool stores = i < L && (i == position || !in_place);
    if (stores) to[i * (p.final.column_stride / 2)] = i == position ? x : old[i];
  }
}

/// The instance for a form.
template <class Pack>
ConvKernel update_kernel_of(const UpdateForm& form) noexcept {
  constexpr ConvKernel kKernels[2][2][2] = {
      {{update_kernel<Pack, 3, false, false>, update_kernel<Pack, 3, false, true>},
       {update_kernel<Pack, 3, true, false>, update_kernel<Pack, 3, true, true>}},
      {{update_kernel<Pack, 4, false, false>, update_kernel<Pack, 4, false, true>},
       {update_kernel<Pack, 4, true, false>, update_kernel<Pack, 4, true, true>}}};
  if (form.ring) return ring_update_kernel<Pack>;
  return kKernels[form.four ? 1 : 0][form.outside ? 1 : 0][form.indexed ? 1 : 0];
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_UPDATE_CUH_
