// Measures what heads that may forget change of a cut: columns of a join's CTAs, and segments. Sizes
// alone matter; no GPU is needed.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cuda/chunk_forward/cut.h"

namespace sluice::cuda {
namespace {

using core::DeltaRuleProblem;
using device::CutRequest;

constexpr int kH200 = 132;  ///< its multiprocessors

/// CTAs of heads that have forgotten end at once: only those that remember fill a round.
TEST(CudaCutJoin, CarriesTheFewestColumnsThatMakeOneRound) {
  CutRequest cut;
  cut.multiprocessors = kH200;
  EXPECT_EQ(join_columns(cut, 8, 128), 8);
  EXPECT_EQ(join_columns(cut, 16, 128), 16);
  EXPECT_EQ(join_columns(cut, 32, 128), 32);
  cut.may_forget = true;
  EXPECT_EQ(join_columns(cut, 32, 128), 8);
  EXPECT_EQ(join_columns(cut, 64, 128), 16);
  EXPECT_EQ(join_columns(cut, 128, 128), 32);
}

/// Short sequences beside long ones are whole, or their joins end early.
TEST(CudaCutJoin, CountsSequencesAsLongAsTheLongest) {
  DeltaRuleProblem p;
  p.rows.B = 1, p.rows.T = 8192, p.rows.N = 2;
  p.HV = 16, p.K = p.V = 128;
  int64_t offsets[3] = {0, 7168, 8192};
  p.rows.cu_seqlens.data = offsets;
  const Machine machine{0, kHopperCapability, kH200, {}};
  EXPECT_EQ(choose_cut(p, machine, {}).long_sequences, 2);  // nothing is known
  p.rows.longest = 7168;
  EXPECT_EQ(choose_cut(p, machine, {}).long_sequences, 1);
  p.rows.longest = 4096;
  EXPECT_EQ(choose_cut(p, machine, {}).long_sequences, 2);
}

/// Few heads wait for the join then, so that there may be more boundaries.
TEST(CudaCutJoin, HeadsThatForgetAreCutFiner) {
  DeltaRuleProblem p;
  p.rows = {1, 32768, 1, {}, 32768};
  p.HV = 32, p.K = p.V = 128;
  const Machine machine{0, kHopperCapability, kH200, {}};
  const CutRequest exact = choose_cut(p, machine, {});
  p.history = SLUICE_HISTORY_FORGET;
  const CutRequest forgetful = choose_cut(p, machine, {});
  EXPECT_FALSE(exact.may_forget);
  EXPECT_TRUE(forgetful.may_forget);
  EXPECT_GT(forgetful.count, exact.count);
}

}  // namespace
}  // namespace sluice::cuda
