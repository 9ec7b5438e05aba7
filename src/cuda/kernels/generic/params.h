// What the generic kernel is told: one POD, passed as a __grid_constant__.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GENERIC_PARAMS_H_
#define SLUICE_CUDA_KERNELS_GENERIC_PARAMS_H_

#include "cuda/device/views.h"

namespace sluice::cuda::generic {

using device::BetaForm, device::GateForm, device::HeadScalar, device::IndexVector;
using device::Number, device::StatePool, device::TokenScalar;

/// Rows of q, k, v or o: [B,T,heads,D], innermost stride 1, the others in elements.
struct TokenRows {
  void* data;
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
  StatePool pool;
  int64_t slots;
};

/// Arguments of the generic kernel, both operators.
struct GenericParams {
  TokenRows q, k, v, o;
  TokenScalar gate, beta;
  HeadScalar A_log, dt_bias;
  IndexVector cu_seqlens;  ///< [N+1]; null: sequence n is batch entry n
  BoundedPool initial, final, checkpoints;
  SlotTable read_slots, write_slots, checkpoint_slots;
  IndexVector num_accepted;          ///< [N], may be null
  const uint8_t* has_initial_state;  ///< [N], may be null
  int64_t has_initial_stride;
  int64_t pad_below;
  int64_t checkpoint_every;
  int64_t N, T, H, HV, K, V, r;
  int64_t max_tokens;             ///< of one sequence; longer ones are cut
  int64_t row_step, column_step;  ///< elements between neighbours in a state
  int32_t decay_span;             ///< a power of two: tokens over which alpha rounding is carried
  float scale, beta_factor, l2norm_eps;
  GateForm gate_form;
  BetaForm beta_form;
  bool l2norm, delta_rule, head_map_cyclic;
  bool write_last, write_per_token;  ///< which states go to `final`
};

}  // namespace sluice::cuda::generic

#endif  // SLUICE_CUDA_KERNELS_GENERIC_PARAMS_H_
