// Prepares key-wise gates, first part: sums of gates down the columns of a chunk, and
// what scales its rows.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_COLUMNS_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_COLUMNS_CUH_

#include "cuda/device/key_gate.cuh"
#include "cuda/device/token_gates.cuh"
#include "cuda/kernels/chunk_forward/key_config.h"
#include "cuda/ptx/lanes.cuh"
#include "cuda/tile/block_tile.cuh"
#include "cuda/tile/warp_products.cuh"

namespace sluice::cuda::chunk_forward {

using device::GateForm, device::Number, device::RawGate, device::TokenRows;
using tile::BlockTile;

/// Gates of up to 16 tokens, two channels of each: 0 at and past `rows`. `at`: of the first.
__device__ __forceinline__ void load_gates(float2 (&out)[16], const TokenRows& gates, int64_t at,
                                           int rows) {
  if (gates.number == Number::kFloat32) {
    const float* const from = static_cast<const float*>(gates.data) + at;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      out[i] = make_float2(0.0f, 0.0f);
      if (i < rows) out[i] = *reinterpret_cast<const float2*>(from + i * gates.token_stride);
    }
    return;
  }
  const uint16_t* const from = static_cast<const uint16_t*>(gates.data) + at;
  uint32_t raw[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    raw[i] = i < rows ? *reinterpret_cast<const uint32_t*>(from + i * gates.token_stride) : 0;
  }
  using tile::Packed;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    out[i] = gates.number == Number::kBfloat16
                 ? make_float2(Packed<__nv_bfloat16>::first(raw[i]),
                               Packed<__nv_bfloat16>::second(raw[i]))
                 : make_float2(Packed<__half>::first(raw[i]), Packed<__half>::second(raw[i]));
  }
}

/// log2 of the decay of a log gate. NUM: NaN passes the clamp, which is that of log_gate().
__device__ __forceinline__ float log2_decay(float g) {
  constexpr float kLog2e = 1.4426950408889634f;
  return (g < -128.0f ? -128.0f : g) * kLog2e;
}
__device__ __forceinline__ float2 log2_decays(float2 g) {
  return make_float2(log2_decay(g.x), log2_decay(g.y));
}

/// Turns gates of other forms into log gates, in place; `at`: the thread's column of a block.
template <int kPitch>
__device__ __forceinline__ void activate_gates(const PrefillParams& p, int head, int channel,
                                               float* at) {
  const GateForm form = p.key.form;
  const RawGate constants[2] = {device::load_key_gate(p, form, head, channel),
                                device::load_key_gate(p, form, head, channel + 1)};
  // PERF few copies of the activations: code that runs once is fetched from memory.
#pragma unroll 2
  for (int i = 0; i < 16; ++i) {
    float2& gate = *reinterpret_cast<float2*>(at + i * kPitch);
    if (form == GateForm::kLinear) {
      gate = make_float2(logf(gate.x), logf(gate.y));
    } else {
      gate = make_float2(device::raw_log_gate(form, constants[0], gate.x),
                         device::raw_log_gate(form, constants[1], gate.y));
    }
  }
}

/// The largest log gate of each of a block's tokens, a column of which the thread has; infinity where
/// one is positive or NaN. Whole warps. NUM: as words, numbers that are not positive grow with their
/// size, and positive ones and NaN are below them.
template <class C>
__device__ __forceinline__ void find_peaks(const float2 (&decays)[16], int block,
                                           KeyPrepareMemory<C>& s) {
  const auto word = [](float x) { return x <= 0.0f ? __float_as_uint(x) | 0x80000000u : 0u; };
  uint32_t mine = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const uint32_t least = ptx::least_of_lanes(min(word(decays[i].x), word(decays[i].y)));
    if (tile::lane() == i) mine = least;
  }
  if (tile::lane() < 16) s.peaks[tile::warp() % C::kPeakWarps][16 * block + tile::lane()] = mine;
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
  const TokenRows& gates = p.key.gate;
  const int rows = item.rows(0) - 16 * block;
  float2 gate[16];
  load_gates(gate, gates,
             item.batch * gates.batch_stride + item.head * gates.head_stride + channel +
                 (int64_t{item.row} + 16 * block) * gates.token_stride,
             rows);
  float* const at = &s.sums[16 * block][channel];
  if (p.key.form != GateForm::kLog) {
#pragma unroll
    for (int i = 0; i < 16; ++i) *reinterpret_cast<float2*>(at + i * C::kSumPitch) = gate[i];
    activate_gates<C::kSumPitch>(p, item.head, channel, at);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (i < rows) gate[i] = *reinterpret_cast<const float2*>(at + i * C::kSumPitch);
    }
  }
  float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
  for (float2& g : gate) g = log2_decays(g);
  if (p.may_forget_keys()) find_peaks(gate, block, s);
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    sum.x += gate[i].x, sum.y += gate[i].y;
    *reinterpret_cast<float2*>(at + i * C::kSumPitch) = sum;
  }
  *reinterpret_cast<float2*>(&s.totals[block][channel]) = sum;
}

