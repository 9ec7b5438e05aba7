// Brings tokens from global to shared memory: gates and, without a convolution, q, k and v as they
// are. Everything is requested before anything is waited for.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_TOKENS_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_TOKENS_CUH_

#include <type_traits>

#include "cuda/device/gate.cuh"
#include "cuda/kernels/decode/unit.cuh"

namespace sluice::cuda::decode {

/// A place in the rows of the token buffer.
struct Channel {
  int part;    ///< 0: q, 1: k, 2: v
  int head;    ///< key head or value head
  int column;  ///< of that head
  int member;  ///< value head of its key head, of part 2
  bool exists;
};

/// Channel `at` of a row.
template <class C, class Params>
__device__ __forceinline__ Channel channel_of(const Params& p, const Unit& unit, int at) {
  if (at < 2 * C::kK) {
    const int column = at % C::kK;
    return {at / C::kK, unit.key_head, column, 0, column < p.K};
  }
  const int local = at - 2 * C::kK;
  if (unit.first + (local >> p.column_bits()) >= unit.last) return {2, 0, 0, 0, false};
  const Place place = place_of_column(p, unit, local);
  return {2, place.head, place.column, place.member, place.column < p.V};
}

/// One of several structures of the parameters. PERF of constants, a copy: the address of either
/// would make the compiler forget them.
template <class C, class T>
using Chosen = std::conditional_t<C::kModel, T, const T&>;

/// What a decay of a float32 state is: near one, 1 + expm1(g) is closer to e^g than expf(g) is.
__device__ __forceinline__ float closer_alpha(const device::Decay& decay) {
  return decay.alpha < 0.5f ? decay.alpha : 1.0f + decay.minus_one;
}

/// A warp's part of one row of q, k or v, on its way: every 32nd number is a lane's.
template <class C>
struct RowRequest {
  static constexpr int kNumbers = (C::kK > 128 ? C::kK : 128) / 32;
  RawNumber numbers[kNumbers];
};

/// Which part of a token its key-wise gates are.
inline constexpr int kGatePart = 3;

/// The gates of the tile's value head.
template <class C, class Params>
__device__ __forceinline__ void request_key_gates(const Params& p, const Unit& unit, int item,
                                                  RowRequest<C>& out) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int head = place_of(p, unit, unit.first).head;
  const int64_t at = row_offset(p.key_gate, unit.seq, item / C::kParts, head, lane);
#pragma unroll
  for (int i = 0; i < RowRequest<C>::kNumbers; ++i) {
    const bool exists = item < C::kParts * unit.seq.tokens && 32 * i + lane < p.K;
    out.numbers[i] = exists ? request_number(p.key_gate.data, at + 32 * i, p.key_gate.number) : 0;
  }
}

/// Their decays to shared memory: 1 past K, where S is zero.
template <class C, class Params>
__device__ __forceinline__ void settle_key_gates(const Params& p, const Unit& unit,
                                                 const TokenBuffer& s, int item,
                                                 const RowRequest<C>& in) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int head = place_of(p, unit, unit.first).head;
  float* const row = s.decays(item / C::kParts);
#pragma unroll
  for (int i = 0; i < RowRequest<C>::kNumbers; ++i) {
    const int at = 32 * i + lane;
    if (at >= C::kK) continue;
    float alpha = 1.0f;
    if (at < p.K) {
      const device::RawGate raw = device::load_key_gate(p, p.key_form, head, at);
      const float g = number_of(p.key_gate.number, in.numbers[i]);
      alpha = closer_alpha(device::decay_of(p.key_form, raw, g));
    }
    row[at] = alpha;
  }
}

/// Row `item` of [tokens][q, k, v, key-wise gates], of the delta rule alone: a CTA has one tile. PERF
/// a whole row a warp: one address a lane, and no divisions.
template <class C, class Params>
__device__ __forceinline__ void request_row(const Params& p, const Unit& unit, int item,
                                            RowRequest<C>& out) {
  const int lane = static_cast<int>(threadIdx.x % 32), part = item % C::kParts;
  if constexpr (C::kKeyGates) {
    if (part == kGatePart) {
      request_key_gates(p, unit, item, out);
      return;
    }
  }
  const Chosen<C, TokenRows> rows = part == 0 ? p.q : (part == 1 ? p.k : p.v);
  int head = unit.key_head, first = 0, count = p.K;
  if (part == 2) {
    const Place at = place_of(p, unit, unit.first);
    head = at.head, first = at.column, count = min(1 << p.column_bits(), p.V - at.column);
  }
  const int64_t at = row_offset(rows, unit.seq, item / C::kParts, head, first + lane);
#pragma unroll
  for (int i = 0; i < RowRequest<C>::kNumbers; ++i) {
    const bool exists = item < C::kParts * unit.seq.tokens && 32 * i + lane < count;
    out.numbers[i] = exists ? request_number(rows.data, at + 32 * i, p.q.number) : 0;
  }
}

