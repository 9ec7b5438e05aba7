// How far back the state at a boundary reaches, head by head, and with it the list of what the
// transition pass has to compute.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_HORIZON_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_HORIZON_CUH_

#include "cuda/device/store.cuh"
#include "cuda/kernels/chunk_forward/gates.cuh"
#include "cuda/ptx/lanes.cuh"

namespace sluice::cuda::chunk_forward {

/// Chunks that are looked at, at most. WHY: to start so many chunks early costs as much as to
/// remember, so that it does not pay to find out that a head forgets later than that.
inline constexpr int kLookBack = 16;

/// The lane's two gates of each of the kLookBack chunks before chunk `first`, the last chunk first,
/// as numbers of type Raw lie in memory; chunks before the sequence count as its first. `at`:
/// address of the lane's first gate of the sequence.
template <class Raw>
__device__ __forceinline__ void request_gates(const char* at, int64_t token_bytes, int first,
                                              uint32_t (&raw)[kLookBack][2]) {
#pragma unroll
  for (int i = 0; i < kLookBack; ++i) {
    const char* const gate = at + int64_t{max(first - 1 - i, 0)} * 64 * token_bytes;
    raw[i][0] = *reinterpret_cast<const Raw*>(gate);
    raw[i][1] = *reinterpret_cast<const Raw*>(gate + token_bytes);
  }
}

/// Sums of the gates of these chunks; infinity where a gate is positive or NaN. PERF all gates are
/// on their way before the first is converted: conversion depends on their type, and a branch
/// behind each load would make the next one wait.
__device__ __forceinline__ void sum_chunks(const ChunkForwardParams& p, const RawGate& constants,
                                           const char* at, int first, float (&sums)[kLookBack]) {
  const Number number = p.gate.number;
  uint32_t raw[kLookBack][2];
  if (number == Number::kFloat32) {
    request_gates<uint32_t>(at, p.gate.token_bytes, first, raw);
  } else {
    request_gates<uint16_t>(at, p.gate.token_bytes, first, raw);
  }
#pragma unroll
  for (int i = 0; i < kLookBack; ++i) {
    sums[i] = 0.0f;
#pragma unroll
    for (const uint32_t x : raw[i]) {
      const float gate = number == Number::kFloat32
                             ? __uint_as_float(x)
                             : device::from_bits(number, static_cast<unsigned short>(x));
      const float g = log_gate(p, constants, gate);
      // NaN too: infinity is never forgotten.
      sums[i] += g <= 0.0f ? g : __uint_as_float(0x7f800000u);
    }
  }
  ptx::sum_over_lanes<0, 5>(sums);
}

/// Chunks before chunk `first` of the sequence of `item` (a whole one), at most `most` and
/// kLookBack, over which the head forgets all that is older (kForgotten); -1 where it remembers,
/// where a gate is positive or NaN, and where history may not be dropped. One warp, the same in all
/// lanes.
__device__ __forceinline__ int horizon_of(const ChunkForwardParams& p, const WorkItem& item,
                                          int first, int most) {
  if (!p.split.request.may_forget || p.gate_form == GateForm::kNone || first <= 0) return -1;
  const RawGate raw = raw_gate(p, item.head);
  const int lane = static_cast<int>(threadIdx.x & 31u), last = min(min(first, most), kLookBack);
  const char* at = scalar_address(p, p.gate, item) + 2 * lane * p.gate.token_bytes;
  float sums[kLookBack], sum = 0.0f;
  sum_chunks(p, raw, at, first, sums);
  int found = -1;
#pragma unroll
  for (int i = 0; i < kLookBack; ++i) {
    sum += sums[i];
    if (found < 0 && i < last && sum <= kForgotten) found = i + 1;
  }
  return found;
}

/// PERF few warps a CTA: every lane reads a sector of its own, and an SM takes one a cycle.
inline constexpr int kHorizonThreads = 64;

/// Fills in `horizon` and `transitions`: one warp for each boundary and head.
__global__ void __launch_bounds__(kHorizonThreads)
    horizon_kernel(const __grid_constant__ ChunkForwardParams p) {
  ptx::launch_dependents();
  ptx::wait_for_dependencies();
  const auto warp = static_cast<int>((blockIdx.x * kHorizonThreads + threadIdx.x) >> 5);
  const int boundary = warp / p.HV, head = warp % p.HV;
  if (boundary >= static_cast<int>(p.split.header->boundaries)) return;
  const Segment left = p.split.left[boundary];
  const WorkItem item = locate(p, left.seq, head);
  const int own = item.padded ? 0 : horizon_of(p, item, left.first + left.chunks, left.chunks);
  bool multiplies = false;
  if (own < 0 && left.before >= 0) {
    multiplies = horizon_of(p, item, left.first, p.split.left[left.before].chunks) < 0;
  }
  if ((threadIdx.x & 31u) != 0) return;
  p.split.horizon[warp] = own;
  if (own >= 0) return;
  const int columns = p.split.request.transition_columns;
  const int added = p.V / columns, factors = multiplies ? p.K / columns : 0;
  Transition* out = p.split.transitions +
                    atomicAdd(&p.split.header->transitions, static_cast<uint32_t>(added + factors));
  for (int i = 0; i < added; ++i) *out++ = {boundary, head, i * columns, 0};
  for (int i = 0; i < factors; ++i) *out++ = {boundary, head, i * columns, 1};
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_HORIZON_CUH_
