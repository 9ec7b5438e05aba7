// First part of the preparation with key-wise gates: sums of gates down the columns of a chunk, and
// what scales its rows.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_COLUMNS_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_COLUMNS_CUH_

#include "cuda/device/key_gate.cuh"
#include "cuda/device/token_gates.cuh"
#include "cuda/kernels/chunk_forward/key_config.h"

namespace sluice::cuda::chunk_forward {

using device::GateForm, device::Number, device::RawGate, device::TokenRows;

/// Two neighbouring gates of type Number, as they lie in memory.
__device__ __forceinline__ float2 gate_pair(Number number, const uint2& raw) {
  if (number == Number::kFloat32) return {__uint_as_float(raw.x), __uint_as_float(raw.y)};
  using tile::Packed;
  if (number == Number::kBfloat16) {
    return {Packed<__nv_bfloat16>::first(raw.x), Packed<__nv_bfloat16>::second(raw.x)};
  }
  return {Packed<__half>::first(raw.x), Packed<__half>::second(raw.x)};
}

/// log2 of the decay of a gate. NUM: NaN passes the clamp, which is that of log_gate().
__device__ __forceinline__ float log2_decay(GateForm form, const RawGate& constants, float gate) {
  constexpr float kLog2e = 1.4426950408889634f;
  const float g = form == GateForm::kLinear ? logf(gate)
                  : device::is_raw(form)    ? device::raw_log_gate(form, constants, gate)
                                            : gate;
  return (g < -128.0f ? -128.0f : g) * kLog2e;
}

/// Sums of log2 decays: of each token those of its block of 16 up to itself, and those of whole
/// blocks. A thread has two channels of a block; gates at and past `rows` are 0. `item`: of the
/// chunk.
template <class C>
__device__ __forceinline__ void sum_gates(const PrefillParams& p, const WorkItem& item,
                                          KeyPrepareMemory<C>& s) {
  constexpr int kPairs = C::kK / 2;
  const int channel = static_cast<int>(threadIdx.x) % kPairs * 2,
            block = static_cast<int>(threadIdx.x) / kPairs;
  if (block >= 4) return;
  const TokenRows& gate = p.key.gate;
  const int rows = item.rows(0) - 16 * block;
  const int64_t at = item.batch * gate.batch_stride + item.head * gate.head_stride + channel +
                     (int64_t{item.row} + 16 * block) * gate.token_stride;
  uint2 raw[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    raw[i] = make_uint2(0, 0);
    const int64_t here = at + i * gate.token_stride;
    if (i >= rows) continue;
    if (gate.number == Number::kFloat32) {
      raw[i] = *reinterpret_cast<const uint2*>(static_cast<const float*>(gate.data) + here);
    } else {
      raw[i].x = *reinterpret_cast<const uint32_t*>(static_cast<const uint16_t*>(gate.data) + here);
    }
  }
  const RawGate constants[2] = {device::load_key_gate(p, p.key.form, item.head, channel),
                                device::load_key_gate(p, p.key.form, item.head, channel + 1)};
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    *reinterpret_cast<float2*>(&s.sums[16 * block + i][channel]) = gate_pair(gate.number, raw[i]);
  }
  float2 sum = make_float2(0.0f, 0.0f);
  // PERF few copies of the activations: code that runs once is fetched from memory.
#pragma unroll 2
  for (int i = 0; i < 16; ++i) {
    float2& at_token = *reinterpret_cast<float2*>(&s.sums[16 * block + i][channel]);
    if (i < rows) {
      sum.x += log2_decay(p.key.form, constants[0], at_token.x);
      sum.y += log2_decay(p.key.form, constants[1], at_token.y);
    }
    at_token = sum;
  }
  *reinterpret_cast<float2*>(&s.totals[block][channel]) = sum;
}

/// Write strengths; threads 0..63 have a token each.
template <class Memory>
__device__ __forceinline__ void load_betas(const PrefillParams& p, const WorkItem& item,
                                           Memory& s) {
  const auto t = static_cast<int>(threadIdx.x);
  if (t >= 64) return;
  float beta = 0.0f;
  if (p.beta.data != nullptr && t < item.rows(0)) {
    beta = device::load_number(device::scalar_address(p, p.beta, item) + t * p.beta.token_bytes, 0,
                               p.beta.number);
  }
  s.beta[t] = t < item.rows(0) ? device::write_strength(p.beta_form, p.beta_factor, beta) : 0.0f;
}

/// What rows of k (the first 128 threads) and q (the others) are scaled by in products, 0 at and past
/// `rows`: to unit length, so that fp16 holds them whatever their size is; and what makes good for it
/// where the operator does not normalise.
template <class C>
__device__ __forceinline__ void scale_rows(const PrefillParams& p, int rows,
                                           KeyPrepareMemory<C>& s) {
  const int kind = static_cast<int>(threadIdx.x) / 128,
            row = static_cast<int>(threadIdx.x) % 128 / 2;
  const float sum = tile::sum_of_squares(kind == 0 ? s.k : s.q);
  float norm, length = 1.0f;
  if (p.key.l2norm) {
    norm = rsqrtf(sum + p.l2norm_eps);
  } else {
    norm = sum == 0.0f ? 0.0f : rsqrtf(sum);
    length = sum * norm;
  }
  if (threadIdx.x % 2 != 0) return;
  s.norms[kind][row] = row < rows ? norm : 0.0f;
  s.lengths[kind][row] = row < rows ? length : 0.0f;
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_COLUMNS_CUH_
