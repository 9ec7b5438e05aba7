// Drafts cases of op gradients: the inputs of a prefill, gradients of its results, and room for
// those by every input.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "tools/execute.hpp"
#include "tools/generate_case.hpp"

namespace sluice::tools {

Draft draft_gradients(const CaseRecipe& recipe) {
  using check::Array;
  const check::GdnCase& c = recipe.gdn;
  const std::vector<int64_t> states{c.sequences(), c.HV, c.K, c.V};
  Draft draft = draft_delta_inputs(recipe);
  auto& floats = draft.floats;
  const std::pair<const char*, const char*> kGradients[] = {{"q", "dq"},
                                                            {"k", "dk"},
                                                            {"v", "dv"},
                                                            {"g", "dg"},
                                                            {"beta", "dbeta"},
                                                            {"A_log", "dA_log"},
                                                            {"dt_bias", "ddt_bias"}};
  for (const auto& [input, gradient] : kGradients) {
    if (!floats[input].empty()) floats[gradient] = Array(floats[input].shape);
  }
  Array d_o = check::make_normal({c.B, c.T, c.HV, c.V}, c.seed + 21);
  floats["d_o"] = recipe.head_first ? exchange_tokens_and_heads(d_o) : std::move(d_o);
  floats["d_final_state"] =
      in_layout(c, check::make_states(recipe.final_gradient, states, c.seed + 22));
  floats["d_initial_state"] = in_layout(c, Array(states));
  draft.activations.push_back("d_o");
  return draft;
}

}  // namespace sluice::tools