/// Sum over the chunk's tokens of their largest log gate, to memory; one warp.
template <class C>
__device__ __forceinline__ void store_peak(KeyPrepareMemory<C>& s, float* to) {
  float sum[1] = {0.0f};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    uint32_t least = ~0u;
#pragma unroll
    for (const auto& peaks : s.peaks) least = min(least, peaks[tile::lane() + 32 * i]);
    sum[0] += least == 0 ? __uint_as_float(0x7f800000u) : __uint_as_float(least);
  }
  ptx::sum_over_lanes<0, 5>(sum);
  constexpr float kLn2 = 0.69314718f;
  if (tile::is_first_lane()) *to = sum[0] * kLn2;
}

/// Decays of channels over whole blocks, from the sums of these.
template <class C>
__device__ __forceinline__ void decay_blocks(KeyPrepareMemory<C>& s) {
  const int kind = static_cast<int>(threadIdx.x) / C::kK, i = static_cast<int>(threadIdx.x) % C::kK;
  const float totals[4] = {s.totals[0][i], s.totals[1][i], s.totals[2][i], s.totals[3][i]};
  float sum = 0.0f;
  if (kind == 0) {
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      s.before[b][i] = tile::exp2_fast(sum);
      sum += totals[b];
    }
    s.decay[i] = tile::exp2_fast(sum);
  } else if (kind == 1) {
#pragma unroll
    for (int b = 3; b >= 0; --b) {
      s.after[b][i] = tile::exp2_fast(sum);
      sum += totals[b];
    }
    s.between[0][i] = __float2half_rn(tile::exp2_fast(totals[1]));
    s.between[1][i] = __float2half_rn(tile::exp2_fast(totals[2]));
    s.between[2][i] = __float2half_rn(tile::exp2_fast(totals[1] + totals[2]));
  }
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

/// What rows of k (the first four warps) and q (the others) are scaled by in products, 0 at and past
/// `rows`: to unit length, so that fp16 holds them whatever their size is; and what makes good for it
/// where the operator does not normalise. PERF sums of squares as diagonals of products, 16 rows a
/// warp.
template <class C>
__device__ __forceinline__ void scale_rows(const PrefillParams& p, int rows,
                                           KeyPrepareMemory<C>& s) {
  const int warp = __shfl_sync(~0u, tile::warp(), 0), block = warp % 4, kind = warp / 4;
  const typename C::KeyTile& tile = kind == 0 ? s.k : s.q;
  float sums[2][4] = {};
#pragma unroll
  for (int step = 0; step < C::kK / 16; ++step) {
    uint32_t x[4];
    ptx::ldmatrix_x4(x, BlockTile(tile.block(step / 4)).block(block, step % 4));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t right[2] = {x[half], x[2 + half]};
      tile::mma<typename C::Io>(sums[half], x, right);
    }
  }
  // The lane that has the diagonal's numbers of a row and of the one 8 further down.
  const int odd = tile::lane_row() % 2;
  if (tile::lane() % 4 != tile::lane_row() / 2) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = 16 * block + tile::lane_row() + 8 * half;
    const float sum = odd != 0 ? sums[half][2 * half + 1] : sums[half][2 * half];
    float norm, length = 1.0f;
    if constexpr (C::kL2Norm) {
      norm = rsqrtf(sum + p.l2norm_eps);
    } else {
      norm = sum == 0.0f ? 0.0f : rsqrtf(sum);
      length = sum * norm;
    }
    s.norms[kind][row] = row < rows ? norm : 0.0f;
    s.lengths[kind][row] = row < rows ? length : 0.0f;
  }
}

/// Zeroes rows of k and q at and past `rows`: they belong to another sequence.
template <class C>
__device__ __forceinline__ void zero_tail(int rows, KeyPrepareMemory<C>& s) {
  (threadIdx.x < 128 ? s.k : s.q).zero_rows_from(rows);
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_COLUMNS_CUH_
