// Measures whether cases of op stages are understood, and refused where a result is recorded
// without what its stage reads. How: a valid chain is written, then changed in one place, and the
// message compared.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "unit/case_draft.hpp"

namespace sluice::io {
namespace {

Draft valid_chain() {
  return {.description = {{"op", "stages"}, {"chunk_size", 16}},
          .floats = {{"q", {1, 40, 2, 4}},
                     {"k", {1, 40, 2, 4}},
                     {"v", {1, 40, 6, 3}},
                     {"g", {1, 40, 6}},
                     {"beta", {1, 40, 6}},
                     {"g_cumsum", {1, 40, 6}},
                     {"A", {1, 40, 6, 16}},
                     {"A_inverse", {1, 40, 6, 16}},
                     {"u", {1, 40, 6, 3}},
                     {"w", {1, 40, 6, 4}},
                     {"v_new", {1, 40, 6, 3}},
                     {"h", {1, 4, 6, 4, 3}},
                     {"o", {1, 40, 6, 3}},
                     {"initial_state", {3, 6, 4, 3}},
                     {"final_state", {3, 6, 4, 3}}},
          .cu_seqlens = {0, 17, 17, 40},
          .name = "c"};
}

TEST(CaseStages, AWholeChainIsUnderstood) {
  CaseFile file;
  const Status status = valid_chain().read(&file);
  ASSERT_TRUE(status.ok()) << status.message;
  const Case& c = file.cases.front();
  EXPECT_EQ(c.op, CaseOp::kStages);
  EXPECT_EQ(c.shape.C, 16);
  EXPECT_EQ(c.shape.N, 3);
  EXPECT_EQ(c.shape.chunks, 4);  // 17 tokens make two, 23 two
  EXPECT_EQ(c.expected, (std::vector<std::string>{"g_cumsum", "A", "A_inverse", "u", "w", "v_new",
                                                  "h", "o", "final_state"}));
}

TEST(CaseStages, FusedPairsAreUnderstood) {
  Draft pairs = valid_chain();
  pairs.description["fused"] = "pairs";
  CaseFile file;
  ASSERT_TRUE(pairs.read(&file).ok());
  EXPECT_TRUE(file.cases.front().fused_pairs);
  pairs.floats.erase("g_cumsum");
  const Status status = pairs.read(&file);
  EXPECT_NE(std::string(status.message)
                .find("field 'fused' = \"pairs\", expected \"none\" without tensor 'g_cumsum'"),
            std::string::npos)
      << status.message;
}

TEST(CaseStages, SingleStagesAreUnderstood) {
  Draft solve = valid_chain();
  solve.description["triangle"] = "upper";
  solve.floats = {{"A", {2, 40, 6, 16}}, {"A_inverse", {2, 40, 6, 16}}};
  solve.cu_seqlens = {};
  CaseFile file;
  ASSERT_TRUE(solve.read(&file).ok());
  EXPECT_EQ(file.cases.front().expected, std::vector<std::string>{"A_inverse"});
  EXPECT_EQ(file.cases.front().triangle, SLUICE_TRIANGLE_UPPER);

  Draft gla = valid_chain();
  gla.description["rule"] = "linear_attention";
  for (const char* name : {"beta", "A", "A_inverse", "u", "w", "v_new", "h"})
    gla.floats.erase(name);
  ASSERT_TRUE(gla.read(&file).ok());
  EXPECT_EQ(file.cases.front().expected,
            (std::vector<std::string>{"g_cumsum", "o", "final_state"}));
}

Draft with_key_gates() {
  Draft draft = valid_chain();
  draft.floats["g"] = draft.floats["g_cumsum"] = {1, 40, 6, 4};
  return draft;
}

TEST(CaseStages, KeyWiseGatesAreUnderstood) {
  CaseFile file;
  Draft draft = with_key_gates();
  const Status status = draft.read(&file);
  ASSERT_TRUE(status.ok()) << status.message;
  EXPECT_TRUE(file.cases.front().key_gates);
  EXPECT_EQ(file.cases.front().expected,
            (std::vector<std::string>{"g_cumsum", "A", "A_inverse", "u", "w", "v_new", "h", "o",
                                      "final_state"}));

  draft.description["rule"] = "linear_attention";
  for (const char* name : {"beta", "A", "A_inverse", "u", "w", "v_new"}) draft.floats.erase(name);
  ASSERT_TRUE(draft.read(&file).ok());
  EXPECT_EQ(file.cases.front().expected,
            (std::vector<std::string>{"g_cumsum", "h", "o", "final_state"}));
}

struct Wrong {
  const char* name;
  std::function<void(Draft&)> spoil;
  const char* message;
};
void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.name; }

class WrongStages : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongStages, IsRefusedByName) {
  Draft draft = valid_chain();
  GetParam().spoil(draft);
  CaseFile file;
  const Status status = draft.read(&file);
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  EXPECT_NE(std::string(status.message).find(GetParam().message), std::string::npos)
      << status.message;
}

