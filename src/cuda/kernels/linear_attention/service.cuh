// Runs the service warpgroup beside its loader: gates and their factors, and v.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_SERVICE_CUH_
#define SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_SERVICE_CUH_

#include "cuda/device/loader.cuh"
#include "cuda/device/token_gates.cuh"
#include "cuda/kernels/linear_attention/config.h"
#include "cuda/ptx/stream.cuh"

namespace sluice::cuda::linear_attention {

using device::RawGate;

/// Two gates of a chunk as they lie in memory, and the sum before the chunk where they are sums.
struct LaneGates {
  ptx::EitherBits x[2], before;
};

/// Where an item's gates come from. Lane l has tokens 2l and 2l + 1.
struct GateSource {
  const PrefillParams& p;
  const char* data;  ///< of the item's first token; null: no gates
  int tokens, first;

  __device__ __forceinline__ GateSource(const PrefillParams& p_, const WorkItem& item)
      : p(p_),
        data(p_.gate.data == nullptr || item.tokens == 0
                 ? nullptr
                 : device::scalar_address(p_, p_.gate, item)),
        tokens(item.tokens),
        first(item.first) {}

  __device__ __forceinline__ ptx::EitherBits bits(int token) const {
    return ptx::load_either(true, data + token * p.gate.token_bytes,
                            p.gate.number == device::Number::kFloat32);
  }
  /// Bits as a number.
  __device__ __forceinline__ float number(const ptx::EitherBits& bits) const {
    return device::number_of(p.gate.number, bits);
  }

  /// Requests the gates of chunk c; past the end those of the last token.
  __device__ __forceinline__ LaneGates request(int c) const {
    LaneGates gates{};
    if (data == nullptr) return gates;
    const int token = c * 64 + 2 * tile::lane();
#pragma unroll
    for (int e = 0; e < 2; ++e) gates.x[e] = bits(min(token + e, tokens - 1));
    // A segment may begin with a second chunk: the token before it is the sequence's too.
    if (p.sum_chunks > 1) gates.before = bits(max(min(c * 64, tokens) - 1, first > 0 ? -1 : 0));
    return gates;
  }
  /// Whether sums go on from the chunk before: one over two chunks in the second one.
  __device__ __forceinline__ bool goes_on(int c) const {
    return p.sum_chunks > 1 && (first + c) % p.sum_chunks != 0;
  }
};

/// G of two tokens from the gates, without the factor of log2.
__device__ __forceinline__ float2 sum_gates(const GateSource& source, const RawGate& raw,
                                            const LaneGates& gates, int c, int left) {
  const PrefillParams& p = source.p;
  const float x[2] = {source.number(gates.x[0]), source.number(gates.x[1])};
  if (p.sum_chunks != 0) {
    const float before = source.goes_on(c) ? source.number(gates.before) : 0.0f;
    return {x[0] - before, x[1] - before};
  }
  float g[2];
#pragma unroll
  for (int e = 0; e < 2; ++e) g[e] = e < left ? device::log_gate(p.gate_form, raw, x[e]) : 0.0f;
  const float both = g[0] + g[1], before = tile::sum_before_lane(both);
  return {before + g[0], before + both};
}

/// One lane's part of a gate slot.
__device__ __forceinline__ void put_gates(GateSlot& out, float2 sums, float scale) {
  constexpr float kLog2e = 1.4426950408889634f;
  const int lane = tile::lane();
  const float2 G = make_float2(sums.x * kLog2e, sums.y * kLog2e);
  const float last = __shfl_sync(~0u, G.y, 31);
  *reinterpret_cast<float2*>(&out.G[2 * lane]) = G;
  *reinterpret_cast<float2*>(&out.query[2 * lane]) =
      make_float2(tile::exp2_fast(G.x) * scale, tile::exp2_fast(G.y) * scale);
  *reinterpret_cast<float2*>(&out.write[2 * lane]) =
      make_float2(tile::exp2_fast(last - G.x), tile::exp2_fast(last - G.y));
  if (lane == 31) out.decay = tile::exp2_fast(last);
}

/// Chunks whose gates are on their way. PERF memory is further away than one chunk takes.
inline constexpr int kGatesAhead = 2;

/// Cumulative gates and factors of a work item's chunks; if wanted the sum of all its gates.
template <class C, bool kTotal>
__device__ __forceinline__ float gate_item(const PrefillParams& p, SharedMemoryPlan<C>& s,
                                           tile::RingCursor<C::kGateSlots>& cursor,
                                           const WorkItem& item) {
  const int lane = tile::lane();
  const RawGate raw = device::load_raw_gate(p, item.head);
  const GateSource source(p, item);
  const int chunks = item.chunks();
  LaneGates gates[kGatesAhead];
#pragma unroll
  for (int i = 0; i < kGatesAhead; ++i) gates[i] = source.request(i);
  float total = 0.0f;
#pragma unroll 1
  for (int round = 0; round < chunks; round += kGatesAhead) {
#pragma unroll
    for (int i = 0; i < kGatesAhead; ++i) {
      const int c = round + i;
      if (c >= chunks) break;
      const float2 sums = sum_gates(source, raw, gates[i], c, item.tokens - c * 64 - 2 * lane);
      gates[i] = source.request(c + kGatesAhead);
      // SYNC gate_ring.empty: scores and state are done with the slot's previous chunk
      cursor.acquire(s.gate_ring);
      put_gates(s.gates[cursor.slot], sums, p.scale);
      // SYNC gate_ring.full: G and the factors of the chunk are written
      cursor.commit(s.gate_ring);
      cursor.next();
      if constexpr (kTotal) total += __shfl_sync(~0u, sums.y, 31);
    }
  }
  return total;
}

/// Gate warp: cumulative gates and factors of every chunk.
template <class C>
__device__ __forceinline__ void gate_role(const PrefillParams& p, SharedMemoryPlan<C>& s) {
  device::WorkReader work(s.work_ring, s.work);
  tile::RingCursor<C::kGateSlots> cursor;
  for (WorkItem item = work.next(); item.valid(); item = work.next()) {
    const float total = gate_item<C, !C::kOutput>(p, s, cursor, item);
    if constexpr (!C::kOutput) {
      // M of the segment; a sequence's first boundary needs none.
      const bool wanted = item.before >= 0 && item.column == 0 && item.chunks() > 0;
      if (wanted && tile::is_first_lane()) {
        *device::factor_at(p, item.after, item.head) = expf(total);
      }
    }
  }
}

/// Value warp: requests v of every chunk.
template <class C>
__device__ __forceinline__ void values_role(const PrefillParams& p, SharedMemoryPlan<C>& s) {
  device::WorkReader work(s.work_ring, s.work);
  tile::RingCursor<C::kVSlots> v;
  for (WorkItem item = work.next(); item.valid(); item = work.next()) {
    if (tile::is_first_lane()) {
      const int chunks = item.chunks();
      for (int c = 0; c < chunks; ++c) device::load_v<C>(p, s, v, item, c);
    }
    __syncwarp();
  }
}

/// The roles of the service warpgroup.
template <class C>
__device__ __forceinline__ void serve(const PrefillParams& p, SharedMemoryPlan<C>& s) {
  const auto warp = static_cast<ServiceWarp>(tile::warp());
  if (warp == ServiceWarp::kLoad) {
    if (threadIdx.x == 0) device::load_role<C>(p, s);
  } else if (warp == ServiceWarp::kGate) {
    gate_role<C>(p, s);
  } else if (warp == ServiceWarp::kValues) {
    values_role<C>(p, s);
  }
}

}  // namespace sluice::cuda::linear_attention

#endif  // SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_SERVICE_CUH_
