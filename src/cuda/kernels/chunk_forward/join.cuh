// Joins segments: carries states over the boundaries of a sequence, S = N + M S_before, in float32.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_JOIN_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_JOIN_CUH_

#include "cuda/device/work_items.cuh"
#include "cuda/kernels/chunk_forward/instances.h"
#include "cuda/ptx/tma.cuh"

namespace sluice::cuda::chunk_forward {

using device::Chain, device::factor_at, device::initial_at, device::load_number, device::locate;
using device::PlanView, device::PrefillParams, device::starts_from_zeros;

/// Parts that a sum over rows of the old state is cut into.
inline constexpr int kJoinParts = 4;
/// Factors M on their way or in use. PERF one alone would wait for the L2 in every product.
inline constexpr int kJoinStages = 3;
/// Boundaries whose horizons a CTA knows at once.
inline constexpr int kJoinWindow = 1024;

/// Threads of a CTA: four rows of M x 4 columns of S x one part of the sum each.
template <int kK>
inline constexpr int kJoinThreads = 2 * kK;

/// Four neighbouring columns of a state, row by row in the order 0, 4, 8, .. 1, 5, 9, ..
/// PERF neighbouring threads have every fourth row.
template <int kK>
using Columns = float4[kK];

/// Shared memory of a CTA.
template <int kK>
struct JoinMemory {
  alignas(128) float M[kJoinStages][kK][kK];       ///< [column][row], by turns
  alignas(16) Columns<kK> S[2][kJoinColumns / 4];  ///< the states before and after, by turns
  alignas(16) Columns<kK> parts[kJoinParts][kJoinColumns / 4];
  alignas(8) uint64_t full[kJoinStages];
  uint32_t item;
  uint32_t wanted[kJoinWindow / 32];  ///< bit b: the state at boundary b of the window is
};

/// Place of a row in Columns.
template <int kK>
__device__ __forceinline__ int place_of_row(int row) {
  return row % 4 * (kK / 4) + row / 4;
}

/// Walks over the boundaries of a chain for one head. All threads of the CTA together.
template <int kK>
struct JoinWalk {
  const PrefillParams& p;
  JoinMemory<kK>& s;
  int head;
  Chain chain;
  int at = 0, window = -1;  ///< both count from the chain's first boundary; window: its first one
  bool wanted_before = false;

  __device__ __forceinline__ int64_t pair(int i) const {
    return int64_t{chain.first + i} * p.HV + head;
  }

  /// Horizons of boundaries first .. first + kJoinWindow - 1 of the chain.
  __device__ __forceinline__ void look(int first) {
    __syncthreads();
#pragma unroll 1
    for (auto i = static_cast<int>(threadIdx.x); i < kJoinWindow; i += kJoinThreads<kK>) {
      const bool is_wanted =
          first + i < chain.count && PlanView{p}.horizon(chain.first + first + i, head) < 0;
      const uint32_t word = __ballot_sync(~0u, is_wanted);
      if (i % 32 == 0) s.wanted[i / 32] = word;
    }
    __syncthreads();
    window = first;
  }

