// Works on two neighbouring channels of one 16-bit type in a word: their state's columns in
// registers and in memory, and their weights; so convolves one token of each sequence, as a decode
// step has it. PERF a third of the code of whole packs, an instance of an update a thirtieth of that
// of any_form.cuh, and code that runs once is fetched from memory line by line.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_PAIRS_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_PAIRS_CUH_

#include "cuda/device/conv_pair.cuh"
#include "cuda/device/follow.cuh"
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

/// The pair's weights and bias as they come from memory: 16-bit numbers, or float32. PERF apart from
/// their use, which waits: loads of a step are on their way together. And not by
/// device::pair_columns(): its array moves the loads about, and 512 tokens take 5 % longer.
template <class Pack, bool kFloat>
class PairWeights {
 public:
  __device__ __forceinline__ PairWeights(const ConvParams& p, int64_t d) {
    const auto* at = static_cast<const char*>(p.weight.data) + (kFloat ? 16 : 8) * d;
    first_ = __ldg(reinterpret_cast<const uint4*>(at));
    if (kFloat) second_ = __ldg(reinterpret_cast<const uint4*>(at) + 1);
    if (p.bias.data == nullptr) return;
    at = static_cast<const char*>(p.bias.data) + (kFloat ? 4 : 2) * d;
    bias_.x = __ldg(reinterpret_cast<const uint32_t*>(at));
    if (kFloat) bias_.y = __ldg(reinterpret_cast<const uint32_t*>(at) + 1);
  }

  /// Right-aligned, as Taps are.
  __device__ __forceinline__ Taps<2> taps() const {
    const uint4 &a = first_, &b = second_;
    Taps<2> taps{};
    if constexpr (kFloat) {
      put(a.x, b.x, taps.tap[0]), put(a.y, b.y, taps.tap[1]);
      put(a.z, b.z, taps.tap[2]), put(a.w, b.w, taps.tap[3]);
      put(bias_.x, bias_.y, taps.bias);
    } else {
      Pack::unpack_word(__byte_perm(a.x, a.z, 0x5410), taps.tap[0]);
      Pack::unpack_word(__byte_perm(a.x, a.z, 0x7632), taps.tap[1]);
      Pack::unpack_word(__byte_perm(a.y, a.w, 0x5410), taps.tap[2]);
      Pack::unpack_word(__byte_perm(a.y, a.w, 0x7632), taps.tap[3]);
      Pack::unpack_word(bias_.x, taps.bias);
    }
    return taps;
  }

 private:
  __device__ __forceinline__ static void put(uint32_t x, uint32_t y, float (&to)[2]) {
    to[0] = __uint_as_float(x), to[1] = __uint_as_float(y);
  }

  uint4 first_, second_{};
  uint2 bias_{};  ///< zero where there is none
};

/// Inputs of a 16-bit type, and weights of that type or in float32. WHY not one kernel for both: its
/// registers left a multiprocessor six CTAs of seven, and 8192 tokens took 6 % longer.
template <class Pack_, bool kFloatWeights>
struct PairNumbers {
  using Pack = Pack_;
  using Weights = PairWeights<Pack, kFloatWeights>;
  static constexpr int kCtas = kFloatWeights ? 6 : 7;  ///< of a multiprocessor, without spills
};

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
  convolve(p, weights.taps(), input, kMaxWidth - 1, sum);
  *reinterpret_cast<uint32_t*>(out) = Pack::joined(sum);
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_PAIRS_CUH_
