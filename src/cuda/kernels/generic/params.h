// Describes a call to the generic kernel: one POD, passed as a __grid_constant__.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GENERIC_PARAMS_H_
#define SLUICE_CUDA_KERNELS_GENERIC_PARAMS_H_

#include "cuda/device/views.h"

namespace sluice::cuda::generic {

using device::BetaForm, device::BoundedPool, device::GateForm, device::HeadScalar;
using device::IndexVector, device::Number, device::SlotTable, device::StatePool, device::TokenRows;
using device::TokenScalar;

/// Arguments of the generic kernel, both operators.
struct GenericParams {
  TokenRows q, k, v, o;
  TokenScalar gate, beta;
  TokenRows key_gate;  ///< [B,T,HV,K]; null unless gates are key-wise, and gate_form is kNone then
  HeadScalar A_log, dt_bias;  ///< dt_bias of key-wise gates: [HV,K]
  IndexVector cu_seqlens;     ///< [N+1]; null: sequence n is batch entry n
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
  GateForm gate_form, key_form;
  BetaForm beta_form;
  bool l2norm, delta_rule, head_map_cyclic;
  bool write_last, write_per_token;  ///< which states go to `final`
};

}  // namespace sluice::cuda::generic

#endif  // SLUICE_CUDA_KERNELS_GENERIC_PARAMS_H_
