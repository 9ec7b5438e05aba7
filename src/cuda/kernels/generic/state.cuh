// Keeps the state of one thread, some rows of some columns of S, in registers: loads, stores, adds.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GENERIC_STATE_CUH_
#define SLUICE_CUDA_KERNELS_GENERIC_STATE_CUH_

#include "cuda/kernels/generic/token_buffer.cuh"

namespace sluice::cuda::generic {

/// Row n of the thread is lane + 8 n of S; its column c is column + 4 c of the CTA's slice.
template <class C>
struct State {
  float S[C::kColumns][C::kRows];
  int lane, column;

  __device__ __forceinline__ State()
      : lane(static_cast<int>(threadIdx.x % kLanes)),
        column(static_cast<int>(threadIdx.x / 32 * (4 * C::kColumns) + threadIdx.x % 32 / kLanes)) {
  }
};

/// Offset of the thread's first element in a slot of a pool.
template <class C>
__device__ __forceinline__ int64_t state_offset(const GenericParams& p, const Item& item,
                                                const State<C>& state, const StatePool& pool,
                                                int64_t slot) {
  return slot * pool.slot_stride + item.head * p.K * p.V + state.lane * p.row_step +
         (item.slice * C::kSlice + state.column) * p.column_step;
}

/// WHY plain loads: initial may be the memory that this call writes as final.
template <class T, class C>
__device__ __forceinline__ void load_elements(const GenericParams& p, const Item& item, const T* in,
                                              State<C>& state) {
#pragma unroll
  for (int c = 0; c < C::kColumns; ++c) {
    const bool inside = item.slice * C::kSlice + state.column + 4 * c < p.V;
    const T* at = in + 4 * c * p.column_step;
#pragma unroll
    for (int n = 0; n < C::kRows; ++n, at += kLanes * p.row_step) {
      const bool valid = inside && state.lane + kLanes * n < p.K;
      state.S[c][n] = valid ? device::to_float(*at) : 0.0f;
    }
  }
}

template <class C>
__device__ __forceinline__ void load_state(const GenericParams& p, const Item& item,
                                           State<C>& state) {
  if (item.read < 0) {
#pragma unroll
    for (int at = 0; at < C::kColumns * C::kRows; ++at) {
      state.S[at / C::kRows][at % C::kRows] = 0.0f;
    }
    return;
  }
  const StatePool& pool = p.initial.pool;
  const int64_t at = state_offset(p, item, state, pool, item.read);
  if (pool.number == Number::kFloat32) {
    load_elements(p, item, static_cast<const float*>(pool.data) + at, state);
  } else if (pool.number == Number::kBfloat16) {
    load_elements(p, item, static_cast<const __nv_bfloat16*>(pool.data) + at, state);
  } else {
    load_elements(p, item, static_cast<const __half*>(pool.data) + at, state);
  }
}

template <class T, class C>
__device__ __forceinline__ void store_elements(const GenericParams& p, const Item& item, T* out,
                                               const State<C>& state) {
#pragma unroll
  for (int c = 0; c < C::kColumns; ++c) {
    if (item.slice * C::kSlice + state.column + 4 * c >= p.V) continue;
    T* at = out + 4 * c * p.column_step;
#pragma unroll
    for (int n = 0; n < C::kRows; ++n, at += kLanes * p.row_step) {
      if (state.lane + kLanes * n < p.K) device::from_float(at, state.S[c][n]);
    }
  }
}

template <class C>
__device__ __forceinline__ void store_state(const GenericParams& p, const Item& item,
                                            const StatePool& pool, int64_t slot,
                                            const State<C>& state) {
  const int64_t at = state_offset(p, item, state, pool, slot);
  if (pool.number == Number::kFloat32) {
    store_elements(p, item, static_cast<float*>(pool.data) + at, state);
  } else if (pool.number == Number::kBfloat16) {
    store_elements(p, item, static_cast<__nv_bfloat16*>(pool.data) + at, state);
  } else {
    store_elements(p, item, static_cast<__half*>(pool.data) + at, state);
  }
}

/// The state after `done` tokens, where it is one to keep: every token of a speculative step, or a
/// checkpoint.
template <class C>
__device__ __forceinline__ void store_passing(const GenericParams& p, const Item& item,
                                              int64_t done, const State<C>& state) {
  if (!p.write_per_token && (done % 64 != 0 || done % p.checkpoint_every != 0)) return;
  const SlotTable& table = p.write_per_token ? p.write_slots : p.checkpoint_slots;
  const BoundedPool& target = p.write_per_token ? p.final : p.checkpoints;
  const int64_t column = (p.write_per_token ? done : done / p.checkpoint_every) - 1;
  if (column >= table.columns) return;
  const int64_t slot = device::slot_at(table, item.seq, column);
  if (usable(p, table, target, slot)) store_state(p, item, target.pool, slot, state);
}

/// Four of the thread's rows of a buffered q or k, from row 4 m.
__device__ __forceinline__ float4 read_four(const float* buffered, int lane, int m) {
  return *reinterpret_cast<const float4*>(buffered + (m * kLanes + lane) * 4);
}

/// Sum over the lanes of a column, the same bits in all of them.
__device__ __forceinline__ float column_sum(float x) {
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

/// Sum over the thread's rows of x and each of its columns of S, in four chains altogether.
template <class C>
__device__ __forceinline__ void read_state(const float (&S)[C::kColumns][C::kRows],
                                           const float* buffered, int lane,
                                           float (&out)[C::kColumns]) {
  float parts[C::kColumns][C::kParts] = {};
#pragma unroll
  for (int m = 0; m < C::kRows / 4; ++m) {
    const float4 four = read_four(buffered, lane, m);
    const float x[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int c = 0; c < C::kColumns; ++c) {
        parts[c][e % C::kParts] = fmaf(S[c][4 * m + e], x[e], parts[c][e % C::kParts]);
      }
    }
  }
#pragma unroll
  for (int c = 0; c < C::kColumns; ++c) {
    out[c] = parts[c][0];
#pragma unroll
    for (int i = 1; i < C::kParts; ++i) out[c] += parts[c][i];
  }
}

/// S <- diag(alpha) S, alpha buffered as q and k are.
template <class C>
__device__ __forceinline__ void decay_rows(const float* buffered, State<C>& state) {
#pragma unroll
  for (int m = 0; m < C::kRows / 4; ++m) {
    const float4 four = read_four(buffered, state.lane, m);
    const float alpha[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int c = 0; c < C::kColumns; ++c) state.S[c][4 * m + e] *= alpha[e];
    }
  }
}

