// Makes one call of an operator where its implementation computes: on the host, or on device copies
// of all tensors.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_PARITY_OPERATOR_CALL_HPP_
#define SLUICE_TESTS_PARITY_OPERATOR_CALL_HPP_

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "check/delta_tensors.hpp"
#include "check/device_copy.hpp"
#include "check/tensors.hpp"
#include "parity/far_pads.hpp"

namespace sluice::check {

inline std::vector<sluice_tensor*> tensors_of(sluice_causal_conv1d_args* a) {
  sluice_conv_state_io& s = a->state;
  return {&a->x,          &a->weight,           &a->bias,        &a->out,
          &a->cu_seqlens, &s.initial,           &s.final,        &s.read_slots,
          &s.write_slots, &s.has_initial_state, &s.num_accepted, &s.ring_position};
}

inline std::vector<sluice_tensor*> tensors_of(sluice_chunk_stage_args* a) {
  sluice_state_io& s = a->state;
  return {&a->q,
          &a->k,
          &a->v,
          &a->gate,
          &a->beta,
          &a->g_cumsum,
          &a->A,
          &a->A_inverse,
          &a->w,
          &a->u,
          &a->v_new,
          &a->h,
          &a->o,
          &a->cu_seqlens,
          &s.initial,
          &s.final,
          &s.read_slots,
          &s.write_slots,
          &s.has_initial_state};
}

inline std::vector<sluice_tensor*> tensors_of(sluice_chunk_backward_args* a) {
  return {&a->q,       &a->k,       &a->v,          &a->gate,    &a->beta,
          &a->A_log,   &a->dt_bias, &a->cu_seqlens, &a->initial, &a->d_o,
          &a->d_final, &a->dq,      &a->dk,         &a->dv,      &a->dgate,
          &a->dbeta,   &a->dA_log,  &a->ddt_bias,   &a->dinitial};
}

inline std::vector<sluice_tensor*> tensors_of(sluice_chunk_summary_args* a) {
  return {&a->q,          &a->k,      &a->v,        &a->gate,       &a->beta,
          &a->d_o,        &a->A_log,  &a->dt_bias,  &a->cu_seqlens, &a->wanted,
          &a->transition, &a->addend, &a->forgotten};
}

inline std::vector<sluice_tensor*> tensors_of(sluice_state_fold_args* a) {
  return {&a->transition,   &a->addend,  &a->forgotten, &a->cu_chains, &a->route_pieces,
          &a->route_states, &a->initial, &a->entering,  &a->final};
}

inline std::vector<sluice_tensor*> tensors_of(sluice_causal_conv1d_backward_args* a) {
  return {&a->x,       &a->weight, &a->bias,    &a->cu_seqlens, &a->initial, &a->d_out,
          &a->d_final, &a->dx,     &a->dweight, &a->dbias,      &a->dinitial};
}

inline std::vector<sluice_tensor*> tensors_of(sluice_gated_rms_norm_backward_args* a) {
  return {&a->x, &a->z, &a->weight, &a->d_out, &a->dx, &a->dz, &a->dweight};
}

inline std::vector<sluice_tensor*> tensors_of(sluice_layer_backward_args* a) {
  return {&a->qkv,
          &a->z,
          &a->b,
          &a->a,
          &a->conv_weight,
          &a->conv_bias,
          &a->A_log,
          &a->dt_bias,
          &a->norm_weight,
          &a->cu_seqlens,
          &a->initial,
          &a->conv_initial,
          &a->core_out,
          &a->d_out,
          &a->d_final,
          &a->d_conv_final,
          &a->dqkv,
          &a->dz,
          &a->db,
          &a->da,
          &a->dconv_weight,
          &a->dconv_bias,
          &a->dA_log,
          &a->ddt_bias,
          &a->dnorm_weight,
          &a->dinitial,
          &a->dconv_initial,
          &a->k,
          &a->v,
          &a->k_conv_weight,
          &a->v_conv_weight,
          &a->k_conv_bias,
          &a->v_conv_bias,
          &a->k_conv_initial,
          &a->v_conv_initial,
          &a->d_k_conv_final,
          &a->d_v_conv_final,
          &a->dk,
          &a->dv,
          &a->dk_conv_weight,
          &a->dv_conv_weight,
          &a->dk_conv_bias,
          &a->dv_conv_bias,
          &a->dk_conv_initial,
          &a->dv_conv_initial};
}

inline std::vector<sluice_tensor*> tensors_of(sluice_gated_rms_norm_args* a) {
  return {&a->x, &a->z, &a->weight, &a->out};
}

inline std::vector<sluice_tensor*> tensors_of(sluice_chunk_forward_args* a) {
  return delta_tensors(a);
}

inline std::vector<sluice_tensor*> tensors_of(sluice_recurrent_step_args* a) {
  return delta_tensors(a);
}

inline std::vector<sluice_tensor*> tensors_of(sluice_layer_args* a) {
  sluice_state_io& s = a->state;
  sluice_replay_ring& r = a->ring;
  return {&a->qkv,
          &a->z,
          &a->b,
          &a->a,
          &a->conv_weight,
          &a->conv_bias,
          &a->A_log,
          &a->dt_bias,
          &a->norm_weight,
          &a->out,
          &a->core_out,
          &a->cu_seqlens,
          &a->conv_initial,
          &a->conv_final,
          &a->ring_position,
          &a->num_accepted,
          &s.initial,
          &s.final,
          &s.read_slots,
          &s.write_slots,
          &s.has_initial_state,
          &r.k,
          &r.delta,
          &r.decay,
          &r.position,
          &r.checkpoint,
          &r.next_checkpoint,
          &a->k,
          &a->v,
          &a->k_conv_weight,
          &a->v_conv_weight,
          &a->k_conv_bias,
          &a->v_conv_bias,
          &a->k_conv_initial,
          &a->v_conv_initial,
          &a->k_conv_final,
          &a->v_conv_final};
}

/// What a call left, beside its outputs.
struct CallOutcome {
  int code = SLUICE_OK;
  std::string message, kernel;
  std::string damage;  ///< to memory that is nobody's, and device errors; empty = none
};

/// workspace_fill: its bytes before the call.
template <class Args>
CallOutcome call_operator(sluice_op op, int (*function)(const Args*, sluice_workspace, void*),
                          Args args, int workspace_fill = 0xff) {
  CallOutcome out;
  size_t bytes = 0;
  const FarPads far(args);
  if (args.implementation == SLUICE_IMPL_CUDA) {
    const std::unique_ptr<DeviceCopy> device = make_device_copy();
    device->upload(tensors_of(&args));
    out.code = sluice_workspace_size(op, &args, &bytes);
    if (out.code == SLUICE_OK) {
      out.code = function(&args, device->workspace(bytes, workspace_fill), nullptr);
    }
    out.message = sluice_last_error();
    out.damage = device->download();
  } else {
    out.code = sluice_workspace_size(op, &args, &bytes);
    TestWorkspace workspace(bytes);
    std::memset(workspace.get().data, workspace_fill, bytes);
    if (out.code == SLUICE_OK) out.code = function(&args, workspace.get(), nullptr);
    out.message = sluice_last_error();
    if (!workspace.guards_intact()) out.damage = "memory past the workspace; ";
  }
  out.kernel = sluice_last_kernel();
  return out;
}

}  // namespace sluice::check

#endif  // SLUICE_TESTS_PARITY_OPERATOR_CALL_HPP_
