// Measures whether cases of op gradients are understood, and refused where a gradient is recorded
// of what the case has not. How: a valid case is written, then changed in one place, and the
// message compared.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "unit/case_draft.hpp"

namespace sluice::io {
namespace {

Draft valid_gradients() {
  return {.description = {{"op", "gradients"}, {"gate_space", "raw"}},
          .floats = {{"q", {1, 5, 2, 4}},
                     {"k", {1, 5, 2, 4}},
                     {"v", {1, 5, 6, 3}},
                     {"g", {1, 5, 6}},
                     {"beta", {1, 5, 6}},
                     {"A_log", {6}},
                     {"dt_bias", {6}},
                     {"initial_state", {3, 6, 4, 3}},
                     {"d_o", {1, 5, 6, 3}},
                     {"d_final_state", {3, 6, 4, 3}},
                     {"dq", {1, 5, 2, 4}},
                     {"dk", {1, 5, 2, 4}},
                     {"dv", {1, 5, 6, 3}},
                     {"dg", {1, 5, 6}},
                     {"dbeta", {1, 5, 6}},
                     {"dA_log", {6}},
                     {"ddt_bias", {6}},
                     {"d_initial_state", {3, 6, 4, 3}}},
          .cu_seqlens = {0, 2, 2, 4},
          .name = "c"};
}

TEST(CaseGradients, EverythingIsUnderstood) {
  CaseFile file;
  const Status status = valid_gradients().read(&file);
  ASSERT_TRUE(status.ok()) << status.message;
  const Case& c = file.cases.front();
  EXPECT_EQ(c.op, CaseOp::kGradients);
  EXPECT_STREQ(case_op_name(c.op), "gradients");
  EXPECT_EQ(c.options.gate_space, SLUICE_GATE_RAW);
  EXPECT_EQ(c.shape.N, 3);
  EXPECT_EQ(c.shape.HV, 6);
  EXPECT_EQ(c.expected, (std::vector<std::string>{"dq", "dk", "dv", "dg", "dbeta", "dA_log",
                                                  "ddt_bias", "d_initial_state"}));
}

TEST(CaseGradients, WhatIsOptionalMayBeAbsent) {
  Draft draft = valid_gradients();
  draft.description = {{"op", "gradients"},
                       {"rule", "linear_attention"},
                       {"layout", "bhtd"},
                       {"state_layout", "vk"}};
  draft.cu_seqlens.clear();
  draft.floats = {{"q", {1, 2, 5, 4}},   {"k", {1, 2, 5, 4}},  {"v", {1, 6, 5, 3}},
                  {"d_o", {1, 6, 5, 3}}, {"dq", {1, 2, 5, 4}}, {"d_initial_state", {1, 6, 3, 4}}};
  CaseFile file;
  const Status status = draft.read(&file);
  ASSERT_TRUE(status.ok()) << status.message;
  EXPECT_TRUE(file.cases.front().head_first);
  EXPECT_EQ(file.cases.front().expected, (std::vector<std::string>{"dq", "d_initial_state"}));
}

struct Wrong {
  const char* name;
  std::function<void(Draft&)> spoil;
  const char* message;
};
void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.name; }

class WrongGradients : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongGradients, IsRefusedByName) {
  Draft draft = valid_gradients();
  GetParam().spoil(draft);
  CaseFile file;
  const Status status = draft.read(&file);
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  EXPECT_NE(std::string(status.message).find(GetParam().message), std::string::npos)
      << status.message;
}

const Wrong kWrong[] = {
    {"steps", [](Draft& d) { d.description["steps"] = 1; }, "field 'steps' is unknown"},
    {"no_d_o", [](Draft& d) { d.floats.erase("d_o"); }, "tensor 'd_o' is missing"},
    {"d_o", [](Draft& d) { d.floats["d_o"] = {1, 5, 6, 4}; },
     "tensor 'd_o' shape = [1, 5, 6, 4], expected [B=1, T=5, HV=6, V=3]"},
    {"d_final_state", [](Draft& d) { d.floats["d_final_state"] = {1, 6, 4, 3}; },
     "tensor 'd_final_state' shape = [1, 6, 4, 3], expected [N=3, HV=6, K=4, V=3]"},
    {"o", [](Draft& d) { d.floats["o"] = {1, 5, 6, 3}; }, "tensor 'c.o' belongs to no case"},
    {"dq", [](Draft& d) { d.floats["dq"] = {1, 5, 6, 4}; },
     "tensor 'dq' shape = [1, 5, 6, 4], expected [B=1, T=5, H=2, K=4]"},
    {"dk", [](Draft& d) { d.floats["dk"] = {1, 5, 2, 3}; },
     "tensor 'dk' shape = [1, 5, 2, 3], expected [B=1, T=5, H=2, K=4]"},
    {"dv", [](Draft& d) { d.floats["dv"] = {1, 5, 2, 3}; },
     "tensor 'dv' shape = [1, 5, 2, 3], expected [B=1, T=5, HV=6, V=3]"},
    {"dg", [](Draft& d) { d.floats["dg"] = {1, 5, 2}; },
     "tensor 'dg' shape = [1, 5, 2], expected [B=1, T=5, HV=6]"},
    {"dg_of_nothing",
     [](Draft& d) {
       d.description.erase("gate_space");
       for (const char* name : {"g", "A_log", "dt_bias", "dA_log", "ddt_bias"})
         d.floats.erase(name);
     },
     "tensor 'dg' is given, expected none (no 'g')"},
    {"dbeta_of_nothing", [](Draft& d) { d.floats.erase("beta"); },
     "tensor 'dbeta' is given, expected none (no 'beta')"},
    {"dA_log", [](Draft& d) { d.floats["dA_log"] = {5}; },
     "tensor 'dA_log' shape = [5], expected [HV=6]"},
    {"dA_log_of_nothing",
     [](Draft& d) {
       d.description.erase("gate_space");
       for (const char* name : {"A_log", "dt_bias", "ddt_bias"}) d.floats.erase(name);
     },
     "tensor 'c.dA_log' belongs to no case"},
    {"ddt_bias", [](Draft& d) { d.floats["ddt_bias"] = {1, 6}; },
     "tensor 'ddt_bias' shape = [1, 6], expected [HV=6]"},
    {"d_initial_state", [](Draft& d) { d.floats["d_initial_state"] = {3, 6, 3, 4}; },
     "tensor 'd_initial_state' shape = [3, 6, 3, 4], expected [N=3, HV=6, K=4, V=3]"},
    {"key_gates", [](Draft& d) { d.floats["g"] = {1, 5, 6, 4}; },
     "tensor 'g' shape = [1, 5, 6, 4], expected [B=1, T=5, HV=6]"},
    {"linear_beta", [](Draft& d) { d.description["rule"] = "linear_attention"; },
     "tensor 'beta' is given, expected none (rule linear_attention)"},
    {"groups",
     [](Draft& d) {
       d.floats["q"] = d.floats["k"] = d.floats["dq"] = d.floats["dk"] = {1, 5, 4, 4};
     },
     "HV = 6, expected a multiple of H = 4"},
    {"offsets", [](Draft& d) { d.cu_seqlens = {0, 2, 1, 4}; }, "'cu_seqlens' [2] = 1"},
    {"nothing",
     [](Draft& d) {
       for (const char* name :
            {"dq", "dk", "dv", "dg", "dbeta", "dA_log", "ddt_bias", "d_initial_state"}) {
         d.floats.erase(name);
       }
     },
     "records no gradient"},
};
INSTANTIATE_TEST_SUITE_P(CaseGradients, WrongGradients, ::testing::ValuesIn(kWrong),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace sluice::io
