// Convolves one token of each sequence, as a decode step has it. any_form.cuh does the same
// for any form; PERF an instance of these is a thirtieth of its code, and code that runs once is
// fetched from memory line by line.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_UPDATE_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_UPDATE_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/kernels/conv1d/pair.cuh"

namespace sluice::cuda::conv1d {

/// The state of two channels, shifted by the token.
template <int kL, bool kOutside>
struct PairState {
  PairColumns c{};

  __device__ __forceinline__ void load(const ConvParams& p, int64_t, const Slots& slots,
                                       int64_t d) {
    if (slots.read >= 0) c = load_pair(p.initial, {kL, kOutside}, slots.read, d);
  }
  /// The last four inputs, token x the newest.
  __device__ __forceinline__ PairColumns inputs(const ConvParams&, uint32_t x) const {
    return {{c.word[1], c.word[2], c.word[3], x}};
  }
  __device__ __forceinline__ void store(const ConvParams& p, const Slots& slots, int64_t d,
                                        const PairColumns& inputs) const {
    store_pair(p.final, {kL, kOutside}, slots.write, d, inputs);
  }
};

/// Likewise a ring, columns outside: the token goes where the oldest was.
struct RingState {
  uint32_t old[kMaxWidth] = {};  ///< by column
  int position;

  __device__ __forceinline__ void load(const ConvParams& p, int64_t n, const Slots& slots,
                                       int64_t d) {
    position = p.L == 0 ? 0 : static_cast<int>(device::load_index(p.ring_position, n) % p.L);
    if (position < 0) position += p.L;
    const auto* from = reinterpret_cast<const uint32_t*>(pair_at(p.initial, slots.read, d));
#pragma unroll
    for (int i = 0; i < kMaxWidth; ++i) {
      if (slots.read >= 0 && i < p.L) old[i] = from[i * (p.initial.column_stride / 2)];
    }
  }
  __device__ __forceinline__ PairColumns inputs(const ConvParams& p, uint32_t x) const {
    PairColumns c{};
#pragma unroll
    for (int age = 1; age < kMaxWidth; ++age) {
      const int column = position - age + (position < age ? p.L : 0);
#pragma unroll
      for (int i = 0; i < kMaxWidth; ++i) {
        if (i == column) c.word[kMaxWidth - 1 - age] = old[i];
      }
    }
    c.word[kMaxWidth - 1] = x;
    return c;
  }
  __device__ __forceinline__ void store(const ConvParams& p, const Slots& slots, int64_t d,
                                        const PairColumns& inputs) const {
    const bool in_place = slots.read == slots.write && p.initial.data == p.final.data;
    auto* to = reinterpret_cast<uint32_t*>(pair_at(p.final, slots.write, d));
#pragma unroll
    for (int i = 0; i < kMaxWidth; ++i) {
      const bool newest = i == position, stores = i < p.L && (newest || !in_place);
      if (stores)
        to[i * (p.final.column_stride / 2)] = newest ? inputs.word[kMaxWidth - 1] : old[i];
    }
  }
};

/// A thread has two channels of sequence blockIdx.y: W = 4, one part, types and strides by
/// choose_form().
/// @tparam kIndexed slots are looked up, states may be absent; else sequence n has slot n of both
template <class Numbers, class State, bool kIndexed>
__global__ void __launch_bounds__(kThreads) update_kernel(const __grid_constant__ ConvParams p) {
  using Pack = typename Numbers::Pack;
  device::follow();
  const int64_t n = blockIdx.y, d = 2 * (int64_t{blockIdx.x} * kThreads + threadIdx.x);
  if (d >= p.D) return;
  const TokenChannels &x = p.part[0].x, &y = p.part[0].out;
  const char* token = static_cast<const char*>(x.data) + 2 * (n * x.batch_stride + d);
  char* out = static_cast<char*>(y.data) + 2 * (n * y.batch_stride + d);
  Slots slots{n, n};
  if constexpr (kIndexed) {
    if (is_padding(p, n)) {
      *reinterpret_cast<uint32_t*>(out) = 0;
      return;
    }
    slots = slots_of(p, n);
  }
  State state;
  state.load(p, n, slots, d);
  const uint32_t newest = __ldg(reinterpret_cast<const uint32_t*>(token));
  const typename Numbers::Weights weights(p, d);
  const PairColumns c = state.inputs(p, newest);
  if (slots.write >= 0) state.store(p, slots, d, c);
  float input[kMaxWidth][2], sum[2];
#pragma unroll
  for (int i = 0; i < kMaxWidth; ++i) Pack::unpack_word(c.word[i], input[i]);
  convolve(p, weights.taps(), input[0], input[1], input[2], input[3], sum);
  *reinterpret_cast<uint32_t*>(out) = Pack::joined(sum);
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_UPDATE_CUH_
