// Checks that prefill kernels take slots past a pool, of states and of checkpoints, for padding.
// SPDX-License-Identifier: Apache-2.0
#include "parity/delta_call.hpp"
#include "parity/far_slots.hpp"
#include "parity/naming.hpp"

namespace sluice::check {
namespace {

using FarPrefill = FarSlots<DeltaConfig>;

/// Padding where a state is read, where one is written, and where one is kept.
FarPrefill prefill(const char* kernel, const std::string& name) {
  DeltaConfig c{.name = name};
  c.op = SLUICE_OP_CHUNK_FORWARD;
  c.packed = true, c.lengths = {70, 130, 3, 64, 150}, c.rows_past_end = 3;
  c.H = 1, c.HV = 2, c.K = c.V = 128, c.seed = 2;  // even: one checkpoint column too few
  c.io = c.o = kBF16;
  c.slots = Slots::kSeparate, c.pad_below = 1;
  c.padded = {0, 3}, c.padded_writes = {1}, c.fresh = {2};
  c.checkpoint_every = 64;
  return {c, kernel};
}

std::vector<FarPrefill> prefills() {
  std::vector<FarPrefill> all;
  for (const auto rule : {SLUICE_RULE_GATED_DELTA, SLUICE_RULE_LINEAR_ATTENTION}) {
    const std::string of_rule = rule == SLUICE_RULE_GATED_DELTA ? "delta_" : "linear_";
    all.push_back(prefill("sm_90a", of_rule + "whole"));
    all.back().config.split = SLUICE_SPLIT_NEVER;
    all.push_back(prefill("sm_90a", of_rule + "segments"));
    all.back().config.split = SLUICE_SPLIT_LENGTH, all.back().config.split_value = 64;
    all.push_back(prefill("sm_90a", of_rule + "in_place"));
    DeltaConfig& c = all.back().config;
    c.in_place = true, c.slots = Slots::kRead, c.padded_writes = {}, c.index = kI64;
    c.split = SLUICE_SPLIT_LENGTH, c.split_value = 64, c.layout = SLUICE_STATE_VK;
    all.push_back(prefill("generic", of_rule + "generic"));
    all.back().config.K = 24, all.back().config.V = 40;
    all.push_back(prefill("sm_90a", of_rule + "key_wise"));
    all.back().config.key_gates = true;
    for (size_t i = all.size() - 5; i < all.size(); ++i) all[i].config.rule = rule;
  }
  return all;
}

class FarSlotsPrefill : public ::testing::TestWithParam<FarPrefill> {};

TEST_P(FarSlotsPrefill, ArePadding) {
  expect_padding(
      GetParam(), [](const auto& c, auto implementation) { return run_delta(c, implementation); },
      [](const auto& c, const auto& found, const auto& truth) {
        return judge_delta(c, found, truth);
      },
      [](const DeltaResult& r) {
        return std::vector<Array>{r.o, r.initial, r.final, r.checkpoints};
      });
}

INSTANTIATE_TEST_SUITE_P(Prefill, FarSlotsPrefill, ::testing::ValuesIn(prefills()),
                         far_slots_name<DeltaConfig>);

}  // namespace
}  // namespace sluice::check