const Wrong kWrong[] = {
    {"no_chunk_size", [](Draft& d) { d.description.erase("chunk_size"); },
     "field 'chunk_size' is missing"},
    {"chunk_size", [](Draft& d) { d.description["chunk_size"] = 48; },
     "field 'chunk_size' = 48, expected 16, 32, 64 or 128"},
    {"gate_space", [](Draft& d) { d.description["gate_space"] = "log"; },
     "field 'gate_space' is unknown"},
    {"matrix", [](Draft& d) { d.floats["A"] = {1, 40, 6, 8}; },
     "tensor 'A' shape = [1, 40, 6, 8], expected [B=1, T=40, HV=6, C=16]"},
    {"chunks", [](Draft& d) { d.floats["h"] = {1, 3, 6, 4, 3}; },
     "tensor 'h' shape = [1, 3, 6, 4, 3], expected [B=1, chunks=4, HV=6, K=4, V=3]"},
    {"sums_of_nothing", [](Draft& d) { d.floats.erase("g"); },
     "tensor 'g' is missing (read for 'g_cumsum')"},
    {"solve_of_nothing", [](Draft& d) { d.floats.erase("A"); },
     "tensor 'A' is missing (read for 'A_inverse')"},
    {"half_of_wy", [](Draft& d) { d.floats.erase("w"); }, "tensor 'w' is missing (read for 'u')"},
    {"outputs_of_nothing", [](Draft& d) { d.floats.erase("v_new"); },
     "tensor 'v_new' is missing (read for 'h')"},
    {"state_of_nothing",
     [](Draft& d) {
       for (const char* name : {"h", "v_new", "o"}) d.floats.erase(name);
     },
     "tensor 'final_state' is given, expected with 'h' or 'o'"},
    {"nothing", [](Draft& d) { d.floats = {{"k", {1, 40, 2, 4}}, {"g", {1, 40, 6}}}; },
     "records no result of a stage"},
    {"reverse", [](Draft& d) { d.description["direction"] = "reverse"; },
     "field 'direction' = \"reverse\", expected \"forward\" where other stages read the sums"},
    {"key_gates", [](Draft& d) { d.floats["g"] = {1, 40, 6, 3}; },
     "tensor 'g' shape = [1, 40, 6, 3], expected [B=1, T=40, HV=6, K=4]"},
    {"key_sums", [](Draft& d) { (d = with_key_gates()).floats["g_cumsum"] = {1, 40, 6}; },
     "tensor 'g_cumsum' shape = [1, 40, 6], expected [B=1, T=40, HV=6, K=4]"},
    {"key_gates_half_of_wy", [](Draft& d) { (d = with_key_gates()).floats.erase("w"); },
     "tensor 'w' is missing (read for 'u')"},
    {"groups", [](Draft& d) { d.floats["q"] = d.floats["k"] = {1, 40, 4, 4}; },
     "HV = 6, expected a multiple of H = 4"},
    {"offsets", [](Draft& d) { d.cu_seqlens = {0, 17, 16, 40}; }, "'cu_seqlens' [2] = 16"},
};
INSTANTIATE_TEST_SUITE_P(CaseStages, WrongStages, ::testing::ValuesIn(kWrong),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace sluice::io