/// Token t of the buffer: S <- alpha S; delta = beta (v - S^T k), or v; S <- S + k delta^T;
/// o = scale S^T q.
template <bool kKeys, class C>
__device__ __forceinline__ void advance(const GenericParams& p, TokenBuffer<C>& s, int t,
                                        State<C>& state) {
  if constexpr (kKeys) decay_rows<C>(key_decays() + t * C::kK, state);
  const float alpha = kKeys ? 1.0f : s.alpha[t], beta = s.beta[t];
  float delta[C::kColumns];
#pragma unroll
  for (int c = 0; c < C::kColumns; ++c) {
#pragma unroll
    for (int n = 0; n < C::kRows; ++n) state.S[c][n] *= alpha;
    delta[c] = s.v[t][state.column + 4 * c];
  }
  if (p.delta_rule) {
    float prediction[C::kColumns];
    read_state<C>(state.S, s.k[t], state.lane, prediction);
#pragma unroll
    for (int c = 0; c < C::kColumns; ++c) delta[c] = beta * (delta[c] - column_sum(prediction[c]));
  }
#pragma unroll
  for (int m = 0; m < C::kRows / 4; ++m) {
    const float4 four = read_four(s.k[t], state.lane, m);
    const float k[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int c = 0; c < C::kColumns; ++c) {
        state.S[c][4 * m + e] = fmaf(k[e], delta[c], state.S[c][4 * m + e]);
      }
    }
  }
  float o[C::kColumns];
  read_state<C>(state.S, s.q[t], state.lane, o);
#pragma unroll
  for (int c = 0; c < C::kColumns; ++c) {
    const float sum = p.scale * column_sum(o[c]);
    if (state.lane == c) s.o[t][state.column + 4 * c] = sum;
  }
}

}  // namespace sluice::cuda::generic

#endif  // SLUICE_CUDA_KERNELS_GENERIC_STATE_CUH_
