// Judges one stage on CUDA views against the float64 reference on the same inputs.
// SPDX-License-Identifier: Apache-2.0
#include "stage_judge.hpp"

#include <gtest/gtest.h>

#include "check/comparer.hpp"

namespace sluice::check {

void expect_reference(const StageConfig& c) {
  const StageResult truth = run_stage(c, SLUICE_IMPL_REFERENCE, true);
  ASSERT_EQ(truth.code, SLUICE_OK) << truth.message;
  const StageResult found = run_stage(c, SLUICE_IMPL_CUDA, false);
  ASSERT_EQ(found.code, SLUICE_OK) << found.message;
  EXPECT_EQ(found.damage, "");
  ASSERT_EQ(found.outputs.size(), truth.outputs.size());
  for (size_t i = 0; i < found.outputs.size(); ++i) {
    const auto& [name, values] = found.outputs[i];
    const sluice_dtype stored = name == "A"           ? c.A
                                : name == "A_inverse" ? c.A_inverse
                                : name == "final"     ? c.state
                                : name == "h"         ? c.h
                                : name == "g_cumsum"  ? kF32
                                                      : c.io;
    const bool float32 = name == "g_cumsum" || name == "A_inverse";
    const double whole = bound(float32 ? kF32 : c.io, stored);
    const Comparison comparison = compare_whole(view_of(values), view_of(truth.outputs[i].second));
    const Verdict verdict = judge(c.name + " " + name, comparison, {whole, 2 * whole, 2 * whole});
    EXPECT_TRUE(verdict.pass) << found.kernel << "\n" << verdict.line;
  }
  const bool tiles = c.name.find("tiles") != std::string::npos;
  const auto named = [&](const char* part) { return found.kernel.find(part) != std::string::npos; };
  const bool compact = named(".compact") && !named("chunk_cumsum");
  EXPECT_EQ(named(".sm_90a.") || compact || named("tiles"), tiles) << found.kernel;
}

}  // namespace sluice::check
