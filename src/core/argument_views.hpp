// Lists the views of each operator's arguments. Made by ops/generate.py from ops/manifest.json.
// SPDX-License-Identifier: Apache-2.0
// clang-format off
#ifndef SLUICE_SRC_CORE_ARGUMENT_VIEWS_HPP_
#define SLUICE_SRC_CORE_ARGUMENT_VIEWS_HPP_

#include <cstddef>
#include <cstdint>

#include "sluice/sluice.h"

namespace sluice::core {

/// Views of one pool may be one view.
enum class Pool : uint8_t { kNone, kStates, kRows, kConv, kKConv, kVConv };

/// What elements are.
enum class Holds : uint8_t { kNumbers, kIndices, kFlags };

/// Of ViewField::writers: every call.
inline constexpr uint8_t kAlways = 0xff;

struct ViewField {
  const char* name;
  uint16_t offset;  ///< of a sluice_tensor in the struct
  Holds holds = Holds::kNumbers;
  uint8_t writers = 0;  ///< who writes it: nobody, kAlways, or stages, a bit each
  Pool pool = Pool::kNone;
  uint16_t other = 0;  ///< where states are written; without it those of this view are, in place

  sluice_tensor* in(void* args) const noexcept {
    return reinterpret_cast<sluice_tensor*>(static_cast<std::byte*>(args) + offset);
  }
  const sluice_tensor& of(const void* args) const noexcept {
    return *reinterpret_cast<const sluice_tensor*>(static_cast<const std::byte*>(args) + offset);
  }
};

/// Those of a struct of arguments.
template <class Args>
inline constexpr int kViews = 0;  ///< other structs have none

template <>
inline constexpr ViewField kViews<sluice_chunk_forward_args>[] = {
    {"q", offsetof(sluice_chunk_forward_args, q)},
    {"k", offsetof(sluice_chunk_forward_args, k)},
    {"v", offsetof(sluice_chunk_forward_args, v)},
    {"gate", offsetof(sluice_chunk_forward_args, gate)},
    {"beta", offsetof(sluice_chunk_forward_args, beta)},
    {"o", offsetof(sluice_chunk_forward_args, o), Holds::kNumbers, kAlways},
    {"A_log", offsetof(sluice_chunk_forward_args, A_log)},
    {"dt_bias", offsetof(sluice_chunk_forward_args, dt_bias)},
    {"cu_seqlens", offsetof(sluice_chunk_forward_args, cu_seqlens), Holds::kIndices},
    {"checkpoints", offsetof(sluice_chunk_forward_args, checkpoints), Holds::kNumbers, kAlways, Pool::kStates},
    {"checkpoint_slots", offsetof(sluice_chunk_forward_args, checkpoint_slots), Holds::kIndices},
    {"state.initial", offsetof(sluice_chunk_forward_args, state.initial), Holds::kNumbers, 0, Pool::kStates, offsetof(sluice_chunk_forward_args, state.final)},
    {"state.final", offsetof(sluice_chunk_forward_args, state.final), Holds::kNumbers, kAlways, Pool::kStates},
    {"state.read_slots", offsetof(sluice_chunk_forward_args, state.read_slots), Holds::kIndices},
    {"state.write_slots", offsetof(sluice_chunk_forward_args, state.write_slots), Holds::kIndices},
    {"state.has_initial_state", offsetof(sluice_chunk_forward_args, state.has_initial_state), Holds::kFlags},
};

template <>
inline constexpr ViewField kViews<sluice_recurrent_step_args>[] = {
    {"q", offsetof(sluice_recurrent_step_args, q)},
    {"k", offsetof(sluice_recurrent_step_args, k)},
    {"v", offsetof(sluice_recurrent_step_args, v)},
    {"gate", offsetof(sluice_recurrent_step_args, gate)},
    {"beta", offsetof(sluice_recurrent_step_args, beta)},
    {"o", offsetof(sluice_recurrent_step_args, o), Holds::kNumbers, kAlways},
    {"A_log", offsetof(sluice_recurrent_step_args, A_log)},
    {"dt_bias", offsetof(sluice_recurrent_step_args, dt_bias)},
    {"cu_seqlens", offsetof(sluice_recurrent_step_args, cu_seqlens), Holds::kIndices},
    {"num_accepted", offsetof(sluice_recurrent_step_args, num_accepted), Holds::kIndices},
    {"state.initial", offsetof(sluice_recurrent_step_args, state.initial), Holds::kNumbers, 0, Pool::kStates, offsetof(sluice_recurrent_step_args, state.final)},
    {"state.final", offsetof(sluice_recurrent_step_args, state.final), Holds::kNumbers, kAlways, Pool::kStates},
    {"state.read_slots", offsetof(sluice_recurrent_step_args, state.read_slots), Holds::kIndices},
    {"state.write_slots", offsetof(sluice_recurrent_step_args, state.write_slots), Holds::kIndices},
    {"state.has_initial_state", offsetof(sluice_recurrent_step_args, state.has_initial_state), Holds::kFlags},
    {"ring.k", offsetof(sluice_recurrent_step_args, ring.k), Holds::kNumbers, kAlways},
    {"ring.delta", offsetof(sluice_recurrent_step_args, ring.delta), Holds::kNumbers, kAlways},
    {"ring.decay", offsetof(sluice_recurrent_step_args, ring.decay), Holds::kNumbers, kAlways},
    {"ring.position", offsetof(sluice_recurrent_step_args, ring.position), Holds::kIndices},
    {"ring.checkpoint", offsetof(sluice_recurrent_step_args, ring.checkpoint), Holds::kIndices},
    {"ring.next_checkpoint", offsetof(sluice_recurrent_step_args, ring.next_checkpoint), Holds::kIndices, kAlways},
};

template <>
inline constexpr ViewField kViews<sluice_causal_conv1d_args>[] = {
    {"x", offsetof(sluice_causal_conv1d_args, x)},
    {"weight", offsetof(sluice_causal_conv1d_args, weight)},
    {"bias", offsetof(sluice_causal_conv1d_args, bias)},
    {"out", offsetof(sluice_causal_conv1d_args, out), Holds::kNumbers, kAlways},
    {"cu_seqlens", offsetof(sluice_causal_conv1d_args, cu_seqlens), Holds::kIndices},
    {"state.initial", offsetof(sluice_causal_conv1d_args, state.initial), Holds::kNumbers, 0, Pool::kStates, offsetof(sluice_causal_conv1d_args, state.final)},
    {"state.final", offsetof(sluice_causal_conv1d_args, state.final), Holds::kNumbers, kAlways, Pool::kStates},
    {"state.read_slots", offsetof(sluice_causal_conv1d_args, state.read_slots), Holds::kIndices},
    {"state.write_slots", offsetof(sluice_causal_conv1d_args, state.write_slots), Holds::kIndices},
    {"state.has_initial_state", offsetof(sluice_causal_conv1d_args, state.has_initial_state), Holds::kFlags},
    {"state.num_accepted", offsetof(sluice_causal_conv1d_args, state.num_accepted), Holds::kIndices},
    {"state.ring_position", offsetof(sluice_causal_conv1d_args, state.ring_position), Holds::kIndices},
};

template <>
inline constexpr ViewField kViews<sluice_gated_rms_norm_args>[] = {
    {"x", offsetof(sluice_gated_rms_norm_args, x), Holds::kNumbers, 0, Pool::kRows},
    {"z", offsetof(sluice_gated_rms_norm_args, z)},
    {"weight", offsetof(sluice_gated_rms_norm_args, weight)},
    {"out", offsetof(sluice_gated_rms_norm_args, out), Holds::kNumbers, kAlways, Pool::kRows},
};

template <>
inline constexpr ViewField kViews<sluice_layer_args>[] = {
    {"qkv", offsetof(sluice_layer_args, qkv)},
    {"z", offsetof(sluice_layer_args, z)},
    {"b", offsetof(sluice_layer_args, b)},
    {"a", offsetof(sluice_layer_args, a)},
    {"conv_weight", offsetof(sluice_layer_args, conv_weight)},
    {"conv_bias", offsetof(sluice_layer_args, conv_bias)},
    {"A_log", offsetof(sluice_layer_args, A_log)},
    {"dt_bias", offsetof(sluice_layer_args, dt_bias)},
    {"norm_weight", offsetof(sluice_layer_args, norm_weight)},
    {"out", offsetof(sluice_layer_args, out), Holds::kNumbers, kAlways},
    {"core_out", offsetof(sluice_layer_args, core_out), Holds::kNumbers, kAlways},
    {"cu_seqlens", offsetof(sluice_layer_args, cu_seqlens), Holds::kIndices},
    {"conv_initial", offsetof(sluice_layer_args, conv_initial), Holds::kNumbers, 0, Pool::kConv, offsetof(sluice_layer_args, conv_final)},
    {"conv_final", offsetof(sluice_layer_args, conv_final), Holds::kNumbers, kAlways, Pool::kConv},
    {"ring_position", offsetof(sluice_layer_args, ring_position), Holds::kIndices},
    {"num_accepted", offsetof(sluice_layer_args, num_accepted), Holds::kIndices},
    {"k", offsetof(sluice_layer_args, k)},
    {"v", offsetof(sluice_layer_args, v)},
    {"k_conv_weight", offsetof(sluice_layer_args, k_conv_weight)},
    {"v_conv_weight", offsetof(sluice_layer_args, v_conv_weight)},
    {"k_conv_bias", offsetof(sluice_layer_args, k_conv_bias)},
    {"v_conv_bias", offsetof(sluice_layer_args, v_conv_bias)},
    {"k_conv_initial", offsetof(sluice_layer_args, k_conv_initial), Holds::kNumbers, 0, Pool::kKConv, offsetof(sluice_layer_args, k_conv_final)},
    {"v_conv_initial", offsetof(sluice_layer_args, v_conv_initial), Holds::kNumbers, 0, Pool::kVConv, offsetof(sluice_layer_args, v_conv_final)},
    {"k_conv_final", offsetof(sluice_layer_args, k_conv_final), Holds::kNumbers, kAlways, Pool::kKConv},
    {"v_conv_final", offsetof(sluice_layer_args, v_conv_final), Holds::kNumbers, kAlways, Pool::kVConv},
    {"state.initial", offsetof(sluice_layer_args, state.initial), Holds::kNumbers, 0, Pool::kStates, offsetof(sluice_layer_args, state.final)},
    {"state.final", offsetof(sluice_layer_args, state.final), Holds::kNumbers, kAlways, Pool::kStates},
    {"state.read_slots", offsetof(sluice_layer_args, state.read_slots), Holds::kIndices},
    {"state.write_slots", offsetof(sluice_layer_args, state.write_slots), Holds::kIndices},
    {"state.has_initial_state", offsetof(sluice_layer_args, state.has_initial_state), Holds::kFlags},
    {"ring.k", offsetof(sluice_layer_args, ring.k), Holds::kNumbers, kAlways},
    {"ring.delta", offsetof(sluice_layer_args, ring.delta), Holds::kNumbers, kAlways},
    {"ring.decay", offsetof(sluice_layer_args, ring.decay), Holds::kNumbers, kAlways},
    {"ring.position", offsetof(sluice_layer_args, ring.position), Holds::kIndices},
    {"ring.checkpoint", offsetof(sluice_layer_args, ring.checkpoint), Holds::kIndices},
    {"ring.next_checkpoint", offsetof(sluice_layer_args, ring.next_checkpoint), Holds::kIndices, kAlways},
};

template <>
inline constexpr ViewField kViews<sluice_chunk_stage_args>[] = {
    {"q", offsetof(sluice_chunk_stage_args, q)},
    {"k", offsetof(sluice_chunk_stage_args, k)},
    {"v", offsetof(sluice_chunk_stage_args, v)},
    {"gate", offsetof(sluice_chunk_stage_args, gate)},
    {"beta", offsetof(sluice_chunk_stage_args, beta)},
    {"g_cumsum", offsetof(sluice_chunk_stage_args, g_cumsum), Holds::kNumbers, 65},
    {"A", offsetof(sluice_chunk_stage_args, A), Holds::kNumbers, 66},
    {"A_inverse", offsetof(sluice_chunk_stage_args, A_inverse), Holds::kNumbers, 132},
    {"w", offsetof(sluice_chunk_stage_args, w), Holds::kNumbers, 136},
    {"u", offsetof(sluice_chunk_stage_args, u), Holds::kNumbers, 136},
    {"v_new", offsetof(sluice_chunk_stage_args, v_new), Holds::kNumbers, 16},
    {"h", offsetof(sluice_chunk_stage_args, h), Holds::kNumbers, 16},
    {"o", offsetof(sluice_chunk_stage_args, o), Holds::kNumbers, kAlways},
    {"cu_seqlens", offsetof(sluice_chunk_stage_args, cu_seqlens), Holds::kIndices},
    {"A_log", offsetof(sluice_chunk_stage_args, A_log)},
    {"dt_bias", offsetof(sluice_chunk_stage_args, dt_bias)},
    {"state.initial", offsetof(sluice_chunk_stage_args, state.initial), Holds::kNumbers, 0, Pool::kStates, offsetof(sluice_chunk_stage_args, state.final)},
    {"state.final", offsetof(sluice_chunk_stage_args, state.final), Holds::kNumbers, kAlways, Pool::kStates},
    {"state.read_slots", offsetof(sluice_chunk_stage_args, state.read_slots), Holds::kIndices},
    {"state.write_slots", offsetof(sluice_chunk_stage_args, state.write_slots), Holds::kIndices},
    {"state.has_initial_state", offsetof(sluice_chunk_stage_args, state.has_initial_state), Holds::kFlags},
};

template <>
inline constexpr ViewField kViews<sluice_chunk_backward_args>[] = {
    {"q", offsetof(sluice_chunk_backward_args, q)},
    {"k", offsetof(sluice_chunk_backward_args, k)},
    {"v", offsetof(sluice_chunk_backward_args, v)},
    {"gate", offsetof(sluice_chunk_backward_args, gate)},
    {"beta", offsetof(sluice_chunk_backward_args, beta)},
    {"A_log", offsetof(sluice_chunk_backward_args, A_log)},
    {"dt_bias", offsetof(sluice_chunk_backward_args, dt_bias)},
    {"cu_seqlens", offsetof(sluice_chunk_backward_args, cu_seqlens), Holds::kIndices},
    {"initial", offsetof(sluice_chunk_backward_args, initial)},
    {"d_o", offsetof(sluice_chunk_backward_args, d_o)},
    {"d_final", offsetof(sluice_chunk_backward_args, d_final)},
    {"dq", offsetof(sluice_chunk_backward_args, dq), Holds::kNumbers, kAlways},
    {"dk", offsetof(sluice_chunk_backward_args, dk), Holds::kNumbers, kAlways},
    {"dv", offsetof(sluice_chunk_backward_args, dv), Holds::kNumbers, kAlways},
    {"dgate", offsetof(sluice_chunk_backward_args, dgate), Holds::kNumbers, kAlways},
    {"dbeta", offsetof(sluice_chunk_backward_args, dbeta), Holds::kNumbers, kAlways},
    {"dA_log", offsetof(sluice_chunk_backward_args, dA_log), Holds::kNumbers, kAlways},
    {"ddt_bias", offsetof(sluice_chunk_backward_args, ddt_bias), Holds::kNumbers, kAlways},
    {"dinitial", offsetof(sluice_chunk_backward_args, dinitial), Holds::kNumbers, kAlways},
};

template <>
inline constexpr ViewField kViews<sluice_chunk_summary_args>[] = {
    {"q", offsetof(sluice_chunk_summary_args, q)},
    {"k", offsetof(sluice_chunk_summary_args, k)},
    {"v", offsetof(sluice_chunk_summary_args, v)},
    {"gate", offsetof(sluice_chunk_summary_args, gate)},
    {"beta", offsetof(sluice_chunk_summary_args, beta)},
    {"d_o", offsetof(sluice_chunk_summary_args, d_o)},
    {"A_log", offsetof(sluice_chunk_summary_args, A_log)},
    {"dt_bias", offsetof(sluice_chunk_summary_args, dt_bias)},
    {"cu_seqlens", offsetof(sluice_chunk_summary_args, cu_seqlens), Holds::kIndices},
    {"wanted", offsetof(sluice_chunk_summary_args, wanted), Holds::kIndices},
    {"transition", offsetof(sluice_chunk_summary_args, transition), Holds::kNumbers, kAlways},
    {"addend", offsetof(sluice_chunk_summary_args, addend), Holds::kNumbers, kAlways},
    {"forgotten", offsetof(sluice_chunk_summary_args, forgotten), Holds::kFlags, kAlways},
};

template <>
inline constexpr ViewField kViews<sluice_state_fold_args>[] = {
    {"transition", offsetof(sluice_state_fold_args, transition)},
    {"addend", offsetof(sluice_state_fold_args, addend)},
    {"forgotten", offsetof(sluice_state_fold_args, forgotten), Holds::kFlags},
    {"cu_chains", offsetof(sluice_state_fold_args, cu_chains), Holds::kIndices},
    {"route_pieces", offsetof(sluice_state_fold_args, route_pieces), Holds::kIndices},
    {"route_states", offsetof(sluice_state_fold_args, route_states), Holds::kIndices},
    {"initial", offsetof(sluice_state_fold_args, initial)},
    {"entering", offsetof(sluice_state_fold_args, entering), Holds::kNumbers, kAlways},
    {"final", offsetof(sluice_state_fold_args, final), Holds::kNumbers, kAlways},
};

template <>
inline constexpr ViewField kViews<sluice_causal_conv1d_backward_args>[] = {
    {"x", offsetof(sluice_causal_conv1d_backward_args, x)},
    {"weight", offsetof(sluice_causal_conv1d_backward_args, weight)},
    {"bias", offsetof(sluice_causal_conv1d_backward_args, bias)},
    {"cu_seqlens", offsetof(sluice_causal_conv1d_backward_args, cu_seqlens), Holds::kIndices},
    {"initial", offsetof(sluice_causal_conv1d_backward_args, initial)},
    {"d_out", offsetof(sluice_causal_conv1d_backward_args, d_out)},
    {"d_final", offsetof(sluice_causal_conv1d_backward_args, d_final)},
    {"dx", offsetof(sluice_causal_conv1d_backward_args, dx), Holds::kNumbers, kAlways},
    {"dweight", offsetof(sluice_causal_conv1d_backward_args, dweight), Holds::kNumbers, kAlways},
    {"dbias", offsetof(sluice_causal_conv1d_backward_args, dbias), Holds::kNumbers, kAlways},
    {"dinitial", offsetof(sluice_causal_conv1d_backward_args, dinitial), Holds::kNumbers, kAlways},
};

template <>
inline constexpr ViewField kViews<sluice_gated_rms_norm_backward_args>[] = {
    {"x", offsetof(sluice_gated_rms_norm_backward_args, x)},
    {"z", offsetof(sluice_gated_rms_norm_backward_args, z)},
    {"weight", offsetof(sluice_gated_rms_norm_backward_args, weight)},
    {"d_out", offsetof(sluice_gated_rms_norm_backward_args, d_out)},
    {"dx", offsetof(sluice_gated_rms_norm_backward_args, dx), Holds::kNumbers, kAlways},
    {"dz", offsetof(sluice_gated_rms_norm_backward_args, dz), Holds::kNumbers, kAlways},
    {"dweight", offsetof(sluice_gated_rms_norm_backward_args, dweight), Holds::kNumbers, kAlways},
};

template <>
inline constexpr ViewField kViews<sluice_layer_backward_args>[] = {
    {"qkv", offsetof(sluice_layer_backward_args, qkv)},
    {"z", offsetof(sluice_layer_backward_args, z)},
    {"b", offsetof(sluice_layer_backward_args, b)},
    {"a", offsetof(sluice_layer_backward_args, a)},
    {"conv_weight", offsetof(sluice_layer_backward_args, conv_weight)},
    {"conv_bias", offsetof(sluice_layer_backward_args, conv_bias)},
    {"A_log", offsetof(sluice_layer_backward_args, A_log)},
    {"dt_bias", offsetof(sluice_layer_backward_args, dt_bias)},
    {"norm_weight", offsetof(sluice_layer_backward_args, norm_weight)},
    {"cu_seqlens", offsetof(sluice_layer_backward_args, cu_seqlens), Holds::kIndices},
    {"conv_initial", offsetof(sluice_layer_backward_args, conv_initial)},
    {"initial", offsetof(sluice_layer_backward_args, initial)},
    {"core_out", offsetof(sluice_layer_backward_args, core_out)},
    {"d_out", offsetof(sluice_layer_backward_args, d_out)},
    {"d_final", offsetof(sluice_layer_backward_args, d_final)},
    {"d_conv_final", offsetof(sluice_layer_backward_args, d_conv_final)},
    {"dqkv", offsetof(sluice_layer_backward_args, dqkv), Holds::kNumbers, kAlways},
    {"dz", offsetof(sluice_layer_backward_args, dz), Holds::kNumbers, kAlways},
    {"db", offsetof(sluice_layer_backward_args, db), Holds::kNumbers, kAlways},
    {"da", offsetof(sluice_layer_backward_args, da), Holds::kNumbers, kAlways},
    {"dconv_weight", offsetof(sluice_layer_backward_args, dconv_weight), Holds::kNumbers, kAlways},
    {"dconv_bias", offsetof(sluice_layer_backward_args, dconv_bias), Holds::kNumbers, kAlways},
    {"dA_log", offsetof(sluice_layer_backward_args, dA_log), Holds::kNumbers, kAlways},
    {"ddt_bias", offsetof(sluice_layer_backward_args, ddt_bias), Holds::kNumbers, kAlways},
    {"dnorm_weight", offsetof(sluice_layer_backward_args, dnorm_weight), Holds::kNumbers, kAlways},
    {"dinitial", offsetof(sluice_layer_backward_args, dinitial), Holds::kNumbers, kAlways},
    {"dconv_initial", offsetof(sluice_layer_backward_args, dconv_initial), Holds::kNumbers, kAlways},
    {"k", offsetof(sluice_layer_backward_args, k)},
    {"v", offsetof(sluice_layer_backward_args, v)},
    {"k_conv_weight", offsetof(sluice_layer_backward_args, k_conv_weight)},
    {"v_conv_weight", offsetof(sluice_layer_backward_args, v_conv_weight)},
    {"k_conv_bias", offsetof(sluice_layer_backward_args, k_conv_bias)},
    {"v_conv_bias", offsetof(sluice_layer_backward_args, v_conv_bias)},
    {"k_conv_initial", offsetof(sluice_layer_backward_args, k_conv_initial)},
    {"v_conv_initial", offsetof(sluice_layer_backward_args, v_conv_initial)},
    {"d_k_conv_final", offsetof(sluice_layer_backward_args, d_k_conv_final)},
    {"d_v_conv_final", offsetof(sluice_layer_backward_args, d_v_conv_final)},
    {"dk", offsetof(sluice_layer_backward_args, dk), Holds::kNumbers, kAlways},
    {"dv", offsetof(sluice_layer_backward_args, dv), Holds::kNumbers, kAlways},
    {"dk_conv_weight", offsetof(sluice_layer_backward_args, dk_conv_weight), Holds::kNumbers, kAlways},
    {"dv_conv_weight", offsetof(sluice_layer_backward_args, dv_conv_weight), Holds::kNumbers, kAlways},
    {"dk_conv_bias", offsetof(sluice_layer_backward_args, dk_conv_bias), Holds::kNumbers, kAlways},
    {"dv_conv_bias", offsetof(sluice_layer_backward_args, dv_conv_bias), Holds::kNumbers, kAlways},
    {"dk_conv_initial", offsetof(sluice_layer_backward_args, dk_conv_initial), Holds::kNumbers, kAlways},
    {"dv_conv_initial", offsetof(sluice_layer_backward_args, dv_conv_initial), Holds::kNumbers, kAlways},
};

}  // namespace sluice::core

#endif  // SLUICE_SRC_CORE_ARGUMENT_VIEWS_HPP_
