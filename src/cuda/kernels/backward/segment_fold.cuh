// Folds the maps of segments into what their boundaries hold: states that enter segments, and
// gradients of the states that leave them.
//
// Math      from a sequence's first boundary to its last  S' <- S' + M S, and the other way round
//           D <- D + M^T D', float32; M and the addends are the first pass of the chains'
// Roles     a CTA has 8 columns of V of one (direction, sequence, head); no CTA waits for another.
//           A thread has 4 rows of an eighth of the sums' terms, then 4 columns of a row
// Memory    M from the L2 to registers, a boundary ahead; what is multiplied and parts of sums in
//           shared memory
// Floor     a boundary is 64 KB of M a CTA: 0.6 us at K = 128
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_SEGMENT_FOLD_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_SEGMENT_FOLD_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/kernels/backward/params.h"
#include "cuda/kernels/backward/segments.cuh"
#include "cuda/ptx/cluster.cuh"

namespace sluice::cuda::backward {

inline constexpr int kFoldParts = 8;
template <int kK>
inline constexpr int kFoldThreads = 2 * kK;

template <int kK>
struct FoldShared {
  float4 in[kFoldColumns / 4][kK];            ///< what M multiplies
  float parts[kFoldParts][kFoldColumns][kK];  ///< of sums, by shares of their terms
};

/// The boundaries of a sequence and head in one direction.
template <int kK>
struct FoldWalk {
  const SegmentCut& cut;
  int64_t heads, head, first;
  int count;
  bool back;

  /// The boundary of a step.
  __device__ __forceinline__ int64_t boundary(int step) const {
    return first + (back ? count - 1 - step : step);
  }
  /// Rows of a state at a boundary.
  __device__ __forceinline__ float* state(int step) const {
    return (back ? cut.gradients : cut.states) + (boundary(step) * heads + head) * kK * kK;
  }
  /// M of the segment between the boundaries of a step and of the one before, [term][row].
  __device__ __forceinline__ const float* factor(int step) const {
    const int64_t end = back ? boundary(step) + 1 : boundary(step);
    return (back ? cut.by_rows : cut.by_columns) + (end * heads + head) * kK * kK;
  }
};

/// A thread's share of M: 4 rows of as many terms.
template <int kK>
struct FoldFactor {
  static constexpr int kTerms = kK / kFoldParts;
  float4 x[kTerms];

  __device__ __forceinline__ void load(const float* M, int part, int group) {
#pragma unroll
    for (int i = 0; i < kTerms; ++i) {
      x[i] = __ldg(reinterpret_cast<const float4*>(M + (part * kTerms + i) * kK + 4 * group));
    }
  }
  /// Parts of sums to shared memory.
  __device__ __forceinline__ void multiply(FoldShared<kK>& s, int part, int group) const {
    float sum[kFoldColumns][4] = {};
#pragma unroll
    for (int i = 0; i < kTerms; ++i) {
      const float rows[4] = {x[i].x, x[i].y, x[i].z, x[i].w};
#pragma unroll
      for (int four = 0; four < kFoldColumns / 4; ++four) {
        const float4 in = s.in[four][part * kTerms + i];
        const float columns[4] = {in.x, in.y, in.z, in.w};
#pragma unroll
        for (int c = 0; c < 4; ++c) {
#pragma unroll
          for (int r = 0; r < 4; ++r) {
            sum[4 * four + c][r] = fmaf(rows[r], columns[c], sum[4 * four + c][r]);
          }
        }
      }
    }
#pragma unroll
    for (int c = 0; c < kFoldColumns; ++c) {
      *reinterpret_cast<float4*>(&s.parts[part][c][4 * group]) =
          make_float4(sum[c][0], sum[c][1], sum[c][2], sum[c][3]);
    }
  }
};

/// x plus the parts of a column's sum in a row. NUM in one order, whatever the launch.
template <int kK>
__device__ __forceinline__ float add_parts(const FoldShared<kK>& s, float x, int column, int row) {
  const auto part = [&](int n) { return s.parts[n][column][row]; };
  return x + (((part(0) + part(1)) + (part(2) + part(3))) +
              ((part(4) + part(5)) + (part(6) + part(7))));
}

/// All boundaries of a walk, of the columns from `column` on.
template <int kK>
__device__ __forceinline__ void fold_columns(const FoldWalk<kK>& walk, int column,
                                             FoldShared<kK>& s) {
  const auto thread = static_cast<int>(threadIdx.x);
  const int group = thread % (kK / 4), part = thread / (kK / 4);
  const int row = thread % kK, four = thread / kK;
  const int place = row * kK + column + 4 * four;
  FoldFactor<kK> factor;
  if (walk.count > 1) factor.load(walk.factor(1), part, group);
  s.in[four][row] = *reinterpret_cast<const float4*>(walk.state(0) + place);
  __syncthreads();
#pragma unroll 1
  for (int step = 1; step < walk.count; ++step) {
    auto* const state = reinterpret_cast<float4*>(walk.state(step) + place);
    float4 x = *state;
    const FoldFactor<kK> now = factor;
    // PERF the next M is on its way while this one is multiplied.
    if (step + 1 < walk.count) factor.load(walk.factor(step + 1), part, group);
    now.multiply(s, part, group);
    __syncthreads();  // SYNC: all parts are there, and nobody reads what they were made of
    x.x = add_parts(s, x.x, 4 * four, row);
    x.y = add_parts(s, x.y, 4 * four + 1, row);
    x.z = add_parts(s, x.z, 4 * four + 2, row);
    x.w = add_parts(s, x.w, 4 * four + 3, row);
    *state = x;
    s.in[four][row] = x;
    __syncthreads();  // SYNC: the state is there, and nobody reads the parts
  }
}

/// Items are directions x chains x heads x slices of V. Chains are sequences, or boundaries where
/// there are fewer of those: then the first one of a sequence stands for it.
template <int kK>
__global__ void __launch_bounds__(kFoldThreads<kK>, 1)
    segment_fold_kernel(const __grid_constant__ BackwardParams b, int64_t items) {
  auto& s = *reinterpret_cast<FoldShared<kK>*>(ptx::dynamic_memory());
  const StageParams& p = b.stage;
  device::follow();
  constexpr int kSlices = kK / kFoldColumns;
  const int64_t chains = items / (2 * kSlices * p.HV);
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const auto slice = static_cast<int>(item % kSlices);
    const int64_t head = item / kSlices % p.HV, chain = item / kSlices / p.HV % chains;
    const bool back = item / kSlices / p.HV / chains == 0;
    int number = 0;
    const int64_t seq = chains == p.N ? chain : sequence_of_boundary(p, b.cut, chain, &number);
    const CutSequence of = cut_sequence(p, b.cut, seq);
    // Where chains are sequences there may be some without a boundary.
    if (number != 0 || of.count < 3) continue;  // one boundary holds what it should
    const FoldWalk<kK> walk{b.cut, p.HV, head, of.boundaries, of.count - 1, back};
    fold_columns<kK>(walk, slice * kFoldColumns, s);
  }
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_SEGMENT_FOLD_CUH_
