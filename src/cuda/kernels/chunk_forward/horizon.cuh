// Finds how far back the state at a boundary reaches, head by head, and so the list of what the
// transition pass has to compute.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_HORIZON_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_HORIZON_CUH_

#include "cuda/device/store.cuh"
#include "cuda/device/token_gates.cuh"
#include "cuda/kernels/chunk_forward/key_records.cuh"
#include "cuda/ptx/lanes.cuh"
#include "cuda/tile/lanes.cuh"

namespace sluice::cuda::chunk_forward {

using device::GateForm, device::kForgotten, device::list_transitions, device::locate;
using device::Number, device::PrefillParams, device::scalar_address, device::Segment;
using device::SegmentView, device::WorkItem;

/// Chunks that are looked at, at most. WHY: to start so many chunks early costs as much as to
/// remember, so that it does not pay to find out that a head forgets later than that.
inline constexpr int kLookBack = 16;

inline constexpr int kHorizonWarps = 2;

/// The lane's two gates of each of the kLookBack chunks before chunk `first`, the last chunk first,
/// as numbers of type Raw lie in memory, to `out`; chunks before the sequence count as its first.
/// `at`: address of the lane's first gate of the sequence. PERF eight chunks are on their way at
/// once.
template <class Raw>
__device__ __forceinline__ void fetch_gates(const char* at, int64_t token_bytes, int first,
                                            uint2 (&out)[kLookBack][32]) {
  constexpr int kTogether = 8;
#pragma unroll 1
  for (int batch = 0; batch < kLookBack; batch += kTogether) {
    uint2 raw[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const char* const gate = at + int64_t{max(first - 1 - batch - i, 0)} * 64 * token_bytes;
      raw[i] = {*reinterpret_cast<const Raw*>(gate),
                *reinterpret_cast<const Raw*>(gate + token_bytes)};
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) out[batch + i][tile::lane()] = raw[i];
  }
}

/// log alpha of a gate as it lies in memory; infinity where it is positive or NaN.
__device__ __forceinline__ float bounded_gate(const PrefillParams& p, uint32_t bits) {
  const float g = device::log_gate(p.gate_form, device::number_of(p.gate.number, bits));
  return g <= 0.0f ? g : __uint_as_float(0x7f800000u);
}

/// Chunks before chunk `first` of the sequence of `item` (a whole one), at most `most` and
/// kLookBack, over which the head forgets all that is older (kForgotten); -1 where it remembers,
/// and where a gate is positive or NaN (infinity is never forgotten). One warp, the same in all
/// lanes.
__device__ __forceinline__ int horizon_of(const PrefillParams& p, const WorkItem& item, int first,
                                          int most) {
  __shared__ uint2 gates[kHorizonWarps][kLookBack][32];
  if (p.gate_form == GateForm::kNone || first <= 0) return -1;
  const auto lane = static_cast<uint32_t>(tile::lane());
  auto& mine = gates[threadIdx.x >> 5];
  const char* at = scalar_address(p, p.gate, item) + 2 * lane * p.gate.token_bytes;
  if (p.gate.number == Number::kFloat32) {
    fetch_gates<uint32_t>(at, p.gate.token_bytes, first, mine);
  } else {
    fetch_gates<uint16_t>(at, p.gate.token_bytes, first, mine);
  }
  // PERF no copy of the logarithm for each chunk: code that runs once is fetched from memory.
#pragma unroll 1
  for (int i = 0; i < 2 * kLookBack; ++i) {
    uint2& two = mine[i / 2][lane];
    uint32_t& raw = i % 2 == 0 ? two.x : two.y;
    raw = __float_as_uint(bounded_gate(p, raw));
  }
  float sums[kLookBack];
#pragma unroll
  for (int i = 0; i < kLookBack; ++i) {
    sums[i] = __uint_as_float(mine[i][lane].x) + __uint_as_float(mine[i][lane].y);
  }
  ptx::sum_over_lanes<0, 5>(sums);
  const int last = min(min(first, most), kLookBack);
  int found = -1;
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kLookBack; ++i) {
    sum += sums[i];
    if (found < 0 && i < last && sum <= kForgotten) found = i + 1;
  }
  return found;
}

/// horizon_of() of a head with scalar gates.
struct ScalarHorizon {
  __device__ __forceinline__ int operator()(const PrefillParams& p, const WorkItem& item, int first,
                                            int most) const {
    return horizon_of(p, item, first, most);
  }
};

/// The same with key-wise gates, from what the preparation has left of each chunk. WHY largest gates
/// of tokens: the state's columns shrink by that factor at least, whatever it turns them by; sums of
/// single channels say nothing, for the delta rule moves content from one to another.
struct KeyHorizon {
  __device__ __forceinline__ int operator()(const PrefillParams& p, const WorkItem& item, int first,
                                            int most) const {
    const int last = min(min(first, most), kLookBack), lane = tile::lane();
    float sum = 0.0f;
    if (lane < last) {
      sum = p.key.peaks[(first_record(p, item.seq) + first - 1 - lane) * p.HV + item.head];
    }
    sum = tile::sum_to_lane<kLookBack>(sum);
    const uint32_t forgotten = __ballot_sync(~0u, lane < last && sum <= kForgotten);
    // The number of the lowest bit, from 1 on.
    return forgotten == 0 ? -1 : __popc(forgotten ^ (forgotten - 1));
  }
};

/// PERF few warps a CTA: every lane reads a sector of its own, and an SM takes one a cycle.
inline constexpr int kHorizonThreads = 32 * kHorizonWarps;

/// Fills in `horizon` and `transitions` where history may be dropped: one warp for each boundary
/// and head. Where it may not, the planner has done it, or arithmetic does (SegmentView).
template <class Horizon>
__device__ __forceinline__ void find_horizons(const PrefillParams& p) {
  ptx::launch_dependents();
  ptx::wait_for_dependencies();
  const auto warp = static_cast<int>((blockIdx.x * kHorizonThreads + threadIdx.x) >> 5);
  const int boundary = warp / p.HV, head = warp % p.HV;
  const SegmentView table{p, false};  // no first segment leads where heads may forget
  if (boundary >= table.boundaries()) return;
  const Segment left = table.left(boundary);
  if (left.after < 0) return;
  const WorkItem item = locate(p, left.seq, head);
  // How far the state at this boundary reaches back, then that at the one before.
  Segment at = left;
  int own = 0;
  bool multiplies = false;
#pragma unroll 1
  for (int before = 0; before < 2 && !item.padded; ++before) {
    if (before == 1) {
      if (own >= 0 || left.before < 0) break;
      at = table.left(left.before);
    }
    const int found = Horizon{}(p, item, at.first + at.chunks, at.chunks);
    if (before == 0) own = found;
    if (before == 1) multiplies = found < 0;
  }
  if (!tile::is_first_lane()) return;
  p.segments.horizon[warp] = own;
  if (own >= 0) return;
  list_transitions(p, boundary, head, multiplies, &p.segments.header->transitions);
}

__global__ void __launch_bounds__(kHorizonThreads)
    horizon_kernel(const __grid_constant__ PrefillParams p) {
  find_horizons<ScalarHorizon>(p);
}

__global__ void __launch_bounds__(kHorizonThreads)
    key_horizon_kernel(const __grid_constant__ PrefillParams p) {
  find_horizons<KeyHorizon>(p);
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_HORIZON_CUH_
