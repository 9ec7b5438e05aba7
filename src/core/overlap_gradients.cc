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

}  // namespace sluice::core
