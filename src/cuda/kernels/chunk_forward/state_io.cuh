// States between registers and global memory: initial, final, checkpoints.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_STATE_IO_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_STATE_IO_CUH_

#include "cuda/kernels/chunk_forward/work.cuh"

namespace sluice::cuda::chunk_forward {

/// Where this thread's accumulators of S^T lie inside a [K,V] or [V,K] matrix: element 4j + 2i + e
/// is row v = origin_v + 8i of S^T and column k = origin_k + 8j + e.
struct StatePlace {
  int64_t origin;
  int step_v, step_k;  ///< elements between neighbours along v and k

  __device__ __forceinline__ StatePlace(const ChunkForwardParams& p, int half) {
    const int lane = static_cast<int>(threadIdx.x & 31u);
    const int warp = static_cast<int>((threadIdx.x >> 5) & 3u);
    step_v = p.state_is_vk ? 128 : 1;
    step_k = p.state_is_vk ? 1 : 128;
    origin = (half * 64 + warp * 16 + (lane >> 2)) * step_v + (lane & 3) * 2 * step_k;
  }
  /// BOUND: offsets inside one matrix are below 2^14.
  __device__ __forceinline__ int offset(int at) const {
    return ((at >> 1) & 1) * 8 * step_v + ((at >> 2) * 8 + (at & 1)) * step_k;
  }
};

/// Writes S^T to head `head` of slot `slot`. Groups of four lanes (kVK) or eight (kKV) fill whole
/// 32-byte sectors, so no trip through shared memory is needed.
__device__ __forceinline__ void store_state(const ChunkForwardParams& p, const StatePool& pool,
                                            int64_t slot, int head, int half,
                                            const float (&S)[64]) {
  const StatePlace place(p, half);
  const int64_t base = slot * pool.slot_stride + int64_t{head} * 128 * 128 + place.origin;
  if (pool.number == Number::kFloat32) {
    float* out = static_cast<float*>(pool.data) + base;
#pragma unroll
    for (int at = 0; at < 64; ++at) out[place.offset(at)] = S[at];
  } else if (pool.number == Number::kBfloat16) {
    __nv_bfloat16* out = static_cast<__nv_bfloat16*>(pool.data) + base;
#pragma unroll
    for (int at = 0; at < 64; ++at) out[place.offset(at)] = __float2bfloat16_rn(S[at]);
  } else {
    __half* out = static_cast<__half*>(pool.data) + base;
#pragma unroll
    for (int at = 0; at < 64; ++at) out[place.offset(at)] = __float2half_rn(S[at]);
  }
}

/// S^T at the start of a sequence.
__device__ __forceinline__ void load_initial(const ChunkForwardParams& p, const WorkItem& item,
                                             int half, float (&S)[64]) {
  const bool absent =
      p.initial.data == nullptr ||
      (p.has_initial_state != nullptr && p.has_initial_state[item.seq * p.has_initial_stride] == 0);
  if (absent) {
#pragma unroll
    for (int at = 0; at < 64; ++at) S[at] = 0.0f;
    return;
  }
  const StatePlace place(p, half);
  const int64_t slot = p.read_slots.data == nullptr ? item.seq : load_index(p.read_slots, item.seq);
  const int64_t base = slot * p.initial.slot_stride + int64_t{item.head} * 128 * 128 + place.origin;
  // WHY plain loads: initial may be the memory that this call writes as final.
  if (p.initial.number == Number::kFloat32) {
    const float* in = static_cast<const float*>(p.initial.data) + base;
#pragma unroll
    for (int at = 0; at < 64; ++at) S[at] = in[place.offset(at)];
  } else if (p.initial.number == Number::kBfloat16) {
    const __nv_bfloat16* in = static_cast<const __nv_bfloat16*>(p.initial.data) + base;
#pragma unroll
    for (int at = 0; at < 64; ++at) S[at] = __bfloat162float(in[place.offset(at)]);
  } else {
    const __half* in = static_cast<const __half*>(p.initial.data) + base;
#pragma unroll
    for (int at = 0; at < 64; ++at) S[at] = __half2float(in[place.offset(at)]);
  }
}

/// S^T at the end of a sequence.
__device__ __forceinline__ void store_final(const ChunkForwardParams& p, const WorkItem& item,
                                            int half, const float (&S)[64]) {
  if (p.final.data == nullptr) return;
  const IndexVector& slots = p.write_slots.data != nullptr ? p.write_slots : p.read_slots;
  const int64_t slot = slots.data == nullptr ? item.seq : load_index(slots, item.seq);
  if (slots.data != nullptr && slot < p.pad_below) return;
  store_state(p, p.final, slot, item.head, half, S);
}

/// S^T after chunk c, if it is one of the states to keep.
__device__ __forceinline__ void store_checkpoint(const ChunkForwardParams& p, const WorkItem& item,
                                                 int half, int c, const float (&S)[64]) {
  if ((c + 1) % p.checkpoint_chunks != 0 || item.rows(c) < 64) return;
  const int64_t column = (c + 1) / p.checkpoint_chunks - 1;
  if (column >= p.checkpoint_columns) return;
  const int64_t at = item.seq * p.checkpoint_slots.stride + column * p.checkpoint_column_stride;
  const int64_t slot = load_index({p.checkpoint_slots.data, 1, p.checkpoint_slots.is_64bit}, at);
  if (slot >= p.pad_below) store_state(p, p.checkpoints, slot, item.head, half, S);
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_STATE_IO_CUH_
