// Checks the tensors of one case against its description, operator by operator.
// SPDX-License-Identifier: Apache-2.0
#include "io/case_fields.hpp"

#include <utility>
#include <vector>

#include "io/shape_matcher.hpp"

namespace sluice::io {
namespace {

// Most tokens of one decode call, sluice_recurrent_step's limit.
constexpr int64_t kMaxDecodeTokens = 16;

// g as [B,T,HV] or, by its rank, key-wise [B,T,HV,K].
void match_gates(Matcher& match, Case* out) {
  const bool raw = out->options.gate_space >= SLUICE_GATE_RAW;
  const TensorEntry* g = match.get("g", raw);
  const bool takes_key_gates = out->op != CaseOp::kGradients;
  out->key_gates = takes_key_gates && g != nullptr && g->shape.size() == 4;
  match.floats("g", match.rows("HV", out->key_gates ? "K" : ""), raw);
}

// cu_seqlens of a packed batch fixes N; otherwise N = B.
void match_rows(Matcher& match) {
  const TensorEntry* cu_seqlens = match.integers("cu_seqlens", {"N+1"});
  match.bind("N", cu_seqlens == nullptr ? match.size("B") : match.size("N+1") - 1);
  if (cu_seqlens == nullptr) return;
  if (match.size("B") != 1) {
    match.complain("B = " + std::to_string(match.size("B")) + ", expected 1 (packed batch)");
  }
  if (match.size("N") < 0) {
    match.complain("tensor 'cu_seqlens' shape = [0], expected [N+1]");
    return;
  }
  int64_t previous = 0;
  const std::vector<int64_t> borders = read_integers(*cu_seqlens);
  for (size_t i = 0; i < borders.size(); ++i) {
    const bool right =
        i == 0 ? borders[i] == 0 : borders[i] >= previous && borders[i] <= match.size("T");
    if (!right) {
      match.complain("tensor 'cu_seqlens' [" + std::to_string(i) +
                     "] = " + std::to_string(borders[i]) +
                     ", expected 0 = c_0 <= c_1 <= .. <= T = " + std::to_string(match.size("T")));
      return;
    }
    previous = borders[i];
  }
}

// Inputs of the delta rule but states and rows: q, k, v, gates, write strengths.
void match_delta_inputs(Matcher& match, Case* out) {
  match.floats("q", match.rows("H", "K"), true);
  match.floats("k", match.rows("H", "K"), true);
  match.floats("v", match.rows("HV", "V"), true);
  match_gates(match, out);
  const bool linear_attention = out->options.rule == SLUICE_RULE_LINEAR_ATTENTION;
  if (match.floats("beta", match.rows("HV")) != nullptr && linear_attention) {
    match.complain("tensor 'beta' is given, expected none (rule linear_attention)");
  }
  if (out->options.gate_space >= SLUICE_GATE_RAW) {
    const bool required = out->options.gate_space == SLUICE_GATE_RAW;
    match.floats("A_log", {"HV"}, required);
    match.floats("dt_bias", out->key_gates ? Symbols{"HV", "K"} : Symbols{"HV"},
                 required && !out->key_gates);
  }
}

// `least`: value heads that there must be.
void check_value_heads(Matcher& match, int64_t least = 1) {
  const int64_t H = match.size("H"), HV = match.size("HV");
  if (H < 1 || HV < least || HV % H != 0) {
    match.complain("tensor 'v' heads HV = " + std::to_string(HV) +
                   ", expected a multiple of H = " + std::to_string(H) + " (grouped value heads)");
  }
}

void match_delta_rule(Matcher& match, Case* out) {
  match_delta_inputs(match, out);
  if (out->op == CaseOp::kDecode) {
    match.bind("N", match.size("B"));
    const int64_t tokens = match.size("T");
    if (tokens % out->steps != 0 || tokens < out->steps || tokens / out->steps > kMaxDecodeTokens) {
      match.complain("field 'steps' = " + std::to_string(out->steps) + ", expected T = " +
                     std::to_string(tokens) + " tokens in equal steps of 1 to 16");
    }
  } else {
    match_rows(match);
  }
  match.floats("initial_state", match.states());
  match.expect("o", match.rows("HV", "V"), true);
  match.expect("final_state", match.states());
  check_value_heads(match);
}

void match_conv1d(Matcher& match) {
  match.floats("x", {"B", "T", "D"}, true);
  match.floats("weight", {"D", "W"}, true);
  match.floats("bias", {"D"});
  match_rows(match);
  match.floats("initial_state", {"N", "D", "L"});
  match.expect("out", {"B", "T", "D"}, true);
  match.expect("final_state", {"N", "D", "L"});
  const bool state = match.has("initial_state") || match.has("final_state");
  if (state && match.size("L") < match.size("W") - 1) {
    match.complain("state columns L = " + std::to_string(match.size("L")) +
                   ", expected at least W-1 = " + std::to_string(match.size("W") - 1));
  }
}

void match_gated_norm(Matcher& match) {
  const TensorEntry* x = match.get("x", true);
  if (x == nullptr) return;
  if (x->shape.size() < 2 || x->shape.size() > 4) {
    match.complain("tensor 'x' shape = " + shape_text(x->shape) + ", expected rank 2 to 4");
    return;
  }
  Symbols shape;
  for (size_t i = 0; i + 1 < x->shape.size(); ++i)
    shape.push_back(std::string("R").append(std::to_string(i)));
  shape.push_back("V");
  match.floats("x", shape, true);
  match.floats("z", shape, true);
  match.floats("weight", {"V"}, true);
  match.expect("out", shape, true);
}

void match_layer_step(Matcher& match, int64_t step, bool projected, Case* out) {
  const std::string prefix = "step" + std::to_string(step) + ".";
  match.unbind("T");
  if (out->packing == SLUICE_PACKING_INTERLEAVED) {
    match.floats(prefix + "qkvz", {"B", "T", "2HK+2HVV"}, true);
    match.floats(prefix + "ba", {"B", "T", "2HV"}, true);
  } else {
    match.floats(prefix + "qkv", {"B", "T", "2HK+HVV"}, true);
    match.floats(prefix + "z", {"B", "T", "HVV"}, true);
    match.floats(prefix + "b", {"B", "T", "HV"}, true);
    match.floats(prefix + "a",
                 out->key_gates ? Symbols{"B", "T", "HV", "K"} : Symbols{"B", "T", "HV"}, true);
  }
  if (step == 0) {
    out->shape.T = match.size("T");
  } else if (match.size("T") < 1 || match.size("T") > kMaxDecodeTokens) {
    match.complain("step " + std::to_string(step) + " has T = " + std::to_string(match.size("T")) +
                   " tokens, expected 1 to 16 (decode steps)");
  }
  match.expect(prefix + "core_out", {"B", "T", "HV", "V"});
  match.expect(prefix + "norm_out", {"B", "T", "HV", "V"}, true);
  if (projected) match.expect(prefix + "output", {"B", "T", "hidden"}, true);
}

void match_layer(Matcher& match, Case* out) {
  const CaseShape& s = out->shape;
  match.bind("HV", s.HV);
  match.bind("K", s.K);
  match.bind("V", s.V);
  match.bind("W", s.W);
  match.bind("2HV", 2 * s.HV);
  match.bind("HVV", s.HV * s.V);
  match.bind("2HK+HVV", 2 * s.H * s.K + s.HV * s.V);
  match.bind("2HK+2HVV", 2 * s.H * s.K + 2 * s.HV * s.V);
  match.floats("conv_weight", {"2HK+HVV", "W"}, true);
  match.floats("conv_bias", {"2HK+HVV"});
  match.floats("A_log", {"HV"}, true);
  const TensorEntry* const dt_bias = match.get("dt_bias", true);
  out->key_gates = dt_bias != nullptr && dt_bias->shape.size() == 2;
  if (out->key_gates && out->packing == SLUICE_PACKING_INTERLEAVED) {
    match.complain("tensor 'dt_bias' rank = 2, expected 1 (packing qwen3_next)");
  }
  match.floats("dt_bias", out->key_gates ? Symbols{"HV", "K"} : Symbols{"HV"}, true);
  match.floats("norm_weight", {"V"}, true);
  const bool projected = match.floats("out_proj_weight", {"hidden", "HVV"}) != nullptr;
  for (int64_t step = 0; step < out->steps && match.reason().empty(); ++step) {
    match_layer_step(match, step, projected, out);
  }
  match.bind("H", s.H);
  match.bind("D", 2 * s.H * s.K + s.HV * s.V);
  match.floats("initial_state", match.states({"B"}));
  match.floats("initial_conv_state", {"B", "D", "L"});
  match.expect("final_state", match.states({"B"}));
  match.expect("final_conv_state", {"B", "D", "L"});
  if (match.size("L") != 0 && match.size("L") < s.W - 1) {
    match.complain("conv state columns L = " + std::to_string(match.size("L")) +
                   ", expected at least W-1 = " + std::to_string(s.W - 1));
  }
}

/// A complaint where a stage's result is recorded without what the stage reads.
void need(Matcher& match, const char* result, const Symbols& inputs) {
  if (!match.has(result)) return;
  for (const std::string& input : inputs) {
    if (!match.has(input)) {
      match.complain(Matcher::quoted(input) + " is missing (read for '" + result + "')");
    }
  }
}

/// Chunks of all sequences in a row of h.
int64_t count_chunks(Matcher& match, int64_t C) {
  const TensorEntry* cu_seqlens = match.integers("cu_seqlens", {"N+1"});
  if (cu_seqlens == nullptr) return (match.size("T") + C - 1) / C;
  const std::vector<int64_t> borders = read_integers(*cu_seqlens);
  int64_t count = 0;
  for (size_t n = 1; n < borders.size(); ++n) count += (borders[n] - borders[n - 1] + C - 1) / C;
  return count;
}

/// Which stages a case has follows from the results that it records.
void check_inputs(Matcher& match, const Case& of) {
  const bool delta = of.options.rule == SLUICE_RULE_GATED_DELTA;
  need(match, "g_cumsum", {"g"});
  need(match, "A", match.has("k") ? Symbols{"k"} : Symbols{"A_inverse"});
  need(match, "A_inverse", {"A"});
  need(match, "u", {"k", "v", "A_inverse", "w"});
  need(match, "w", {"u"});
  need(match, "h", delta ? Symbols{"k", "u", "w", "v_new"} : Symbols{"k", "v"});
  need(match, "v_new", {"h"});
  need(match, "o", delta ? Symbols{"q", "k", "v_new", "h"} : Symbols{"q", "k", "v"});
  // States come from chunk_h, or without recorded h from chunk_o.
  if (match.has("final_state") && !match.has("h") && !match.has("o")) {
    match.complain("tensor 'final_state' is given, expected with 'h' or 'o'");
  }
}

void match_stages(Matcher& match, Case* out) {
  match.bind("C", out->shape.C);
  match.floats("q", match.rows("H", "K"));
  const bool keys = match.floats("k", match.rows("H", "K")) != nullptr;
  match.floats("v", match.rows("HV", "V"));
  match_gates(match, out);
  match.floats("beta", match.rows("HV"));
  match.expect("g_cumsum", match.rows("HV", out->key_gates ? "K" : ""));
  // Without keys A is what somebody made up for the solve.
  if (keys) {
    match.expect("A", match.rows("HV", "C"));
  } else {
    match.floats("A", match.rows("HV", "C"));
  }
  match.expect("A_inverse", match.rows("HV", "C"));
  match.expect("u", match.rows("HV", "V"));
  match.expect("w", match.rows("HV", "K"));
  match_rows(match);
  if (!match.reason().empty()) return;
  match.bind("chunks", count_chunks(match, out->shape.C));
  match.floats("initial_state", match.states());
  match.expect("v_new", match.rows("HV", "V"));
  match.expect("h", match.states({"B", "chunks"}));
  match.expect("o", match.rows("HV", "V"));
  match.expect("final_state", match.states());
  check_inputs(match, *out);
  if (out->expected.empty()) match.complain("records no result of a stage");
  if (out->direction == SLUICE_DIRECTION_REVERSE && out->expected.size() > 1) {
    match.complain(
        "field 'direction' = \"reverse\", expected \"forward\" where other stages read "
        "the sums");
  }
  if (out->fused_pairs) {
    for (const char* result : {"g_cumsum", "A", "u"}) {
      if (match.has(result)) continue;
      match.complain(std::string("field 'fused' = \"pairs\", expected \"none\" without ") +
                     Matcher::quoted(result));
    }
  }
  if (keys) check_value_heads(match, 0);
}

/// A gradient of what the case need not have: refused without it.
void expect_of(Matcher& match, const std::string& gradient, const char* input,
               const Symbols& shape) {
  if (!match.has(gradient)) return;
  if (!match.has(input)) {
    match.complain(Matcher::quoted(gradient) + " is given, expected none (no '" + input + "')");
  }
  match.expect(gradient, shape);
}

void match_gradients(Matcher& match, Case* out) {
  match_delta_inputs(match, out);
  match_rows(match);
  match.floats("initial_state", match.states());
  match.floats("d_o", match.rows("HV", "V"), true);
  match.floats("d_final_state", match.states());
  match.expect("dq", match.rows("H", "K"));
  match.expect("dk", match.rows("H", "K"));
  match.expect("dv", match.rows("HV", "V"));
  expect_of(match, "dg", "g", match.rows("HV"));
  expect_of(match, "dbeta", "beta", match.rows("HV"));
  if (out->options.gate_space >= SLUICE_GATE_RAW) {
    expect_of(match, "dA_log", "A_log", {"HV"});
    expect_of(match, "ddt_bias", "dt_bias", {"HV"});
  }
  match.expect("d_initial_state", match.states());
  check_value_heads(match);
  if (out->expected.empty()) match.complain("records no gradient");
}

}  // namespace

std::string read_case_tensors(const SafetensorsFile& file, Case* out, std::set<std::string>* used) {
  Matcher match(file, out, used);
  switch (out->op) {
    case CaseOp::kPrefill:
    case CaseOp::kDecode:
      match_delta_rule(match, out);
      break;
    case CaseOp::kConv1d:
      match_conv1d(match);
      break;
    case CaseOp::kGatedNorm:
      match_gated_norm(match);
      break;
    case CaseOp::kLayer:
      match_layer(match, out);
      break;
    case CaseOp::kGradients:
      match_gradients(match, out);
      break;
    case CaseOp::kStages:
      match_stages(match, out);
      break;
  }
  // Of a layer N is B, and T is that of its first step.
  const bool layer = out->op == CaseOp::kLayer;
  if (layer) match.bind("N", match.size("B")), match.bind("T", out->shape.T);
  constexpr std::pair<const char*, int64_t CaseShape::*> kSizes[] = {
      {"B", &CaseShape::B}, {"T", &CaseShape::T},           {"N", &CaseShape::N},
      {"H", &CaseShape::H}, {"HV", &CaseShape::HV},         {"K", &CaseShape::K},
      {"V", &CaseShape::V}, {"D", &CaseShape::D},           {"W", &CaseShape::W},
      {"L", &CaseShape::L}, {"hidden", &CaseShape::hidden}, {"chunks", &CaseShape::chunks}};
  for (const auto& [symbol, size] : kSizes) out->shape.*size = match.size(symbol);
  return match.reason();
}

}  // namespace sluice::io
