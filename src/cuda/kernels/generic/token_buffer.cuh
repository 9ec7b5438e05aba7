// Moves a block of tokens between global and shared memory: q, k, v, decays, write strengths in, o
// out.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GENERIC_TOKEN_BUFFER_CUH_
#define SLUICE_CUDA_KERNELS_GENERIC_TOKEN_BUFFER_CUH_

#include "cuda/device/gate.cuh"
#include "cuda/kernels/generic/config.h"
#include "cuda/kernels/generic/item.cuh"

namespace sluice::cuda::generic {

/// kBlock tokens in float32. Row i of S lies at place_of(i) of q and k, zeros past K.
template <class C>
struct TokenBuffer {
  alignas(16) float q[C::kBlock][C::kK];
  alignas(16) float k[C::kBlock][C::kK];
  float v[C::kBlock][C::kSlice];
  float o[C::kBlock][C::kSlice];
  device::Decay decay[C::kBlock];
  float alpha[C::kBlock], beta[C::kBlock];
  float carry;  ///< of round_alpha(), from block to block
};

/// Row i belongs to lane i mod 8 as its (i / 8)th; four of a lane's rows lie side by side.
__device__ __forceinline__ int place_of(int i) {
  const int lane = i % kLanes, nth = i / kLanes;
  return (nth / 4 * kLanes + lane) * 4 + nth % 4;
}

/// One row of q or k in the registers of a warp: element 32 m + lane.
template <class C>
struct WarpRow {
  float x[C::kK / 32];
};

template <class C, class T>
__device__ __forceinline__ WarpRow<C> load_row(const GenericParams& p, const T* row) {
  WarpRow<C> loaded;
#pragma unroll
  for (int m = 0; m < C::kK / 32; ++m) {
    const int i = 32 * m + static_cast<int>(threadIdx.x % 32);
    loaded.x[m] = i < p.K ? device::to_float(__ldg(row + i)) : 0.0f;
  }
  return loaded;
}

/// Normalises a row, if asked to, and puts it in its places.
template <class C>
__device__ __forceinline__ void buffer_row(const GenericParams& p, const WarpRow<C>& row,
                                           float* out) {
  float factor = 1.0f;
  if (p.l2norm) {
    float sum = 0.0f;
#pragma unroll
    for (int m = 0; m < C::kK / 32; ++m) sum = fmaf(row.x[m], row.x[m], sum);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    factor = 1.0f / sqrtf(sum + p.l2norm_eps);
  }
#pragma unroll
  for (int m = 0; m < C::kK / 32; ++m) {
    out[place_of(32 * m + static_cast<int>(threadIdx.x % 32))] = factor * row.x[m];
  }
}

/// Row `token` of a head.
template <class T>
__device__ __forceinline__ const T* row_of(const TokenRows& t, int64_t batch, int64_t token,
                                           int64_t head) {
  return static_cast<const T*>(t.data) + batch * t.batch_stride + token * t.token_stride +
         head * t.head_stride;
}

/// q and k of `count` tokens from row `row` of the item's batch entry: warp w has tokens w, w + 4,
/// .. PERF the loads of several rows are issued before the first is used, as registers allow.
template <class T, class C>
__device__ __forceinline__ void buffer_keys(const GenericParams& p, const Item& item, int64_t row,
                                            int count, TokenBuffer<C>& s) {
  constexpr int kWarps = kThreads / 32, kTogether = C::kRowsTogether;
  for (int first = static_cast<int>(threadIdx.x / 32); first < count; first += kWarps * kTogether) {
    WarpRow<C> q[kTogether], k[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int t = min(first + i * kWarps, count - 1);
      q[i] = load_row<C>(p, row_of<T>(p.q, item.batch, row + t, item.key_head));
      k[i] = load_row<C>(p, row_of<T>(p.k, item.batch, row + t, item.key_head));
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int t = first + i * kWarps;
      if (t >= count) break;
      buffer_row<C>(p, q[i], s.q[t]);
      buffer_row<C>(p, k[i], s.k[t]);
    }
  }
}

/// The slice of v of the same tokens.
template <class T, class C>
__device__ __forceinline__ void buffer_values(const GenericParams& p, const Item& item, int64_t row,
                                              int count, TokenBuffer<C>& s) {
  const int64_t first = item.slice * C::kSlice;
#pragma unroll 8
  for (int at = static_cast<int>(threadIdx.x); at < count * C::kSlice; at += kThreads) {
    const int t = at / C::kSlice, column = at % C::kSlice;
    const T* v = row_of<T>(p.v, item.batch, row + t, item.head);
    const bool inside = first + column < p.V;
    s.v[t][column] = inside ? device::to_float(__ldg(v + first + column)) : 0.0f;
  }
}

/// Scalar of the item's value head at row `row`.
__device__ __forceinline__ float load_scalar(const GenericParams& p, const TokenScalar& t,
                                             const Item& item, int64_t row) {
  if (t.data == nullptr) return 0.0f;
  const char* at = static_cast<const char*>(t.data) + item.batch * t.batch_bytes +
                   row * t.token_bytes + item.head / p.r * t.group_bytes +
                   item.head % p.r * t.member_bytes;
  return device::load_number(at, 0, t.number);
}

/// alpha as a float, rounded so that the product of alphas stays within an ulp of the exact one:
/// `carry` is the relative part that rounding has left out so far. NUM: under a constant slow gate
/// the rounding errors of alpha all have one sign, and would add up to T 2^-25 in the state.
__device__ __forceinline__ float round_alpha(const device::Decay& decay, float* carry) {
  if (decay.alpha < 0.5f) {
    *carry = 0.0f;
    return decay.alpha;
  }
  const float exact = fmaf(*carry, 1.0f + decay.minus_one, decay.minus_one);
  const float alpha = 1.0f + exact;
  *carry = __fdividef(exact - (alpha - 1.0f), decay.alpha);
  return alpha;
}

/// Write strengths, and decays that are not key-wise, by the first warp.
template <bool kKeys, class C>
__device__ __forceinline__ void buffer_gates(const GenericParams& p, const Item& item, int64_t done,
                                             int count, TokenBuffer<C>& s) {
  const int t = static_cast<int>(threadIdx.x);
  if (t >= 32) return;
  if (t < count) {
    const int64_t row = item.row + done + t;
    if constexpr (!kKeys) {
      const device::RawGate raw = device::load_raw_gate(p, item.head);
      s.decay[t] = device::decay_of(p.gate_form, raw, load_scalar(p, p.gate, item, row));
    }
    s.beta[t] =
        device::write_strength(p.beta_form, p.beta_factor, load_scalar(p, p.beta, item, row));
  }
  if constexpr (kKeys) return;
  __syncwarp();
  if (t != 0) return;
  float carry = done == 0 ? 0.0f : s.carry;
  // BOUND: the low 31 bits of `done` do, because decay_span is a power of two.
  for (int i = 0; i < count; ++i) {
    if (((static_cast<int>(done) + i) & (p.decay_span - 1)) == 0) carry = 0.0f;
    s.alpha[i] = round_alpha(s.decay[i], &carry);
  }
  s.carry = carry;
}

/// Decays of key-wise gates, where there are any: [kBlock][kK] in the places of k, then [kK]
/// carries of round_alpha().
__device__ __forceinline__ float* key_decays() {
  extern __shared__ __align__(16) float dynamic_shared[];
  return dynamic_shared;
}

/// Gates of one channel and `count` tokens into their places. PERF several are requested before one
/// is waited for; a load that asks for its type would wait for itself.
template <class C, class T>
__device__ __forceinline__ void request_gates(const T* gate, int64_t stride, int count,
                                              float* places) {
  constexpr int kTogether = C::kBlock < 8 ? C::kBlock : 8;
#pragma unroll 1
  for (int first = 0; first < count; first += kTogether) {
    T gates[kTogether];
#pragma unroll
    for (int t = 0; t < kTogether; ++t) {
      gates[t] = *gate;
      if (first + t + 1 < count) gate += stride;
    }
#pragma unroll
    for (int t = 0; t < kTogether; ++t) {
      places[(first + t) * C::kK] = device::to_float(gates[t]);
    }
  }
}

/// The gates of channel i, as they come, into the places of its decays.
template <class C>
__device__ __forceinline__ void buffer_channel(const GenericParams& p, const Item& item,
                                               int64_t done, int count, int i, float* places) {
  const TokenRows& gates = p.key_gate;
  const int64_t at = item.batch * gates.batch_stride + (item.row + done) * gates.token_stride +
                     item.head * gates.head_stride + i;
  if (gates.number == Number::kFloat32) {
    request_gates<C>(static_cast<const float*>(gates.data) + at, gates.token_stride, count, places);
  } else if (gates.number == Number::kBfloat16) {
    request_gates<C>(static_cast<const __nv_bfloat16*>(gates.data) + at, gates.token_stride, count,
                     places);
  } else {
    request_gates<C>(static_cast<const __half*>(gates.data) + at, gates.token_stride, count,
                     places);
  }
}

/// Key-wise decays: a thread has channels thread, thread + 128, ..
template <class C>
__device__ __forceinline__ void buffer_key_gates(const GenericParams& p, const Item& item,
                                                 int64_t done, int count) {
  float* const decays = key_decays();
  float* const carries = decays + C::kBlock * C::kK;
  for (int i = static_cast<int>(threadIdx.x); i < C::kK; i += kThreads) {
    float* const places = decays + place_of(i);
    const bool inside = i < p.K;
    if (inside) buffer_channel<C>(p, item, done, count, i, places);
    const device::RawGate raw =
        inside ? device::load_key_gate(p, p.key_form, item.head, i) : device::RawGate{};
    float carry = done == 0 ? 0.0f : carries[i];
#pragma unroll 1
    for (int t = 0; t < count; ++t) {
      if (((static_cast<int>(done) + t) & (p.decay_span - 1)) == 0) carry = 0.0f;
      const float gate = inside ? places[t * C::kK] : 0.0f;
      places[t * C::kK] = round_alpha(device::decay_of(p.key_form, raw, gate), &carry);
    }
    carries[i] = carry;
  }
}

/// Writes `count` rows of o, or zeros.
template <class T, class C>
__device__ __forceinline__ void store_rows(const GenericParams& p, const Item& item, int64_t row,
                                           int count, const TokenBuffer<C>* s) {
  const int64_t first = item.slice * C::kSlice;
  T* out = static_cast<T*>(p.o.data) + item.batch * p.o.batch_stride + item.head * p.o.head_stride +
           first;
  for (int at = static_cast<int>(threadIdx.x); at < count * C::kSlice; at += kThreads) {
    const int t = at / C::kSlice, column = at % C::kSlice;
    if (first + column >= p.V) continue;
    const float value = s == nullptr ? 0.0f : s->o[t][column];
    device::from_float(out + (row + t) * p.o.token_stride + column, value);
  }
}

template <class C>
__device__ __forceinline__ void store_outputs(const GenericParams& p, const Item& item, int64_t row,
                                              int count, const TokenBuffer<C>* s) {
  if (p.o.number == Number::kFloat32) {
    store_rows<float, C>(p, item, row, count, s);
  } else if (p.o.number == Number::kBfloat16) {
    store_rows<__nv_bfloat16, C>(p, item, row, count, s);
  } else {
    store_rows<__half, C>(p, item, row, count, s);
  }
}

/// Everything that tokens done .. done + count - 1 of the item need.
template <class C, bool kKeys>
__device__ __forceinline__ void buffer_block(const GenericParams& p, const Item& item, int64_t done,
                                             int count, TokenBuffer<C>& s) {
  buffer_gates<kKeys>(p, item, done, count, s);
  if constexpr (kKeys) buffer_key_gates<C>(p, item, done, count);
  const int64_t row = item.row + done;
  if (p.q.number == Number::kFloat32) {
    buffer_keys<float>(p, item, row, count, s);
    buffer_values<float>(p, item, row, count, s);
  } else if (p.q.number == Number::kBfloat16) {
    buffer_keys<__nv_bfloat16>(p, item, row, count, s);
    buffer_values<__nv_bfloat16>(p, item, row, count, s);
  } else {
    buffer_keys<__half>(p, item, row, count, s);
    buffer_values<__half>(p, item, row, count, s);
  }
}

}  // namespace sluice::cuda::generic

#endif  // SLUICE_CUDA_KERNELS_GENERIC_TOKEN_BUFFER_CUH_
