// Measures what simple GLA on CUDA views must agree with: itself under another chunk, and an absent
// gate with one of zeros.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "check/comparer.hpp"
#include "stage_scene.hpp"

namespace sluice::check {
namespace {

constexpr auto kGla = SLUICE_RULE_LINEAR_ATTENTION;

/// The chunk is the caller's choice or the library's (0: the bits of 64), and changes rounding
/// alone: under gates, sums of them, and growth.
TEST(CudaSimpleGla, ChunkDoesNotMatter) {
  for (const sluice_dtype io : {kBF16, kF32}) {
    for (const bool summed : {false, true}) {
      for (const double growth : {0.0, 0.02}) {
        StageConfig c;
        c.rule = kGla, c.io = io, c.with_h = false, c.summed = summed, c.T = 200, c.HV = 1;
        c.gates = growth > 0 ? GateProfile::kSlow : GateProfile::kFlashQla, c.growth = growth;
        const StageResult chunk64 = run_stage(c, SLUICE_IMPL_CUDA, false);
        ASSERT_EQ(chunk64.code, SLUICE_OK) << chunk64.message;
        for (const int64_t C : {0, 16, 32, 128}) {
          StageConfig other = c;
          other.C = C == 0 ? 64 : C, other.default_chunk = C == 0;
          const StageResult found = run_stage(other, SLUICE_IMPL_CUDA, false);
          ASSERT_EQ(found.code, SLUICE_OK) << found.message;
          for (size_t i = 0; i < found.outputs.size(); ++i) {
            const double whole = C == 0 ? 0.0 : 2 * bound(io, io);
            const Verdict verdict = judge(
                found.outputs[i].first,
                compare_whole(view_of(found.outputs[i].second), view_of(chunk64.outputs[i].second)),
                {whole, 2 * whole, 2 * whole});
            EXPECT_TRUE(verdict.pass) << found.kernel << " C = " << C << "\n" << verdict.line;
          }
        }
      }
    }
  }
}

/// Without gates the result is that of zeros, bit for bit.
TEST(CudaSimpleGla, AbsentGateIsZeroGate) {
  for (const sluice_dtype io : {kBF16, kF32}) {
    for (const bool with_h : {false, true}) {
      StageConfig c;
      c.rule = kGla, c.io = c.h = io, c.with_h = with_h, c.gates = GateProfile::kNone;
      const StageResult none = run_stage(c, SLUICE_IMPL_CUDA, false);
      c.gates = GateProfile::kZero;
      for (const bool summed : {false, true}) {
        c.summed = summed;
        const StageResult zero = run_stage(c, SLUICE_IMPL_CUDA, false);
        ASSERT_EQ(zero.code, SLUICE_OK) << zero.message;
        for (size_t i = 0; i < zero.outputs.size(); ++i) {
          const Comparison same =
              compare_whole(view_of(zero.outputs[i].second), view_of(none.outputs[i].second));
          EXPECT_EQ(same.fault, "");
          EXPECT_EQ(same.max_abs, 0.0) << none.outputs[i].first << " " << dtype_name(io);
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::check
