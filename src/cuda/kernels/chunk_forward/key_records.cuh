// Finds the record of a chunk with key-wise gates, and the chunk of a record.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_RECORDS_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_RECORDS_CUH_

#include "cuda/kernels/chunk_forward/key_config.h"

namespace sluice::cuda::chunk_forward {

/// First record of sequence n; records of a sequence are its chunks in order. Some stay unused.
__device__ __forceinline__ int64_t first_record(const PrefillParams& p, int64_t n) {
  if (p.cu_seqlens.data == nullptr) return n * ((p.T + 63) / 64);
  return min(max(device::load_index(p.cu_seqlens, n), int64_t{0}), int64_t{p.T}) / 64 + n;
}

template <int kK>
__device__ __forceinline__ KeyRecord<kK>* record_at(const PrefillParams& p, int64_t record,
                                                    int head) {
  return reinterpret_cast<KeyRecord<kK>*>(p.key.records) + record * p.HV + head;
}

/// The chunk of a record; no tokens where the record is unused.
__device__ __forceinline__ WorkItem chunk_of_record(const PrefillParams& p, int64_t record,
                                                    int head) {
  int64_t low = 0, high = p.N;  // the sequence is in [low, high)
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (first_record(p, middle) <= record ? low : high) = middle;
  }
  WorkItem item = device::locate(p, static_cast<int32_t>(low), head);
  const auto chunk = static_cast<int>(record - first_record(p, low));
  if (chunk * 64 >= item.tokens) {
    item.tokens = 0;
  } else {
    device::cut_item(item, chunk, 1, 0);
  }
  return item;
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_RECORDS_CUH_
