// Joins segments of linear attention: carries states over the boundaries of a sequence,
// S = N + M S_before with a number M, in float32.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_JOIN_CUH_
#define SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_JOIN_CUH_

#include "cuda/device/work_items.cuh"

namespace sluice::cuda::linear_attention {

using device::PrefillParams, device::SegmentView;

inline constexpr int kJoinThreads = 128;  ///< four numbers of a state each

/// Copies four numbers of a sequence's initial state, which other work items of the main pass may
/// overwrite with the final one, to its place at the first boundary.
__device__ __forceinline__ void keep_initial(const PrefillParams& p, const device::Chain& chain,
                                             int head, int element) {
  const int seq = SegmentView{p, false}.sequence(chain);
  if (device::locate(p, seq, head).padded != 0) return;
  const bool zeros = device::starts_from_zeros(p, seq);
  const int64_t base = zeros ? 0 : device::initial_at(p, seq, head);
  float* const out = device::factor_at(p, chain.first, head);
#pragma unroll
  for (int i = element; i < element + 4; ++i) {
    const int k = i / p.V, v = i % p.V;
    const int64_t at = base + (p.state_is_vk ? int64_t{v} * p.K + k : int64_t{i});
    out[i] = zeros ? 0.0f : device::load_number(p.initial.data, at, p.initial.number);
  }
}

/// Boundaries whose numbers are on their way at once.
inline constexpr int kJoinAhead = 8;

/// S at all boundaries of a chain, four numbers of it.
__device__ __forceinline__ void walk_chain(const PrefillParams& p, const device::Chain& chain,
                                           int head, float4* states) {
  const int64_t step = int64_t{p.HV} * p.K * p.V / 4;
  float4 S{};
  for (int first = 0; first < chain.count; first += kJoinAhead) {
    float4 added[kJoinAhead];
    float kept[kJoinAhead];
#pragma unroll
    for (int i = 0; i < kJoinAhead; ++i) {
      const int at = min(first + i, chain.count - 1);
      added[i] = states[at * step];
      kept[i] = at == 0 ? 0.0f : *device::factor_at(p, chain.first + at, head);
    }
#pragma unroll
    for (int i = 0; i < kJoinAhead; ++i) {
      if (first + i >= chain.count) break;
      const float4& n = added[i];
      if (first + i == 0) {
        S = n;
        continue;
      }
      S = {fmaf(kept[i], S.x, n.x), fmaf(kept[i], S.y, n.y), fmaf(kept[i], S.z, n.z),
           fmaf(kept[i], S.w, n.w)};
      states[(first + i) * step] = S;
    }
  }
}

/// Items are chains x heads x K V / 512.
__global__ void __launch_bounds__(kJoinThreads)
    join_kernel(const __grid_constant__ PrefillParams p) {
  ptx::launch_dependents();
  ptx::wait_for_dependencies();
  const SegmentView table{p, false};
  if (blockIdx.x == 0 && threadIdx.x == 0) table.leave_counts();
  const int size = p.K * p.V, parts = size / (4 * kJoinThreads);
  const uint32_t items = table.chains() * static_cast<uint32_t>(p.HV * parts);
  for (uint32_t item = blockIdx.x; item < items; item += gridDim.x) {
    const auto pair = static_cast<int>(item / static_cast<uint32_t>(parts));
    const int head = pair % p.HV;
    const device::Chain chain = table.chain(pair / p.HV);
    const int element = (static_cast<int>(item % static_cast<uint32_t>(parts)) * kJoinThreads +
                         static_cast<int>(threadIdx.x)) *
                        4;
    if (p.segments.keep_initial) keep_initial(p, chain, head, element);
    float4* const states = reinterpret_cast<float4*>(
        p.segments.added + (int64_t{chain.first} * p.HV + head) * size + element);
    walk_chain(p, chain, head, states);
  }
}

}  // namespace sluice::cuda::linear_attention

#endif  // SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_JOIN_CUH_
