// Declares what the suites of stages share: lists of configurations, and the judgement of one.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_CUDA_STAGE_JUDGE_HPP_
#define SLUICE_TESTS_CUDA_STAGE_JUDGE_HPP_

#include <vector>

#include "stage_scene.hpp"

namespace sluice::check {

inline constexpr auto kGla = SLUICE_RULE_LINEAR_ATTENTION;
inline const std::vector<int64_t> kLengths = {65, 0, 1, 200, 64};

/// Expects the outputs of the float64 reference, no damage, and the kernel that the name says.
void expect_reference(const StageConfig& c);

/// Adds configurations, and fills in what follows from the name: "plain" for the kernels of any dtype.
struct Add {
  std::vector<StageConfig>* all;
  template <class Change>
  void operator()(const char* name, sluice_stage stage, Change change) const {
    StageConfig c;
    c.name = name, c.stage = stage, c.seed = all->size() + 1;
    change(c);
    all->push_back(c);
  }
};

}  // namespace sluice::check

#endif  // SLUICE_TESTS_CUDA_STAGE_JUDGE_HPP_
