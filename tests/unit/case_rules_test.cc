// Measures the rules of case files that need a shape of their own: batches, steps, states, packings.
// How: as in case_file_test.cc, a valid case is changed in one place; what stays legal is understood.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "io/case_file.hpp"
#include "unit/case_draft.hpp"

namespace sluice::io {
namespace {

using namespace drafts;

struct Row {
  const char* name;
  Draft draft;
  std::function<void(Draft&)> change;
  const char* message;  ///< what the refusal contains; empty: there is none
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

class CaseRules : public ::testing::TestWithParam<Row> {};

TEST_P(CaseRules, HoldOrAreNamed) {
  Draft draft = GetParam().draft;
  GetParam().change(draft);
  CaseFile file;
  const Status status = draft.read(&file);
  const std::string expected = GetParam().message;
  EXPECT_EQ(status.code, expected.empty() ? Code::kOk : Code::kInvalidArgument) << status.message;
  EXPECT_NE(std::string(status.message).find(expected), std::string::npos) << status.message;
}

/// Another number of batches, tokens or heads in every tensor that has that axis.
void resize(Draft& d, size_t axis, int64_t from, int64_t to) {
  for (auto& [name, shape] : d.floats) {
    if (name.find("state") == std::string::npos && shape.size() > axis && shape[axis] == from) {
      shape[axis] = to;
    }
  }
}

void interleave(Draft& d) {
  d.description["packing"] = "qwen3_next";
  for (const std::string step : {"step0.", "step1."}) {
    const int64_t T = d.floats[step + "qkv"][1];
    for (const char* name : {"qkv", "z", "b", "a"}) d.floats.erase(step + name);
    d.floats[step + "qkvz"] = {1, T, 20};
    d.floats[step + "ba"] = {1, T, 4};
  }
}

void give_key_gates(Draft& d) {
  d.floats["dt_bias"] = {2, 4};
  d.floats["step0.a"] = {1, 7, 2, 4}, d.floats["step1.a"] = {1, 1, 2, 4};
}

const Row kRows[] = {
    {"packed_batches", prefill(), [](Draft& d) { resize(d, 0, 1, 2); }, "B = 2, expected 1"},
    {"no_heads", prefill(), [](Draft& d) { d.floats["q"] = d.floats["k"] = {1, 5, 0, 4}; },
     "HV = 6, expected a multiple of H = 0"},
    {"no_value_heads", prefill(),
     [](Draft& d) {
       resize(d, 2, 6, 0);
       d.floats["initial_state"] = d.floats["final_state"] = {3, 0, 4, 3};
     },
     "HV = 0, expected a multiple of H = 2"},
    {"raw_bounded", prefill(),
     [](Draft& d) {
       d.description["gate_space"] = "raw_bounded";
       d.description["gate_lower_bound"] = -5.0;
     },
     ""},
    {"raw_bounded_with_parameters", prefill(),
     [](Draft& d) {
       d.description["gate_space"] = "raw_bounded";
       d.description["gate_lower_bound"] = -5.0;
       d.floats["A_log"] = d.floats["dt_bias"] = {6};
     },
     ""},
    {"bound_above_zero", prefill(), [](Draft& d) { d.description["gate_lower_bound"] = 5.0; },
     "field 'gate_lower_bound' = 5.0, expected none"},
    {"tolerance_of_text", prefill(), [](Draft& d) { d.description["tolerance_rel_l2"] = "x"; },
     "'tolerance_rel_l2' = \"x\", expected a number >= 0"},
    {"steps_of_text", decode(), [](Draft& d) { d.description["steps"] = "x"; },
     "'steps' = \"x\", expected an integer in 1.."},
    {"decode_without_tokens", decode(), [](Draft& d) { resize(d, 1, 5, 0); },
     "'steps' = 5, expected T = 0 tokens in equal steps of 1 to 16"},
    {"decode_of_long_steps", decode(), [](Draft& d) { resize(d, 1, 5, 85); },
     "'steps' = 5, expected T = 85 tokens in equal steps of 1 to 16"},
    {"conv_without_states", conv1d(),
     [](Draft& d) { d.floats.erase("initial_state"), d.floats.erase("final_state"); }, ""},
    {"conv_that_ends_a_state", conv1d(), [](Draft& d) { d.floats.erase("initial_state"); }, ""},
    {"norm_without_x", gated_norm(), [](Draft& d) { d.floats.erase("x"); },
     "tensor 'x' is missing"},
    {"norm_of_rank_5", gated_norm(), [](Draft& d) { d.floats["x"] = {1, 1, 2, 5, 8}; },
     "tensor 'x' shape = [1, 1, 2, 5, 8], expected rank 2 to 4"},
    {"layer_interleaved", layer(), interleave, ""},
    {"layer_without_projection", layer(),
     [](Draft& d) {
       for (const char* name : {"out_proj_weight", "step0.output", "step1.output"}) {
         d.floats.erase(name);
       }
     },
     ""},
    {"layer_states_by_value", layer(),
     [](Draft& d) {
       d.description["state_layout"] = "vk";
       d.floats["final_state"] = {1, 2, 3, 4};
     },
     ""},
    {"layer_conv_states", layer(), [](Draft& d) { d.floats["final_conv_state"] = {1, 14, 3}; }, ""},
    {"layer_conv_columns", layer(), [](Draft& d) { d.floats["final_conv_state"] = {1, 14, 2}; },
     "conv state columns L = 2, expected at least W-1 = 3"},
    {"layer_first_step", layer(), [](Draft& d) { d.floats["step0.z"] = {1, 7, 5}; },
     "tensor 'step0.z' shape = [1, 7, 5], expected [B=1, T=7, HVV=6]"},
    {"layer_key_gates", layer(), give_key_gates, ""},
    {"layer_bounded_gates", layer(),
     [](Draft& d) { give_key_gates(d), d.description["gate_lower_bound"] = -5; }, ""},
    {"layer_bound", layer(), [](Draft& d) { d.description["gate_lower_bound"] = 5; },
     "field 'gate_lower_bound' = 5.0, expected a number < 0 (bounded gates)"},
    {"layer_gates_of_heads", layer(), [](Draft& d) { d.floats["dt_bias"] = {2, 4}; },
     "tensor 'step0.a' shape = [1, 7, 2], expected [B=1, T=7, HV=2, K=4]"},
    {"layer_key_gates_interleaved", layer(),
     [](Draft& d) { interleave(d), d.floats["dt_bias"] = {2, 4}; },
     "tensor 'dt_bias' rank = 2, expected 1 (packing qwen3_next)"},
    {"layer_heads_of_text", layer(), [](Draft& d) { d.description["num_k_heads"] = "x"; },
     "'num_k_heads' = \"x\", expected an integer in 1.."},
};

INSTANTIATE_TEST_SUITE_P(Rows, CaseRules, ::testing::ValuesIn(kRows),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(CaseFile, AMissingFileIsNamed) {
  CaseFile file;
  EXPECT_STREQ(open_case_file("no/such/file", &file).message,
               "no/such/file: cannot be opened: No such file or directory");
  const std::string folders = std::string(100, 'x') + "/file";
  EXPECT_STREQ(
      open_case_file(folders, &file).message,
      (".." + folders.substr(folders.size() - 90) + ": cannot be opened: No such file or directory")
          .c_str());
}

}  // namespace
}  // namespace sluice::io
