// Joins segments: carries states over the boundaries of a sequence, S = N + M S_before, in float32.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_JOIN_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_JOIN_CUH_

#include "cuda/device/work_items.cuh"
#include "cuda/kernels/chunk_forward/instances.h"
#include "cuda/ptx/tma.cuh"

namespace sluice::cuda::chunk_forward {

using device::Chain, device::factor_at, device::initial_at, device::load_number, device::locate;
using device::SegmentView, device::PrefillParams, device::starts_from_zeros;

/// Parts that a sum over rows of the old state is cut into, one a thread: (0 + 1) + (2 + 3).
inline constexpr int kJoinParts = 4;
/// Columns that one thread sums up.
template <int kColumns>
inline constexpr int kOwnColumns = kColumns / 2;
/// Factors M on their way or in use. PERF one alone would wait for the L2 in every product; what is
/// left of shared memory beside wide states is two.
template <int kColumns>
inline constexpr int kJoinSlots = kColumns == 8 ? 3 : 2;
/// Boundaries whose horizons a CTA knows at once.
inline constexpr int kJoinWindow = 1024;

/// Threads of a CTA: four rows of M x kOwnColumns of S x a part of the sum each.
template <int kK>
inline constexpr int kJoinThreads = 2 * kK;

/// Four neighbouring columns of a state, row by row in the order 0, 4, 8, .. 1, 5, 9, ..
/// PERF neighbouring threads have every fourth row.
template <int kK>
using Columns = float4[kK];

/// Shared memory of a CTA.
template <int kK, int kColumns>
struct JoinMemory {
  static constexpr int kSlots = kJoinSlots<kColumns>, kFours = kColumns / 4;
  alignas(128) float M[kSlots][kK][kK];  ///< [column][row], by turns
  alignas(16) Columns<kK> S[2][kFours];  ///< the states before and after, by turns
  /// What the threads of all parts but the first have; that lies in S.
  alignas(16) Columns<kK> others[kJoinParts - 1][kFours];
  alignas(8) uint64_t full[kSlots];
  uint32_t item;
  uint32_t wanted[kJoinWindow / 32];  ///< bit b: the state at boundary b of the window is
};

/// Place of a row in Columns.
template <int kK>
__device__ __forceinline__ int place_of_row(int row) {
  return row % 4 * (kK / 4) + row / 4;
}

/// Walks over the boundaries of a chain for one head. All threads of the CTA together.
template <int kK, int kColumns>
struct JoinWalk {
  const PrefillParams& p;
  JoinMemory<kK, kColumns>& s;
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
          first + i < chain.count && SegmentView{p}.horizon(chain.first + first + i, head) < 0;
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
template <int kK, int kColumns>
__device__ __forceinline__ void request_factor(const JoinWalk<kK, kColumns>& walk, int boundary,
                                               int turn) {
  constexpr uint32_t kBytes = kK * kK * sizeof(float);
  JoinMemory<kK, kColumns>& s = walk.s;
  const int slot = turn % s.kSlots;
  ptx::mbarrier_arrive_expect(&s.full[slot], kBytes);
  ptx::bulk_load(s.M[slot], factor_at(walk.p, walk.chain.first + boundary, walk.head), kBytes,
                 &s.full[slot]);
}

__device__ __forceinline__ float4 add(const float4& a, const float4& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

/// Some rows of the old state and of M's columns, as one thread multiplies them.
template <int kK, int kFours, int kDepth>
struct JoinTerms {
  float4 m[kDepth], x[kDepth][kFours];

  /// Rows k .. k + kDepth - 1 of a part; `M`, `S`: where it begins for the thread.
  __device__ __forceinline__ JoinTerms(const float* M, const float4* S, int k) {
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      m[i] = *reinterpret_cast<const float4*>(M + (k + i) * kK);
#pragma unroll
      for (int j = 0; j < kFours; ++j) x[i][j] = S[j * kK + place_of_row<kK>(k + i)];
    }
  }
  __device__ __forceinline__ void add_to(float4 (&sum)[kFours][4]) const {
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      const float rows[4] = {m[i].x, m[i].y, m[i].z, m[i].w};
#pragma unroll
      for (int j = 0; j < kFours; ++j) {
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          sum[j][r].x = fmaf(rows[r], x[i][j].x, sum[j][r].x);
          sum[j][r].y = fmaf(rows[r], x[i][j].y, sum[j][r].y);
          sum[j][r].z = fmaf(rows[r], x[i][j].z, sum[j][r].z);
          sum[j][r].w = fmaf(rows[r], x[i][j].w, sum[j][r].w);
        }
      }
    }
  }
};

