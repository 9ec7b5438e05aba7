// Compares the address ranges of the gradients that a call writes with those of its other views.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include "core/overlap.hpp"
#include "core/view_regions.hpp"

namespace sluice::core {

Status check_memory(const char* op, const ChunkBackwardProblem& p,
                    const sluice_workspace& workspace) noexcept {
  using P = ChunkBackwardProblem;
  using F = DeltaRuleProblem;
  static constexpr Field kWritten[] = {{"dq", offsetof(P, dq)},
                                       {"dk", offsetof(P, dk)},
                                       {"dv", offsetof(P, dv)},
                                       {"dgate", offsetof(P, dgate)},
                                       {"dbeta", offsetof(P, dbeta)},
                                       {"dA_log", offsetof(P, dA_log)},
                                       {"ddt_bias", offsetof(P, ddt_bias)},
                                       {"dinitial", offsetof(P, dinitial)}};
  static constexpr Field kForwardRead[] = {{"initial", offsetof(F, state.initial)}};
  static constexpr Field kRead[] = {{"d_o", offsetof(P, d_o)}, {"d_final", offsetof(P, d_final)}};
  return check_views(op, workspace, 0, written(p, kWritten), read(p.forward, kDeltaRuleRead),
                     read(p.forward, kForwardRead), read(p, kRead));
}

Status check_memory(const char* op, const CausalConvBackwardProblem& p,
                    const sluice_workspace& workspace) noexcept {
  using P = CausalConvBackwardProblem;
  using F = CausalConvProblem;
  static constexpr Field kWritten[] = {{"dx", offsetof(P, dx)},
                                       {"dweight", offsetof(P, dweight)},
                                       {"dbias", offsetof(P, dbias)},
                                       {"dinitial", offsetof(P, dinitial)}};
  static constexpr Field kForwardRead[] = {{"initial", offsetof(F, state.initial)}};
  static constexpr Field kRead[] = {{"d_out", offsetof(P, d_out)},
                                    {"d_final", offsetof(P, d_final)}};
  return check_views(op, workspace, 0, written(p, kWritten), read(p.forward, kCausalConvRead),
                     read(p.forward, kForwardRead), read(p, kRead));
}

Status check_memory(const char* op, const GatedNormBackwardProblem& p,
                    const sluice_workspace& workspace) noexcept {
  using P = GatedNormBackwardProblem;
  static constexpr Field kWritten[] = {
      {"dx", offsetof(P, dx)}, {"dz", offsetof(P, dz)}, {"dweight", offsetof(P, dweight)}};
  static constexpr Field kRead[] = {{"d_out", offsetof(P, d_out)}};
  return check_views(op, workspace, 0, written(p, kWritten), read(p.forward, kGatedNormRead),
                     read(p, kRead));
}

Status check_memory(const char* op, const sluice_layer_backward_args& a,
                    const LayerBackwardProblem& /*p*/, const sluice_workspace& workspace) noexcept {
  using A = sluice_layer_backward_args;
  static constexpr Field kWritten[] = {{"dqkv", offsetof(A, dqkv)},
                                       {"dz", offsetof(A, dz)},
                                       {"db", offsetof(A, db)},
                                       {"da", offsetof(A, da)},
                                       {"dconv_weight", offsetof(A, dconv_weight)},
                                       {"dconv_bias", offsetof(A, dconv_bias)},
                                       {"dA_log", offsetof(A, dA_log)},
                                       {"ddt_bias", offsetof(A, ddt_bias)},
                                       {"dnorm_weight", offsetof(A, dnorm_weight)},
                                       {"dinitial", offsetof(A, dinitial)},
                                       {"dconv_initial", offsetof(A, dconv_initial)},
                                       {"dk", offsetof(A, dk)},
                                       {"dv", offsetof(A, dv)},
                                       {"dk_conv_weight", offsetof(A, dk_conv_weight)},
                                       {"dv_conv_weight", offsetof(A, dv_conv_weight)},
                                       {"dk_conv_bias", offsetof(A, dk_conv_bias)},
                                       {"dv_conv_bias", offsetof(A, dv_conv_bias)},
                                       {"dk_conv_initial", offsetof(A, dk_conv_initial)},
                                       {"dv_conv_initial", offsetof(A, dv_conv_initial)}};
  static constexpr Field kRead[] = {{"qkv", offsetof(A, qkv)},
                                    {"z", offsetof(A, z)},
                                    {"b", offsetof(A, b)},
                                    {"a", offsetof(A, a)},
                                    {"conv_weight", offsetof(A, conv_weight)},
                                    {"conv_bias", offsetof(A, conv_bias)},
                                    {"A_log", offsetof(A, A_log)},
                                    {"dt_bias", offsetof(A, dt_bias)},
                                    {"norm_weight", offsetof(A, norm_weight)},
                                    {"cu_seqlens", offsetof(A, cu_seqlens)},
                                    {"conv_initial", offsetof(A, conv_initial)},
                                    {"initial", offsetof(A, initial)},
                                    {"core_out", offsetof(A, core_out)},
                                    {"d_out", offsetof(A, d_out)},
                                    {"d_final", offsetof(A, d_final)},
                                    {"d_conv_final", offsetof(A, d_conv_final)},
                                    {"k", offsetof(A, k)},
                                    {"v", offsetof(A, v)},
                                    {"k_conv_weight", offsetof(A, k_conv_weight)},
                                    {"v_conv_weight", offsetof(A, v_conv_weight)},
                                    {"k_conv_bias", offsetof(A, k_conv_bias)},
                                    {"v_conv_bias", offsetof(A, v_conv_bias)},
                                    {"k_conv_initial", offsetof(A, k_conv_initial)},
                                    {"v_conv_initial", offsetof(A, v_conv_initial)},
                                    {"d_k_conv_final", offsetof(A, d_k_conv_final)},
                                    {"d_v_conv_final", offsetof(A, d_v_conv_final)}};
  return check_views(op, workspace, 0, written(a, kWritten), read(a, kRead));
}

}  // namespace sluice::core
