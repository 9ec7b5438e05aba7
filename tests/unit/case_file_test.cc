// Measures whether case files are understood, and refused where a field or tensor is wrong.
// How: a valid case of each operator is written, then changed in one place, and the message
// compared.
// SPDX-License-Identifier: Apache-2.0
#include "io/case_file.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "unit/case_draft.hpp"

namespace sluice::io {
namespace {

using namespace drafts;

Case read_one(const Draft& draft) {
  CaseFile file;
  const Status status = draft.read(&file);
  EXPECT_TRUE(status.ok()) << status.message;
  return file.cases.empty() ? Case() : file.cases.front();
}

TEST(CaseFile, PrefillIsUnderstood) {
  const Case c = read_one(prefill());
  EXPECT_EQ(c.name, "a.b");
  EXPECT_EQ(c.op, CaseOp::kPrefill);
  EXPECT_EQ(c.options.qk_norm, SLUICE_QK_NORM_L2);
  EXPECT_FALSE(c.options.scale.has_value());
  EXPECT_EQ(c.shape.N, 3);
  EXPECT_EQ(c.shape.T, 5);
  EXPECT_EQ(c.shape.HV, 6);
  EXPECT_EQ(c.shape.V, 3);
  EXPECT_EQ(c.expected, (std::vector<std::string>{"o", "final_state"}));
}

TEST(CaseFile, KeyWiseGatesAreKnownByTheirRank) {
  for (Draft draft : {prefill(), decode()}) {
    EXPECT_FALSE(read_one(draft).key_gates);
    draft.floats["g"] = {1, 5, 6, 4};
    EXPECT_TRUE(read_one(draft).key_gates);
  }
  Draft draft = prefill();
  draft.description["layout"] = "bhtd";
  draft.floats["g"] = {1, 6, 5, 4};
  for (const char* name : {"q", "k", "v", "beta", "o"}) {
    std::swap(draft.floats[name][1], draft.floats[name][2]);
  }
  EXPECT_TRUE(read_one(draft).key_gates);
}

TEST(CaseFile, HeadFirstAndEveryChoiceIsUnderstood) {
  Draft draft = prefill();
  draft.description = {{"op", "prefill"},
                       {"layout", "bhtd"},
                       {"state_layout", "vk"},
                       {"scale", 0.25},
                       {"gate_space", "raw"},
                       {"beta_space", "logit"},
                       {"eigenvalues", "negative"},
                       {"head_map", "cyclic"},
                       {"state_dtype", "bf16"},
                       {"tolerance_rel_l2", 1e-3},
                       {"generator", {{"seed", 1}}},
                       {"note", "anything"}};
  draft.floats = {{"q", {1, 2, 5, 4}}, {"k", {1, 2, 5, 4}}, {"v", {1, 6, 5, 3}},
                  {"g", {1, 6, 5}},    {"o", {1, 6, 5, 3}}, {"final_state", {1, 6, 3, 4}},
                  {"A_log", {6}},      {"dt_bias", {6}}};
  draft.cu_seqlens.clear();
  const Case c = read_one(draft);
  EXPECT_TRUE(c.head_first);
  EXPECT_EQ(c.state_layout, SLUICE_STATE_VK);
  EXPECT_EQ(c.options.scale, 0.25);
  EXPECT_EQ(c.options.gate_space, SLUICE_GATE_RAW);
  EXPECT_EQ(c.options.beta_space, SLUICE_BETA_LOGIT);
  EXPECT_EQ(c.options.eigenvalues, SLUICE_EIGENVALUES_NEGATIVE);
  EXPECT_EQ(c.options.head_map, SLUICE_HEAD_MAP_CYCLIC);
  EXPECT_EQ(c.state_type, ElementType::kBF16);
  EXPECT_EQ(c.tolerance, 1e-3);
  EXPECT_EQ(c.shape.T, 5);
}

TEST(CaseFile, TheOtherOperatorsAreUnderstood) {
  EXPECT_EQ(read_one(decode()).steps, 5);
  EXPECT_EQ(read_one(conv1d()).shape.L, 3);
  EXPECT_EQ(read_one(conv1d()).activation, SLUICE_ACTIVATION_NONE);
  EXPECT_EQ(read_one(gated_norm()).rounding, SLUICE_NORM_ROUND_HF);
  EXPECT_EQ(read_one(gated_norm()).activation, SLUICE_ACTIVATION_SIGMOID);
  const Case c = read_one(layer());
  EXPECT_EQ(c.shape.hidden, 5);
  EXPECT_EQ(c.shape.T, 7);
  EXPECT_EQ(c.expected,
            (std::vector<std::string>{"step0.norm_out", "step0.output", "step1.norm_out",
                                      "step1.output", "final_state"}));
  EXPECT_FALSE(c.key_gates);
  Draft kda = layer();
  kda.floats["dt_bias"] = {2, 4};
  kda.floats["step0.a"] = {1, 7, 2, 4}, kda.floats["step1.a"] = {1, 1, 2, 4};
  kda.description["gate_lower_bound"] = -5;
  EXPECT_TRUE(read_one(kda).key_gates);
  EXPECT_EQ(read_one(kda).options.gate_lower_bound, -5);
}

struct Wrong {
  const char* name;
  Draft draft;
  std::function<void(Draft&)> change;
  const char* message;
};

void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.name; }

class WrongCase : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongCase, IsRefusedByName) {
  Draft draft = GetParam().draft;
  GetParam().change(draft);
  CaseFile file;
  const Status status = draft.read(&file);
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  EXPECT_NE(std::string(status.message).find(GetParam().message), std::string::npos)
      << status.message;
}

