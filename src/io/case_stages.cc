// Checks the tensors of op stages: which stages a case has follows from the results that it
// records.
// SPDX-License-Identifier: Apache-2.0
#include "io/shape_matcher.hpp"

namespace sluice::io {
namespace {

/// A complaint where a stage's result is recorded without what the stage reads.
void need(Matcher& match, const char* result, const std::vector<std::string>& inputs) {
  if (match.get(result, false) == nullptr) return;
  for (const std::string& input : inputs) {
    if (match.get(input, false) == nullptr) {
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

void check_inputs(Matcher& match, const Case& of) {
  const bool delta = of.options.rule == SLUICE_RULE_GATED_DELTA;
  const bool h = match.get("h", false) != nullptr;
  need(match, "g_cumsum", {"g"});
  need(match, "A",
       match.get("k", false) != nullptr ? std::vector<std::string>{"k"}
                                        : std::vector<std::string>{"A_inverse"});
  need(match, "A_inverse", {"A"});
  need(match, "u", {"k", "v", "A_inverse", "w"});
  need(match, "w", {"u"});
  need(match, "h",
       delta ? std::vector<std::string>{"k", "u", "w", "v_new"}
             : std::vector<std::string>{"k", "v"});
  need(match, "v_new", {"h"});
  need(match, "o",
       delta ? std::vector<std::string>{"q", "k", "v_new", "h"}
             : std::vector<std::string>{"q", "k", "v"});
  // States come from chunk_h, or without recorded h from chunk_o.
  if (match.get("final_state", false) != nullptr) {
    if (!h && match.get("o", false) == nullptr) {
      match.complain("tensor 'final_state' is given, expected with 'h' or 'o'");
    }
  }
}

}  // namespace

void match_stages(Matcher& match, Case* out) {
  const auto rows = [&](const char* heads, const char* inner) {
    return token_rows(*out, heads, inner);
  };
  match.bind("C", out->shape.C);
  match.floats("q", rows("H", "K"), false);
  const bool keys = match.floats("k", rows("H", "K"), false) != nullptr;
  match.floats("v", rows("HV", "V"), false);
  match_gates(match, out);
  match.floats("beta", rows("HV", ""), false);
  expect(match, "g_cumsum", rows("HV", out->key_gates ? "K" : ""), false, out);
  // Without keys A is what somebody made up for the solve.
  if (keys) {
    expect(match, "A", rows("HV", "C"), false, out);
  } else {
    match.floats("A", rows("HV", "C"), false);
  }
  expect(match, "A_inverse", rows("HV", "C"), false, out);
  expect(match, "u", rows("HV", "V"), false, out);
  expect(match, "w", rows("HV", "K"), false, out);
  match_rows(match);
  if (!match.reason().empty()) return;
  match.bind("chunks", count_chunks(match, out->shape.C));
  const bool vk = out->state_layout == SLUICE_STATE_VK;
  const std::string first = vk ? "V" : "K", second = vk ? "K" : "V";
  match.floats("initial_state", {"N", "HV", first, second}, false);
  expect(match, "v_new", rows("HV", "V"), false, out);
  expect(match, "h", {"B", "chunks", "HV", first, second}, false, out);
  expect(match, "o", rows("HV", "V"), false, out);
  expect(match, "final_state", {"N", "HV", first, second}, false, out);
  check_inputs(match, *out);
  if (out->expected.empty()) match.complain("records no result of a stage");
  if (out->direction == SLUICE_DIRECTION_REVERSE && out->expected.size() > 1) {
    match.complain(
        "field 'direction' = \"reverse\", expected \"forward\" where other stages read "
        "the sums");
  }
  if (out->fused_pairs) {
    for (const char* result : {"g_cumsum", "A", "u"}) {
      if (match.get(result, false) != nullptr) continue;
      match.complain(std::string("field 'fused' = \"pairs\", expected \"none\" without ") +
                     Matcher::quoted(result));
    }
  }
  const int64_t H = match.size("H"), HV = match.size("HV");
  if (keys && (H < 1 || HV % H != 0)) {
    match.complain("tensor 'v' heads HV = " + std::to_string(HV) +
                   ", expected a multiple of H = " + std::to_string(H) + " (grouped value heads)");
  }
}

}  // namespace sluice::io
