// Lists the operators. Made by ops/generate.py from ops/manifest.json.
// SPDX-License-Identifier: Apache-2.0
// clang-format off
#ifndef SLUICE_SRC_CORE_OPERATORS_HPP_
#define SLUICE_SRC_CORE_OPERATORS_HPP_

#include "sluice/sluice.h"

namespace sluice::core {

/// X(name, sluice_op, struct of arguments) of each operator, in the order of sluice_op.
#define SLUICE_OPERATORS(X) \
  X(chunk_forward, SLUICE_OP_CHUNK_FORWARD, sluice_chunk_forward_args) \
  X(recurrent_step, SLUICE_OP_RECURRENT_STEP, sluice_recurrent_step_args) \
  X(causal_conv1d, SLUICE_OP_CAUSAL_CONV1D, sluice_causal_conv1d_args) \
  X(gated_rms_norm, SLUICE_OP_GATED_RMS_NORM, sluice_gated_rms_norm_args) \
  X(layer_prefill, SLUICE_OP_LAYER_PREFILL, sluice_layer_args) \
  X(layer_decode, SLUICE_OP_LAYER_DECODE, sluice_layer_args) \
  X(chunk_stage, SLUICE_OP_CHUNK_STAGE, sluice_chunk_stage_args) \
  X(chunk_backward, SLUICE_OP_CHUNK_BACKWARD, sluice_chunk_backward_args) \
  X(chunk_summary, SLUICE_OP_CHUNK_SUMMARY, sluice_chunk_summary_args) \
  X(state_fold, SLUICE_OP_STATE_FOLD, sluice_state_fold_args) \
  X(causal_conv1d_backward, SLUICE_OP_CAUSAL_CONV1D_BACKWARD, sluice_causal_conv1d_backward_args) \
  X(gated_rms_norm_backward, SLUICE_OP_GATED_RMS_NORM_BACKWARD, sluice_gated_rms_norm_backward_args) \
  X(layer_backward, SLUICE_OP_LAYER_BACKWARD, sluice_layer_backward_args)

#define SLUICE_NAME(name, op, args) #name,
/// By sluice_op.
inline constexpr const char* kOperatorNames[] = {SLUICE_OPERATORS(SLUICE_NAME)};
#undef SLUICE_NAME

}  // namespace sluice::core

#endif  // SLUICE_SRC_CORE_OPERATORS_HPP_
