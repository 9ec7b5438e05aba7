// Updates: one token of each sequence, as a decode step has it. Head items do the same for any
// form; PERF an instance of these is a thirtieth of their code, and code that runs once is fetched
// from memory line by line.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_UPDATE_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_UPDATE_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/kernels/conv1d/launch.h"
#include "cuda/kernels/conv1d/pair.cuh"

namespace sluice::cuda::conv1d {

/// A thread has two channels of sequence blockIdx.y: W = 4, one part, types and strides by
/// is_update().
/// @tparam kIndexed slots are looked up, states may be absent; else sequence n has slot n of both
template <class Pack, int kL, bool kOutside, bool kIndexed>
__global__ void __launch_bounds__(kThreads) update_kernel(const __grid_constant__ ConvParams p) {
  device::follow();
  constexpr PairForm kForm{kL, kOutside};
  const int64_t n = blockIdx.y, d = 2 * (int64_t{blockIdx.x} * kThreads + threadIdx.x);
  if (d >= p.D) return;
  const ChannelPart& part = p.part[0];
  char* out = static_cast<char*>(part.out.data) + 2 * (n * part.out.batch_stride + d);
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
  const uint32_t x = __ldg(reinterpret_cast<const uint32_t*>(static_cast<const char*>(part.x.data) +
                                                             2 * (n * part.x.batch_stride + d)));
  const Taps<2> taps = pair_taps<Pack>(p, d);
  c = {{c.word[1], c.word[2], c.word[3], x}};
  if (slots.write >= 0) store_pair(p.final, kForm, slots.write, d, c);
  float input[kMaxWidth][2], y[2];
#pragma unroll
  for (int i = 0; i < kMaxWidth; ++i) Pack::split(c.word[i], input[i]);
  convolve(p, taps, input[0], input[1], input[2], input[3], y);
  *reinterpret_cast<uint32_t*>(out) = Pack::joined(y);
}

/// The instance for a form.
template <class Pack>
ConvKernel update_kernel_of(const UpdateForm& form) noexcept {
  constexpr ConvKernel kKernels[2][2][2] = {
      {{update_kernel<Pack, 3, false, false>, update_kernel<Pack, 3, false, true>},
       {update_kernel<Pack, 3, true, false>, update_kernel<Pack, 3, true, true>}},
      {{update_kernel<Pack, 4, false, false>, update_kernel<Pack, 4, false, true>},
       {update_kernel<Pack, 4, true, false>, update_kernel<Pack, 4, true, true>}}};
  return kKernels[form.four ? 1 : 0][form.outside ? 1 : 0][form.indexed ? 1 : 0];
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_UPDATE_CUH_
