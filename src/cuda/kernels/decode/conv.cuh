// Convolves the inputs of a layer into the rows of the token buffer, and updates the convolution's
// states.
//
// WHY no CTA can read a column that another one has already replaced: a state's channels are those
// of one (sequence, head). v channels belong to one value head and column, hence to one tile, hence
// to one CTA: it alone reads and writes them, and a barrier of its own separates the two. q and k
// channels belong to one key head, hence to one unit, and the CTAs of a unit are a cluster: each of
// them arrives at the cluster's barrier after its reads, and each waits there before its writes
// (every CTA updates a share of the channels). Slots of other sequences are other memory: sluice.h
// forbids a slot that one sequence writes to be read by another one.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_CONV_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_CONV_CUH_

#include "cuda/device/activation.cuh"
#include "cuda/device/store.cuh"
#include "cuda/kernels/decode/tokens.cuh"

namespace sluice::cuda::decode {

inline constexpr int kMaxWidth = 4;

/// What a sequence does with its convolution state.
struct ConvSequence {
  int64_t read, write;  ///< slots; -1: zeros, none
  int first;     ///< ring: column of the first input; shift: of the input before it, plus one
  int accepted;  ///< of a speculative shift state, else 0
};

__device__ __forceinline__ ConvSequence conv_sequence(const DecodeParams& p, const Sequence& seq) {
  const ConvParams& c = p.conv;
  ConvSequence out{-1, -1, c.L, 0};
  const StateSlots& s = p.state;
  if (c.initial.data[0] != nullptr && device::starts_from_state(s, seq.index)) {
    const int64_t slot = device::slot_at(s.read_slots, seq.index, 0);
    const bool padded = s.read_slots.rows.data != nullptr && slot < s.pad_below;
    if (!padded && slot < c.initial.slots) out.read = slot;
  }
  if (c.final.data[0] != nullptr) {
    const int64_t slot = device::slot_at(s.write_slots, seq.index, 0);
    const bool padded = s.write_slots.rows.data != nullptr && slot < s.pad_below;
    if (!padded && slot < c.final.slots) out.write = slot;
  }
  if (c.ring_position.data != nullptr) {
    const int64_t position = device::load_index(c.ring_position, seq.index) % max(c.L, 1);
    out.first = static_cast<int>(position < 0 ? position + c.L : position);
  } else if (s.num_accepted.data != nullptr) {
    const int64_t wanted = max(device::load_index(s.num_accepted, seq.index), int64_t{1});
    out.accepted = static_cast<int>(min(wanted, int64_t{c.L - c.W + 2}));
    out.first = out.accepted + c.W - 2;
  }
  return out;
}

/// Column `distance` after that of the first input, of a ring.
__device__ __forceinline__ int ring_column(const ConvParams& c, const ConvSequence& seq,
                                           int distance) {
  int column = (seq.first + distance) % c.L;
  return column < 0 ? column + c.L : column;
}

/// Column of the input `age` tokens before the first one, 1 <= age < W.
__device__ __forceinline__ int history_column(const ConvParams& c, const ConvSequence& seq,
                                              int age) {
  return c.ring_position.data != nullptr ? ring_column(c, seq, -age) : seq.first - age;
}

/// Channel of a part's tensors, d = head C + column of that head's C.
__device__ __forceinline__ int64_t channel_index(const DecodeParams& p, const Channel& at) {
  return int64_t{at.head} * (at.part == 2 ? p.V : p.K) + at.column;
}

__device__ __forceinline__ RawNumber request_input(const DecodeParams& p, const Unit& unit,
                                                   const Channel& at, int token) {
  const TokenRows& x = p.conv.x[at.part];
  Group group{at.head, 0};
  if (at.part == 2) group = group_of(p, at.head);
  return request_number(x.data,
                        row_offset(x, unit.seq, token, group.group, group.member * p.V + at.column),
                        x.number);
}

__device__ __forceinline__ float load_input(const DecodeParams& p, const Unit& unit,
                                            const Channel& at, int token) {
  return number_of(p.conv.x[0].number, request_input(p, unit, at, token));
}

__device__ __forceinline__ int64_t state_offset(const ConvPool& pool, int64_t slot, int64_t channel,
                                                int column) {
  return slot * pool.slot_stride + channel * pool.channel_stride + column * pool.column_stride;
}

/// WHY not through the read-only cache: this launch may write the pool.
__device__ __forceinline__ float load_column(const ConvPool& pool, int part, int64_t slot,
                                             int64_t channel, int column) {
  return device::load_written(pool.data[part], state_offset(pool, slot, channel, column),
                              pool.number);
}

/// A channel's numbers on their way; index a: of the input a tokens ago.
struct ConvInputs {
  RawNumber weight[kMaxWidth], history[kMaxWidth], bias;
  bool exists;
};

template <class C>
__device__ __forceinline__ ConvInputs request_channel(const DecodeParams& p, const Unit& unit,
                                                      const ConvSequence& seq, int at) {
  ConvInputs in{};
  const ConvParams& c = p.conv;
  const Channel channel = channel_of<C>(p, unit, at);
  in.exists = channel.exists;
  if (!in.exists || unit.seq.tokens == 0) return in;
  const int64_t d = channel_index(p, channel);
  const NumberVector& weight = c.weight[channel.part];
  const NumberVector& bias = c.bias[channel.part];
  in.history[0] = request_input(p, unit, channel, 0);
#pragma unroll
  for (int age = 0; age < kMaxWidth; ++age) {
    if (age >= c.W) continue;
    in.weight[age] = request_number(weight.data, d * weight.stride + c.W - 1 - age, weight.number);
    if (age == 0 || seq.read < 0) continue;
    const int64_t offset = state_offset(c.initial, seq.read, d, history_column(c, seq, age));
    in.history[age] = request_written(c.initial.data[channel.part], offset, c.initial.number);
  }
  if (bias.data != nullptr) in.bias = request_number(bias.data, d * bias.stride, bias.number);
  return in;
}

/// All tokens of a channel: silu(bias + sum of weights and inputs), oldest input first.
template <class C>
__device__ __forceinline__ void settle_channel(const DecodeParams& p, const Unit& unit,
                                               const TokenBuffer& s, int at, const ConvInputs& in) {
  const ConvParams& c = p.conv;
  const Channel channel = channel_of<C>(p, unit, at);
  const float bias = c.bias[0].data == nullptr ? 0.0f : number_of(c.bias[0].number, in.bias);
  float weight[kMaxWidth], history[kMaxWidth];
#pragma unroll
  for (int age = 0; age < kMaxWidth; ++age) {
    weight[age] = number_of(c.weight[0].number, in.weight[age]);
    history[age] = number_of(age == 0 ? c.x[0].number : c.initial.number, in.history[age]);
  }
#pragma unroll 1
  for (int t = 0; t < unit.seq.tokens; ++t) {
    const bool more = in.exists && t + 1 < unit.seq.tokens;
    const RawNumber next = more ? request_input(p, unit, channel, t + 1) : 0;
    float sum = bias;
#pragma unroll
    for (int age = kMaxWidth - 1; age >= 0; --age) {
      if (age < c.W) sum = fmaf(weight[age], history[age], sum);
    }
    s.rows[t * s.row + at] = in.exists ? device::silu(sum) : 0.0f;
#pragma unroll
    for (int age = kMaxWidth - 1; age > 0; --age) history[age] = history[age - 1];
    history[0] = number_of(c.x[0].number, next);
  }
}

/// All channels of all tokens to the token buffer, one at a time: two take more registers than the state
/// leaves.
template <class C>
__device__ __forceinline__ void convolve_channels(const DecodeParams& p, const Unit& unit,
                                                  const TokenBuffer& s) {
  const ConvSequence seq = conv_sequence(p, unit.seq);
#pragma unroll 1
  for (int at = static_cast<int>(threadIdx.x); at < s.row; at += C::kThreads) {
    settle_channel<C>(p, unit, s, at, request_channel<C>(p, unit, seq, at));
  }
}

/// One channel's state on its way from the old slot to the new one.
struct ConvUpdate {
  const DecodeParams& p;
  const Unit& unit;
  const ConvSequence& seq;
  Channel at;
  int64_t d;

