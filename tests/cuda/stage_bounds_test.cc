// Checks that stages stay inside their states: slots past the pool are padding, and what h has no
// room for is nobody's memory.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>

#include "parity/far_pads.hpp"
#include "stage_scene.hpp"

namespace sluice::check {
namespace {

constexpr auto kChunkH = SLUICE_STAGE_CHUNK_H, kChunkO = SLUICE_STAGE_CHUNK_O;
constexpr auto kGla = SLUICE_RULE_LINEAR_ATTENTION;

StageConfig packed(const char* name, sluice_stage stage) {
  StageConfig c;
  c.name = name, c.stage = stage, c.lengths = {65, 0, 1, 200, 64}, c.slots = true;
  return c;
}

/// Every kernel that carries states.
std::vector<StageConfig> configs() {
  std::vector<StageConfig> all{
      packed("h_hopper", kChunkH),  packed("h_hopper_128", kChunkH), packed("h_tiles", kChunkH),
      packed("h_keys", kChunkH),    packed("h_plain", kChunkH),      packed("h_linear", kChunkH),
      packed("o_tiles", kChunkO),   packed("o_hopper", kChunkO),     packed("o_plain", kChunkO),
      packed("gla_tiles", kChunkO), packed("gla_plain", kChunkO)};
  all[1].K = all[1].V = 128, all[1].io = all[1].h = kF16;
  all[2].C = 128;
  all[3].key_gates = true;
  all[4].io = all[4].h = kF32, all[4].K = 20, all[4].V = 24, all[4].C = 32;
  all[5].rule = kGla;
  all[6].C = 128;
  all[8].io = all[8].h = kF32, all[8].K = 20, all[8].V = 24, all[8].C = 32;
  for (size_t i = 9; i < 11; ++i) all[i].rule = kGla, all[i].with_h = false;
  all[10].io = kF32, all[10].K = 20, all[10].V = 24;
  return all;
}

bool same_bits(const double* a, const double* b, size_t count) {
  return std::memcmp(a, b, count * sizeof(double)) == 0;
}

class CudaStageBounds : public ::testing::TestWithParam<StageConfig> {};

TEST_P(CudaStageBounds, SlotsPastThePoolArePadding) {
  const StageConfig& c = GetParam();
  const StageResult near = run_stage(c, SLUICE_IMPL_CUDA, false);
  ASSERT_EQ(near.code, SLUICE_OK) << near.message;
  pads_past_pools = true;
  const StageResult far = run_stage(c, SLUICE_IMPL_CUDA, false);
  pads_past_pools = false;
  ASSERT_EQ(far.code, SLUICE_OK) << far.message;
  EXPECT_EQ(far.damage, "") << far.kernel;
  for (size_t i = 0; i < near.outputs.size(); ++i) {
    const auto& [name, values] = near.outputs[i];
    EXPECT_TRUE(
        same_bits(far.outputs[i].second.values.data(), values.values.data(), values.values.size()))
        << name << " of " << far.kernel;
  }
}

TEST_P(CudaStageBounds, ChunksPastHAreNobodys) {
  StageConfig c = GetParam();
  if (!c.with_h) GTEST_SKIP() << "a stage without h";
  const StageResult whole = run_stage(c, SLUICE_IMPL_CUDA, false);
  ASSERT_EQ(whole.code, SLUICE_OK) << whole.message;
  c.h_missing = 4;
  const StageResult cut = run_stage(c, SLUICE_IMPL_CUDA, false);
  ASSERT_EQ(cut.code, SLUICE_OK) << cut.message;
  EXPECT_EQ(cut.damage, "") << cut.kernel;
  for (size_t i = 0; i < cut.outputs.size() && c.stage == kChunkH; ++i) {
    const auto& [name, values] = cut.outputs[i];  // of h the first ones of the whole
    EXPECT_TRUE(same_bits(values.values.data(), whole.outputs[i].second.values.data(),
                          values.values.size()))
        << name << " of " << cut.kernel;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaStageBounds, ::testing::ValuesIn(configs()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace sluice::check