const Wrong kWrong[] = {
    {"no_op", prefill(), [](Draft& d) { d.description.erase("op"); },
     "draft: case 'a.b' field 'op' is missing"},
    {"op", prefill(), [](Draft& d) { d.description["op"] = "fly"; },
     "field 'op' = \"fly\", expected one of prefill, decode"},
    {"unknown_field", prefill(), [](Draft& d) { d.description["gates"] = 1; },
     "field 'gates' is unknown"},
    {"field_of_another_op", prefill(), [](Draft& d) { d.description["packing"] = "qwen3_5"; },
     "field 'packing' is unknown"},
    {"layout", prefill(), [](Draft& d) { d.description["layout"] = 3; },
     "field 'layout' = 3, expected one of bthd, bhtd"},
    {"tolerance", prefill(), [](Draft& d) { d.description["tolerance_rel_l2"] = -1; },
     "'tolerance_rel_l2' = -1, expected a number >= 0"},
    {"flag", prefill(), [](Draft& d) { d.description["use_qk_l2norm"] = 1; },
     "'use_qk_l2norm' = 1, expected true or false"},
    {"scale", prefill(), [](Draft& d) { d.description["scale"] = "x"; },
     "expected a finite number or null"},
    {"no_q", prefill(), [](Draft& d) { d.floats.erase("q"); }, "tensor 'q' is missing"},
    {"misspelt", prefill(), [](Draft& d) { d.floats["inital_state"] = {1}; },
     "tensor 'a.b.inital_state' belongs to no case"},
    {"k_shape", prefill(), [](Draft& d) { d.floats["k"] = {1, 5, 2, 5}; },
     "tensor 'k' shape = [1, 5, 2, 5], expected [B=1, T=5, H=2, K=4]"},
    {"rank", prefill(), [](Draft& d) { d.floats["g"] = {5, 6}; }, "expected [B=1, T=5, HV=6]"},
    {"groups", prefill(), [](Draft& d) { d.floats["q"] = d.floats["k"] = {1, 5, 4, 4}; },
     "HV = 6, expected a multiple of H = 4"},
    {"cu_seqlens_start", prefill(), [](Draft& d) { d.cu_seqlens = {1, 2, 2, 4}; },
     "'cu_seqlens' [0] = 1"},
    {"cu_seqlens_order", prefill(), [](Draft& d) { d.cu_seqlens = {0, 3, 2, 4}; },
     "'cu_seqlens' [2] = 2"},
    {"cu_seqlens_end", prefill(), [](Draft& d) { d.cu_seqlens = {0, 2, 2, 6}; },
     "'cu_seqlens' [3] = 6"},
    {"state_count", prefill(), [](Draft& d) { d.floats["final_state"] = {1, 6, 4, 3}; },
     "'final_state' shape = [1, 6, 4, 3], expected [N=3, HV=6, K=4, V=3]"},
    {"gla_beta", prefill(), [](Draft& d) { d.description["rule"] = "linear_attention"; },
     "'beta' is given, expected none"},
    {"raw_gate", prefill(), [](Draft& d) { d.description["gate_space"] = "raw"; },
     "tensor 'A_log' is missing"},
    {"key_gates", prefill(), [](Draft& d) { d.floats["g"] = {1, 5, 6, 3}; },
     "tensor 'g' shape = [1, 5, 6, 3], expected [B=1, T=5, HV=6, K=4]"},
    {"key_gates_raw", prefill(),
     [](Draft& d) {
       d.description["gate_space"] = "raw";
       d.floats["g"] = {1, 5, 6, 4};
     },
     "tensor 'A_log' is missing"},
    {"key_gate_bias", prefill(),
     [](Draft& d) {
       d.description["gate_space"] = "raw";
       d.floats["g"] = {1, 5, 6, 4}, d.floats["A_log"] = {6}, d.floats["dt_bias"] = {6};
     },
     "tensor 'dt_bias' shape = [6], expected [HV=6, K=4]"},
    {"bounded_without_bound", prefill(),
     [](Draft& d) { d.description["gate_space"] = "raw_bounded"; },
     "field 'gate_lower_bound' = 0.0, expected a number < 0 (gate_space raw_bounded)"},
    {"bound_of_log_gates", prefill(), [](Draft& d) { d.description["gate_lower_bound"] = -5.0; },
     "field 'gate_lower_bound' = -5.0, expected none (only with gate_space raw_bounded)"},
    {"decode_steps", decode(), [](Draft& d) { d.description["steps"] = 2; },
     "'steps' = 2, expected T = 5 tokens in equal steps of 1 to 16"},
    {"decode_no_steps", decode(), [](Draft& d) { d.description.erase("steps"); },
     "field 'steps' is missing"},
    {"conv_columns", conv1d(),
     [](Draft& d) { d.floats["initial_state"] = d.floats["final_state"] = {2, 8, 2}; },
     "L = 2, expected at least W-1 = 3"},
    {"norm_rank", gated_norm(), [](Draft& d) { d.floats["x"] = {8}; }, "expected rank 2 to 4"},
    {"layer_heads", layer(), [](Draft& d) { d.description["num_k_heads"] = 0; },
     "'num_k_heads' = 0, expected an integer in 1.."},
    {"layer_groups", layer(), [](Draft& d) { d.description["num_k_heads"] = 3; },
     "'num_v_heads' = 2, expected a multiple of num_k_heads = 3"},
    {"layer_huge", layer(), [](Draft& d) { d.description["head_k_dim"] = INT64_MAX; },
     "'head_k_dim' = 9223372036854775807"},
    {"layer_step", layer(), [](Draft& d) { d.description["steps"] = 3; },
     "tensor 'step2.qkv' is missing"},
    {"layer_decode_tokens", layer(),
     [](Draft& d) {
       for (auto& [name, shape] : d.floats) {
         if (name.rfind("step1", 0) == 0) shape[1] = 17;
       }
     },
     "step 1 has T = 17 tokens, expected 1 to 16"},
    {"layer_map", layer(),
     [](Draft& d) {
       d.description["packing"] = "qwen3_next";
       d.description["head_map"] = "cyclic";
     },
     "expected \"block\""},
    {"no_description", prefill(), [](Draft& d) { d.description = 3; }, "is described by no object"},
    {"metadata_not_json", prefill(), [](Draft& d) { d.metadata[kCasesKey] = "{"; },
     "metadata 'sluice.cases': byte"},
    {"metadata_list", prefill(), [](Draft& d) { d.metadata[kCasesKey] = "[]"; },
     "is no object of cases"},
    {"metadata_deep", prefill(), [](Draft& d) { d.metadata[kCasesKey] = std::string(100000, '['); },
     "nested deeper than 6 levels"},
    {"metadata_twice", prefill(),
     [](Draft& d) { d.metadata[kCasesKey] = R"({"a.b":{},"a.b":{}})"; },
     "key 'a.b' is given twice"},
};