  __device__ __forceinline__ float old(int column) const {
    return seq.read < 0 ? 0.0f : load_column(p.conv.initial, at.part, seq.read, d, column);
  }
  __device__ __forceinline__ float input(int t) const { return load_input(p, unit, at, t); }
  __device__ __forceinline__ void write(int column, float x) const {
    const ConvPool& pool = p.conv.final;
    device::store_number(pool.data[at.part], state_offset(pool, seq.write, d, column), pool.number,
                         x);
  }
};

/// The last L of (old columns, inputs). WHY ascending: column c reads column c + T, which is not
/// yet replaced where both are one memory.
__device__ __forceinline__ void shift_channel(const ConvUpdate& u) {
  const int L = u.p.conv.L, T = u.unit.seq.tokens;
  for (int column = 0; column < L; ++column) {
    const int source = column + T;
    u.write(column, source < L ? u.old(source) : u.input(source - L));
  }
}

/// Old columns a .. a + W - 3, then the inputs; later columns stay.
__device__ __forceinline__ void shift_speculative_channel(const ConvUpdate& u) {
  const int kept = u.p.conv.W - 2, T = min(u.unit.seq.tokens, u.p.conv.L - kept);
  for (int column = 0; column < kept; ++column) u.write(column, u.old(u.seq.accepted + column));
  for (int t = 0; t < T; ++t) u.write(kept + t, u.input(t));
}

/// The inputs, the last L of them; all other columns where they come from another place.
__device__ __forceinline__ void ring_channel(const ConvUpdate& u) {
  const int L = u.p.conv.L, T = u.unit.seq.tokens;
  const bool same_place = u.p.conv.in_place && u.seq.read == u.seq.write;
  for (int column = 0; column < L && !same_place; ++column) u.write(column, u.old(column));
  for (int t = max(T - L, 0); t < T; ++t) u.write(ring_column(u.p.conv, u.seq, t), u.input(t));
}

/// New states of channels first .. last - 1 of a row. SYNC: the caller has made sure that
/// nobody still reads their old ones.
template <class C>
__device__ __forceinline__ void update_states(const DecodeParams& p, const Unit& unit,
                                              const ConvSequence& seq, int first, int last) {
  if (seq.write < 0) return;
  for (int i = first + static_cast<int>(threadIdx.x); i < last; i += static_cast<int>(blockDim.x)) {
    const Channel at = channel_of<C>(p, unit, i);
    if (!at.exists) continue;
    const ConvUpdate u{p, unit, seq, at, channel_index(p, at)};
    if (p.conv.ring_position.data != nullptr) {
      ring_channel(u);
    } else if (seq.accepted > 0 && unit.seq.tokens > 0) {
      shift_speculative_channel(u);
    } else {
      shift_channel(u);
    }
  }
}

/// New states of the CTA's share of q and k channels, and of all its v channels.
template <class C>
__device__ __forceinline__ void update_channels(const DecodeParams& p, const Unit& unit,
                                                const TokenBuffer& s) {
  // PERF found again, not kept over the delta rule: registers
  const ConvSequence seq = conv_sequence(p, unit.seq);
  constexpr int kChannels = 2 * C::kK;
  update_states<C>(p, unit, seq, kChannels * unit.rank / p.grid.ctas,
                   kChannels * (unit.rank + 1) / p.grid.ctas);
  update_states<C>(p, unit, seq, kChannels, s.row);
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_CONV_CUH_
