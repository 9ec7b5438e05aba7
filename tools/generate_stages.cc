// Drafts cases of op stages: inputs of a chain of stages, and room for the results of each.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "tools/execute.hpp"
#include "tools/generate_case.hpp"

namespace sluice::tools {
namespace {

using check::Array;
using check::GdnCase;

int64_t chunks_of(const GdnCase& c, int64_t C) {
  if (c.lengths.empty()) return (c.T + C - 1) / C;
  int64_t chunks = 0;
  for (const int64_t length : c.lengths) chunks += (length + C - 1) / C;
  return chunks;
}

/// The tensors of a whole chain, of the rule's stages.
void draft_chain(const CaseRecipe& recipe, Draft* draft) {
  const GdnCase& c = recipe.gdn;
  const int64_t C = recipe.chunk_size;
  const auto rows = [&](int64_t columns) { return Array({c.B, c.T, c.HV, columns}); };
  const bool delta = c.options.rule == SLUICE_RULE_GATED_DELTA,
             vk = c.state_layout == SLUICE_STATE_VK;
  auto& floats = draft->floats;
  describe_options(io::CaseOp::kStages, c, &draft->description);
  draft->description["rule"] = delta ? "gated_delta" : "linear_attention";
  check::GdnInputs inputs = check::make_inputs(c);
  inputs.gate = gates_of(recipe, std::move(inputs.gate));
  if (!inputs.gate.empty()) floats["g_cumsum"] = Array(inputs.gate.shape);
  floats["k"] = std::move(inputs.k), floats["g"] = std::move(inputs.gate);
  floats["q"] = std::move(inputs.q), floats["v"] = std::move(inputs.v);
  floats["o"] = rows(c.V);
  if (delta) {
    floats["beta"] = std::move(inputs.beta);
    floats["A"] = rows(C), floats["A_inverse"] = rows(C);
    floats["u"] = rows(c.V), floats["w"] = rows(c.K), floats["v_new"] = rows(c.V);
  }
  if (delta || recipe.parts == StageParts::kAll) {
    floats["h"] = Array({c.B, chunks_of(c, C), c.HV, vk ? c.V : c.K, vk ? c.K : c.V});
  }
  floats["initial_state"] = std::move(inputs.initial);
  // Random numbers: in either layout as good as in the other.
  if (vk && c.initial != check::StateProfile::kNone) {
    std::swap(floats["initial_state"].shape[2], floats["initial_state"].shape[3]);
  }
  floats["final_state"] = Array({c.sequences(), c.HV, vk ? c.V : c.K, vk ? c.K : c.V});
  draft->activations = {"q", "k", "v"};
}

}  // namespace

Draft draft_stages(const CaseRecipe& recipe) {
  const GdnCase& c = recipe.gdn;
  const int64_t C = recipe.chunk_size;
  Draft draft;
  draft.description = {{"chunk_size", C},
                       {"layout", recipe.head_first ? "bhtd" : "bthd"},
                       {"state_layout", c.state_layout == SLUICE_STATE_VK ? "vk" : "kv"}};
  draft.cu_seqlens = c.cu_seqlens();
  if (recipe.parts == StageParts::kReverse) {
    draft.description["direction"] = "reverse";
    Array g = gates_of(recipe, check::make_gates(c.gates, {c.B, c.T, c.HV}, c.seed + 15));
    draft.floats = {{"g_cumsum", Array(g.shape)}, {"g", std::move(g)}};
  } else if (recipe.parts == StageParts::kUpper) {
    draft.description["triangle"] = "upper";
    Array A = check::make_normal({c.B, c.T, c.HV, C}, c.seed + 18);
    for (double& x : A.values) x *= 0.05;
    draft.floats = {{"A", std::move(A)}, {"A_inverse", Array({c.B, c.T, c.HV, C})}};
    draft.activations = {"A"};
  } else {
    if (recipe.parts == StageParts::kPairs) draft.description["fused"] = "pairs";
    draft_chain(recipe, &draft);
  }
  if (!recipe.head_first) return draft;
  for (auto& [name, array] : draft.floats) {
    const bool state = name == "h" || name == "initial_state" || name == "final_state";
    if (!state && !array.empty()) array = exchange_tokens_and_heads(array);
  }
  return draft;
}

}  // namespace sluice::tools