/// M S, every thread four rows and kOwnColumns of its part. PERF terms are read ahead of the products
/// of those before: two warps a scheduler do not hide the latency of shared memory.
template <int kK, int kColumns>
__device__ __forceinline__ void multiply(JoinMemory<kK, kColumns>& s, int turn) {
  constexpr int kGroups = kK / 4, kTerms = kK / kJoinParts, kFours = kOwnColumns<kColumns> / 4,
                kDepth = kFours == 4 ? 2 : 4;
  using Terms = JoinTerms<kK, kFours, kDepth>;
  const auto thread = static_cast<int>(threadIdx.x);
  const int group = thread % kGroups, first = thread / kGroups % 2 * kFours,
            part = thread / (2 * kGroups);
  const float* const M = &s.M[turn % s.kSlots][part * kTerms][4 * group];
  const float4* const S = &s.S[turn & 1][first][place_of_row<kK>(part * kTerms)];
  float4 sum[kFours][4] = {};
  Terms now(M, S, 0);
#pragma unroll 1
  for (int block = 0; block < kTerms / (2 * kDepth); ++block) {
    const int k = block * 2 * kDepth;
    const Terms next(M, S, k + kDepth);
    now.add_to(sum);
    now = Terms(M, S, (k + 2 * kDepth) % kTerms);
    next.add_to(sum);
  }
  Columns<kK>* const out = part == 0 ? s.S[(turn + 1) & 1] : s.others[part - 1];
#pragma unroll
  for (int j = 0; j < kFours; ++j) {
#pragma unroll
    for (int r = 0; r < 4; ++r) out[first + j][place_of_row<kK>(4 * group + r)] = sum[j][r];
  }
}

/// A thread's numbers of a state, four at a time: where they lie in it and in Columns.
template <int kK, int kColumns>
struct JoinPlace {
  static constexpr int kCount = kColumns / 8;
  int place, columns, row;
  __device__ __forceinline__ JoinPlace()
      : place(static_cast<int>(threadIdx.x) % kK),
        columns(static_cast<int>(threadIdx.x) / kK),
        row(place % (kK / 4) * 4 + place / (kK / 4)) {}
  /// Calls use(i, four columns, their address) for each.
  template <class Use>
  __device__ __forceinline__ void for_each(const JoinWalk<kK, kColumns>& walk, int boundary,
                                           int first, const Use& use) const {
    const int64_t at = (walk.pair(boundary) * kK + row) * walk.p.V + first;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int four = columns + 2 * i;
      use(i, four, reinterpret_cast<float4*>(walk.p.segments.added + at + 4 * four));
    }
  }
};

/// One step: the state at a boundary from the one before it, to shared and global memory.
template <int kK, int kColumns>
__device__ __forceinline__ void carry_over(const JoinWalk<kK, kColumns>& walk, int boundary,
                                           int turn, int first) {
  JoinMemory<kK, kColumns>& s = walk.s;
  const JoinPlace<kK, kColumns> mine;
  float4 x[mine.kCount];
  mine.for_each(walk, boundary, first, [&](int i, int, const float4* state) { x[i] = *state; });
  ptx::mbarrier_wait(&s.full[turn % s.kSlots], static_cast<uint32_t>(turn / s.kSlots & 1));
  multiply(s, turn);
  __syncthreads();
  mine.for_each(walk, boundary, first, [&](int i, int four, float4* state) {
    float4& after = s.S[(turn + 1) & 1][four][mine.place];
    const auto other = [&](int n) { return s.others[n][four][mine.place]; };
    const float4 product = add(add(after, other(0)), add(other(1), other(2)));
    x[i] = add(x[i], product);
    after = x[i];
    *state = x[i];
  });
  __syncthreads();
}

/// Reads the state at a boundary whose N is all of it.
template <int kK, int kColumns>
__device__ __forceinline__ void read_state_at(const JoinWalk<kK, kColumns>& walk, int boundary,
                                              int turn, int first) {
  const JoinPlace<kK, kColumns> mine;
  mine.for_each(walk, boundary, first, [&](int, int four, const float4* state) {
    walk.s.S[turn & 1][four][mine.place] = *state;
  });
  __syncthreads();
}

