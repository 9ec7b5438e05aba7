// Measures the place of what a launch prepares of tokens ahead of a prefill, and asks which calls have
// it. Sizes alone matter; no GPU is needed.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cuda/chunk_forward/cut.h"
#include "cuda/chunk_forward/lengths.h"

namespace sluice::cuda {
namespace {

using core::DeltaRuleProblem;
using device::CutRequest;

/// Two batch entries of 4096 tokens, log gates and strengths.
DeltaRuleProblem problem() {
  static float number;
  DeltaRuleProblem p;
  p.rows.B = p.rows.N = 2, p.rows.T = 4096;
  p.H = 4, p.HV = 8, p.r = 2, p.K = p.V = 128;
  p.gate.data = p.beta.data = &number;
  return p;
}

TEST(CudaPrepared, NormsAndNumbersLieBehindTheTablesOfTheCut) {
  DeltaRuleProblem p = problem();
  const CutRequest whole;
  EXPECT_EQ(prefill_workspace(p, whole), cut_workspace(p, whole));
  p.qk_norm = SLUICE_QK_NORM_L2;
  const size_t norms = 2 * 4 * 2 * 4096 * sizeof(float), numbers = 2 * norms;
  EXPECT_EQ(prefill_workspace(p, whole), prepared_offset(p, whole) + norms);
  p.gate_space = SLUICE_GATE_RAW;
  EXPECT_EQ(prefill_workspace(p, whole), prepared_offset(p, whole) + norms + numbers);
  p.qk_norm = SLUICE_QK_NORM_NONE;
  EXPECT_EQ(prefill_workspace(p, whole), prepared_offset(p, whole) + numbers);
}

TEST(CudaPrepared, OnlyTheDeltaRuleWithScalarGatesHasThem) {
  DeltaRuleProblem p = problem();
  p.qk_norm = SLUICE_QK_NORM_L2;
  p.beta_space = SLUICE_BETA_LOGIT;
  EXPECT_TRUE(prepares_norms(p));
  EXPECT_TRUE(prepares_numbers(p));
  p.beta = {};
  EXPECT_FALSE(prepares_numbers(p));
  p.gate_space = SLUICE_GATE_LINEAR;
  EXPECT_FALSE(prepares_numbers(p));
  p.gate_space = SLUICE_GATE_RAW_BOUNDED;
  EXPECT_TRUE(prepares_numbers(p));
  p.key_gate = p.gate;
  EXPECT_FALSE(prepares_norms(p));
  EXPECT_FALSE(prepares_numbers(p));
}

}  // namespace
}  // namespace sluice::cuda
