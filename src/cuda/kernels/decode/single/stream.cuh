// Steps one token where each multiprocessor has a few heads: CTAs that stay take whole heads one
// after the other, and the copy engine brings the next one's state while one is computed.
//
// Math      step.cuh's, in the same order: the same bits.
// Roles     a CTA has heads blockIdx.x, blockIdx.x + gridDim.x, ..; a warp 16 rows of each, which
//           nobody else reads or writes.
// Pipeline  read the first slot as it may be -> ask the L2 for its state -> wait for earlier
//           launches -> copy that state to buffer 0; the slot was another one: again -> per head:
//           request the token, copy the next head's state to the other buffer -> wait for the state
//           -> sums -> barrier -> update and store -> barrier
// Memory    two buffers of a head, 64 KiB each in float32; registers hold no state.
// WHY not for many heads: there CTAs of one head keep memory as busy, and have states in registers.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_SINGLE_STREAM_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_SINGLE_STREAM_CUH_

#include "cuda/kernels/decode/single/step.cuh"
#include "cuda/ptx/tma.cuh"

namespace sluice::cuda::decode {

inline constexpr int kStreamBuffers = 2;  ///< of a head's state, in shared memory

/// A lane's rows of the state, in shared memory; new ones go to global memory.
template <class C>
struct StreamTile {
  char* rows;  ///< the lane's columns of the first one
  char* out;   ///< where the new state goes; null: nowhere
  uint64_t policy;

  /// PERF read again at each use, behind each barrier: registers.
  __device__ __forceinline__ void get(int m, float (&x)[4]) {
    uint32_t four[C::kWords];
    if constexpr (C::kWide) {
      const uint4 row = *reinterpret_cast<const uint4*>(rows + m * C::kVectorBytes);
      four[0] = row.x, four[1] = row.y, four[2] = row.z, four[3] = row.w;
    } else {
      const uint2 row = *reinterpret_cast<const uint2*>(rows + m * C::kVectorBytes);
      four[0] = row.x, four[1] = row.y;
    }
    C::Form::get(four, x);
  }
  __device__ __forceinline__ void set(int m, const float (&x)[4]) {
    if (out == nullptr) return;
    uint32_t four[C::kWords];
    C::Form::set(four, x);
    if constexpr (C::kWide) {
      ptx::store_stream_16(out + m * C::kVectorBytes, four, policy);
    } else {
      ptx::store_stream_8(out + m * C::kVectorBytes, four, policy);
    }
  }
  /// SYNC proxies: zeros, ahead of later copies to the buffer
  __device__ __forceinline__ void clear() {
#pragma unroll 1
    for (int m = 0; m < C::kLaneVectors; ++m) {
#pragma unroll
      for (int i = 0; i < C::kWords; ++i) {
        reinterpret_cast<uint32_t*>(rows + m * C::kVectorBytes)[i] = 0;
      }
    }
    ptx::fence_proxy_async();
  }
};

/// Shared memory of a CTA, 128-byte aligned. A warp's rows of a buffer have a barrier of their own.
template <class C>
struct StreamShared {
  alignas(128) char buffer[kStreamBuffers][kSingleSize][C::kVectorBytes];
  SingleShared<C> sums;
  uint64_t full[kStreamBuffers][C::kThreads / 32];
};

/// One CTA's way through its heads.
template <class C>
struct Stream {
  static constexpr uint32_t kHeadBytes = kSingleSize * C::kVectorBytes;
  static constexpr uint32_t kWarpBytes = C::kLaneVectors * C::kVectorBytes;

  const typename C::Params& p;
  StreamShared<C>& shared;
  const uint32_t warp, lane;
  const uint64_t policy;  ///< of loads of states
  uint32_t phases = 0;    ///< a bit a buffer: which phase of its barrier comes next

  __device__ __forceinline__ explicit Stream(const typename C::Params& params)
      : p(params),
        shared(*reinterpret_cast<StreamShared<C>*>(ptx::dynamic_memory())),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32),
        policy(load_policy(params)) {}

