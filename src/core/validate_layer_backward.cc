// Validates the arguments of layer_backward.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/layer_views.hpp"
#include "core/validate.hpp"

namespace sluice::core {
namespace {

using Args = sluice_layer_backward_args;

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
  return g;
}

void check_inputs(Checker& c, const Args& a, const sluice_layer_args& forward) noexcept {
  check_layer_inputs(c, forward);
  if (c.ok() && a.a.rank == 4) c.fail("a rank = 4, expected 3 (gradients of scalar gates alone)");
  if (c.optional("core_out", a.core_out, 4, Dtypes::kFloat)) {
    check_layer_rows(c, "core_out", a.core_out, forward);
  }
  if (c.required("d_out", a.d_out, 4, Dtypes::kFloat)) {
    check_layer_rows(c, "d_out", a.d_out, forward);
  }
}

void check_rows_out(Checker& c, const char* name, const Tensor& t) noexcept {
  c.inner_contiguous(name, t);
  c.writable(name, t);
}

void check_gradients(Checker& c, const Args& a) noexcept {
  if (!present(a.z)) c.absent("dz", a.dz, "z is absent");
  if (!present(a.a)) c.absent("da", a.da, "a is absent");
  if (!present(a.conv_bias)) c.absent("dconv_bias", a.dconv_bias, "conv_bias is absent");
  if (check_like(c, "dqkv", a.dqkv, "qkv", a.qkv)) check_rows_out(c, "dqkv", a.dqkv);
  if (check_like(c, "dz", a.dz, "z", a.z)) check_rows_out(c, "dz", a.dz);
  check_gradient(c, "db", a.db, "b", a.b);
  check_gradient(c, "da", a.da, "a", a.a);
  check_gradient(c, "dconv_weight", a.dconv_weight, "conv_weight", a.conv_weight);
  check_gradient(c, "dconv_bias", a.dconv_bias, "conv_bias", a.conv_bias);
  check_gradient(c, "dA_log", a.dA_log, "A_log", a.A_log);
  check_gradient(c, "ddt_bias", a.ddt_bias, "dt_bias", a.dt_bias);
  check_gradient(c, "dnorm_weight", a.dnorm_weight, "norm_weight", a.norm_weight);
}

/// @return columns of the convolution's states, 0 without any
int64_t check_states(Checker& c, const Args& a, const DeltaRuleProblem& delta) noexcept {
  check_sequence_states(c, "initial", a.initial, delta);
  check_sequence_states(c, "d_final", a.d_final, delta);
  check_sequence_states(c, "dinitial", a.dinitial, delta);
  if (present(a.dinitial)) c.writable("dinitial", a.dinitial);
  CausalConvProblem conv;
  conv.rows = delta.rows;
  conv.G = 1, conv.C = 2 * delta.H * delta.K + delta.HV * delta.V, conv.W = a.conv_weight.shape[1];
  check_sequence_columns(c, "conv_initial", a.conv_initial, &conv);
  check_sequence_columns(c, "d_conv_final", a.d_conv_final, &conv);
  check_sequence_columns(c, "dconv_initial", a.dconv_initial, &conv);
  if (present(a.dconv_initial)) c.writable("dconv_initial", a.dconv_initial);
  return conv.L;
}

}  // namespace

Validated validate(const sluice_layer_backward_args& a, Depth depth,
                   LayerBackwardProblem* problem) noexcept {
  Checker c("layer_backward");
  *problem = {};
  DeltaRuleProblem& delta = problem->delta.forward;
  const sluice_layer_args forward = forward_of(a);
  c.choice("packing", a.packing, 2, "0 (FLAT) or 1 (INTERLEAVED)");
  c.choice("rounding", a.rounding, 2, "0 (ROUND_ONCE) or 1 (ROUND_HF)");
  c.choice("state_layout", a.state_layout, 2, "0 (KV) or 1 (VK)");
  check_layer_numbers(c, forward);
  if (c.ok()) check_inputs(c, a, forward);
  if (c.ok()) check_gradients(c, a);
  if (!c.ok()) return {c.status(), c.device(), a.implementation};
  Rows rows;
  check_rows(c, "qkv", a.qkv, a.cu_seqlens, false, 0, &rows);
  check_work(c, rows, a.num_v_heads, std::max(a.head_k_dim, a.head_v_dim));
  if (!c.ok()) return {c.status(), c.device(), a.implementation};
  delta.op = SLUICE_OP_CHUNK_BACKWARD;
  fill_delta(forward, rows, &delta);
  const int64_t L = check_states(c, a, delta);
  if (c.ok()) {
    fill_gradients(forward, gradients_of(a), {rows, L}, problem);
    settle(problem);
  }
  if (sees_contents(depth, c.device())) check_delta_contents(c, delta, depth);
  return {c.status(), c.device(), a.implementation};
}

}  // namespace sluice::core
