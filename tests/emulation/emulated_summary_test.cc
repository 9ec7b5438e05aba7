// Runs the passes of a summary on the CPU: plan, transition pass and join, on pieces of several leaves,
// and judges N and M against the reference; heads that forget start in the last chunks.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "cuda/catalogues.h"
#include "cuda/kernels/context/launch.h"
#include "emulated_backend.hpp"
#include "parity/context_call.hpp"

namespace sluice::cuda {

/// Other parts of a summary are not emulated, and nothing here plans them.
Catalogue<core::ChunkBackwardProblem> chunk_backward_catalogue() noexcept { return {}; }
int context::load_kernels() noexcept { return 0; }
void context::launch_fill(const FillParams&, Launcher& launcher) noexcept { launcher.note(1); }

namespace {

Machine hopper() noexcept { return {0, kHopperCapability, emulated_multiprocessors, {}}; }

core::Backend with_summary() noexcept {
  core::Backend made = emulated_prefill();
  made.chunk_summary = {
      [](const core::ChunkSummaryProblem& p, core::PlanFor purpose, core::Plan* plan) noexcept {
        Environment fused;
        fused.kernel = KernelOverride::kFast;
        return plan_by(chunk_summary_catalogue().first(1), p, hopper(), fused, purpose, plan);
      },
      [](const core::ChunkSummaryProblem& p, const core::Plan& plan, sluice_workspace workspace,
         void*) noexcept {
        const Machine gpu = hopper();
        Launcher launcher("chunk_summary", gpu, nullptr);
        static_cast<const Kernel<core::ChunkSummaryProblem>*>(plan.entry)
            ->launch(p, plan, workspace.data, launcher);
        return launcher.status();
      }};
  return made;
}

}  // namespace

const core::Backend& backend() noexcept {
  static const core::Backend instance = with_summary();
  return instance;
}

}  // namespace sluice::cuda

namespace sluice::check {
namespace {

struct SummaryCase {
  ContextConfig config;
  std::vector<int64_t> pieces;  ///< one sequence each
};

ContextConfig wide(const std::string& name) {
  ContextConfig c;
  c.name = name, c.HV = 1, c.K = c.V = 128, c.io = kBF16, c.keys = KeyProfile::kRandomUnit;
  c.gates = GateProfile::kSlow;
  return c;
}

std::vector<SummaryCase> cases() {
  std::vector<SummaryCase> all;
  const auto add = [&](const char* name, const std::vector<int64_t>& pieces, auto change) {
    ContextConfig c = wide(name);
    change(&c);
    c.lengths = pieces;
    all.push_back({c, pieces});
  };
  add("short", {70, 0, 64, 1}, [](ContextConfig* c) { c->HV = 2; });
  add("leaves", {2100, 30}, [](ContextConfig*) {});  // of 1024 tokens
  add("fp16_v256", {200, 65}, [](ContextConfig* c) { c->io = kF16, c->V = 256; });
  add("k64", {150}, [](ContextConfig* c) { c->K = c->V = 64, c->HV = 2; });
  add("key_gates", {130, 64}, [](ContextConfig* c) { c->key_gates = true; });
  add("forgets", {700, 300}, [](ContextConfig* c) {
    c->gates = GateProfile::kStrong, c->history = SLUICE_HISTORY_FORGET;
  });
  add("forgets_keys", {330}, [](ContextConfig* c) {
    c->gates = GateProfile::kStrong, c->history = SLUICE_HISTORY_FORGET, c->key_gates = true;
  });
  return all;
}

void expect_near(const char* what, const Array& found, const Array& truth) {
  ASSERT_EQ(found.shape, truth.shape) << what;
  const Verdict verdict =
      judge(what, compare_whole(view_of(found), view_of(truth)), {.006, .012, .012});
  EXPECT_TRUE(verdict.pass) << verdict.line;
}

TEST(EmulatedSummary, MatchesReference) {
  for (SummaryCase of : cases()) {
    SCOPED_TRACE(of.config.name);
    const ContextInputs inputs(of.config);
    std::vector<Piece> pieces;
    int64_t at = 0;
    for (size_t n = 0; n < of.pieces.size(); ++n) {
      pieces.push_back({static_cast<int64_t>(n), at, at + of.pieces[n]});
      at += of.pieces[n];
    }
    const Maps found = inputs.summary(pieces, SLUICE_DIRECTION_FORWARD, SLUICE_IMPL_CUDA);
    ASSERT_EQ(found.outcome.code, SLUICE_OK) << found.outcome.message;
    EXPECT_EQ(found.outcome.damage, "");
    of.config.history = SLUICE_HISTORY_STRICT;
    const Maps truth =
        ContextInputs(of.config).summary(pieces, SLUICE_DIRECTION_FORWARD, SLUICE_IMPL_REFERENCE);
    expect_near("addend", found.addend, truth.addend);
    bool forgotten = false;
    for (const double flag : found.forgotten.values) forgotten = forgotten || flag != 0.0;
    EXPECT_EQ(forgotten, inputs.config().history == SLUICE_HISTORY_FORGET);
    if (!forgotten) expect_near("transition", found.transition, truth.transition);
    for (size_t i = 0; i < truth.transition.values.size() && forgotten; ++i) {
      ASSERT_LE(std::abs(found.transition.values[i] - truth.transition.values[i]), 0x1p-28);
    }
  }
}

}  // namespace
}  // namespace sluice::check
