// Runs the service warpgroup's gate warp.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_SERVICE_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_SERVICE_CUH_

#include "cuda/device/loader.cuh"
#include "cuda/device/token_gates.cuh"
#include "cuda/kernels/chunk_forward/config.h"
#include "cuda/tile/number.cuh"

namespace sluice::cuda::chunk_forward {

using device::key_head, device::log_gate, device::number_of, device::request_pair,
    device::scalar_address;
using device::ScalarPair, device::WorkReader;

/// The log gate and beta of one row.
struct GateValue {
  float g, beta;
};

/// The number at `address`, 0 where it `is_there` not; requested where it is called.
__device__ __forceinline__ float load_float(const float* address, bool is_there) {
  return __uint_as_float(ptx::load_either(is_there, address, true).wide);
}

/// The lane's two inverse norms of k, and of q, as far as there are tokens.
struct NormPairs {
  const float *key_at, *query_at;
  float key[2], query[2];

  template <class C>
  __device__ __forceinline__ static NormPairs of(const PrefillParams& p, const WorkItem& item) {
    NormPairs norms{};
    if constexpr (C::kL2Norm) {
      const int64_t rows = p.token_rows();
      norms.key_at = p.prepared.norms + key_head(p, item.head) * rows + int64_t{item.batch} * p.T +
                     item.row + 2 * tile::lane();
      norms.query_at = norms.key_at + p.H * rows;
    }
    return norms;
  }
  /// Requests those of the chunk ahead.
  template <class C>
  __device__ __forceinline__ void fetch(int left) {
    if constexpr (C::kL2Norm) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        key[e] = load_float(key_at + e, e < left);
        if constexpr (C::kOutput) query[e] = load_float(query_at + e, e < left);
      }
      key_at += 64, query_at += 64;
    }
  }
  template <class C>
  __device__ __forceinline__ void put(typename C::Gate& out) const {
    if constexpr (C::kL2Norm) {
      const int token = 2 * tile::lane();
      *reinterpret_cast<float2*>(&out.key_norm[token]) = make_float2(key[0], key[1]);
      *reinterpret_cast<float2*>(&out.query_norm[token]) = make_float2(query[0], query[1]);
    }
  }
  /// Puts the lane's numbers of `column` and of `row[b]` times norms.
  template <class C>
  __device__ __forceinline__ void put_column(typename C::Gate& out, float2 column) const {
    if constexpr (C::kL2Norm) {
      *reinterpret_cast<float2*>(&out.column_key[2 * tile::lane()]) =
          make_float2(column.x * key[0], column.y * key[1]);
    }
  }
  template <class C>
  __device__ __forceinline__ void put_row(typename C::Gate& out, int b, float2 row) const {
    if constexpr (C::kL2Norm && C::kOutput) {
      const int token = 2 * tile::lane();
      if (token < 16 * b + 16) return;  // has no place, and no reader
      *reinterpret_cast<float2*>(&out.row_query[row_query_at(b) + token]) =
          make_float2(row.x * query[0], row.y * query[1]);
    }
  }
};

/// The gate warp requests v so many chunks behind its gates. PERF two: it waits for a slot of v until
/// the state is done with the chunk two before, and the next chunk's gates should not come that late.
inline constexpr int kValuesBehind = 2;

/// Gate warp: cumulative gates and betas of every chunk, lane l for tokens 2l and 2l + 1; and v.
template <class C>
__device__ __forceinline__ void gate_role(const PrefillParams& p, SharedMemoryPlan<C>& s) {
  const int lane = tile::lane();
  WorkReader work(s.work_ring, s.work);
  tile::RingCursor<C::kGateSlots> cursor;
  tile::RingCursor<C::kVSlots> v;
  for (WorkItem item = work.next(); item.valid(); item = work.next()) {
    const char* gate_at = scalar_address(p, p.gate, item) + 2 * lane * p.gate.token_bytes;
    const char* beta_at = scalar_address(p, p.beta, item) + 2 * lane * p.beta.token_bytes;
    const int chunks = item.chunks();
    ScalarPair gate, beta;
    NormPairs norms = NormPairs::of<C>(p, item);
    int left = item.tokens - 2 * lane;
    const auto fetch = [&]() {
      gate = request_pair(gate_at, p.gate, left);
      beta = request_pair(beta_at, p.beta, left);
      norms.template fetch<C>(left);
    };
    // PERF all lanes wait: where they went on, sums over lanes would meet lane 0 by a way that is
    // several times as long.
    const auto request_v = [&](int c) {
      if (lane == 0) device::load_v<C>(p, s, v, item, c);
      __syncwarp();
    };
    fetch();
    for (int c = 0; c < chunks; ++c) {
      GateValue value[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        value[e] = {log_gate(p.gate_form, number_of(p.gate.number, gate.bits[e])),
                    p.beta.data == nullptr
                        ? p.beta_factor
                        : p.beta_factor * number_of(p.beta.number, beta.bits[e])};
        if (e >= left) value[e] = {0.0f, 0.0f};
      }
      const NormPairs now = norms;
      // PERF the next chunk's, before this warp waits for a slot, so that the way to memory is
      // hidden behind that wait.
      left -= 64;
      gate_at += 64 * p.gate.token_bytes;
      beta_at += 64 * p.beta.token_bytes;
      fetch();
      const float sum = tile::sum_to_lane(value[0].g + value[1].g);
      constexpr float kLog2e = 1.4426950408889634f;
      // SYNC gate_ring.empty: the aux warpgroup has read the slot's previous chunk
      cursor.acquire(s.gate_ring);
      auto& out = s.gates[cursor.slot];
      const float2 G = make_float2((sum - value[1].g) * kLog2e, sum * kLog2e);
      *reinterpret_cast<float2*>(&out.G[2 * lane]) = G;
      const float block_end = __shfl_sync(~0u, G.y, lane | 7);
      const float2 column =
          make_float2(tile::exp2_fast(block_end - G.x), tile::exp2_fast(block_end - G.y));
      *reinterpret_cast<float2*>(&out.column[2 * lane]) = column;
      now.template put_column<C>(out, column);
#pragma unroll
      for (int b = 0; b < 3; ++b) {
        const float end = __shfl_sync(~0u, G.y, 8 * b + 7);
        const float2 row = make_float2(tile::exp2_fast(fminf(G.x - end, 0.0f)),
                                       tile::exp2_fast(fminf(G.y - end, 0.0f)));
        *reinterpret_cast<float2*>(&out.row[b][2 * lane]) = row;
        now.template put_row<C>(out, b, row);
      }
      *reinterpret_cast<float2*>(&out.beta[2 * lane]) = make_float2(value[0].beta, value[1].beta);
      now.template put<C>(out);
      // SYNC gate_ring.full: G and beta of the chunk are written
      cursor.commit(s.gate_ring);
      cursor.next();
      if (c >= kValuesBehind) request_v(c - kValuesBehind);
    }
    for (int c = max(chunks - kValuesBehind, 0); c < chunks; ++c) request_v(c);
  }
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_SERVICE_CUH_
