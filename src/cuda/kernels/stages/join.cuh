// Joins segments of simple GLA: finds what each of them starts from.
//
// Math      S_0 = the initial state, S_i+1 = exp(sum of segment i's gates) S_i + what it adds
// Roles     a CTA of 256 threads has 1024 numbers of S of one (sequence, head), four a thread
// Memory    registers only; a segment's state replaces what it adds
// Floor     docs/kernels/stages.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_JOIN_CUH_
#define SLUICE_CUDA_KERNELS_STAGES_JOIN_CUH_

#include "cuda/device/chunks.cuh"
#include "cuda/device/follow.cuh"
#include "cuda/kernels/stages/config.h"

namespace sluice::cuda::stages {

using device::Chunk, device::slots_of, device::StageParams, device::tokens_of;

/// Four numbers, from `element` on in the order [K,V], of the state that a sequence starts from.
__device__ __forceinline__ float4 initial_numbers(const StageParams& p, int64_t slot, int64_t head,
                                                  int64_t element) {
  if (slot < 0) return {0.0f, 0.0f, 0.0f, 0.0f};
  const auto& pool = p.state.initial.pool;
  const int64_t start = slot * pool.slot_stride + head * p.K * p.V + element / p.V * p.row_step +
                        element % p.V * p.column_step;
  const auto number = [&](int64_t i) {
    return device::load_written(pool.data, start + i * p.column_step, pool.number);
  };
  return {number(0), number(1), number(2), number(3)};
}

/// Items are sequences x heads x K V / 1024.
__global__ void __launch_bounds__(kJoinThreads)
    join_kernel(const __grid_constant__ StageParams p, int64_t items) {
  device::follow();
  const int64_t size = p.K * p.V, parts = size / (4 * kJoinThreads), L = p.segments.tokens;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int64_t seq = item / parts / p.HV, head = item / parts % p.HV;
    const int64_t element = (item % parts * kJoinThreads + threadIdx.x) * 4;
    const device::Sequence slots = slots_of(p, seq);
    if (slots.padded) continue;
    Chunk first;
    const int64_t segments = (tokens_of(p, seq, &first) + L - 1) / L;
    const int64_t slot0 =
        p.cu_seqlens.data == nullptr ? seq * p.segments.slots : first.row / L + seq;
    float4 S = initial_numbers(p, slots.read, head, element);
    for (int64_t i = 0; i < segments; ++i) {
      const int64_t unit = (slot0 + i) * p.HV + head;
      auto* const place = reinterpret_cast<float4*>(p.segments.states + unit * size + element);
      float4 next = S;
      if (i + 1 < segments) {
        const float4 added = *place;
        const float kept = expf(p.segments.decays[unit]);
        next = {fmaf(kept, S.x, added.x), fmaf(kept, S.y, added.y), fmaf(kept, S.z, added.z),
                fmaf(kept, S.w, added.w)};
      }
      *place = S;
      S = next;
    }
  }
}

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_JOIN_CUH_
