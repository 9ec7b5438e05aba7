// Convolves the inputs of a layer by pairs of neighbouring channels, for what models have:
// inputs, weights and states of one 16-bit dtype, four weights a channel side by side, states that
// shift by plain slots. ConvParams::by_pairs promises that each pair is a 32-bit word wherever it
// lies.
//
// WHY no barrier between a state's reads and writes: both are the same thread's, but for q and k
// channels of units with several CTAs, all of which read them. Those wait in shared memory until
// the cluster's barrier has been passed (conv.cuh).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_CONV_PAIRS_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_CONV_PAIRS_CUH_

#include "cuda/device/activation.cuh"
#include "cuda/device/conv_pair.cuh"
#include "cuda/kernels/decode/conv.cuh"
#include "cuda/ptx/stream.cuh"
#include "cuda/tile/number.cuh"

namespace sluice::cuda::decode {

/// Slots of a sequence's convolution state; -1: zeros, none. by_pairs promises fewer than 2^31.
struct ConvSlots {
  int read, write;
};

template <class Params>
__device__ __forceinline__ ConvSlots conv_slots(const Params& p,
                                                const device::SlotEntries& entries) {
  const StateSlots& s = p.state;
  const ConvParams& c = p.conv;
  const bool reads_pad = s.read_slots.rows.data != nullptr && entries.read < s.pad_below;
  const bool writes_pad = s.write_slots.rows.data != nullptr && entries.write < s.pad_below;
  const bool reads = c.initial.data[0] != nullptr && entries.has_initial && !reads_pad &&
                     entries.read < c.initial.slots;
  const bool writes = c.final.data[0] != nullptr && !writes_pad && entries.write < c.final.slots;
  return {reads ? static_cast<int>(entries.read) : -1,
          writes ? static_cast<int>(entries.write) : -1};
}

/// A pair's numbers on their way.
struct PairInputs {
  uint32_t input;             ///< of the first token
  uint32_t words[kMaxWidth];  ///< of the state, the last L of them
  uint32_t weight[4];         ///< two words of either channel
  RawNumber bias[2];
};

template <class Params>
__device__ __forceinline__ uint32_t request_pair_input(const Params& p, const Unit& unit,
                                                       const Channel& at, int token) {
  const TokenRows& x = p.conv.x[at.part];
  Group group{at.head, 0};
  if (at.part == 2) group = group_of(p, at.head);
  const int64_t offset =
      row_offset(x, unit.seq, token, group.group, group.member * p.V + at.column);
  return __ldg(reinterpret_cast<const uint32_t*>(static_cast<const uint16_t*>(x.data) + offset));
}

/// All but the state of the pair of channels at, at + 1 of a row.
template <class C, class Params>
__device__ __forceinline__ void request_pair(const Params& p, const Unit& unit, int at,
                                             PairInputs& in) {
  const Channel channel = channel_of<C>(p, unit, at);
  if (!channel.exists || unit.seq.tokens == 0) return;
  const int64_t d = channel_index(p, channel);
  const NumberVector &weight = p.conv.weight[channel.part], &bias = p.conv.bias[channel.part];
  in.input = request_pair_input(p, unit, channel, 0);
  const uint4 eight = __ldg(static_cast<const uint4*>(weight.data) + d / 2);
  in.weight[0] = eight.x, in.weight[1] = eight.y, in.weight[2] = eight.z, in.weight[3] = eight.w;
  if (bias.data == nullptr) return;
  in.bias[0] = request_number(bias.data, d * bias.stride, bias.number);
  in.bias[1] = request_number(bias.data, (d + 1) * bias.stride, bias.number);
}

/// Where a pair's state lies in a slot: L words, `step` bytes apart.
struct PairState {
  char* first;
  int64_t step;

