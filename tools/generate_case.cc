// Makes cases of every operator from random inputs, with room for the results.
// SPDX-License-Identifier: Apache-2.0
#include "tools/generate_case.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sluice/enumerations.hpp"
#include "tools/execute.hpp"

namespace sluice::tools {
namespace {

using check::Array;
using check::GdnCase;

/// Adds the options in the words of case files: numbers that are not the standard ones; choices and
/// scale in stages too only where they are not.
void describe_options(io::CaseOp op, const GdnCase& c, nlohmann::json* out) {
  core::for_each_option(c.options, [&](const core::Option& option, const auto& member) {
    using Member = std::remove_cvref_t<decltype(member)>;
    if (!io::has_option(op, option.name)) return;
    nlohmann::json field;
    bool standard = false;
    if constexpr (std::is_enum_v<Member>) {
      field = option.words[member], standard = member == 0;
    } else if constexpr (std::is_same_v<Member, double>) {
      if (member == option.standard) return;
      field = member;
    } else {
      standard = !member.has_value();
      if (!standard) field = *member;
    }
    if (!standard || op != io::CaseOp::kStages) (*out)[option.name] = field;
  });
}

/// The gate argument that the recipe says: `made`, or key-wise ones in its place.
Array gates_of(const CaseRecipe& recipe, Array made) {
  const GdnCase& c = recipe.gdn;
  if (!recipe.key_gates || c.options.gate_space >= SLUICE_GATE_RAW) return made;
  Array g = check::make_key_gates(c.gates, {c.B, c.T, c.HV, c.K}, c.seed + 15);
  for (double& x : g.values) x = c.options.gate_space == SLUICE_GATE_LINEAR ? std::exp(x) : x;
  return g;
}

/// States [N,HV,K,V] in the recipe's layout.
Array in_layout(const GdnCase& c, Array states) {
  const bool exchange = c.state_layout == SLUICE_STATE_VK && !states.empty();
  return exchange ? transposed_states(states) : states;
}

/// What ops prefill, decode and gradients read, without results.
Draft draft_delta_inputs(const CaseRecipe& recipe) {
  const GdnCase& c = recipe.gdn;
  Draft draft;
  describe_options(recipe.op, c, &draft.description);
  draft.description["state_layout"] = kStateLayoutWords[c.state_layout];
  draft.description["use_qk_l2norm"] = c.options.qk_norm == SLUICE_QK_NORM_L2;
  draft.description["layout"] = recipe.head_first ? "bhtd" : "bthd";

  GdnCase key_wise = c;
  key_wise.key_gates = recipe.key_gates && c.options.gate_space >= SLUICE_GATE_RAW;
  check::GdnInputs inputs = check::make_inputs(key_wise);
  inputs.gate = gates_of(recipe, std::move(inputs.gate));
  draft.floats = {{"q", std::move(inputs.q)},
                  {"k", std::move(inputs.k)},
                  {"v", std::move(inputs.v)},
                  {"g", std::move(inputs.gate)},
                  {"beta", std::move(inputs.beta)}};
  if (recipe.head_first) {
    for (auto& [name, array] : draft.floats) {
      if (!array.empty()) array = exchange_tokens_and_heads(array);
    }
  }
  draft.floats["A_log"] = std::move(inputs.A_log);
  draft.floats["dt_bias"] = std::move(inputs.dt_bias);
  draft.floats["initial_state"] = in_layout(c, std::move(inputs.initial));
  draft.cu_seqlens = c.cu_seqlens();
  draft.activations = {"q", "k", "v"};
  return draft;
}

Draft draft_delta_rule(const CaseRecipe& recipe) {
  const GdnCase& c = recipe.gdn;
  Draft draft = draft_delta_inputs(recipe);
  if (recipe.op == io::CaseOp::kDecode) draft.description["steps"] = recipe.steps;
  draft.floats["o"] = Array(draft.floats["v"].shape);
  draft.floats["final_state"] = in_layout(c, Array({c.sequences(), c.HV, c.K, c.V}));
  return draft;
}

Draft draft_gradients(const CaseRecipe& recipe) {
  const GdnCase& c = recipe.gdn;
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

Draft draft_conv1d(const CaseRecipe& recipe) {
  const GdnCase& c = recipe.gdn;
  const int64_t D = recipe.channels, W = recipe.conv_width, N = c.sequences();
  Draft draft;
  draft.description = {{"activation", "silu"}};
  draft.floats = {{"x", check::make_normal({c.B, c.T, D}, c.seed + 1)},
                  {"weight", check::make_normal({D, W}, c.seed + 2)},
                  {"initial_state", check::make_normal({N, D, W - 1}, c.seed + 3)},
                  {"out", Array({c.B, c.T, D})},
                  {"final_state", Array({N, D, W - 1})}};
  draft.cu_seqlens = c.cu_seqlens();
  draft.activations = {"x", "weight", "initial_state"};
  return draft;
}

Draft draft_gated_norm(const CaseRecipe& recipe) {
  const GdnCase& c = recipe.gdn;
  const std::vector<int64_t> shape{c.B, c.T, c.HV, c.V};
  Draft draft;
  draft.description = {{"activation", "silu"}};
  draft.floats = {{"x", check::make_normal(shape, c.seed + 1)},
                  {"z", check::make_normal(shape, c.seed + 2)},
                  {"weight", check::make_normal({c.V}, c.seed + 3)},
                  {"out", Array(shape)}};
  draft.activations = {"x", "z", "weight"};
  return draft;
}

/// Raw gates whose logarithms are those of the profile, but for rounding: -inf and zeros are
/// infinite ones.
Array raw_gates(const CaseRecipe& recipe, std::vector<int64_t> shape, uint64_t seed,
                const Draft& draft) {
  const GdnCase& c = recipe.gdn;
  Array a = check::make_key_gates(c.gates, std::move(shape), seed);
  const Array &A_log = draft.floats.at("A_log"), &dt_bias = draft.floats.at("dt_bias");
  for (int64_t at = 0; at < a.size(); ++at) {
    const int64_t l = at % c.K, h = at / c.K % c.HV;
    double& x = a.values[static_cast<size_t>(at)];
    const double rate = std::exp(A_log(h)), share = x / c.options.gate_lower_bound;
    if (c.options.gate_lower_bound < 0) {
      x = (std::log(share) - std::log(std::max(1.0 - share, 0.0))) / rate;
    } else {
      const double y = -x / rate;
      x = y > 20 ? y : std::log(std::expm1(y));
    }
    x -= dt_bias(h, l);
  }
  return a;
}

/// Makes neighbouring tokens' keys alike in [q|k|v] before the convolution.
void correlate_keys(const GdnCase& c, uint64_t seed, Array* qkv) {
  if (c.keys == check::KeyProfile::kRandomUnit || c.keys == check::KeyProfile::kSiluLike) return;
  const Array keys = check::make_keys(c.keys, {c.B, qkv->shape[1], c.H, c.K}, seed);
  const double size = std::sqrt(static_cast<double>(c.K));
  const int64_t width = c.H * c.K;
  for (int64_t row = 0; row < c.B * qkv->shape[1]; ++row) {
    for (int64_t i = 0; i < width; ++i) {
      qkv->values[static_cast<size_t>(row * qkv->shape[2] + width + i)] =
          size * keys.values[static_cast<size_t>(row * width + i)];
    }
  }
}

// Adds the projections and results of one step.
void draft_layer_step(const CaseRecipe& recipe, int64_t step, Draft* draft) {
  const GdnCase& c = recipe.gdn;
  const int64_t B = c.B, T = step == 0 ? c.T : 1, keys = 2 * c.H * c.K, values = c.HV * c.V;
  const uint64_t seed = c.seed + 100 * static_cast<uint64_t>(step + 1);
  const std::string prefix = "step" + std::to_string(step) + ".";
  std::map<std::string, Array> inputs;
  if (recipe.packing == SLUICE_PACKING_INTERLEAVED) {
    inputs = {{"qkvz", check::make_normal({B, T, keys + 2 * values}, seed)},
              {"ba", check::make_normal({B, T, 2 * c.HV}, seed + 1)}};
  } else {
    inputs = {{"qkv", check::make_normal({B, T, keys + values}, seed)},
              {"z", check::make_normal({B, T, values}, seed + 1)},
              {"b", check::make_normal({B, T, c.HV}, seed + 2)},
              {"a", recipe.key_gates ? raw_gates(recipe, {B, T, c.HV, c.K}, seed + 3, *draft)
                                     : check::make_normal({B, T, c.HV}, seed + 3)}};
    correlate_keys(c, seed + 4, &inputs["qkv"]);
  }
  for (auto& [name, array] : inputs) {
    draft->activations.push_back(prefix + name);
    draft->floats[prefix + name] = std::move(array);
  }
  for (const char* name : {"core_out", "norm_out"}) {
    draft->floats[prefix + name] = Array({B, T, c.HV, c.V});
  }
}

Draft draft_layer(const CaseRecipe& recipe) {
  const GdnCase& c = recipe.gdn;
  const int64_t D = 2 * c.H * c.K + c.HV * c.V;
  Draft draft;
  describe_options(recipe.op, c, &draft.description);
  draft.description["state_layout"] = kStateLayoutWords[c.state_layout];
  draft.description["packing"] =
      recipe.packing == SLUICE_PACKING_INTERLEAVED ? "qwen3_next" : "qwen3_5";
  draft.description["num_k_heads"] = c.H;
  draft.description["num_v_heads"] = c.HV;
  draft.description["head_k_dim"] = c.K;
  draft.description["head_v_dim"] = c.V;
  draft.description["conv_width"] = recipe.conv_width;
  draft.description["steps"] = recipe.steps;
  if (recipe.key_gates) draft.description["gate_activation"] = "sigmoid";
  Array A_log = check::make_normal({c.HV}, c.seed + 1);
  std::vector<int64_t> biases = {c.HV};
  if (recipe.key_gates) biases.push_back(c.K);
  draft.floats = {{"conv_weight", check::make_normal({D, recipe.conv_width}, c.seed + 2)},
                  {"A_log", std::move(A_log)},
                  {"dt_bias", check::make_normal(biases, c.seed + 3)},
                  {"norm_weight", check::make_normal({c.V}, c.seed + 4)},
                  {"final_conv_state", Array({c.B, D, recipe.conv_width - 1})}};
  const bool vk = c.state_layout == SLUICE_STATE_VK;
  draft.floats["final_state"] = Array({c.B, c.HV, vk ? c.V : c.K, vk ? c.K : c.V});
  draft.activations = {"conv_weight", "norm_weight"};
  for (int64_t step = 0; step < recipe.steps; ++step) draft_layer_step(recipe, step, &draft);
  return draft;
}

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

}  // namespace

Draft draft_case(const CaseRecipe& recipe) {
  Draft draft;
  switch (recipe.op) {
    case io::CaseOp::kPrefill:
    case io::CaseOp::kDecode:
      draft = draft_delta_rule(recipe);
      break;
    case io::CaseOp::kConv1d:
      draft = draft_conv1d(recipe);
      break;
    case io::CaseOp::kGatedNorm:
      draft = draft_gated_norm(recipe);
      break;
    case io::CaseOp::kLayer:
      draft = draft_layer(recipe);
      break;
    case io::CaseOp::kStages:
      draft = draft_stages(recipe);
      break;
    case io::CaseOp::kGradients:
      draft = draft_gradients(recipe);
      break;
  }
  draft.description["op"] = io::case_op_name(recipe.op);
  for (const std::string& name : draft.activations) {
    draft.floats[name] = check::round_to(recipe.gdn.io, std::move(draft.floats[name]));
  }
  // What is no activation is stored, and computed with, in float32.
  for (auto& [name, array] : draft.floats) array = check::round_to(check::kF32, std::move(array));
  std::erase_if(draft.floats, [](const auto& item) { return item.second.empty(); });
  return draft;
}

}  // namespace sluice::tools
