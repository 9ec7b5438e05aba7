// Validates the arguments of layer_backward.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/layer_views.hpp"
#include "core/validate.hpp"

namespace sluice::core {
namespace {

using Args = sluice_layer_backward_args;

bool is_separate(const Args& a) noexcept { return a.packing == SLUICE_PACKING_SEPARATE; }

/// The forward call.
sluice_layer_args forward_of(const Args& a) noexcept {
  sluice_layer_args f{};
  f.qkv = a.qkv, f.z = a.z, f.b = a.b, f.a = a.a;
  f.conv_weight = a.conv_weight, f.conv_bias = a.conv_bias;
  f.A_log = a.A_log, f.dt_bias = a.dt_bias, f.norm_weight = a.norm_weight;
  f.core_out = a.core_out, f.cu_seqlens = a.cu_seqlens, f.conv_initial = a.conv_initial;
  f.state.initial = a.initial, f.state.layout = a.state_layout;
  f.num_k_heads = a.num_k_heads, f.num_v_heads = a.num_v_heads;
  f.head_k_dim = a.head_k_dim, f.head_v_dim = a.head_v_dim;
  f.scale = a.scale, f.scale_mode = a.scale_mode;
  f.l2norm_eps = a.l2norm_eps, f.norm_eps = a.norm_eps;
  f.packing = a.packing, f.eigenvalues = a.eigenvalues, f.head_map = a.head_map;
  f.gate_activation = a.gate_activation, f.rounding = a.rounding;
  f.implementation = a.implementation;
  f.k = a.k, f.v = a.v;
  f.k_conv_weight = a.k_conv_weight, f.v_conv_weight = a.v_conv_weight;
  f.k_conv_bias = a.k_conv_bias, f.v_conv_bias = a.v_conv_bias;
  f.k_conv_initial = a.k_conv_initial, f.v_conv_initial = a.v_conv_initial;
  f.gate_lower_bound = a.gate_lower_bound;
  return f;
}

/// The gradients by it in its places: those of inputs as inputs, those of outputs as outputs.
sluice_layer_args gradients_of(const Args& a) noexcept {
  sluice_layer_args g = forward_of(a);
  g.qkv = a.dqkv, g.z = a.dz, g.b = a.db, g.a = a.da;
  g.conv_weight = a.dconv_weight, g.conv_bias = a.dconv_bias;
  g.A_log = a.dA_log, g.dt_bias = a.ddt_bias, g.norm_weight = a.dnorm_weight;
  g.out = a.d_out, g.core_out = {};
  g.conv_initial = a.dconv_initial, g.conv_final = a.d_conv_final;
  g.state.initial = a.dinitial, g.state.final = a.d_final;
  g.k = a.dk, g.v = a.dv;
  g.k_conv_weight = a.dk_conv_weight, g.v_conv_weight = a.dv_conv_weight;
  g.k_conv_bias = a.dk_conv_bias, g.v_conv_bias = a.dv_conv_bias;
  g.k_conv_initial = a.dk_conv_initial, g.k_conv_final = a.d_k_conv_final;
  g.v_conv_initial = a.dv_conv_initial, g.v_conv_final = a.d_v_conv_final;
  return g;
}

void check_inputs(Checker& c, const Args& a, const sluice_layer_args& forward) noexcept {
  check_layer_inputs(c, forward);
  if (c.optional("core_out", a.core_out, 4, Dtypes::kFloat)) {
    check_layer_rows(c, "core_out", a.core_out, forward);
  }
  if (c.required("d_out", a.d_out, 4, Dtypes::kFloat)) {
    check_layer_rows(c, "d_out", a.d_out, forward);
  }
}

void check_gradients(Checker& c, const Args& a) noexcept {
  const bool key_wise = a.a.rank == 4;
  const struct {
    const char *gradient, *input;
    const Tensor &by, &of;
    bool in_rows;  ///< its inner stride is 1
  } all[] = {
      {"dqkv", "qkv", a.dqkv, a.qkv, true},
      {"dz", "z", a.dz, a.z, true},
      {"db", "b", a.db, a.b, false},
      {"da", "a", a.da, a.a, key_wise},
      {"dconv_weight", "conv_weight", a.dconv_weight, a.conv_weight, false},
      {"dconv_bias", "conv_bias", a.dconv_bias, a.conv_bias, false},
      {"dA_log", "A_log", a.dA_log, a.A_log, false},
      {"ddt_bias", "dt_bias", a.ddt_bias, a.dt_bias, key_wise},
      {"dnorm_weight", "norm_weight", a.dnorm_weight, a.norm_weight, false},
      {"dk", "k", a.dk, a.k, true},
      {"dv", "v", a.dv, a.v, true},
      {"dk_conv_weight", "k_conv_weight", a.dk_conv_weight, a.k_conv_weight, false},
      {"dv_conv_weight", "v_conv_weight", a.dv_conv_weight, a.v_conv_weight, false},
      {"dk_conv_bias", "k_conv_bias", a.dk_conv_bias, a.k_conv_bias, false},
      {"dv_conv_bias", "v_conv_bias", a.dv_conv_bias, a.v_conv_bias, false},
  };
  for (const auto& g : all) {
    if (c.ok() && !present(g.of) && present(g.by)) {
      c.fail("%s = given, expected absent (%s is absent)", g.gradient, g.input);
    }
    check_gradient(c, g.gradient, g.by, g.input, g.of, g.in_rows);
  }
}

/// States of the convolution of all channels, or of that of q's, k's or v's.
struct ConvStates {
  const char *initial_name, *final_name, *gradient_name;
  const Tensor &initial, &d_final, &dinitial;
};

void check_conv_states(Checker& c, const ConvStates& states, CausalConvProblem* conv) noexcept {
  check_sequence_columns(c, states.initial_name, states.initial, conv);
  check_sequence_columns(c, states.final_name, states.d_final, conv);
  check_sequence_columns(c, states.gradient_name, states.dinitial, conv);
  if (present(states.dinitial)) c.writable(states.gradient_name, states.dinitial);
}

/// @return columns of the convolution's states, 0 without any
int64_t check_states(Checker& c, const Args& a, const DeltaRuleProblem& delta) noexcept {
  check_sequence_states(c, "initial", a.initial, delta);
  check_sequence_states(c, "d_final", a.d_final, delta);
  check_sequence_states(c, "dinitial", a.dinitial, delta);
  if (present(a.dinitial)) c.writable("dinitial", a.dinitial);
  CausalConvProblem conv;
  conv.rows = delta.rows;
  const int64_t keys = delta.H * delta.K, values = delta.HV * delta.V;
  conv.G = 1, conv.C = is_separate(a) ? keys : 2 * keys + values, conv.W = a.conv_weight.shape[1];
  const ConvStates parts[3] = {{"conv_initial", "d_conv_final", "dconv_initial", a.conv_initial,
                                a.d_conv_final, a.dconv_initial},
                               {"k_conv_initial", "d_k_conv_final", "dk_conv_initial",
                                a.k_conv_initial, a.d_k_conv_final, a.dk_conv_initial},
                               {"v_conv_initial", "d_v_conv_final", "dv_conv_initial",
                                a.v_conv_initial, a.d_v_conv_final, a.dv_conv_initial}};
  check_conv_states(c, parts[0], &conv);
  for (int i = 1; i < 3; ++i) {
    if (is_separate(a)) {
      conv.C = i == 1 ? keys : values;
      check_conv_states(c, parts[i], &conv);
      continue;
    }
    c.absent(parts[i].final_name, parts[i].d_final, "only with packing SEPARATE");
    c.absent(parts[i].gradient_name, parts[i].dinitial, "only with packing SEPARATE");
  }
  return conv.L;
}

}  // namespace

void check(Checker& c, const sluice_layer_backward_args& a, Depth depth,
           LayerBackwardProblem* problem) noexcept {
  DeltaRuleProblem& delta = problem->delta.forward;
  const sluice_layer_args forward = forward_of(a);
  c.choice("rounding", a.rounding, 2, "0 (ROUND_ONCE) or 1 (ROUND_HF)");
  c.choice("state_layout", a.state_layout, 2, "0 (KV) or 1 (VK)");
  check_layer_numbers(c, forward);
  if (c.ok()) check_inputs(c, a, forward);
  if (c.ok()) check_gradients(c, a);
  if (!c.ok()) return;
  Rows rows;
  check_rows(c, "qkv", a.qkv, a.cu_seqlens, false, 0, &rows);
  check_work(c, rows, a.num_v_heads, std::max(a.head_k_dim, a.head_v_dim));
  if (!c.ok()) return;
  delta.op = SLUICE_OP_CHUNK_BACKWARD;
  fill_delta(forward, rows, &delta);
  const int64_t L = check_states(c, a, delta);
  if (c.ok()) {
    fill_gradients(forward, gradients_of(a), {rows, L}, problem);
    problem->separate = is_separate(a);
  }
  if (sees_contents(depth, c.device())) check_delta_contents(c, delta, depth);
}

}  // namespace sluice::core