/// Copies columns of a sequence's initial state, which other work items of the main pass may
/// overwrite with the final one, to its place at the first boundary.
template <int kK, int kColumns>
__device__ __forceinline__ void keep_initial(const JoinWalk<kK, kColumns>& walk, int first) {
  const PrefillParams& p = walk.p;
  const int seq = SegmentView{p}.sequence(walk.chain);
  if (locate(p, seq, walk.head).padded != 0) return;
  const bool zeros = starts_from_zeros(p, seq);
  const int64_t base = zeros ? 0 : initial_at(p, seq, walk.head);
  float* const out = factor_at(p, walk.chain.first, walk.head);
#pragma unroll 1
  for (auto i = static_cast<int>(threadIdx.x); i < kK * kColumns; i += kJoinThreads<kK>) {
    const int k = i / kColumns, v = first + i % kColumns;
    const int64_t at = base + (p.state_is_vk ? int64_t{v} * kK + k : int64_t{k} * p.V + v);
    out[int64_t{k} * p.V + v] = zeros ? 0.0f : load_number(p.initial.data, at, p.initial.number);
  }
}

/// All products of a chain for one head and columns of V from `first` on. `turn` counts products of
/// the CTA. PERF one place that looks for products: code that runs once is fetched from memory.
template <int kK, int kColumns>
__device__ __forceinline__ void walk_chain(JoinWalk<kK, kColumns>& walk, int first, int& turn) {
  constexpr int kAhead = kJoinSlots<kColumns> - 1;
  int products[kAhead + 1];  // those asked for; -1: none yet
  for (int& product : products) product = -1;
  int done = -1;  // boundary whose state s.S holds
  for (int asked = turn;; ++asked) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) products[i] = products[i + 1];
    products[kAhead] = walk.next();
    if (threadIdx.x == 0 && products[kAhead] < walk.chain.count) {
      request_factor(walk, products[kAhead], asked);
    }
    const int boundary = products[0];
    if (boundary < 0) continue;
    if (boundary >= walk.chain.count) return;
    if (done != boundary - 1) read_state_at(walk, boundary - 1, turn, first);
    carry_over(walk, boundary, turn++, first);
    done = boundary;
  }
}

/// The next item of the CTA. All of its threads together.
template <int kK, int kColumns>
__device__ __forceinline__ uint32_t next_join(const PrefillParams& p, JoinMemory<kK, kColumns>& s,
                                              uint32_t item) {
  __syncthreads();
  if (!SegmentView{p}.has_lists()) return item + gridDim.x;
  if (threadIdx.x == 0) s.item = gridDim.x + atomicAdd(&p.segments.header->join_ticket, 1u);
  __syncthreads();
  return s.item;
}

/// Persistent: items are chains x heads x slices of V, slices first. Every product waits for the
/// one before it in its own CTA and for nobody else.
template <int kK, int kColumns>
__global__ void __launch_bounds__(2 * kK, 1) join_kernel(const __grid_constant__ PrefillParams p) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& s = *reinterpret_cast<JoinMemory<kK, kColumns>*>(dynamic_shared);
  if (threadIdx.x == 0) {
    for (uint64_t& barrier : s.full) ptx::mbarrier_init(&barrier, 1);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  ptx::launch_dependents();
  ptx::wait_for_dependencies();
  const SegmentView table{p};
  if (blockIdx.x == 0 && threadIdx.x == 0) table.leave_counts();
  const auto slices = static_cast<uint32_t>(p.V / kColumns), heads = static_cast<uint32_t>(p.HV),
             items = table.chains() * heads * slices;
  int turn = 0;
  for (uint32_t item = blockIdx.x; item < items; item = next_join(p, s, item)) {
    const uint32_t pair = item / slices;
    const auto first = static_cast<int>(item % slices) * kColumns;
    JoinWalk<kK, kColumns> walk{p, s, static_cast<int>(pair % heads),
                                table.chain(static_cast<int>(pair / heads))};
    if (p.segments.keep_initial) keep_initial(walk, first);
    walk_chain(walk, first, turn);
  }
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_JOIN_CUH_
