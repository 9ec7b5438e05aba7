// Moves states between registers and global memory: initial, final, checkpoints.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_STATE_IO_CUH_
#define SLUICE_CUDA_DEVICE_STATE_IO_CUH_

#include "cuda/device/work_items.cuh"
#include "cuda/tile/fragment.cuh"

namespace sluice::cuda::device {

/// Where this thread's accumulators of S^T lie inside a [K,V] or [V,K] matrix: element 4j + 2i + e
/// is row v = origin_v + 8i of S^T and column k = origin_k + 8j + e.
struct StatePlace {
  int64_t origin;
  int step_v, step_k;  ///< elements between neighbours along v and k

  /// In a matrix of K rows and V columns, or transposed.
  __device__ __forceinline__ StatePlace(int K, int V, bool is_vk, int column) {
    step_v = is_vk ? K : 1;
    step_k = is_vk ? 1 : V;
    origin = (column + tile::group_row()) * step_v + tile::lane_column() * step_k;
  }
  /// BOUND: offsets inside one matrix are below 2^15.
  __device__ __forceinline__ int offset(int at) const {
    return ((at >> 1) & 1) * 8 * step_v + ((at >> 2) * 8 + (at & 1)) * step_k;
  }
};

template <class T, int kN>
__device__ __forceinline__ void store_elements(T* out, const StatePlace& place,
                                               const tile::Accumulator<kN>& S) {
#pragma unroll
  for (int at = 0; at < S.kSize; ++at) {
    from_float(&out[place.offset(at)], S.x[at]);
  }
}

/// WHY plain loads: initial may be the memory that this call writes as final.
template <class T, int kN>
__device__ __forceinline__ void load_elements(const T* in, const StatePlace& place,
                                              tile::Accumulator<kN>& S) {
#pragma unroll
  for (int at = 0; at < S.kSize; ++at) {
    S.x[at] = to_float(in[place.offset(at)]);
  }
}

/// Writes this warpgroup's columns of S^T to slot `slot`. Groups of four lanes (kVK) or eight (kKV)
/// fill whole 32-byte sectors, so no trip through shared memory is needed.
template <int kN>
__device__ __forceinline__ void store_state(const PrefillParams& p, const StatePool& pool,
                                            int64_t slot, const WorkItem& item, int half,
                                            const tile::Accumulator<kN>& S) {
  const StatePlace place(p.K, p.V, p.state_is_vk, item.column + half * 64);
  const int64_t base = slot * pool.slot_stride + int64_t{item.head} * p.K * p.V + place.origin;
  if (pool.number == Number::kFloat32) {
    store_elements(static_cast<float*>(pool.data) + base, place, S);
  } else if (pool.number == Number::kBfloat16) {
    store_elements(static_cast<__nv_bfloat16*>(pool.data) + base, place, S);
  } else {
    store_elements(static_cast<__half*>(pool.data) + base, place, S);
  }
}

/// This warpgroup's columns of the state at a boundary.
__device__ __forceinline__ float* boundary_state(const PrefillParams& p, const WorkItem& item,
                                                 int boundary) {
  return p.segments.added + (int64_t{boundary} * p.HV + item.head) * p.K * p.V;
}

/// S^T = columns of the identity.
template <int kN>
__device__ __forceinline__ void set_identity(int column, tile::Accumulator<kN>& S) {
  const int difference = column + tile::group_row() - tile::lane_column();  // v - k of S.x[0]
#pragma unroll
  for (int at = 0; at < S.kSize; ++at) {
    S.x[at] = difference + ((at >> 1) & 1) * 8 == (at >> 2) * 8 + (at & 1) ? 1.0f : 0.0f;
  }
}

/// S^T at the start of a sequence.
template <int kN>
__device__ __forceinline__ void load_initial(const PrefillParams& p, const WorkItem& item, int half,
                                             tile::Accumulator<kN>& S) {
  if (starts_from_zeros(p, item.seq)) {
    S.clear();
    return;
  }
  const StatePlace place(p.K, p.V, p.state_is_vk, item.column + half * 64);
  const int64_t base = initial_at(p, item.seq, item.head) + place.origin;
  if (p.initial.number == Number::kFloat32) {
    load_elements(static_cast<const float*>(p.initial.data) + base, place, S);
  } else if (p.initial.number == Number::kBfloat16) {
    load_elements(static_cast<const __nv_bfloat16*>(p.initial.data) + base, place, S);
  } else {
    load_elements(static_cast<const __half*>(p.initial.data) + base, place, S);
  }
}

/// S^T that enters a work item.
template <class C, int kN>
__device__ __forceinline__ void load_entering(const PrefillParams& p, const WorkItem& item,
                                              int half, tile::Accumulator<kN>& S) {
  if (item.source == StateSource::kInitial) {
    load_initial(p, item, half, S);
  } else if (C::kOutput && item.source != StateSource::kZero) {
    const StatePlace place(p.K, p.V, false, item.column + half * 64);
    const float* const from = item.source == StateSource::kKept
                                  ? factor_at(p, item.after, item.head)
                                  : boundary_state(p, item, item.before);
    load_elements(from + place.origin, place, S);
  } else if (!C::kOutput && item.source == StateSource::kIdentity) {
    set_identity(item.column + half * 64, S);
  } else {
    S.clear();
  }
}

/// S^T at the end of a sequence.
template <int kN>
__device__ __forceinline__ void store_final(const PrefillParams& p, const WorkItem& item, int half,
                                            const tile::Accumulator<kN>& S) {
  if (p.final.data == nullptr) return;
  const IndexVector& slots = p.write_slots.data != nullptr ? p.write_slots : p.read_slots;
  const int64_t slot = slots.data == nullptr ? item.seq : load_index(slots, item.seq);
  if (slots.data != nullptr && is_padding(p, slot, p.final_span)) return;
  store_state(p, p.final, slot, item, half, S);
}

/// S^T that leaves a segment, as N of the boundary there.
template <int kN>
__device__ __forceinline__ void store_added(const PrefillParams& p, const WorkItem& item, int half,
                                            const tile::Accumulator<kN>& S) {
  const StatePlace place(p.K, p.V, false, item.column + half * 64);
  store_elements(boundary_state(p, item, item.after) + place.origin, place, S);
}

/// S^T that leaves a work item. N lies as [K][V]; M as [column][row], the order in which the join
/// reads it.
template <class C, int kN>
__device__ __forceinline__ void store_leaving(const PrefillParams& p, const WorkItem& item,
                                              int half, const tile::Accumulator<kN>& S) {
  if constexpr (C::kOutput) {
    if (item.sink == StateSink::kFinal) store_final(p, item, half, S);
  } else if (item.sink == StateSink::kAdded) {
    store_added(p, item, half, S);
  } else {
    const StatePlace place(p.K, p.K, true, item.column + half * 64);
    store_elements(factor_at(p, item.after, item.head) + place.origin, place, S);
  }
}

/// S^T after chunk c, if it is one of the states to keep.
template <int kN>
__device__ __forceinline__ void store_checkpoint(const PrefillParams& p, const WorkItem& item,
                                                 int half, int c, const tile::Accumulator<kN>& S) {
  const int after = item.first + c + 1;
  if (after % p.checkpoint_chunks != 0 || item.rows(c) < 64 || c < item.skip) return;
  const int64_t column = after / p.checkpoint_chunks - 1;
  if (column >= p.checkpoint_columns) return;
  const int64_t at = item.seq * p.checkpoint_slots.stride + column * p.checkpoint_column_stride;
  const int64_t slot = load_index({p.checkpoint_slots.data, 1, p.checkpoint_slots.is_64bit}, at);
  if (!is_padding(p, slot, p.checkpoint_span)) {
    store_state(p, p.checkpoints, slot, item, half, S);
  }
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_STATE_IO_CUH_
