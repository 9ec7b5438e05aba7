// Describes token rows, pools and slot tables as step kernels take them: PODs that the host
// fills in.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_POOLS_H_
#define SLUICE_CUDA_DEVICE_POOLS_H_

#include "cuda/device/views.h"

namespace sluice::cuda::device {

/// Rows of q, k, v, o and the like: [B,T,heads,D], innermost stride 1, the others in elements.
struct TokenRows {
  void* data;  ///< may be null where a kernel says so
  int64_t batch_stride, token_stride, head_stride;
  Number number;
};

/// A table of slots [N] or [N,columns].
struct SlotTable {
  IndexVector rows;  ///< null data: sequence n has slot n
  int64_t columns, column_stride;
};

/// A pool and how many slots it has.
struct BoundedPool {
  StatePool pool;  ///< data may be null
  int64_t slots;
};

/// How the rows of a step make up sequences.
struct StepRows {
  IndexVector cu_seqlens;  ///< [N+1]; null: sequence n is batch entry n
  int64_t T;               ///< rows of a batch entry
  int32_t max_tokens;      ///< of one sequence; longer ones are cut. T where cu_seqlens is null
};

/// Where the states of a step lie.
struct StateSlots {
  BoundedPool initial, final;
  SlotTable read_slots, write_slots;
  IndexVector num_accepted;          ///< [N], may be null
  const uint8_t* has_initial_state;  ///< [N], may be null
  int64_t has_initial_stride;
  int64_t pad_below;
};

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_POOLS_H_
