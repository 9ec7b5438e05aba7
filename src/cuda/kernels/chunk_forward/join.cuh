// The join: carries states over the boundaries of a sequence, S = N + M S_before, in float32.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_JOIN_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_JOIN_CUH_

#include "cuda/kernels/chunk_forward/work.cuh"
#include "cuda/ptx/tma.cuh"

namespace sluice::cuda::chunk_forward {

/// Columns of V that one CTA carries.
inline constexpr int kJoinColumns = 16;

/// Threads of a CTA: two rows of M x 8 columns of S x one half of the sum each.
template <int kK>
inline constexpr int kJoinThreads = 2 * kK;

/// Shared memory of a CTA.
template <int kK>
struct JoinMemory {
  alignas(128) float M[2][kK][kK];           ///< [column][row], by turns
  alignas(16) float S[2][kK][kJoinColumns];  ///< the state before, and the one after, by turns
  alignas(16) float rest[kK][kJoinColumns];  ///< the second half of the sums
  alignas(8) uint64_t full[2];
};

/// The boundaries of one chain for one head.
struct Chain {
  const ChunkForwardParams& p;
  int head;

  /// Whether the state at a boundary is wanted.
  __device__ __forceinline__ bool wanted(int boundary) const {
    return p.split.horizon[boundary * p.HV + head] < 0;
  }
  /// Whether it is a product, and not N alone; not for the first boundary.
  __device__ __forceinline__ bool multiplied(int boundary) const {
    return wanted(boundary) && wanted(boundary - 1);
  }
  /// The next product after `boundary`, or `end`.
  __device__ __forceinline__ int next(int boundary, int end) const {
    do ++boundary;
    while (boundary < end && !multiplied(boundary));
    return boundary;
  }
  __device__ __forceinline__ int64_t pair(int boundary) const {
    return int64_t{boundary} * p.HV + head;
  }
};

/// Requests M of a boundary; one thread.
template <int kK>
__device__ __forceinline__ void request_factor(const Chain& chain, JoinMemory<kK>& s, int boundary,
                                               int turn) {
  constexpr uint32_t kBytes = kK * kK * sizeof(float);
  ptx::mbarrier_arrive_expect(&s.full[turn], kBytes);
  ptx::bulk_load(s.M[turn], factor_at(chain.p, boundary, chain.head), kBytes, &s.full[turn]);
}

/// out = half `half` of rows 2 `row` and 2 `row` + 1 of M S, 8 columns from `column`.
template <int kK>
__device__ __forceinline__ void multiply_rows(const float (&M)[kK][kK],
                                              const float (&S)[kK][kJoinColumns], int row,
                                              int column, int half, float (&out)[2][8]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) out[i / 8][i % 8] = 0.0f;
#pragma unroll 8
  for (int k = half * (kK / 2); k < (half + 1) * (kK / 2); ++k) {
    const float2 m = *reinterpret_cast<const float2*>(&M[k][2 * row]);
    const float4 low = *reinterpret_cast<const float4*>(&S[k][column]);
    const float4 high = *reinterpret_cast<const float4*>(&S[k][column + 4]);
    const float x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      out[0][j] += m.x * x[j];
      out[1][j] += m.y * x[j];
    }
  }
}

/// One step: the state at a boundary from the one before it, to shared and global memory.
template <int kK>
__device__ __forceinline__ void carry_over(const Chain& chain, JoinMemory<kK>& s, int boundary,
                                           int turn, int first) {
  const auto thread = static_cast<int>(threadIdx.x);
  const int column = (thread & 1) * 8, row = (thread >> 1) % (kK / 2), half = thread / kK;
  float* const state = chain.p.split.added + chain.pair(boundary) * kK * chain.p.V + first + column;
  float added[2][8], sum[2][8];
  if (half == 0) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      added[i / 8][i % 8] = state[int64_t{2 * row + i / 8} * chain.p.V + i % 8];
    }
  }
  multiply_rows<kK>(s.M[turn], s.S[turn], row, column, half, sum);
  if (half == 1) {
#pragma unroll
    for (int i = 0; i < 16; ++i) s.rest[2 * row + i / 8][column + i % 8] = sum[i / 8][i % 8];
  }
  __syncthreads();
  if (half == 0) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int k = 2 * row + i / 8, j = i % 8;
      const float x = added[i / 8][j] + (sum[i / 8][j] + s.rest[k][column + j]);
      state[int64_t{k} * chain.p.V + j] = x;
      s.S[turn ^ 1][k][column + j] = x;
    }
  }
  __syncthreads();
}