template <class C, class Params>
__device__ __forceinline__ void settle_row(const Params& p, const Unit& unit, const TokenBuffer& s,
                                           int item, const RowRequest<C>& in) {
  if (item >= C::kParts * unit.seq.tokens) return;
  const int lane = static_cast<int>(threadIdx.x % 32), part = item % C::kParts;
  if constexpr (C::kKeyGates) {
    if (part == kGatePart) {
      settle_key_gates(p, unit, s, item, in);
      return;
    }
  }
  const int count = part == 2 ? s.columns : C::kK;
  float* const row = s.rows + item / C::kParts * s.row + part * C::kK + lane;
#pragma unroll
  for (int i = 0; i < RowRequest<C>::kNumbers; ++i) {
    if (32 * i < count) row[32 * i] = number_of(p.q.number, in.numbers[i]);
  }
}

/// What one (token, value head) needs for alpha and beta, on its way.
struct GateInputs {
  RawNumber gate, beta, A_log, dt_bias;
};

__device__ __forceinline__ RawNumber request_scalar(const TokenScalar& t, const Unit& unit,
                                                    int token, const Group& at) {
  if (t.data == nullptr) return 0;
  const char* address = static_cast<const char*>(t.data) + unit.seq.batch * t.batch_bytes +
                        (unit.seq.row + token) * t.token_bytes + at.group * t.group_bytes +
                        at.member * t.member_bytes;
  return request_number(address, 0, t.number);
}

/// Entry `at` of [tokens][r].
template <class Params>
__device__ __forceinline__ GateInputs request_gate(const Params& p, const Unit& unit, int at) {
  GateInputs in{};
  if (at >= unit.seq.tokens * p.r) return in;
  const Quotient place(at, p.by_r, p.r);
  const int head = head_of(p, unit, place.rest);
  const Group group = group_of(p, head);
  in.gate = request_scalar(p.gate, unit, place.whole, group);
  in.beta = request_scalar(p.beta, unit, place.whole, group);
  // Where a bounded gate has none of them they count as 0.
  const bool raw = p.gate_form == GateForm::kRaw;
  if (raw || p.A_log.data != nullptr) {
    in.A_log = request_number(p.A_log.data, head * p.A_log.stride, p.A_log.number);
  }
  if (raw || p.dt_bias.data != nullptr) {
    in.dt_bias = request_number(p.dt_bias.data, head * p.dt_bias.stride, p.dt_bias.number);
  }
  return in;
}

struct Gates {
  float alpha, beta;
};

/// @param p DecodeParams, or others with gates
/// @tparam kBounded as in device/gate.cuh
template <bool kBounded = true, class Params>
__device__ __forceinline__ Gates gates_of(const Params& p, const GateInputs& in) {
  device::RawGate raw;
  if (device::is_raw<kBounded>(p.gate_form)) {
    raw = {-expf(number_of(p.A_log.number, in.A_log)), number_of(p.dt_bias.number, in.dt_bias)};
  }
  const device::Decay decay =
      device::decay_of<kBounded>(p.gate_form, raw, number_of(p.gate.number, in.gate));
  return {closer_alpha(decay),
          device::write_strength(p.beta_form, p.beta_factor, number_of(p.beta.number, in.beta))};
}

template <class Params>
__device__ __forceinline__ void settle_gate(const Params& p, const Unit& unit, const TokenBuffer& s,
                                            int at, const GateInputs& in) {
  if (at >= unit.seq.tokens * p.r) return;
  const Gates gates = gates_of(p, in);
  s.alpha[at] = gates.alpha;
  s.beta[at] = gates.beta;
}

/// Slots of the states after each token.
template <class Params>
__device__ __forceinline__ void buffer_slots(const Params& p, const Unit& unit,
                                             const TokenBuffer& s) {
  const int t = static_cast<int>(threadIdx.x);
  if (!p.write_per_token || t >= unit.seq.tokens) return;
  int64_t slot = -1;
  if (t < p.state.write_slots.columns) {
    slot = device::slot_at(p.state.write_slots, unit.seq.index, t);
    if (!device::usable_slot(p.state, p.state.write_slots, p.state.final, slot)) slot = -1;
  }
  s.write[t] = slot;
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_TOKENS_CUH_
