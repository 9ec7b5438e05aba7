// Checks the tensors of one case against its description, operator by operator.
// SPDX-License-Identifier: Apache-2.0
#include "io/case_fields.hpp"

#include <vector>

#include "io/shape_matcher.hpp"

namespace sluice::io {
namespace {

// Most tokens of one decode call, sluice_recurrent_step's limit.
constexpr int64_t kMaxDecodeTokens = 16;

}  // namespace

void match_gates(Matcher& match, Case* out) {
  const bool raw = out->options.gate_space >= SLUICE_GATE_RAW;
  const TensorEntry* g = match.get("g", raw);
  const bool takes_key_gates = out->op != CaseOp::kGradients;
  out->key_gates = takes_key_gates && g != nullptr && g->shape.size() == 4;
  match.floats("g", token_rows(*out, "HV", out->key_gates ? "K" : ""), raw);
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

void match_delta_inputs(Matcher& match, Case* out) {
  const auto rows = [&](const char* heads, const char* inner) {
    return token_rows(*out, heads, inner);
  };
  match.floats("q", rows("H", "K"), true);
  match.floats("k", rows("H", "K"), true);
  match.floats("v", rows("HV", "V"), true);
  match_gates(match, out);
  const bool linear_attention = out->options.rule == SLUICE_RULE_LINEAR_ATTENTION;
  if (match.floats("beta", rows("HV", ""), false) != nullptr && linear_attention) {
    match.complain("tensor 'beta' is given, expected none (rule linear_attention)");
  }
  if (out->options.gate_space >= SLUICE_GATE_RAW) {
    const bool required = out->options.gate_space == SLUICE_GATE_RAW;
    match.floats("A_log", {"HV"}, required);
    match.floats("dt_bias", out->key_gates ? Symbols{"HV", "K"} : Symbols{"HV"},
                 required && !out->key_gates);
  }
}

void check_value_heads(Matcher& match) {
  const int64_t H = match.size("H"), HV = match.size("HV");
  if (H < 1 || HV < 1 || HV % H != 0) {
    match.complain("tensor 'v' heads HV = " + std::to_string(HV) +
                   ", expected a multiple of H = " + std::to_string(H) + " (grouped value heads)");
  }
}

namespace {

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
  match.floats("initial_state", state_symbols(*out), false);
  expect(match, "o", token_rows(*out, "HV", "V"), true, out);
  expect(match, "final_state", state_symbols(*out), false, out);
  check_value_heads(match);
}

void match_conv1d(Matcher& match, Case* out) {
  match.floats("x", {"B", "T", "D"}, true);
  match.floats("weight", {"D", "W"}, true);
  match.floats("bias", {"D"}, false);
  match_rows(match);
  match.floats("initial_state", {"N", "D", "L"}, false);
  expect(match, "out", {"B", "T", "D"}, true, out);
  expect(match, "final_state", {"N", "D", "L"}, false, out);
  const bool state =
      match.get("initial_state", false) != nullptr || match.get("final_state", false) != nullptr;
  if (state && match.size("L") < match.size("W") - 1) {
    match.complain("state columns L = " + std::to_string(match.size("L")) +
                   ", expected at least W-1 = " + std::to_string(match.size("W") - 1));
  }
}

void match_gated_norm(Matcher& match, Case* out) {
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
  expect(match, "out", shape, true, out);
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
  expect(match, prefix + "core_out", {"B", "T", "HV", "V"}, false, out);
  expect(match, prefix + "norm_out", {"B", "T", "HV", "V"}, true, out);
  if (projected) expect(match, prefix + "output", {"B", "T", "hidden"}, true, out);
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
  match.floats("conv_bias", {"2HK+HVV"}, false);
  match.floats("A_log", {"HV"}, true);
  const TensorEntry* const dt_bias = match.get("dt_bias", true);
  out->key_gates = dt_bias != nullptr && dt_bias->shape.size() == 2;
  if (out->key_gates && out->packing == SLUICE_PACKING_INTERLEAVED) {
    match.complain("tensor 'dt_bias' rank = 2, expected 1 (packing qwen3_next)");
  }
  match.floats("dt_bias", out->key_gates ? Symbols{"HV", "K"} : Symbols{"HV"}, true);
  match.floats("norm_weight", {"V"}, true);
  const bool projected = match.floats("out_proj_weight", {"hidden", "HVV"}, false) != nullptr;
  for (int64_t step = 0; step < out->steps && match.reason().empty(); ++step) {
    match_layer_step(match, step, projected, out);
  }
  match.bind("H", s.H);
  match.bind("D", 2 * s.H * s.K + s.HV * s.V);
  const bool vk = out->state_layout == SLUICE_STATE_VK;
  const Symbols state = {"B", "HV", vk ? "V" : "K", vk ? "K" : "V"};
  match.floats("initial_state", state, false);
  match.floats("initial_conv_state", {"B", "D", "L"}, false);
  expect(match, "final_state", state, false, out);
  expect(match, "final_conv_state", {"B", "D", "L"}, false, out);
  if (match.size("L") != 0 && match.size("L") < s.W - 1) {
    match.complain("conv state columns L = " + std::to_string(match.size("L")) +
                   ", expected at least W-1 = " + std::to_string(s.W - 1));
  }
}

}  // namespace

std::string read_case_tensors(const SafetensorsFile& file, Case* out, std::set<std::string>* used) {
  Matcher match(file, *out, used);
  switch (out->op) {
    case CaseOp::kPrefill:
    case CaseOp::kDecode:
      match_delta_rule(match, out);
      break;
    case CaseOp::kConv1d:
      match_conv1d(match, out);
      break;
    case CaseOp::kGatedNorm:
      match_gated_norm(match, out);
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
  CaseShape& s = out->shape;
  s.B = match.size("B");
  s.N = out->op == CaseOp::kLayer ? s.B : match.size("N");
  if (out->op != CaseOp::kLayer) s.T = match.size("T");
  s.H = match.size("H");
  s.HV = match.size("HV");
  s.K = match.size("K");
  s.V = match.size("V");
  s.D = match.size("D");
  s.W = match.size("W");
  s.L = match.size("L");
  s.hidden = match.size("hidden");
  s.chunks = match.size("chunks");
  return match.reason();
}

}  // namespace sluice::io