INSTANTIATE_TEST_SUITE_P(CaseFile, WrongCase, ::testing::ValuesIn(kWrong),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(CaseFile, AFileWithoutCasesIsNamed) {
  SafetensorsFile empty;
  const uint64_t image[2] = {8, 0x2020202020207d7b};  // "{}      "
  ASSERT_TRUE(SafetensorsFile::parse(std::as_bytes(std::span(image)), "folder/plain", &empty).ok());
  CaseFile file;
  const Status status = read_cases(std::move(empty), &file);
  EXPECT_STREQ(status.message, "plain: has no metadata 'sluice.cases' (is this a case file?)");
}

TEST(CaseFile, IntegerTensorsAreNoFloats) {
  SafetensorsWriter writer;
  const std::vector<int64_t> zeros(8, 0);
  for (const char* name : {"c.x", "c.z", "c.out"}) writer.add_integers(name, {1, 8}, zeros);
  writer.add_floats("c.weight", ElementType::kF32, {8}, std::vector<double>(8, 1.0));
  writer.set_metadata(kCasesKey, R"({"c":{"op":"gated_norm"}})");
  const std::vector<std::byte> bytes = writer.serialize();
  SafetensorsFile file;
  ASSERT_TRUE(SafetensorsFile::parse(bytes, "integers", &file).ok());
  CaseFile cases;
  EXPECT_STREQ(read_cases(std::move(file), &cases).message,
               "integers: case 'c' tensor 'x' dtype = I64, expected F64, F32, F16 or BF16");
}

}  // namespace
}  // namespace sluice::io
