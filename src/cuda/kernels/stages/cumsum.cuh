// Runs chunk_cumsum: sums of log gates inside chunks.
//
// Math      G_i = sum over j <= i of g_j (reverse: j >= i), g clamped at -128; g as given, or from
//           linear or raw gates
// Roles     a CTA has one chunk and 32 heads (key-wise gates: channels of a head); a warp scans one
//           head after the other
// Memory    17 KB of shared memory: the chunk's gates, turned so that both ways of lying in
//           memory (heads or tokens next to each other) are read and written in whole sectors
// Floor     docs/kernels/stages.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_CUMSUM_CUH_
#define SLUICE_CUDA_KERNELS_STAGES_CUMSUM_CUH_

#include "cuda/device/chunks.cuh"
#include "cuda/device/follow.cuh"
#include "cuda/device/gate.cuh"
#include "cuda/kernels/stages/config.h"
#include "cuda/kernels/stages/launch.h"

namespace sluice::cuda::stages {

using device::at, device::Chunk, device::chunk_of, device::clamped_gate, device::kMostTokens;
using device::StageParams, device::TokenRows, tile::sum_before_lane;

struct GateTile {
  float g[kSumHeads][kMostTokens + 1];
};

/// Calls move(token, head of the tile) for all tokens of a chunk, neighbours in memory by
/// neighbours of a warp, as many as there are: PERF a warp whose lanes are all wanted loads twice
/// as much at a time.
template <class Move>
__device__ __forceinline__ void for_each_gate(const TokenRows& rows, int tokens, int heads,
                                              const Move& move) {
  const bool heads_inside = rows.head_stride <= rows.token_stride;
  const int inner = heads_inside ? heads : tokens, outer = heads_inside ? tokens : heads;
  int shift = 0;
  while (1 << shift < inner) ++shift;
#pragma unroll 4
  for (auto i = static_cast<int>(threadIdx.x); i < outer << shift; i += kSumThreads) {
    const int in = i & ((1 << shift) - 1), out = i >> shift;
    if (in < inner) move(heads_inside ? out : in, heads_inside ? in : out);
  }
}

/// Scans one head's gates in place, four tokens a lane; one warp.
__device__ __forceinline__ void scan_head(float (&g)[kMostTokens + 1], int tokens, bool reverse) {
  constexpr int kEach = kMostTokens / 32;
  const auto lane = static_cast<int>(threadIdx.x % 32);
  float x[kEach], sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int step = lane * kEach + i, token = reverse ? tokens - 1 - step : step;
    sum += step < tokens ? g[token] : 0.0f;
    x[i] = sum;
  }
  const float before = sum_before_lane(sum);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int step = lane * kEach + i;
    if (step < tokens) g[reverse ? tokens - 1 - step : step] = before + x[i];
  }
}

/// g, not yet clamped, of head `head` of repeat `repeat`; of key-wise gates that is channel and head.
__device__ __forceinline__ float log_gate(const SumGates& gates, bool key_wise, int64_t head,
                                          int64_t repeat, float gate) {
  if (gates.form == device::GateForm::kLog) return gate;
  if (gates.form == device::GateForm::kLinear) return logf(gate);
  const int64_t of = key_wise ? repeat : head;
  const device::RawGate raw = device::load_key_gate(gates, gates.form, of, key_wise ? head : 0);
  return device::raw_log_gate(gates.form, raw, gate);
}

/// Items are slots x repeats x groups of 32 heads.
__global__ void __launch_bounds__(kSumThreads)
    cumsum_kernel(const __grid_constant__ StageParams p, const __grid_constant__ SumGates gates,
                  int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& tile = *reinterpret_cast<GateTile*>(dynamic_shared);
  device::follow();
  const int64_t groups = (p.HV + kSumHeads - 1) / kSumHeads;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int64_t turn = item / groups, repeat = p.repeats == 1 ? 0 : turn % p.repeats;
    const Chunk chunk = chunk_of(p, p.repeats == 1 ? turn : turn / p.repeats);
    const int64_t first = item % groups * kSumHeads;
    const auto heads = static_cast<int>(min(p.HV - first, int64_t{kSumHeads}));
    for_each_gate(p.gate, chunk.tokens, heads, [&](int token, int head) {
      const int64_t from = at(p.gate, chunk.batch, chunk.row + token, first + head);
      const float gate =
          device::load_number(p.gate.data, from + repeat * p.gate_repeat, p.gate.number);
      tile.g[head][token] = clamped_gate(log_gate(gates, p.key_gates, first + head, repeat, gate));
    });
    __syncthreads();
    for (auto head = static_cast<int>(threadIdx.x / 32); head < heads; head += kSumThreads / 32) {
      scan_head(tile.g[head], chunk.tokens, p.reverse);
    }
    __syncthreads();
    for_each_gate(p.g_cumsum, chunk.tokens, heads, [&](int token, int head) {
      const int64_t to = at(p.g_cumsum, chunk.batch, chunk.row + token, first + head);
      static_cast<float*>(p.g_cumsum.data)[to + repeat * p.sums_repeat] = tile.g[head][token];
    });
    __syncthreads();
  }
}

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_CUMSUM_CUH_
