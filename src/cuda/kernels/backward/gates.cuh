// Holds what all kernels of chunk_backward share: numbers of tokens and heads, sums over a CTA,
// derivatives of gates.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_GATES_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_GATES_CUH_

#include "cuda/device/chunks.cuh"
#include "cuda/device/gate.cuh"
#include "cuda/kernels/backward/config.h"
#include "cuda/kernels/backward/params.h"

namespace sluice::cuda::backward {

using device::at, device::Chunk;

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

/// x over the CTA, in one order. All threads, which get it.
__device__ __forceinline__ float cta_sum(float x, float (&warps)[kWarps]) {
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0.0f;
  for (int w = 0; w < kWarps; ++w) sum += warps[w];
  __syncthreads();
  return sum;
}

__device__ __forceinline__ int64_t at(const HeadRows& rows, int64_t batch, int64_t row,
                                      int64_t head) {
  // PERF heads fit 32 bits, whose division is short.
  const uint32_t group = static_cast<uint32_t>(head) / static_cast<uint32_t>(rows.r);
  return batch * rows.batch_stride + row * rows.token_stride + group * rows.group_stride +
         (head - group * rows.r) * rows.head_stride;
}

template <class Rows>
__device__ __forceinline__ float number_at(const Rows& rows, int64_t batch, int64_t row,
                                           int64_t head) {
  return device::load_number(rows.data, at(rows, batch, row, head), rows.number);
}
__device__ __forceinline__ void put_float(const TokenRows& rows, int64_t batch, int64_t row,
                                          int64_t head, float x) {
  static_cast<float*>(rows.data)[at(rows, batch, row, head)] = x;
}

/// Rows of a batch entry that belong to sequences.
__device__ __forceinline__ int64_t rows_in_use(const StageParams& p) {
  return p.cu_seqlens.data == nullptr ? p.T : device::first_row(p, p.N);
}

/// g and beta of a token's heads. A warp.
__device__ __forceinline__ void prepare_gates(const BackwardParams& p, int64_t batch, int64_t row) {
  for (int64_t head = threadIdx.x % 32; head < p.stage.HV; head += 32) {
    if (p.g.data != nullptr) {
      const float gate = number_at(p.raw_gate, batch, row, head);
      put_float(p.g, batch, row, head,
                device::log_gate(p.gate_form, device::load_raw_gate(p, head), gate));
    }
    if (p.beta.data == nullptr) continue;
    const bool given = p.raw_beta.data != nullptr;
    const float beta = given ? number_at(p.raw_beta, batch, row, head) : 0.0f;
    put_float(p.beta, batch, row, head, device::write_strength(p.beta_form, p.beta_factor, beta));
  }
}

/// d g by the gate as given and by A_log; zero where the clamp acts. `g`: clamped.
__device__ __forceinline__ device::RawSlopes gate_slopes(const BackwardParams& p, int64_t head,
                                                         float gate, float g) {
  if (p.gate_form == GateForm::kLog) return {gate < -128.0f ? 0.0f : 1.0f, 0.0f};
  if (g == -128.0f) return {0.0f, 0.0f};
  if (p.gate_form == GateForm::kLinear) return {1.0f / gate, 0.0f};
  return device::raw_slopes(p.gate_form, device::load_raw_gate(p, head), gate, g);
}

/// d beta / d beta as given.
__device__ __forceinline__ float strength_slope(const BackwardParams& p, float given) {
  if (p.beta_form != BetaForm::kLogit) return p.beta_factor;
  const float s = 1.0f / (1.0f + expf(-given));
  return p.beta_factor * s * (1.0f - s);
}

/// What the caller gave of a token's gate and write strength, and the clamped logarithm.
struct GivenGate {
  float beta, gate, g;
};
__device__ __forceinline__ GivenGate given_gate(const BackwardParams& b, const Chunk& chunk,
                                                int64_t head, int token) {
  GivenGate given{};
  if (token >= chunk.tokens) return given;
  const int64_t batch = chunk.batch, row = chunk.row + token;
  if (b.dbeta.data != nullptr) given.beta = number_at(b.raw_beta, batch, row, head);
  if (b.g.data == nullptr || (b.dgate.data == nullptr && b.chunk_sums == nullptr)) return given;
  given.gate = number_at(b.raw_gate, batch, row, head);
  given.g = number_at(b.g, batch, row, head);
  return given;
}

/// Gradients of a token's gate and write strength, as given, from those of g and beta.
/// @return what sums over tokens are made of, if there are any: g by the gate and by A_log
__device__ __forceinline__ device::RawSlopes store_gate(const BackwardParams& b, const Chunk& chunk,
                                                        int64_t head, int token,
                                                        const GivenGate& given, float dg,
                                                        float dbeta) {
  const int64_t batch = chunk.batch, row = chunk.row + token;
  if (b.dbeta.data != nullptr) {
    device::store_number(b.dbeta.data, at(b.dbeta, batch, row, head), b.dbeta.number,
                         strength_slope(b, given.beta) * dbeta);
  }
  if (b.g.data == nullptr) return {};
  if (b.dg.data != nullptr) put_float(b.dg, batch, row, head, dg);
  if (b.dgate.data == nullptr && b.chunk_sums == nullptr) return {};
  const device::RawSlopes slopes = gate_slopes(b, head, given.gate, given.g);
  if (b.dgate.data != nullptr) {
    device::store_number(b.dgate.data, at(b.dgate, batch, row, head), b.dgate.number,
                         slopes.gate * dg);
  }
  return slopes;
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_GATES_CUH_
