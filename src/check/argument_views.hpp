// Calls see(view) for each view of arguments. Made by ops/generate.py from ops/manifest.json.
// SPDX-License-Identifier: Apache-2.0
// clang-format off
#ifndef SLUICE_SRC_CHECK_ARGUMENT_VIEWS_HPP_
#define SLUICE_SRC_CHECK_ARGUMENT_VIEWS_HPP_

#include "sluice/arguments.hpp"

namespace sluice::check {

template <class See>
void for_each_view(ChunkForwardArgs& args, See&& see) {
  see(args.q);
  see(args.k);
  see(args.v);
  see(args.gate);
  see(args.beta);
  see(args.o);
  see(args.A_log);
  see(args.dt_bias);
  see(args.cu_seqlens);
  see(args.state.initial);
  see(args.state.final);
  see(args.state.read_slots);
  see(args.state.write_slots);
  see(args.state.has_initial_state);
  see(args.checkpoints);
  see(args.checkpoint_slots);
}

template <class See>
void for_each_view(RecurrentStepArgs& args, See&& see) {
  see(args.q);
  see(args.k);
  see(args.v);
  see(args.gate);
  see(args.beta);
  see(args.o);
  see(args.A_log);
  see(args.dt_bias);
  see(args.cu_seqlens);
  see(args.num_accepted);
  see(args.state.initial);
  see(args.state.final);
  see(args.state.read_slots);
  see(args.state.write_slots);
  see(args.state.has_initial_state);
  see(args.ring.k);
  see(args.ring.delta);
  see(args.ring.decay);
  see(args.ring.position);
  see(args.ring.checkpoint);
  see(args.ring.next_checkpoint);
}

template <class See>
void for_each_view(CausalConv1dArgs& args, See&& see) {
  see(args.x);
  see(args.weight);
  see(args.bias);
  see(args.out);
  see(args.cu_seqlens);
  see(args.state.initial);
  see(args.state.final);
  see(args.state.read_slots);
  see(args.state.write_slots);
  see(args.state.has_initial_state);
  see(args.state.num_accepted);
  see(args.state.ring_position);
}

template <class See>
void for_each_view(GatedRmsNormArgs& args, See&& see) {
  see(args.x);
  see(args.z);
  see(args.weight);
  see(args.out);
}

template <class See>
void for_each_view(LayerArgs& args, See&& see) {
  see(args.qkv);
  see(args.z);
  see(args.b);
  see(args.a);
  see(args.conv_weight);
  see(args.conv_bias);
  see(args.A_log);
  see(args.dt_bias);
  see(args.norm_weight);
  see(args.out);
  see(args.core_out);
  see(args.cu_seqlens);
  see(args.conv_initial);
  see(args.conv_final);
  see(args.ring_position);
  see(args.num_accepted);
  see(args.state.initial);
  see(args.state.final);
  see(args.state.read_slots);
  see(args.state.write_slots);
  see(args.state.has_initial_state);
  see(args.ring.k);
  see(args.ring.delta);
  see(args.ring.decay);
  see(args.ring.position);
  see(args.ring.checkpoint);
  see(args.ring.next_checkpoint);
  see(args.k);
  see(args.v);
  see(args.k_conv_weight);
  see(args.v_conv_weight);
  see(args.k_conv_bias);
  see(args.v_conv_bias);
  see(args.k_conv_initial);
  see(args.v_conv_initial);
  see(args.k_conv_final);
  see(args.v_conv_final);
}

template <class See>
void for_each_view(ChunkStageArgs& args, See&& see) {
  see(args.q);
  see(args.k);
  see(args.v);
  see(args.gate);
  see(args.beta);
  see(args.g_cumsum);
  see(args.A);
  see(args.A_inverse);
  see(args.w);
  see(args.u);
  see(args.v_new);
  see(args.h);
  see(args.o);
  see(args.cu_seqlens);
  see(args.state.initial);
  see(args.state.final);
  see(args.state.read_slots);
  see(args.state.write_slots);
  see(args.state.has_initial_state);
  see(args.A_log);
  see(args.dt_bias);
}

template <class See>
void for_each_view(ChunkBackwardArgs& args, See&& see) {
  see(args.q);
  see(args.k);
  see(args.v);
  see(args.gate);
  see(args.beta);
  see(args.A_log);
  see(args.dt_bias);
  see(args.cu_seqlens);
  see(args.initial);
  see(args.d_o);
  see(args.d_final);
  see(args.dq);
  see(args.dk);
  see(args.dv);
  see(args.dgate);
  see(args.dbeta);
  see(args.dA_log);
  see(args.ddt_bias);
  see(args.dinitial);
}

template <class See>
void for_each_view(ChunkSummaryArgs& args, See&& see) {
  see(args.q);
  see(args.k);
  see(args.v);
  see(args.gate);
  see(args.beta);
  see(args.d_o);
  see(args.A_log);
  see(args.dt_bias);
  see(args.cu_seqlens);
  see(args.wanted);
  see(args.transition);
  see(args.addend);
  see(args.forgotten);
}

template <class See>
void for_each_view(StateFoldArgs& args, See&& see) {
  see(args.transition);
  see(args.addend);
  see(args.forgotten);
  see(args.cu_chains);
  see(args.route_pieces);
  see(args.route_states);
  see(args.initial);
  see(args.entering);
  see(args.final);
}

template <class See>
void for_each_view(CausalConv1dBackwardArgs& args, See&& see) {
  see(args.x);
  see(args.weight);
  see(args.bias);
  see(args.cu_seqlens);
  see(args.initial);
  see(args.d_out);
  see(args.d_final);
  see(args.dx);
  see(args.dweight);
  see(args.dbias);
  see(args.dinitial);
}

template <class See>
void for_each_view(GatedRmsNormBackwardArgs& args, See&& see) {
  see(args.x);
  see(args.z);
  see(args.weight);
  see(args.d_out);
  see(args.dx);
  see(args.dz);
  see(args.dweight);
}

template <class See>
void for_each_view(LayerBackwardArgs& args, See&& see) {
  see(args.qkv);
  see(args.z);
  see(args.b);
  see(args.a);
  see(args.conv_weight);
  see(args.conv_bias);
  see(args.A_log);
  see(args.dt_bias);
  see(args.norm_weight);
  see(args.cu_seqlens);
  see(args.conv_initial);
  see(args.initial);
  see(args.core_out);
  see(args.d_out);
  see(args.d_final);
  see(args.d_conv_final);
  see(args.dqkv);
  see(args.dz);
  see(args.db);
  see(args.da);
  see(args.dconv_weight);
  see(args.dconv_bias);
  see(args.dA_log);
  see(args.ddt_bias);
  see(args.dnorm_weight);
  see(args.dinitial);
  see(args.dconv_initial);
  see(args.k);
  see(args.v);
  see(args.k_conv_weight);
  see(args.v_conv_weight);
  see(args.k_conv_bias);
  see(args.v_conv_bias);
  see(args.k_conv_initial);
  see(args.v_conv_initial);
  see(args.d_k_conv_final);
  see(args.d_v_conv_final);
  see(args.dk);
  see(args.dv);
  see(args.dk_conv_weight);
  see(args.dv_conv_weight);
  see(args.dk_conv_bias);
  see(args.dv_conv_bias);
  see(args.dk_conv_initial);
  see(args.dv_conv_initial);
}

}  // namespace sluice::check

#endif  // SLUICE_SRC_CHECK_ARGUMENT_VIEWS_HPP_
