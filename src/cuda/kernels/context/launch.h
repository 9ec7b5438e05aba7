// Describes and launches the kernels of state_fold, and the one that prepares a summary by the generic kernel.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONTEXT_LAUNCH_H_
#define SLUICE_CUDA_KERNELS_CONTEXT_LAUNCH_H_

#include "cuda/device/views.h"
#include "cuda/launch.h"

namespace sluice::cuda::context {

using device::BoundedPool, device::IndexVector;

/// Flags [pieces,HV]; null: none.
struct PieceFlags {
  uint8_t* data;
  int64_t piece_stride, head_stride;
};

struct FoldParams {
  const float* transition;  ///< [P,HV,K,K], dense inside a piece
  const float* addend;      ///< [P,HV,K,V]
  int64_t transition_stride, addend_stride;
  PieceFlags forgotten;
  IndexVector cu_chains, route_pieces, route_states;
  BoundedPool initial, entering, final;
  int64_t row_step, column_step;  ///< elements between neighbours in a state
  int64_t P, N, S;
  int32_t HV, K, V;
  bool reverse;
};

/// What a summary by the generic kernel starts from.
struct FillParams {
  float* identity;                                            ///< [HV,K,K]
  void* zeros;                                                ///< K zeros of any type
  int32_t *addend_slots, *transition_slots, *identity_slots;  ///< [N]; -1: not wanted
  IndexVector wanted;                                         ///< [N], may be null
  PieceFlags forgotten;                                       ///< out: zeros
  int64_t N, HV, K;
};

/// Head dimension K of the largest state: two times 16 columns of it are in shared memory.
inline constexpr int64_t kMaxK = 512;

/// Loads the kernels onto the current device. @return a cudaError_t
int load_kernels() noexcept;

/// Enqueue a fold, and the preparation of a summary by the generic kernel.
void launch_fold(const FoldParams& params, Launcher& launcher) noexcept;
void launch_fill(const FillParams& params, Launcher& launcher) noexcept;

}  // namespace sluice::cuda::context

#endif  // SLUICE_CUDA_KERNELS_CONTEXT_LAUNCH_H_
