// Computes gradients with key-wise gates, token by token: right for every gate and size, not fast.
//
// Math      docs/math.md section 8 with diag(alpha) in place of alpha; dg of a channel is the
//           product of its rows of the two states, which no sum of gates has to cancel
// Roles     a CTA has a sequence and value head; columns of the states by threads, rows by warps
// Memory    states in the workspace: S before every sqrt(T)th token and, of one such segment,
//           before every token; the token's vectors in shared memory
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_KEY_TOKENS_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_KEY_TOKENS_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/device/store.cuh"
#include "cuda/kernels/backward/gates.cuh"
#include "cuda/kernels/backward/params.h"

namespace sluice::cuda::backward {

/// One sequence and value head.
struct KeyWork {
  int64_t seq, head;
  Chunk place;  ///< batch entry and first row
  int64_t tokens;
};

/// The vectors of a token in shared memory, and the states.
struct KeyMemory {
  float *q, *k, *alpha, *gate, *g, *bias;  ///< [K]; gate: and its dt_bias; bias: ddt_bias so far
  float *v, *d_o, *error, *x;              ///< [V]
  float* warps;
  float *S, *D, *states, *starts;

  __device__ __forceinline__ KeyMemory(const KeyBackwardParams& p, const KeyWork& work,
                                       uint8_t* shared) {
    const int64_t K = p.all.stage.K, V = p.all.stage.V;
    auto* at = reinterpret_cast<float*>(shared);
    for (float** vector : {&q, &k, &alpha, &gate, &g, &bias}) *vector = at, at += K;
    for (float** vector : {&v, &d_o, &error, &x}) *vector = at, at += V;
    warps = at;
    const int64_t each = K * V, item = work.seq * p.all.stage.HV + work.head;
    S = p.states + item * p.state_count * each;
    D = S + each, states = D + each, starts = states + p.segment * each;
  }
};

__device__ __forceinline__ float key_sum(float x, float* warps) {
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0.0f;
  for (int w = 0; w < kKeyThreads / 32; ++w) sum += warps[w];
  __syncthreads();
  return sum;
}

__device__ __forceinline__ float channel(const TokenRows& rows, int64_t batch, int64_t row,
                                         int64_t head, int64_t i) {
  return device::load_number(rows.data, at(rows, batch, row, head) + i, rows.number);
}

/// q (scaled), k, v, d_o and gates of token t; its write strength.
__device__ __forceinline__ float load_key_token(const KeyBackwardParams& p, const KeyWork& work,
                                                const KeyMemory& s, int64_t t) {
  const StageParams& stage = p.all.stage;
  const int64_t batch = work.place.batch, row = work.place.row + t;
  const int64_t keys = device::key_head(stage, work.head);
  const device::RawGate raw = device::load_raw_gate(p.all, work.head);
  __syncthreads();
  for (int64_t i = threadIdx.x; i < stage.K; i += kKeyThreads) {
    s.q[i] = stage.scale * channel(stage.q, batch, row, keys, i);
    s.k[i] = channel(stage.k, batch, row, keys, i);
    const float bias = p.dt_bias.data == nullptr
                           ? 0.0f
                           : device::load_number(p.dt_bias.data, work.head * p.dt_bias.stride + i,
                                                 p.dt_bias.number);
    const float gate = channel(p.gate, batch, row, work.head, i) + bias;
    s.gate[i] = gate;
    s.g[i] = device::log_gate(p.all.gate_form, raw, gate);
    s.alpha[i] = device::decay_of(p.all.gate_form, raw, gate).alpha;
  }
  for (int64_t j = threadIdx.x; j < stage.V; j += kKeyThreads) {
    s.v[j] = channel(stage.values, batch, row, work.head, j);
    s.d_o[j] = channel(p.all.d_o, batch, row, work.head, j);
  }
  __syncthreads();
  const bool weighted = p.all.delta_rule && stage.beta.data != nullptr;
  return weighted ? number_at(stage.beta, batch, row, work.head) : 1.0f;
}

/// v - (diag(alpha) S)^T k of column j; without the delta rule v.
__device__ __forceinline__ float key_error(const KeyBackwardParams& p, const KeyMemory& s,
                                           const float* S, int64_t j) {
  float error = s.v[j];
  if (!p.all.delta_rule) return error;
  for (int64_t i = 0; i < p.all.stage.K; ++i) {
    error = fmaf(-s.alpha[i] * s.k[i], S[i * p.all.stage.V + j], error);
  }
  return error;
}

/// S over tokens begin .. end - 1, the state before each of them kept. A thread has whole columns.
__device__ __forceinline__ void key_forward(const KeyBackwardParams& p, const KeyWork& work,
                                            const KeyMemory& s, int64_t begin, int64_t end) {
  const int64_t K = p.all.stage.K, V = p.all.stage.V;
  for (int64_t t = begin; t < end; ++t) {
    const float beta = load_key_token(p, work, s, t);
    float* const kept = s.states + (t - begin) * K * V;
    for (int64_t j = threadIdx.x; j < V; j += kKeyThreads) {
      const float write = beta * key_error(p, s, s.S, j);
      for (int64_t i = 0; i < K; ++i) {
        float& element = s.S[i * V + j];
        kept[i * V + j] = element;
        element = fmaf(s.alpha[i], element, s.k[i] * write);
      }
    }
  }
  __syncthreads();
}

/// Gradients of channel `i`'s gate, and what A_log gets of it.
__device__ __forceinline__ float store_key_gate(const KeyBackwardParams& p, const KeyWork& work,
                                                const KeyMemory& s, int64_t row, int64_t i,
                                                float dg) {
  const device::RawSlopes slopes = gate_slopes(p.all, work.head, s.gate[i], s.g[i]);
  const float by_gate = slopes.gate * dg;
  s.bias[i] += by_gate;
  if (p.dgate.data != nullptr) {
    device::store_number(p.dgate.data, at(p.dgate, work.place.batch, row, work.head) + i,
                         p.dgate.number, by_gate);
  }
  return __fmul_rn(dg, slopes.A_log);
}

/// Rows of the states, a warp each: dq, dk and the gates' gradients; D becomes that of S_{t-1}.
/// @return what the warp's first lane adds to dA_log
__device__ __forceinline__ float key_rows(const KeyBackwardParams& p, const KeyWork& work,
                                          const KeyMemory& s, int64_t row, const float* before,
                                          float beta, float error_d_o) {
  const StageParams& stage = p.all.stage;
  const bool first_lane = threadIdx.x % 32 == 0, delta = p.all.delta_rule;
  const int64_t batch = work.place.batch;
  float by_rate = 0.0f;
  for (int64_t i = threadIdx.x / 32; i < stage.K; i += kKeyThreads / 32) {
    const float *const S = before + i * stage.V, alpha = s.alpha[i], k = s.k[i];
    float* const D = s.D + i * stage.V;
    float S_d_o = 0.0f, S_x = 0.0f, D_error = 0.0f, D_S = 0.0f;
    for (int64_t j = threadIdx.x % 32; j < stage.V; j += 32) {
      const float all = D[j], left = delta ? fmaf(-beta * k, s.x[j], all) : all;
      S_d_o = fmaf(S[j], s.d_o[j], S_d_o), S_x = fmaf(S[j], s.x[j], S_x);
      D_error = fmaf(all, s.error[j], D_error), D_S = fmaf(left, S[j], D_S);
      D[j] = alpha * left;
    }
    S_d_o = warp_sum(S_d_o), S_x = warp_sum(S_x);
    D_error = warp_sum(D_error), D_S = warp_sum(D_S);
    if (!first_lane) continue;
    const float dq = stage.scale * fmaf(alpha, S_d_o, beta * k * error_d_o);
    const float dk = beta * (delta ? fmaf(-alpha, S_x, D_error) : D_error);
    const int64_t to = at(p.all.dq_parts, batch, row, work.head) + i;
    static_cast<float*>(p.all.dq_parts.data)[to] = dq;
    static_cast<float*>(p.all.dk_parts.data)[to] = dk;
    by_rate += store_key_gate(p, work, s, row, i, alpha * D_S);
  }
  return by_rate;
}

/// From the gradient D of S_t to that of `before` = S_{t-1}; the thread's part of dA_log.
__device__ __forceinline__ float key_backward(const KeyBackwardParams& p, const KeyWork& work,
                                              const KeyMemory& s, int64_t t, const float* before) {
  const StageParams& stage = p.all.stage;
  const int64_t batch = work.place.batch, row = work.place.row + t;
  const float beta = load_key_token(p, work, s, t);
  float x_error = 0.0f, error_d_o = 0.0f;
  for (int64_t j = threadIdx.x; j < stage.V; j += kKeyThreads) {
    const float error = key_error(p, s, before, j);
    float x = 0.0f;
    for (int64_t i = 0; i < stage.K; ++i) {
      float& element = s.D[i * stage.V + j];
      element = fmaf(s.q[i], s.d_o[j], element);
      x = fmaf(s.k[i], element, x);
    }
    s.error[j] = error, s.x[j] = x;
    x_error = fmaf(x, error, x_error), error_d_o = fmaf(error, s.d_o[j], error_d_o);
    if (p.all.dv.data != nullptr) {
      device::store_number(p.all.dv.data, at(p.all.dv, batch, row, work.head) + j, p.all.dv.number,
                           beta * x);
    }
  }
  x_error = key_sum(x_error, s.warps), error_d_o = key_sum(error_d_o, s.warps);
  if (p.all.dbeta.data != nullptr && threadIdx.x == 0) {
    const float given = number_at(p.all.raw_beta, batch, row, work.head);
    device::store_number(p.all.dbeta.data, at(p.all.dbeta, batch, row, work.head),
                         p.all.dbeta.number, strength_slope(p.all, given) * x_error);
  }
  return key_rows(p, work, s, row, before, beta, error_d_o);
}

/// A state of the sequence from or to a pool whose slots are the sequences.
template <class Move>
__device__ __forceinline__ void for_each_element(const KeyBackwardParams& p, const Move& move) {
  const StageParams& stage = p.all.stage;
  __syncthreads();
  for (int64_t at = threadIdx.x; at < stage.K * stage.V; at += kKeyThreads) {
    const int64_t i = at / stage.V, j = at % stage.V;
    move(at, i * stage.row_step + j * stage.column_step);
  }
  __syncthreads();
}
__device__ __forceinline__ void load_key_state(const KeyBackwardParams& p, const KeyWork& work,
                                               const BoundedPool& from, float* to) {
  const auto& pool = from.pool;
  const int64_t start = work.seq * pool.slot_stride + work.head * p.all.stage.K * p.all.stage.V;
  for_each_element(p, [&](int64_t at, int64_t place) {
    to[at] =
        pool.data == nullptr ? 0.0f : device::load_number(pool.data, start + place, pool.number);
  });
}

/// Items are sequences x heads.
__global__ void __launch_bounds__(kKeyThreads)
    key_tokens_kernel(const __grid_constant__ KeyBackwardParams p, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  device::follow();
  const StageParams& stage = p.all.stage;
  const int64_t each = stage.K * stage.V;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    KeyWork work{item / stage.HV, item % stage.HV, {}, 0};
    work.tokens = device::tokens_of(stage, work.seq, &work.place);
    const KeyMemory s(p, work, dynamic_shared);
    const int64_t segments = (work.tokens + p.segment - 1) / p.segment;
    for (int64_t i = threadIdx.x; i < stage.K; i += kKeyThreads) s.bias[i] = 0.0f;
    load_key_state(p, work, stage.state.initial, s.S);
    for (int64_t i = 0; i < segments; ++i) {
      for_each_element(p, [&](int64_t at, int64_t) { s.starts[i * each + at] = s.S[at]; });
      key_forward(p, work, s, i * p.segment, min((i + 1) * p.segment, work.tokens));
    }
    load_key_state(p, work, p.all.d_final, s.D);
    float by_rate = 0.0f;
    for (int64_t i = segments - 1; i >= 0; --i) {
      const int64_t begin = i * p.segment, end = min(begin + p.segment, work.tokens);
      for_each_element(p, [&](int64_t at, int64_t) { s.S[at] = s.starts[i * each + at]; });
      key_forward(p, work, s, begin, end);
      for (int64_t t = end - 1; t >= begin; --t) {
        by_rate += key_backward(p, work, s, t, s.states + (t - begin) * each);
      }
    }
    by_rate = key_sum(by_rate, s.warps);
    const auto& pool = p.all.dinitial.pool;
    const int64_t start = work.seq * pool.slot_stride + work.head * each;
    if (pool.data != nullptr) {
      for_each_element(p, [&](int64_t at, int64_t place) {
        device::store_number(pool.data, start + place, pool.number, s.D[at]);
      });
    }
    if (p.rate_parts != nullptr && threadIdx.x == 0) p.rate_parts[item] = by_rate;
    for (int64_t i = threadIdx.x; i < stage.K && p.bias_parts != nullptr; i += kKeyThreads) {
      p.bias_parts[item * stage.K + i] = s.bias[i];
    }
    __syncthreads();
  }
}

/// dA_log and ddt_bias over sequences, in their order. Items are value heads.
__global__ void __launch_bounds__(kKeyThreads)
    key_sums_kernel(const __grid_constant__ KeyBackwardParams p, int64_t items) {
  device::follow();
  const StageParams& stage = p.all.stage;
  const HeadOutput &ddt_bias = p.all.ddt_bias, &dA_log = p.all.dA_log;
  for (int64_t head = blockIdx.x; head < items; head += gridDim.x) {
    for (int64_t i = threadIdx.x; i < stage.K && p.bias_parts != nullptr; i += kKeyThreads) {
      float sum = 0.0f;
      for (int64_t n = 0; n < stage.N; ++n) {
        sum += p.bias_parts[(n * stage.HV + head) * stage.K + i];
      }
      device::store_number(ddt_bias.data, head * ddt_bias.stride + i, ddt_bias.number, sum);
    }
    if (p.rate_parts == nullptr || threadIdx.x != 0) continue;
    float sum = 0.0f;
    for (int64_t n = 0; n < stage.N; ++n) sum += p.rate_parts[n * stage.HV + head];
    device::store_number(dA_log.data, head * dA_log.stride, dA_log.number, sum);
  }
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_KEY_TOKENS_CUH_