  __device__ __forceinline__ PairState(char* first_word, int64_t bytes)
      : first(first_word), step(bytes) {}
  template <class Params>
  __device__ __forceinline__ PairState(const Params& p, const ConvPool& pool, int64_t slot,
                                       const Channel& at)
      : first(static_cast<char*>(pool.data[at.part]) +
              2 * (slot * pool.slot_stride + channel_index(p, at) * pool.channel_stride)),
        step(p.conv.columns_inside ? 4 : 2 * pool.column_stride) {}
  /// The word after `skipped` ones.
  __device__ __forceinline__ uint32_t* word(int skipped) const {
    return reinterpret_cast<uint32_t*>(first + skipped * step);
  }
  /// All L of them, the last ones of `words`.
  __device__ __forceinline__ void request(int L, uint32_t (&words)[kMaxWidth]) const {
    const int missing = kMaxWidth - L;
#pragma unroll
    for (int i = 0; i < kMaxWidth; ++i) {
      if (i >= missing) words[i] = *word(i - missing);
    }
  }
  __device__ __forceinline__ void store(int L, const uint4& words) const {
    const int missing = kMaxWidth - L;
    if (missing == 0) *word(0) = words.x;
    *word(1 - missing) = words.y;
    *word(2 - missing) = words.z;
    *word(3 - missing) = words.w;
  }
};

/// The state of the pair. WHY not through the read-only cache: this launch may write the pool.
template <class C, class Params>
__device__ __forceinline__ void request_pair_state(const Params& p, const Unit& unit, int slot,
                                                   int at, PairInputs& in) {
  if (slot < 0) return;
  const Channel channel = channel_of<C>(p, unit, at);
  if (!channel.exists) return;
  PairState(p, p.conv.initial, slot, channel).request(p.conv.L, in.words);
}

/// Asks the L2 for the state and the weights of the pair.
template <class C, class Params>
__device__ __forceinline__ void prefetch_pair(const Params& p, const Unit& unit, int64_t slot,
                                              int at) {
  const Channel channel = channel_of<C>(p, unit, at);
  if (!channel.exists) return;
  const void* const weight = p.conv.weight[channel.part].data;
  ptx::prefetch_sector(static_cast<const uint2*>(weight) + channel_index(p, channel));
  if (slot >= p.conv.initial.slots || p.conv.initial.data[0] == nullptr) return;
  const PairState state(p, p.conv.initial, slot, channel);
  for (int i = 0; i < p.conv.L; ++i) {
    ptx::prefetch_sector(state.word(i));
    if (p.conv.columns_inside) break;  // the next pairs' words ask for the rest
  }
}

template <class Params>
__device__ __forceinline__ void store_pair_state(const Params& p, int slot, const Channel& channel,
                                                 const uint4& words) {
  PairState(p, p.conv.final, slot, channel).store(p.conv.L, words);
}

/// One of the two numbers of a word.
template <class T>
__device__ __forceinline__ float number_in(uint32_t word, int which) {
  return which == 0 ? tile::Packed<T>::first(word) : tile::Packed<T>::second(word);
}

/// Adds the products of both channels' weights with columns 1 to 4, oldest first, and moves the
/// columns by one.
template <class T>
__device__ __forceinline__ void weigh_columns(const uint32_t (&weight)[4],
                                              uint32_t (&columns)[kMaxWidth + 1], float& a,
                                              float& b) {
#pragma unroll
  for (int i = 0; i < kMaxWidth; ++i) {
    const uint32_t first = weight[i / 2], second = weight[2 + i / 2];
    a = fmaf(number_in<T>(first, i % 2), number_in<T>(columns[i + 1], 0), a);
    b = fmaf(number_in<T>(second, i % 2), number_in<T>(columns[i + 1], 1), b);
    columns[i] = columns[i + 1];
  }
}

/// All tokens of a pair: silu(bias + sum of weights and inputs), oldest input first; `columns`, the
/// state and the first input, move on.
template <class T, class Params>
__device__ __forceinline__ void convolve_pair(const Params& p, const Unit& unit,
                                              const TokenBuffer& s, int at, const Channel& channel,
                                              const PairInputs& in,
                                              uint32_t (&columns)[kMaxWidth + 1]) {
  float bias[2] = {};
  if (p.conv.bias[0].data != nullptr) {
    bias[0] = number_of(p.conv.bias[0].number, in.bias[0]);
    bias[1] = number_of(p.conv.bias[0].number, in.bias[1]);
  }
#pragma unroll 1
  for (int t = 0; t < unit.seq.tokens; ++t) {
    const bool more = channel.exists && t + 1 < unit.seq.tokens;
    const uint32_t next = more ? request_pair_input(p, unit, channel, t + 1) : 0;
    float a = bias[0], b = bias[1];
    weigh_columns<T>(in.weight, columns, a, b);
    columns[kMaxWidth] = next;
    const float2 out = channel.exists ? make_float2(device::silu(a), device::silu(b)) : float2{};
    *reinterpret_cast<float2*>(&s.rows[t * s.row + at]) = out;
  }
}

/// The pair's tokens to the token buffer, and its new state to where it may go by now.
template <class C, class Params>
__device__ __forceinline__ void settle_pair(const Params& p, const Unit& unit, const TokenBuffer& s,
                                            int slot, int at, const PairInputs& in) {
  const Channel channel = channel_of<C>(p, unit, at);
  uint32_t columns[kMaxWidth + 1];
  device::pair_columns(p.conv.L, p.conv.columns_inside, in.words, columns);
  columns[kMaxWidth] = in.input;
  if (p.conv.x[0].number == Number::kBfloat16) {
    convolve_pair<__nv_bfloat16>(p, unit, s, at, channel, in, columns);
  } else {
    convolve_pair<__half>(p, unit, s, at, channel, in, columns);
  }
  if (slot < 0 || !channel.exists) return;
  const uint4 words = device::pair_words(p.conv.L, p.conv.columns_inside, columns);
  if (at >= 2 * C::kK || p.ctas() == 1) {
    store_pair_state(p, slot, channel, words);
  } else {
    s.conv[at / 2] = words;
  }
}

/// q and k channels of the CTA's share. SYNC: no CTA of the unit still reads their old states; the
/// token buffer has been complete.
template <class C, class Params>
__device__ __forceinline__ void store_shared_pairs(const Params& p, const Unit& unit,
                                                   const TokenBuffer& s) {
  const int slot = conv_slots(p, device::request_slots(p.state, unit.seq.index)).write;
  if (slot < 0) return;
  const int first = C::kK * unit.rank / p.ctas(), last = C::kK * (unit.rank + 1) / p.ctas();
#pragma unroll 1
  for (int i = first + static_cast<int>(threadIdx.x); i < last; i += C::kThreads) {
    const Channel channel = channel_of<C>(p, unit, 2 * i);
    if (channel.exists) store_pair_state(p, slot, channel, s.conv[i]);
  }
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_CONV_PAIRS_CUH_
