// Runs chunk_cumsum of float32 gates whose heads lie next to each other, chunks of 64 tokens.
//
// Math      G_i = sum over j <= i of g_j, g clamped at -128: additions in the order of cumsum.cuh
// Roles     a CTA has one chunk and 16 heads; a thread moves four heads of a token, a warp scans
//           two heads at once, four tokens a lane
// Memory    4 KB of shared memory: the gates, turned
// Floor     docs/kernels/stages.md
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_COMPACT_CUMSUM_CUH_
#define SLUICE_CUDA_KERNELS_STAGES_COMPACT_CUMSUM_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/kernels/stages/compact.cuh"

namespace sluice::cuda::stages {

using device::clamped_gate;

__global__ void __launch_bounds__(kCompactSumThreads)
    compact_cumsum_kernel(const __grid_constant__ CompactSumParams p) {
  auto* const g = reinterpret_cast<float*>(ptx::dynamic_memory());  // [head][kCompactSumRow]
  device::follow();
  const CompactSpan span = compact_span(p.shape);
  const auto thread = static_cast<int>(threadIdx.x);
  const int token = thread / 4, head = thread % 4 * 4;
  const int first = static_cast<int>(blockIdx.x) * kCompactHeads + head;
  const bool inside = token < span.tokens && first < p.shape.HV;
  float4 x = {};
  if (inside) {
    x = __ldg(reinterpret_cast<const float4*>(static_cast<const float*>(p.gate.data) +
                                              compact_at(p.gate, span.row + token, 0) + first));
  }
  float* const own = g + head * kCompactSumRow + token;
  own[0] = x.x, own[kCompactSumRow] = x.y;
  own[2 * kCompactSumRow] = x.z, own[3 * kCompactSumRow] = x.w;
  __syncthreads();
  auto& four = *reinterpret_cast<float4*>(g + thread / 16 * kCompactSumRow + thread % 16 * 4);
  float4 sums = {clamped_gate(four.x), clamped_gate(four.y), clamped_gate(four.z),
                 clamped_gate(four.w)};
  tile::sum_half_warp(sums);
  four = sums;
  __syncthreads();
  if (!inside) return;
  *reinterpret_cast<float4*>(static_cast<float*>(p.sums.data) +
                             compact_at(p.sums, span.row + token, 0) + first) = {
      own[0], own[kCompactSumRow], own[2 * kCompactSumRow], own[3 * kCompactSumRow]};
}

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_COMPACT_CUMSUM_CUH_
