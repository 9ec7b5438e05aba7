// Asks what passes of a prefill read in place of gates and strengths that were prepared, and how many
// CTAs prepare them.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cuda/kernels/chunk_forward/prepared.h"

namespace sluice::cuda {
namespace {

using device::PrefillParams;

TEST(PreparedTokens, PassesReadWhatIsPreparedInPlaceOfWhatWasGiven) {
  PrefillParams p{};
  float given, numbers[2 * 4 * 200];
  p.N = 2, p.T = 100, p.H = 2, p.HV = 4, p.r = 2;
  p.gate.data = &given, p.gate_form = device::GateForm::kRaw;
  p.beta.data = &given, p.beta_form = device::BetaForm::kLogit, p.beta_factor = 2.0f;
  PrefillParams as_given = p;
  chunk_forward::read_prepared(&as_given);
  EXPECT_EQ(as_given.gate.data, &given);
  p.prepared.numbers = numbers;
  chunk_forward::read_prepared(&p);
  EXPECT_EQ(p.gate.data, numbers);
  EXPECT_EQ(p.gate_form, device::GateForm::kLog);
  EXPECT_EQ(p.gate.member_bytes, 200 * 4);
  EXPECT_EQ(p.gate.group_bytes, 2 * 200 * 4);
  EXPECT_EQ(p.gate.batch_bytes, 100 * 4);
  EXPECT_EQ(p.beta.data, numbers + 4 * 200);
  EXPECT_EQ(p.beta_form, device::BetaForm::kValue);
  EXPECT_EQ(p.beta_factor, 1.0f);
}

/// 64 tokens a CTA for norms of q and k, 128 for numbers.
TEST(PreparedTokens, CtasAreBlocksOfTokens) {
  PrefillParams p{};
  float place[1];
  p.N = 1, p.T = 130, p.H = 2, p.HV = 4;
  EXPECT_EQ(chunk_forward::prepared_items(p), 0);
  p.prepared.norms = place;
  EXPECT_EQ(chunk_forward::prepared_items(p), 3 * 2 * 2);
  p.prepared.numbers = place;
  EXPECT_EQ(chunk_forward::prepared_items(p), 3 * 2 * 2 + 2 * 4);
}

}  // namespace
}  // namespace sluice::cuda
