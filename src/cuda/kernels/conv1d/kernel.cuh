// Short causal depthwise convolution with its states, prefill and update alike.
//
// Math      out[t,d] = act(bias[d] + sum_w weight[d,w] x[t-W+1+w,d]), inputs before the first token
//           from the state; the state afterwards as sluice.h has it for its form.
// Roles     a warp is one item. Heads, first: 128 or 32 channels of one sequence, its first W - 1
//           tokens and its state. Bodies: all later tokens, by packs of four along channels (rows)
//           or along tokens (lines), or element by element where neither is possible.
// Pipeline  none: no shared memory, no barrier, no shuffle; a thread never waits for another one.
// Memory    registers only: weights of 4 channels, 3 inputs before each token, 8 packs in flight.
// Floor     docs/kernels/layer.md
// Rejected  docs/kernels/layer.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_KERNEL_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_KERNEL_CUH_

#include "cuda/kernels/conv1d/head.cuh"
#include "cuda/kernels/conv1d/head_packs.cuh"
#include "cuda/kernels/conv1d/lines.cuh"
#include "cuda/kernels/conv1d/rows.cuh"

namespace sluice::cuda::conv1d {

/// CTAs a multiprocessor that the registers must allow: packs take up to 128 of them.
template <class Pack>
constexpr int resident_ctas() {
  return Pack::kElements > 1 ? 4 : 6;
}

/// WHY no instance for heads alone (decode): it needs as many registers as one with bodies.
/// @param p by value, in constant memory
/// @tparam kTokensInner lines, else rows
template <class Pack, bool kTokensInner>
__global__ void __launch_bounds__(kThreads, resident_ctas<Pack>())
    conv_kernel(const __grid_constant__ ConvParams p) {
  constexpr bool kPackedHeads = Pack::kElements > 1 && !kTokensInner;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t heads = p.head_warps * p.N;
  for (int64_t index = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; index < p.warps;
       index += int64_t{gridDim.x} * kWarps) {
    if (index < heads) {
      const int64_t n = index / p.head_warps, unit = index % p.head_warps * 32 + lane;
      if constexpr (kPackedHeads) {
        if (p.head_form != HeadForm::kElements) {
          if (unit * Pack::kElements < p.D) packed_head_item<Pack>(p, n, unit * Pack::kElements);
          continue;
        }
      }
      if (unit < p.D) head_item(p, n, unit);
    } else if constexpr (kTokensInner) {
      lines_item<Pack>(p, index - heads, lane);
    } else {
      rows_item<Pack>(p, index - heads, lane);
    }
  }
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_KERNEL_CUH_
