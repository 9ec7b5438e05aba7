// Short causal depthwise convolution with its states, prefill and update alike.
//
// Math      out[t,d] = act(bias[d] + sum_w weight[d,w] x[t-W+1+w,d]), inputs before the first token
//           from the state; the state afterwards as sluice.h has it for its form.
// Roles     a warp is one item. Heads, first: some channels of a sequence, its first W - 1 tokens
//           and its state. Bodies: all later tokens, 16 bytes at a time along
//           channels (rows) or along tokens (lines), or element by element.
// Pipeline  eight rows (four lines) of loads in flight a thread, one more for each that is used.
// Memory    registers; heads exchange columns within a warp where they lie inside (columns.cuh).
// Floor     docs/kernels/layer.md
// Rejected  docs/kernels/layer.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_KERNEL_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_KERNEL_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/kernels/conv1d/head.cuh"
#include "cuda/kernels/conv1d/head_packs.cuh"
#include "cuda/kernels/conv1d/lines.cuh"
#include "cuda/kernels/conv1d/rows.cuh"

namespace sluice::cuda::conv1d {

/// What the items of a kernel after the heads are.
enum class Items { kRows, kLines, kNone };

/// CTAs a multiprocessor that the registers must allow. PERF a walk through rows has 168 of them
/// for eight loads in flight: 12 warps have 48 KB on their way, twice what the latency asks for.
template <class Pack, Items kItems>
constexpr int resident_ctas() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
  constexpr int kFewer = 1;  // WHY: compiled for Blackwell, these two need more registers
#else
  constexpr int kFewer = 0;
#endif
  if (kItems == Items::kLines) return 4 - kFewer;
  if (kItems == Items::kNone) return 4;
  return Pack::kElements == 1 ? 5 - kFewer : 3;
}

/// @param p by value, in constant memory
/// @tparam kItems kNone: heads by packs alone, a decode step
/// WHY rows of packs have no other heads: they would need more registers than the rows (pieces.h).
template <class Pack, Items kItems>
__global__ void __launch_bounds__(kThreads, resident_ctas<Pack, kItems>())
    conv_kernel(const __grid_constant__ ConvParams p) {
  extern __shared__ __align__(16) uint4 head_stage[];
  device::follow();
  constexpr bool kPackedHeads = Pack::kElements > 1 && kItems != Items::kLines;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t index = p.first_warp + int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (index >= p.warps) return;
  if (index < p.heads) {
    const int64_t n = index / p.head_warps, warp = index - n * p.head_warps;
    if constexpr (kPackedHeads) {
      uint4* stage = head_stage + threadIdx.x / 32 * kStagePieces;
      packed_head_item<Pack>(p, n, warp, lane, stage);
    } else {
      if (warp * 32 + lane < p.D) head_item(p, n, warp * 32 + lane);
    }
  } else if constexpr (kItems == Items::kLines) {
    lines_item<Pack>(p, index - p.heads, lane);
  } else if constexpr (kItems == Items::kRows) {
    rows_item<Pack>(p, index - p.heads, lane);
  }
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_KERNEL_CUH_
