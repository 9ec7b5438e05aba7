// Lists the views of each operator's arguments, copies them to devices, and times calls.
// SPDX-License-Identifier: Apache-2.0
#include "tools/call.hpp"

namespace sluice::tools {

Status device_error(const std::string& trouble) {
  return Status::failure(Code::kDeviceError, "device copy: %s", trouble.c_str());
}

std::vector<sluice_tensor*> views_of(ChunkForwardArgs* a) {
  return {&a->q,     &a->k,       &a->v,          &a->gate,          &a->beta,       &a->o,
          &a->A_log, &a->dt_bias, &a->cu_seqlens, &a->state.initial, &a->state.final};
}

std::vector<sluice_tensor*> views_of(RecurrentStepArgs* a) {
  return {&a->q, &a->k,     &a->v,       &a->gate,          &a->beta,
          &a->o, &a->A_log, &a->dt_bias, &a->state.initial, &a->state.final};
}

std::vector<sluice_tensor*> views_of(ChunkBackwardArgs* a) {
  return {&a->q,       &a->k,       &a->v,          &a->gate,    &a->beta,
          &a->A_log,   &a->dt_bias, &a->cu_seqlens, &a->initial, &a->d_o,
          &a->d_final, &a->dq,      &a->dk,         &a->dv,      &a->dgate,
          &a->dbeta,   &a->dA_log,  &a->ddt_bias,   &a->dinitial};
}

std::vector<sluice_tensor*> views_of(ChunkStageArgs* a) {
  return {&a->q,          &a->k, &a->v,         &a->gate,       &a->beta,
          &a->g_cumsum,   &a->A, &a->A_inverse, &a->w,          &a->u,
          &a->v_new,      &a->h, &a->o,         &a->cu_seqlens, &a->state.initial,
          &a->state.final};
}

std::vector<sluice_tensor*> views_of(CausalConv1dArgs* a) {
  return {&a->x, &a->weight, &a->bias, &a->out, &a->cu_seqlens, &a->state.initial, &a->state.final};
}

std::vector<sluice_tensor*> views_of(GatedRmsNormArgs* a) {
  return {&a->x, &a->z, &a->weight, &a->out};
}

std::vector<sluice_tensor*> views_of(LayerArgs* a) {
  return {&a->qkv,         &a->z,
          &a->b,           &a->a,
          &a->conv_weight, &a->conv_bias,
          &a->A_log,       &a->dt_bias,
          &a->norm_weight, &a->out,
          &a->core_out,    &a->conv_initial,
          &a->conv_final,  &a->state.initial,
          &a->state.final};
}

}  // namespace sluice::tools
