// Checks that step kernels take slots past a pool for padding.
// SPDX-License-Identifier: Apache-2.0
#include "parity/delta_call.hpp"
#include "parity/far_slots.hpp"

namespace sluice::check {
namespace {

using FarStep = FarSlots<DeltaConfig>;

FarStep step(const char* kernel, const std::string& name) {
  DeltaConfig c{.name = name};
  c.B = 5, c.T = 3, c.H = 1, c.HV = 2, c.K = c.V = 128, c.seed = 5;
  c.io = c.o = kBF16;
  c.slots = Slots::kSeparate, c.pad_below = 1;
  c.padded = {0, 3}, c.padded_writes = {1}, c.fresh = {2};
  return {c, kernel};
}

std::vector<FarStep> steps() {
  std::vector<FarStep> all;
  for (const auto layout : {SLUICE_STATE_KV, SLUICE_STATE_VK}) {
    const std::string of_layout = layout == SLUICE_STATE_KV ? "kv_" : "vk_";
    all.push_back(step("recurrent_step", of_layout + "last"));
    all.push_back(step("recurrent_step", of_layout + "per_token"));
    DeltaConfig& c = all.back().config;
    c.state_writes = SLUICE_STATE_WRITE_PER_TOKEN, c.columns = 3, c.index = kI64;
    all.push_back(step("recurrent_step", of_layout + "accepted"));
    all.back().config.num_accepted = true, all.back().config.columns = 3;
    for (size_t i = all.size() - 3; i < all.size(); ++i) all[i].config.layout = layout;
  }
  all.push_back(step("single", "single"));
  all.back().config.T = 1;
  all.push_back(step("generic", "generic"));
  all.back().config.K = 300, all.back().config.V = 40;
  all.push_back(step("generic", "generic_per_token"));
  DeltaConfig& c = all.back().config;
  c.K = 300, c.V = 40, c.state_writes = SLUICE_STATE_WRITE_PER_TOKEN, c.columns = 3;
  return all;
}

class FarSlotsStep : public ::testing::TestWithParam<FarStep> {};

TEST_P(FarSlotsStep, ArePadding) {
  expect_padding(
      GetParam(), [](const auto& c, auto implementation) { return run_delta(c, implementation); },
      [](const auto& c, const auto& found, const auto& truth) {
        return judge_delta(c, found, truth);
      },
      [](const DeltaResult& r) { return std::vector<Array>{r.o, r.initial, r.final}; });
}

INSTANTIATE_TEST_SUITE_P(RecurrentStep, FarSlotsStep, ::testing::ValuesIn(steps()),
                         far_slots_name<DeltaConfig>);

}  // namespace
}  // namespace sluice::check