  /// The next boundary whose state is a product, and not N alone; chain.count if there is none.
  __device__ __forceinline__ int next() {
    for (; at < chain.count; ++at) {
      if (window < 0 || at - window >= kJoinWindow) look(at);
      const bool wanted = ((s.wanted[(at - window) / 32] >> ((at - window) % 32)) & 1u) != 0;
      const bool product = wanted && wanted_before;
      wanted_before = wanted;
      if (product) return at++;
    }
    return chain.count;
  }
};

/// Requests M of a boundary; one thread.
template <int kK>
__device__ __forceinline__ void request_factor(const JoinWalk<kK>& walk, int boundary, int turn) {
  constexpr uint32_t kBytes = kK * kK * sizeof(float);
  JoinMemory<kK>& s = walk.s;
  const int stage = turn % kJoinStages;
  ptx::mbarrier_arrive_expect(&s.full[stage], kBytes);
  ptx::bulk_load(s.M[stage], factor_at(walk.p, walk.chain.first + boundary, walk.head), kBytes,
                 &s.full[stage]);
}

/// parts = M S, every thread its part of four rows and four columns.
template <int kK>
__device__ __forceinline__ void multiply(JoinMemory<kK>& s, int turn) {
  constexpr int kGroups = kK / 4, kTerms = kK / kJoinParts;
  const auto thread = static_cast<int>(threadIdx.x);
  const int group = thread % kGroups, columns = thread / kGroups % 2, part = thread / (2 * kGroups);
  const Columns<kK>& S = s.S[turn & 1][columns];
  const auto& M = s.M[turn % kJoinStages];
  float4 sum[4] = {};
#pragma unroll 8
  for (int k = part * kTerms; k < (part + 1) * kTerms; ++k) {
    const float4 rows = *reinterpret_cast<const float4*>(&M[k][4 * group]);
    const float4 x = S[place_of_row<kK>(k)];
    const float m[4] = {rows.x, rows.y, rows.z, rows.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sum[i].x = fmaf(m[i], x.x, sum[i].x), sum[i].y = fmaf(m[i], x.y, sum[i].y);
      sum[i].z = fmaf(m[i], x.z, sum[i].z), sum[i].w = fmaf(m[i], x.w, sum[i].w);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) s.parts[part][columns][place_of_row<kK>(4 * group + i)] = sum[i];
}

/// A thread's four numbers of a state: where they lie in it and in Columns.
template <int kK>
struct JoinPlace {
  int place, columns, row;
  __device__ __forceinline__ JoinPlace()
      : place(static_cast<int>(threadIdx.x) % kK),
        columns(static_cast<int>(threadIdx.x) / kK),
        row(place % (kK / 4) * 4 + place / (kK / 4)) {}
  __device__ __forceinline__ float4* in(const JoinWalk<kK>& walk, int boundary, int first) const {
    const int64_t at = (walk.pair(boundary) * kK + row) * walk.p.V + first + 4 * columns;
    return reinterpret_cast<float4*>(walk.p.segments.added + at);
  }
};

__device__ __forceinline__ float4 add(const float4& a, const float4& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

/// One step: the state at a boundary from the one before it, to shared and global memory.
template <int kK>
__device__ __forceinline__ void carry_over(const JoinWalk<kK>& walk, int boundary, int turn,
                                           int first) {
  static_assert(kJoinParts == 4);
  JoinMemory<kK>& s = walk.s;
  const JoinPlace<kK> mine;
  float4* const state = mine.in(walk, boundary, first);
  const float4 added = *state;
  ptx::mbarrier_wait(&s.full[turn % kJoinStages], static_cast<uint32_t>(turn / kJoinStages & 1));
  multiply<kK>(s, turn);
  __syncthreads();
  const auto part = [&](int i) { return s.parts[i][mine.columns][mine.place]; };
  const float4 x = add(added, add(add(part(0), part(1)), add(part(2), part(3))));
  *state = x;
  s.S[(turn + 1) & 1][mine.columns][mine.place] = x;
  __syncthreads();
}

/// Reads the state at a boundary whose N is all of it.
template <int kK>
__device__ __forceinline__ void read_state_at(const JoinWalk<kK>& walk, int boundary, int turn,
                                              int first) {
  const JoinPlace<kK> mine;
  walk.s.S[turn & 1][mine.columns][mine.place] = *mine.in(walk, boundary, first);
  __syncthreads();
}

/// Copies columns of a sequence's initial state, which other work items of the main pass may
/// overwrite with the final one, to its place at the first boundary.
template <int kK>
__device__ __forceinline__ void keep_initial(const JoinWalk<kK>& walk, int first) {
  const PrefillParams& p = walk.p;
  const int seq = PlanView{p}.sequence(walk.chain);
  if (locate(p, seq, walk.head).padded != 0) return;
  const bool zeros = starts_from_zeros(p, seq);
  const int64_t base = zeros ? 0 : initial_at(p, seq, walk.head);
  float* const out = factor_at(p, walk.chain.first, walk.head);
#pragma unroll 1
  for (auto i = static_cast<int>(threadIdx.x); i < kK * kJoinColumns; i += kJoinThreads<kK>) {
    const int k = i / kJoinColumns, v = first + i % kJoinColumns;
    const int64_t at = base + (p.state_is_vk ? int64_t{v} * kK + k : int64_t{k} * p.V + v);
    out[int64_t{k} * p.V + v] = zeros ? 0.0f : load_number(p.initial.data, at, p.initial.number);
  }
}

/// All products of a chain for one head and columns of V from `first` on. `turn` counts products of
/// the CTA. PERF one place that looks for products: code that runs once is fetched from memory.
template <int kK>
__device__ __forceinline__ void walk_chain(JoinWalk<kK>& walk, int first, int& turn) {
  static_assert(kJoinStages == 3);
  int boundary = -1, after = -1, later = -1;  // products that are asked for; -1: none yet
  int done = -1;                              // boundary whose state s.S holds
  for (int asked = turn;; ++asked) {
    boundary = after;
    after = later;
    later = walk.next();
    if (threadIdx.x == 0 && later < walk.chain.count) request_factor(walk, later, asked);
    if (boundary < 0) continue;
    if (boundary >= walk.chain.count) return;
    if (done != boundary - 1) read_state_at(walk, boundary - 1, turn, first);
    carry_over(walk, boundary, turn++, first);
    done = boundary;
  }
}

/// The next item of the CTA. All of its threads together.
template <int kK>
__device__ __forceinline__ uint32_t next_join(const PrefillParams& p, JoinMemory<kK>& s,
                                              uint32_t item) {
  __syncthreads();
  if (!PlanView{p}.has_lists()) return item + gridDim.x;
  if (threadIdx.x == 0) s.item = gridDim.x + atomicAdd(&p.segments.header->join_ticket, 1u);
  __syncthreads();
  return s.item;
}

/// Persistent: items are chains x heads x slices of V, slices first. Every product waits for the
/// one before it in its own CTA and for nobody else.
template <int kK>
__global__ void __launch_bounds__(2 * kK, 1) join_kernel(const __grid_constant__ PrefillParams p) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& s = *reinterpret_cast<JoinMemory<kK>*>(dynamic_shared);
  if (threadIdx.x == 0) {
    for (uint64_t& barrier : s.full) ptx::mbarrier_init(&barrier, 1);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  ptx::launch_dependents();
  ptx::wait_for_dependencies();
  const PlanView plan{p};
  if (blockIdx.x == 0 && threadIdx.x == 0) plan.leave_counts();
  const auto slices = static_cast<uint32_t>(p.V / kJoinColumns),
             heads = static_cast<uint32_t>(p.HV), items = plan.chains() * heads * slices;
  int turn = 0;
  for (uint32_t item = blockIdx.x; item < items; item = next_join(p, s, item)) {
    const uint32_t pair = item / slices;
    const auto first = static_cast<int>(item % slices) * kJoinColumns;
    JoinWalk<kK> walk{p, s, static_cast<int>(pair % heads),
                      plan.chain(static_cast<int>(pair / heads))};
    if (p.segments.keep_initial) keep_initial(walk, first);
    walk_chain(walk, first, turn);
  }
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_JOIN_CUH_
