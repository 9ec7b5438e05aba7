// Judges calls whose padding is an index past the pool: on GPUs the bits of ordinary padding, and
// nothing written beside; on the CPU a refusal.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_PARITY_FAR_SLOTS_HPP_
#define SLUICE_TESTS_PARITY_FAR_SLOTS_HPP_

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "parity/far_pads.hpp"
#include "parity/sequences.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {

/// A configuration with padding, and part of the name of the GPU kernel that takes it.
template <class Config>
struct FarSlots {
  Config config;
  const char* kernel;
};
template <class Config>
void PrintTo(const FarSlots<Config>& slots, std::ostream* out) {
  *out << slots.config.name;
}
template <class Config>
std::string far_slots_name(const ::testing::TestParamInfo<FarSlots<Config>>& info) {
  return info.param.config.name;
}

/// @param run makes the call once by an implementation
/// @param judge compares a result with the truth
/// @param arrays the outputs of a result, NaN where nothing was written
template <class Config, class Run, class Judge, class Arrays>
void expect_padding(const FarSlots<Config>& slots, Run run, Judge judge, Arrays arrays) {
  const sluice_implementation implementation = implementations_under_test().front();
  const auto near = run(slots.config, implementation);
  if (implementation != SLUICE_IMPL_CUDA && near.code == SLUICE_UNSUPPORTED) {
    GTEST_SKIP() << near.message;
  }
  ASSERT_EQ(near.code, SLUICE_OK) << near.message;
  pads_past_pools = true;
  const auto far = run(slots.config, implementation);
  pads_past_pools = false;
  if (implementation != SLUICE_IMPL_CUDA) {
    EXPECT_EQ(far.code, SLUICE_INVALID_ARGUMENT);
    EXPECT_NE(far.message.find("(slots of the pool)"), std::string::npos) << far.message;
    return;
  }
  ASSERT_EQ(far.code, SLUICE_OK) << far.message;
  if (std::getenv("SLUICE_CUDA_KERNEL") == nullptr) {
    EXPECT_NE(far.kernel.find(slots.kernel), std::string::npos) << far.kernel;
  }
  EXPECT_EQ(far.damage, "");
  const Verdict verdict = judge(slots.config, far, run(slots.config, SLUICE_IMPL_REFERENCE));
  EXPECT_TRUE(verdict.pass) << verdict.line;
  const auto expected = arrays(near), found = arrays(far);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(same_bits(found[i], expected[i])) << "output " << i;
  }
}

}  // namespace sluice::check

#endif  // SLUICE_TESTS_PARITY_FAR_SLOTS_HPP_
