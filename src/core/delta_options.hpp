// Holds the delta rule's options, and names them one by one. Made by ops/generate.py from ops/manifest.json.
// SPDX-License-Identifier: Apache-2.0
// clang-format off
#ifndef SLUICE_SRC_CORE_DELTA_OPTIONS_HPP_
#define SLUICE_SRC_CORE_DELTA_OPTIONS_HPP_

#include <optional>

#include "sluice/enumerations.hpp"

namespace sluice::core {

/// sluice_delta_options.
struct DeltaOptions {
  std::optional<double> scale{};  ///< factor of o; absent = K^-0.5; 0.0 is zero
  double l2norm_eps = 1e-06;
  double gate_lower_bound = 0.0;
  sluice_gate_space gate_space = SLUICE_GATE_LOG;
  sluice_beta_space beta_space = SLUICE_BETA_VALUE;
  sluice_eigenvalues eigenvalues = SLUICE_EIGENVALUES_POSITIVE;
  sluice_qk_norm qk_norm = SLUICE_QK_NORM_NONE;
  sluice_head_map head_map = SLUICE_HEAD_MAP_BLOCK;
  sluice_rule rule = SLUICE_RULE_GATED_DELTA;

  [[nodiscard]] sluice_delta_options c() const noexcept {
    sluice_delta_options result{};
    result.scale = scale.value_or(0);
    result.scale_mode = scale.has_value() ? 1 : 0;
    result.l2norm_eps = l2norm_eps;
    result.gate_lower_bound = gate_lower_bound;
    result.gate_space = gate_space;
    result.beta_space = beta_space;
    result.eigenvalues = eigenvalues;
    result.qk_norm = qk_norm;
    result.head_map = head_map;
    result.rule = rule;
    return result;
  }
};

struct Option {
  const char *name, *doc;
  const char* const* words;  ///< null: a number
  double standard;  ///< what a number is that nobody gives
};

/// Calls see(option, member) for each option in its order.
template <class Options, class See>
void for_each_option(Options& options, See&& see) {
  see(Option{"scale", "factor of o; absent = K^-0.5; 0.0 is zero", nullptr, 0}, options.scale);
  see(Option{"l2norm_eps", "epsilon of the l2 norm of q and k", nullptr, 1e-06}, options.l2norm_eps);
  see(Option{"gate_lower_bound", "of bounded gates, < 0: what their logarithms stay above", nullptr, 0.0}, options.gate_lower_bound);
  see(Option{"gate_space", "what `gate` holds", kGateSpaceWords, 0}, options.gate_space);
  see(Option{"beta_space", "what `beta` holds", kBetaSpaceWords, 0}, options.beta_space);
  see(Option{"eigenvalues", "range of the transition's eigenvalues along k", kEigenvaluesWords, 0}, options.eigenvalues);
  see(Option{"qk_norm", "normalisation of q and k inside", kQkNormWords, 0}, options.qk_norm);
  see(Option{"head_map", "which key head value head h reads", kHeadMapWords, 0}, options.head_map);
  see(Option{"rule", "the recurrence", kRuleWords, 0}, options.rule);
}

/// Gives arguments of C++ all the options.
template <class Args>
void set_options(const DeltaOptions& from, Args* to) {
  to->scale = from.scale;
  to->l2norm_eps = from.l2norm_eps;
  to->gate_lower_bound = from.gate_lower_bound;
  to->gate_space = static_cast<GateSpace>(from.gate_space);
  to->beta_space = static_cast<BetaSpace>(from.beta_space);
  to->eigenvalues = static_cast<Eigenvalues>(from.eigenvalues);
  to->qk_norm = static_cast<QkNorm>(from.qk_norm);
  to->head_map = static_cast<HeadMap>(from.head_map);
  to->rule = static_cast<Rule>(from.rule);
}

}  // namespace sluice::core

#endif  // SLUICE_SRC_CORE_DELTA_OPTIONS_HPP_
