// Measures the stages whose decays stand inside a product of tokens, or on its operands, with
// key-wise gates against the float64 reference: chunk_cumsum and chunk_h are in stage_test.cc.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "stage_judge.hpp"

namespace sluice::check {
namespace {

class CudaKeyStage : public ::testing::TestWithParam<StageConfig> {};

TEST_P(CudaKeyStage, MatchesReference) { expect_reference(GetParam()); }

std::vector<StageConfig> configs() {
  std::vector<StageConfig> all;
  const Add add{&all};
  constexpr auto kKkt = SLUICE_STAGE_SCALED_DOT_KKT, kWy = SLUICE_STAGE_WY_FAST;
  constexpr auto kSums = SLUICE_STAGE_CUMSUM_KKT, kSolve = SLUICE_STAGE_SOLVE_WY;
  constexpr auto kOutputs = SLUICE_STAGE_CHUNK_O;
  const auto add_key = [&](const char* name, sluice_stage stage, auto change) {
    add(name, stage, [change](auto& c) { c.key_gates = true, change(c); });
  };
  add_key("key_kkt", kKkt, [](auto& c) { c.K = 128, c.B = 2; });
  add_key("key_kkt_c128_packed", kKkt, [](auto& c) {
    c.C = 128, c.lengths = kLengths, c.A = c.io = kF16, c.summed = false, c.gate = kBF16;
  });
  add_key("key_kkt_infinite", kKkt, [](auto& c) {
    c.io = kF16, c.K = 20, c.H = 2, c.HV = 4, c.head_map = SLUICE_HEAD_MAP_CYCLIC;
    c.gates = GateProfile::kMinusInfinity, c.placement = Placement::kHeadFirst, c.summed = false;
  });
  add_key("key_kkt_growth", kKkt,
          [](auto& c) { c.io = kF32, c.C = 32, c.gates = GateProfile::kSlow, c.growth = 0.02; });
  add_key("key_cumsum_kkt", kSums, [](auto& c) { c.gate = kBF16, c.K = 60, c.HV = 3; });
  add_key("key_cumsum_kkt_c128_packed", kSums, [](auto& c) {
    c.C = 128, c.lengths = kLengths, c.gates = GateProfile::kMinusInfinity, c.A = kBF16;
  });
  add_key("key_wy", kWy, [](auto& c) { c.K = 128, c.V = 64, c.B = 2; });
  add_key("key_wy_c128_packed", kWy, [](auto& c) {
    c.C = 128, c.lengths = kLengths, c.summed = false, c.K = 72, c.V = 40, c.io = kF16;
  });
  add_key("key_solve_wy", kSolve, [](auto& c) { c.with_inverse = true, c.summed = false; });
  add_key("key_solve_wy_c32_packed", kSolve, [](auto& c) {
    c.C = 32, c.lengths = kLengths, c.io = kF32, c.K = 20, c.V = 33, c.has_beta = false;
  });
  add_key("key_o", kOutputs, [](auto& c) { c.K = c.V = 128, c.B = 2; });
  add_key("key_o_c128_packed_vk", kOutputs, [](auto& c) {
    c.C = 128, c.lengths = kLengths, c.io = c.h = kF16, c.summed = false, c.V = 40;
    c.layout = SLUICE_STATE_VK;
  });
  add_key("key_o_infinite", kOutputs, [](auto& c) {
    c.io = c.h = kF32, c.K = 20, c.gates = GateProfile::kMinusInfinity, c.summed = false;
  });
  add_key("key_gla", kOutputs, [](auto& c) {
    c.rule = kGla, c.with_h = false, c.lengths = kLengths, c.slots = true, c.summed = false;
  });
  add_key("key_gla_float32_c16", kOutputs, [](auto& c) {
    c.rule = kGla, c.with_h = false, c.io = kF32, c.C = 16, c.K = 33, c.V = 20;
    c.gates = GateProfile::kStrong, c.layout = SLUICE_STATE_VK;
  });
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, CudaKeyStage, ::testing::ValuesIn(configs()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace sluice::check
