// The views of each operator's arguments. Made by ops/generate.py from ops/manifest.json.
// SPDX-License-Identifier: Apache-2.0
// clang-format off
#ifndef SLUICE_FUZZ_TABLES_HPP_
#define SLUICE_FUZZ_TABLES_HPP_

#include "arguments_scene.hpp"

namespace sluice::fuzz {

inline constexpr ViewField kChunkForwardViews[] = {
    {offsetof(sluice_chunk_forward_args, q), false},
    {offsetof(sluice_chunk_forward_args, k), false},
    {offsetof(sluice_chunk_forward_args, v), false},
    {offsetof(sluice_chunk_forward_args, gate), false},
    {offsetof(sluice_chunk_forward_args, beta), false},
    {offsetof(sluice_chunk_forward_args, o), true},
    {offsetof(sluice_chunk_forward_args, A_log), false},
    {offsetof(sluice_chunk_forward_args, dt_bias), false},
    {offsetof(sluice_chunk_forward_args, cu_seqlens), false},
    {offsetof(sluice_chunk_forward_args, state.initial), false},
    {offsetof(sluice_chunk_forward_args, state.final), true},
    {offsetof(sluice_chunk_forward_args, state.read_slots), false},
    {offsetof(sluice_chunk_forward_args, state.write_slots), false},
    {offsetof(sluice_chunk_forward_args, state.has_initial_state), false},
    {offsetof(sluice_chunk_forward_args, checkpoints), true},
    {offsetof(sluice_chunk_forward_args, checkpoint_slots), false},
};

inline constexpr ViewField kRecurrentStepViews[] = {
    {offsetof(sluice_recurrent_step_args, q), false},
    {offsetof(sluice_recurrent_step_args, k), false},
    {offsetof(sluice_recurrent_step_args, v), false},
    {offsetof(sluice_recurrent_step_args, gate), false},
    {offsetof(sluice_recurrent_step_args, beta), false},
    {offsetof(sluice_recurrent_step_args, o), true},
    {offsetof(sluice_recurrent_step_args, A_log), false},
    {offsetof(sluice_recurrent_step_args, dt_bias), false},
    {offsetof(sluice_recurrent_step_args, cu_seqlens), false},
    {offsetof(sluice_recurrent_step_args, num_accepted), false},
    {offsetof(sluice_recurrent_step_args, state.initial), true},
    {offsetof(sluice_recurrent_step_args, state.final), true},
    {offsetof(sluice_recurrent_step_args, state.read_slots), false},
    {offsetof(sluice_recurrent_step_args, state.write_slots), false},
    {offsetof(sluice_recurrent_step_args, state.has_initial_state), false},
    {offsetof(sluice_recurrent_step_args, ring.k), true},
    {offsetof(sluice_recurrent_step_args, ring.delta), true},
    {offsetof(sluice_recurrent_step_args, ring.decay), true},
    {offsetof(sluice_recurrent_step_args, ring.position), false},
    {offsetof(sluice_recurrent_step_args, ring.checkpoint), false},
    {offsetof(sluice_recurrent_step_args, ring.next_checkpoint), true},
};

inline constexpr ViewField kCausalConv1dViews[] = {
    {offsetof(sluice_causal_conv1d_args, x), false},
    {offsetof(sluice_causal_conv1d_args, weight), false},
    {offsetof(sluice_causal_conv1d_args, bias), false},
    {offsetof(sluice_causal_conv1d_args, out), true},
    {offsetof(sluice_causal_conv1d_args, cu_seqlens), false},
    {offsetof(sluice_causal_conv1d_args, state.initial), false},
    {offsetof(sluice_causal_conv1d_args, state.final), true},
    {offsetof(sluice_causal_conv1d_args, state.read_slots), false},
    {offsetof(sluice_causal_conv1d_args, state.write_slots), false},
    {offsetof(sluice_causal_conv1d_args, state.has_initial_state), false},
    {offsetof(sluice_causal_conv1d_args, state.num_accepted), false},
    {offsetof(sluice_causal_conv1d_args, state.ring_position), false},
};

inline constexpr ViewField kGatedRmsNormViews[] = {
    {offsetof(sluice_gated_rms_norm_args, x), false},
    {offsetof(sluice_gated_rms_norm_args, z), false},
    {offsetof(sluice_gated_rms_norm_args, weight), false},
    {offsetof(sluice_gated_rms_norm_args, out), true},
};

inline constexpr ViewField kLayerPrefillViews[] = {
    {offsetof(sluice_layer_args, qkv), false},
    {offsetof(sluice_layer_args, z), false},
    {offsetof(sluice_layer_args, b), false},
    {offsetof(sluice_layer_args, a), false},
    {offsetof(sluice_layer_args, conv_weight), false},
    {offsetof(sluice_layer_args, conv_bias), false},
    {offsetof(sluice_layer_args, A_log), false},
    {offsetof(sluice_layer_args, dt_bias), false},
    {offsetof(sluice_layer_args, norm_weight), false},
    {offsetof(sluice_layer_args, out), true},
    {offsetof(sluice_layer_args, core_out), true},
    {offsetof(sluice_layer_args, cu_seqlens), false},
    {offsetof(sluice_layer_args, conv_initial), false},
    {offsetof(sluice_layer_args, conv_final), true},
    {offsetof(sluice_layer_args, ring_position), false},
    {offsetof(sluice_layer_args, num_accepted), false},
    {offsetof(sluice_layer_args, state.initial), false},
    {offsetof(sluice_layer_args, state.final), true},
    {offsetof(sluice_layer_args, state.read_slots), false},
    {offsetof(sluice_layer_args, state.write_slots), false},
    {offsetof(sluice_layer_args, state.has_initial_state), false},
    {offsetof(sluice_layer_args, ring.k), true},
    {offsetof(sluice_layer_args, ring.delta), true},
    {offsetof(sluice_layer_args, ring.decay), true},
    {offsetof(sluice_layer_args, ring.position), false},
    {offsetof(sluice_layer_args, ring.checkpoint), false},
    {offsetof(sluice_layer_args, ring.next_checkpoint), true},
};

inline constexpr ViewField kLayerDecodeViews[] = {
    {offsetof(sluice_layer_args, qkv), false},
    {offsetof(sluice_layer_args, z), false},
    {offsetof(sluice_layer_args, b), false},
    {offsetof(sluice_layer_args, a), false},
    {offsetof(sluice_layer_args, conv_weight), false},
    {offsetof(sluice_layer_args, conv_bias), false},
    {offsetof(sluice_layer_args, A_log), false},
    {offsetof(sluice_layer_args, dt_bias), false},
    {offsetof(sluice_layer_args, norm_weight), false},
    {offsetof(sluice_layer_args, out), true},
    {offsetof(sluice_layer_args, core_out), true},
    {offsetof(sluice_layer_args, cu_seqlens), false},
    {offsetof(sluice_layer_args, conv_initial), true},
    {offsetof(sluice_layer_args, conv_final), true},
    {offsetof(sluice_layer_args, ring_position), false},
    {offsetof(sluice_layer_args, num_accepted), false},
    {offsetof(sluice_layer_args, state.initial), true},
    {offsetof(sluice_layer_args, state.final), true},
    {offsetof(sluice_layer_args, state.read_slots), false},
    {offsetof(sluice_layer_args, state.write_slots), false},
    {offsetof(sluice_layer_args, state.has_initial_state), false},
    {offsetof(sluice_layer_args, ring.k), true},
    {offsetof(sluice_layer_args, ring.delta), true},
    {offsetof(sluice_layer_args, ring.decay), true},
    {offsetof(sluice_layer_args, ring.position), false},
    {offsetof(sluice_layer_args, ring.checkpoint), false},
    {offsetof(sluice_layer_args, ring.next_checkpoint), true},
};

inline constexpr ViewField kChunkStageViews[] = {
    {offsetof(sluice_chunk_stage_args, q), false},
    {offsetof(sluice_chunk_stage_args, k), false},
    {offsetof(sluice_chunk_stage_args, v), false},
    {offsetof(sluice_chunk_stage_args, gate), false},
    {offsetof(sluice_chunk_stage_args, beta), false},
    {offsetof(sluice_chunk_stage_args, g_cumsum), true},
    {offsetof(sluice_chunk_stage_args, A), true},
    {offsetof(sluice_chunk_stage_args, A_inverse), true},
    {offsetof(sluice_chunk_stage_args, w), true},
    {offsetof(sluice_chunk_stage_args, u), true},
    {offsetof(sluice_chunk_stage_args, v_new), true},
    {offsetof(sluice_chunk_stage_args, h), true},
    {offsetof(sluice_chunk_stage_args, o), true},
    {offsetof(sluice_chunk_stage_args, cu_seqlens), false},
    {offsetof(sluice_chunk_stage_args, state.initial), false},
    {offsetof(sluice_chunk_stage_args, state.final), true},
    {offsetof(sluice_chunk_stage_args, state.read_slots), false},
    {offsetof(sluice_chunk_stage_args, state.write_slots), false},
    {offsetof(sluice_chunk_stage_args, state.has_initial_state), false},
    {offsetof(sluice_chunk_stage_args, A_log), false},
    {offsetof(sluice_chunk_stage_args, dt_bias), false},
};

inline constexpr ViewField kChunkBackwardViews[] = {
    {offsetof(sluice_chunk_backward_args, q), false},
    {offsetof(sluice_chunk_backward_args, k), false},
    {offsetof(sluice_chunk_backward_args, v), false},
    {offsetof(sluice_chunk_backward_args, gate), false},
    {offsetof(sluice_chunk_backward_args, beta), false},
    {offsetof(sluice_chunk_backward_args, A_log), false},
    {offsetof(sluice_chunk_backward_args, dt_bias), false},
    {offsetof(sluice_chunk_backward_args, cu_seqlens), false},
    {offsetof(sluice_chunk_backward_args, initial), false},
    {offsetof(sluice_chunk_backward_args, d_o), false},
    {offsetof(sluice_chunk_backward_args, d_final), false},
    {offsetof(sluice_chunk_backward_args, dq), true},
    {offsetof(sluice_chunk_backward_args, dk), true},
    {offsetof(sluice_chunk_backward_args, dv), true},
    {offsetof(sluice_chunk_backward_args, dgate), true},
    {offsetof(sluice_chunk_backward_args, dbeta), true},
    {offsetof(sluice_chunk_backward_args, dA_log), true},
    {offsetof(sluice_chunk_backward_args, ddt_bias), true},
    {offsetof(sluice_chunk_backward_args, dinitial), true},
};

}  // namespace sluice::fuzz

#endif  // SLUICE_FUZZ_TABLES_HPP_