/// Reads the state at a boundary whose N is all of it.
template <int kK>
__device__ __forceinline__ void read_state_at(const Chain& chain, JoinMemory<kK>& s, int boundary,
                                              int turn, int first) {
  const float* const state = chain.p.split.added + chain.pair(boundary) * kK * chain.p.V + first;
  for (auto i = static_cast<int>(threadIdx.x); i < kK * kJoinColumns; i += kJoinThreads<kK>) {
    const int k = i / kJoinColumns, j = i % kJoinColumns;
    s.S[turn][k][j] = state[int64_t{k} * chain.p.V + j];
  }
  __syncthreads();
}

/// Copies columns of a sequence's initial state, which other work items of the main pass may
/// overwrite with the final one, to its place at the first boundary.
template <int kK>
__device__ __forceinline__ void keep_initial(const Chain& chain, int boundary, int first) {
  const ChunkForwardParams& p = chain.p;
  const int seq = p.split.left[boundary].seq;
  const bool zeros = starts_from_zeros(p, seq);
  const int64_t base = zeros ? 0 : initial_at(p, seq, chain.head);
  float* const out = factor_at(p, boundary, chain.head);
  for (auto i = static_cast<int>(threadIdx.x); i < kK * kJoinColumns; i += kJoinThreads<kK>) {
    const int k = i / kJoinColumns, v = first + i % kJoinColumns;
    const int64_t at = base + (p.state_is_vk ? int64_t{v} * kK + k : int64_t{k} * p.V + v);
    out[int64_t{k} * p.V + v] = zeros ? 0.0f : load_number(p.initial.data, at, p.initial.number);
  }
}

/// Grid: boundaries x heads x slices of V, slices first; a CTA works where its boundary is the
/// first of a sequence. Every product waits for the one before it in its own CTA and for nobody
/// else.
template <int kK>
__global__ void __launch_bounds__(2 * kK)
    join_kernel(const __grid_constant__ ChunkForwardParams p) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& s = *reinterpret_cast<JoinMemory<kK>*>(dynamic_shared);
  ptx::wait_for_dependencies();
  const int slices = p.V / kJoinColumns, pair = static_cast<int>(blockIdx.x) / slices,
            begin = pair / p.HV, count = static_cast<int>(p.split.header->boundaries);
  if (begin >= count || p.split.left[begin].before >= 0) return;
  int end = begin + 1;
  while (end < count && p.split.left[end].before == end - 1) ++end;
  const Chain chain{p, pair % p.HV};
  const int first = static_cast<int>(blockIdx.x) % slices * kJoinColumns;
  const bool padded = locate(p, p.split.left[begin].seq, chain.head).padded != 0;
  if (p.split.keep_initial && !padded) keep_initial<kK>(chain, begin, first);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&s.full[0], 1);
    ptx::mbarrier_init(&s.full[1], 1);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  int boundary = chain.next(begin, end);
  if (threadIdx.x == 0 && boundary < end) request_factor<kK>(chain, s, boundary, 0);
  int done = -1;  // boundary whose state s.S holds
  for (uint32_t step = 0; boundary < end; ++step) {
    const int turn = static_cast<int>(step & 1u), after = chain.next(boundary, end);
    if (threadIdx.x == 0 && after < end) request_factor<kK>(chain, s, after, turn ^ 1);
    if (done != boundary - 1) read_state_at<kK>(chain, s, boundary - 1, turn, first);
    ptx::mbarrier_wait(&s.full[turn], (step >> 1) & 1u);
    carry_over<kK>(chain, s, boundary, turn, first);
    done = boundary;
    boundary = after;
  }
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_JOIN_CUH_