  __device__ __forceinline__ uint32_t sequence_of(uint32_t index) const {
    return index / (p.r * p.H);
  }
  /// The warp's rows of a head in a slot of the pool.
  __device__ __forceinline__ const char* rows_of(uint32_t index, int slot) const {
    const char* const at = moved(p.initial.data, static_cast<uint32_t>(slot), p.initial.slot_bytes);
    return at + uint64_t{index % (p.r * p.H)} * kHeadBytes + warp * kWarpBytes;
  }
  /// Barriers, each of which its own warp alone uses.
  __device__ __forceinline__ void begin() {
    if (lane == 0) {
#pragma unroll
      for (int i = 0; i < kStreamBuffers; ++i) ptx::mbarrier_init(&shared.full[i][warp], 1);
      ptx::fence_mbarrier_init();
    }
    // SYNC warp: its barriers are there
    __syncwarp();
  }
  /// Copies the warp's rows to a buffer. SYNC warp: it has read what the buffer held
  __device__ __forceinline__ void request(int buffer, uint32_t index, int slot) {
    if (lane != 0) return;
    uint64_t* const full = &shared.full[buffer][warp];
    ptx::mbarrier_arrive_expect(full, kWarpBytes);
    ptx::bulk_load_stream(shared.buffer[buffer][warp * C::kLaneVectors], rows_of(index, slot),
                          kWarpBytes, full, policy);
  }
  __device__ __forceinline__ void wait(int buffer) {
    // SYNC full: the warp's rows of the state
    ptx::mbarrier_wait(&shared.full[buffer][warp], phases >> buffer & 1);
    phases ^= 1u << buffer;
  }
  /// A head whose state the buffer has, or will have.
  /// @param later called once the token is requested
  template <class Later>
  __device__ __forceinline__ void advance(int buffer, uint32_t index, const SingleEntries& slots,
                                          Later later) {
    const SinglePlace<C> at(p, index);
    const bool has_gates = at.warp == C::kWarps - 1;
    SingleToken<C> token;
    RowGates<C> gates_of_rows;
    GateInputs inputs{};
    token.request(p, at);
    gates_of_rows.request(p, at);
    if (has_gates) inputs = request_gates(p, at);
    later();
    wait(buffer);
    if (slots.padded) {
      if (at.writes_o()) write_zeros<C>(p, at);
      return;
    }
    StreamTile<C> tile{nullptr, nullptr, ptx::evict_first()};
    tile.rows = &shared.buffer[buffer][warp * C::kLaneVectors][4 * C::kWords * lane];
    if (slots.read < 0) tile.clear();
    if (slots.write >= 0) {
      const char* const slot =
          moved(p.final.data, static_cast<uint32_t>(slots.write), p.final.slot_bytes);
      tile.out = const_cast<char*>(slot) + uint64_t{at.head} * kHeadBytes + warp * kWarpBytes +
                 4 * C::kWords * lane;
    }
    Gates gates{};
    if (has_gates) gates = gates_of<false>(p, inputs);
    gates_of_rows.settle(p, at, &shared.sums, &token);
    advance_single<C>(p, at, token, gates, &shared.sums, tile);
  }
};

/// One CTA's heads; the grid is p.ctas CTAs.
template <class C>
__device__ __forceinline__ void run_single_stream(const typename C::Params& p) {
  Stream<C> stream(p);
  uint32_t head = blockIdx.x;
  // The first slot as it may be ahead of the wait, one lane's for the warp: what is read of another
  // one is not used.
  int slot = min(max(peek_single(p.read_slots, stream.sequence_of(head)), 0), p.initial.slots - 1);
  slot = static_cast<int>(
      __float_as_uint(ptx::from_lane(__uint_as_float(static_cast<uint32_t>(slot)), 0)));
  if (stream.lane == 0) ptx::prefetch_l2(stream.rows_of(head, slot), Stream<C>::kWarpBytes);
  stream.begin();
  // SYNC grid: what earlier launches wrote is visible
  ptx::wait_for_dependencies();
  ptx::launch_dependents();
  stream.request(0, head, slot);
  SingleEntries slots = find_entries(p, stream.sequence_of(head));
  if (slots.read >= 0 && slots.read != slot) {
    stream.wait(0);
    stream.request(0, head, slots.read);
  }
#pragma unroll 1
  for (int buffer = 0;; buffer ^= 1) {
    const uint32_t next = head + gridDim.x;
    SingleEntries later{-1, -1, false};
    stream.advance(buffer, head, slots, [&] {
      if (next >= p.heads) return;
      later = find_entries(p, stream.sequence_of(next));
      stream.request(buffer ^ 1, next, max(later.read, 0));
    });
    if (next >= p.heads) return;
    // SYNC CTA, of [V,K] without gates of rows warp: sums may be overwritten, and each warp has read
    // its rows of the buffer
    if constexpr (C::kVk && !C::kKeyGates) {
      __syncwarp();
    } else {
      __syncthreads();
    }
    head = next;
    slots = later;
  }
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_SINGLE_STREAM_CUH_
