// Measures which kernel each stage gets on which GPU: sizes, dtypes, strides and shared memory as
// they are in a problem, compute capabilities as numbers. Host code alone; nothing is launched.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <utility>

#include "cuda/catalogues.h"
#include "cuda/chunk_stage/lower.h"
#include "cuda/kernels/stages/launch.h"

namespace sluice::cuda {
namespace {

using stages::Kernel;

alignas(16) uint16_t memory[64];  // only its address counts

core::Tensor rows(int64_t heads, int64_t columns, sluice_dtype dtype) {
  core::Tensor t{};
  t.data = memory, t.dtype = dtype, t.rank = 4;
  const int64_t shape[] = {2, 300, heads, columns};
  int64_t step = 1;
  for (int axis = 3; axis >= 0; --axis) {
    t.shape[axis] = shape[axis], t.stride[axis] = step;
    step *= shape[axis];
  }
  return t;
}

/// Simple GLA as one call, bfloat16.
core::ChunkStageProblem gla(int64_t K = 128, int64_t V = 128) {
  constexpr sluice_dtype kBf16{4, 16};
  core::ChunkStageProblem p;
  p.stage = SLUICE_STAGE_CHUNK_O;
  p.rows = {2, 300, 2, {}, 300};
  p.H = p.HV = 3, p.r = 1, p.K = K, p.V = V, p.C = 64;
  p.q = p.k = rows(3, K, kBf16);
  p.values = p.o = rows(3, V, kBf16);
  return p;
}

/// Not Hopper unless named: that has a kernel of its own.
std::string name_of(const core::ChunkStageProblem& p, int capability = 80,
                    const Environment& environment = {}) {
  core::Plan plan;
  const Status status = plan_by(chunk_stage_catalogue(), p, {0, capability, 132, {}}, environment,
                                core::PlanFor::kCall, &plan);
  return status.ok() ? plan.kernel : status.message;
}

/// Bytes of a workspace on Hopper, wherever tensors lie.
template <class Problem>
size_t workspace_of(Catalogue<Problem> catalogue, const Problem& p) {
  core::Plan plan;
  const Status status =
      plan_by(catalogue, p, {0, 90, 132, {}}, {}, core::PlanFor::kAnyAddress, &plan);
  EXPECT_TRUE(status.ok()) << status.message;
  return plan.workspace_bytes;
}

TEST(StageSelection, TensorCoresWhereRowsAllowIt) {
  EXPECT_EQ(name_of(gla()), "cuda.chunk_o.tiles.states");
  EXPECT_EQ(name_of(gla(64, 192)), "cuda.chunk_o.tiles.states");
  EXPECT_EQ(name_of(gla(192)), "cuda.chunk_o.plain.states");
  EXPECT_EQ(name_of(gla(128, 96)), "cuda.chunk_o.plain.states");
  core::ChunkStageProblem p = gla();
  p.C = 32;
  EXPECT_EQ(name_of(p), "cuda.chunk_o.plain.states");
  p = gla();
  p.q.stride[1] += 4;
  EXPECT_EQ(name_of(p), "cuda.chunk_o.plain.states");
  p = gla();
  p.o.data = memory + 4;
  EXPECT_EQ(name_of(p), "cuda.chunk_o.plain.states");
  p = gla();
  p.values.dtype = {2, 32};
  EXPECT_EQ(name_of(p), "cuda.chunk_o.plain.states");
}

TEST(StageSelection, KeyWiseGatesHaveTheirOwnChunkH) {
  core::ChunkStageProblem p = gla();
  p.stage = SLUICE_STAGE_CHUNK_H;
  EXPECT_EQ(name_of(p, 90), "cuda.chunk_h.tiles");
  p.key_gates = true, p.gate = rows(3, 128, {2, 32});
  EXPECT_EQ(name_of(p, 90), "cuda.chunk_h.tiles.key_wise");
  // Through the workspace go their sums, unless they are given, and keys with decays.
  EXPECT_EQ(workspace_of(chunk_stage_catalogue(), p), size_t{4 + 2} * 2 * 300 * 3 * 128);
  std::swap(p.g_cumsum, p.gate);
  EXPECT_EQ(workspace_of(chunk_stage_catalogue(), p), size_t{2} * 2 * 300 * 3 * 128);
  p.C = 32;
  EXPECT_EQ(name_of(p, 90), "cuda.chunk_h.plain");
  p.k.dtype = p.values.dtype = {2, 32};
  EXPECT_EQ(workspace_of(chunk_stage_catalogue(), p), 0u);
}

TEST(StageSelection, OtherStagesTakeKeyWiseGatesByPlainKernels) {
  core::ChunkStageProblem p = gla();
  p.key_gates = true, p.gate = rows(3, 128, {2, 32});
  EXPECT_EQ(name_of(p, 90), "cuda.chunk_o.plain.states");
  EXPECT_EQ(workspace_of(chunk_stage_catalogue(), p), size_t{4} * 2 * 300 * 3 * 128);
  p.h = rows(3, 128, {4, 16});
  EXPECT_EQ(name_of(p, 90), "cuda.chunk_o.plain");
  p.stage = SLUICE_STAGE_SCALED_DOT_KKT;
  EXPECT_EQ(name_of(p, 90), "cuda.scaled_dot_kkt.plain");
  p.stage = SLUICE_STAGE_SOLVE_WY;
  EXPECT_EQ(name_of(p, 90), "cuda.solve_wy.plain");
  p.stage = SLUICE_STAGE_CUMSUM_KKT, p.g_cumsum = p.gate;
  EXPECT_EQ(name_of(p, 90), "cuda.cumsum_kkt.plain");
  EXPECT_EQ(workspace_of(chunk_stage_catalogue(), p), 0u);  // its sums are an output
}

TEST(StageSelection, HopperHasItsOwnSimpleGla) {
  EXPECT_EQ(name_of(gla(), 90), "cuda.chunk_o.sm_90a.states.bf16.k128.columns");
  EXPECT_EQ(name_of(gla(64, 192), 90), "cuda.chunk_o.sm_90a.states.bf16.k64.columns");
  Environment environment;
  environment.cut.split = SLUICE_SPLIT_NEVER;
  EXPECT_EQ(name_of(gla(), 90, environment), "cuda.chunk_o.sm_90a.states.bf16.k128");
  environment.cut.split = SLUICE_SPLIT_SEGMENTS, environment.cut.value = 2;
  EXPECT_EQ(name_of(gla(), 90, environment), "cuda.chunk_o.sm_90a.states.bf16.k128.segments");
  environment.kernel = KernelOverride::kGeneric;
  EXPECT_EQ(name_of(gla(), 90, environment), "cuda.chunk_o.tiles.states");
  core::ChunkStageProblem p = gla();
  p.o.data = memory + 4;
  EXPECT_EQ(name_of(p, 90), "cuda.chunk_o.plain.states");
  p = gla();
  p.k.dtype = {2, 16};
  EXPECT_EQ(name_of(p, 90), "cuda.chunk_o.plain.states");
  p = gla();
  p.C = 32;
  EXPECT_EQ(name_of(p, 90), "cuda.chunk_o.plain.states");
  p = gla();
  p.h = rows(3, 128, {4, 16});
  EXPECT_EQ(name_of(p, 90), "cuda.chunk_o.sm_90a.bf16.k128");
  EXPECT_EQ(name_of(p, 100), "cuda.chunk_o.tiles");
  EXPECT_EQ(name_of(p, 90, environment), "cuda.chunk_o.tiles");
  p.C = 128;
  EXPECT_EQ(name_of(p, 90), "cuda.chunk_o.tiles");
  p.C = 64;
  p.h.stride[0] += 8;  // of two batch entries, no multiple of a chunk's
  EXPECT_EQ(name_of(p, 90), "cuda.chunk_o.tiles");
  p.state.layout = SLUICE_STATE_VK;
  EXPECT_EQ(name_of(p, 90), "cuda.chunk_o.plain");
}

/// The chain of states with w, bfloat16.
core::ChunkStageProblem states(int64_t K = 128) {
  core::ChunkStageProblem p = gla(K);
  p.stage = SLUICE_STAGE_CHUNK_H;
  p.q = p.o = {};
  p.w = p.k, p.v_new = p.values, p.h = rows(3, 128, {4, 16});
  return p;
}

TEST(StageSelection, HopperHasItsOwnChainOfStates) {
  EXPECT_EQ(name_of(states(), 90), "cuda.chunk_h.sm_90a.bf16.k128");
  EXPECT_EQ(name_of(states(64), 90), "cuda.chunk_h.sm_90a.bf16.k64");
  EXPECT_EQ(name_of(states(), 100), "cuda.chunk_h.tiles");
  Environment environment;
  environment.kernel = KernelOverride::kGeneric;
  EXPECT_EQ(name_of(states(), 90, environment), "cuda.chunk_h.tiles");
  core::ChunkStageProblem p = states();
  p.w = {};  // simple GLA
  EXPECT_EQ(name_of(p, 90), "cuda.chunk_h.tiles");
  p = states();
  p.C = 128;
  EXPECT_EQ(name_of(p, 90), "cuda.chunk_h.tiles");
  p = states();
  p.h = p.v_new = {};
  p.state.layout = SLUICE_STATE_VK;
  EXPECT_EQ(name_of(p, 90), "cuda.chunk_h.sm_90a.bf16.k128");
}

TEST(StageSelection, SharedMemoryDecides) {
  for (const int capability : {80, 87, 100}) {
    EXPECT_EQ(name_of(gla(), capability), "cuda.chunk_o.tiles.states") << capability;
  }
  for (const int capability : {86, 89, 120}) {
    EXPECT_EQ(name_of(gla(), capability), "cuda.chunk_o.plain.states") << capability;
    EXPECT_EQ(name_of(gla(64), capability), "cuda.chunk_o.tiles.states") << capability;
  }
}

TEST(StageSelection, RefusesByName) {
  EXPECT_EQ(name_of(gla(), 75),
            "chunk_o: compute capability = 7.5, expected 8.0 or newer (CUDA kernels)");
  EXPECT_EQ(name_of(gla(576)), "chunk_o: k.shape[3] = 576, expected at most 512 (CUDA kernels)");
}

TEST(StageSelection, FewHeadsAreCutIntoSegments) {
  device::StageParams p = lower_stage(gla());
  EXPECT_EQ(stages::segment_tokens(p, 132), 0);  // 300 tokens are too few
  p.T = 65536;
  const int64_t tokens = stages::segment_tokens(p, 132);
  EXPECT_EQ(tokens, 3072);  // 2 x 65536 x 3 x 2 / 264, in whole chunks
  EXPECT_EQ(stages::segment_bytes(p, tokens), 4 * 2 * 22 * 3 * (128 * 128 + 1));
  stages::cut(tokens, memory, &p);
  EXPECT_EQ(stages::plan_launch(Kernel::kGla, p).items, 2 * 22 * 3 * 2);
  EXPECT_EQ(stages::segment_tokens(p, 12), 0);  // 12 CTAs fill 12 multiprocessors
}

/// The kernel of gradients, or why there is none.
std::string name_of(const core::ChunkBackwardProblem& b, int capability = 90,
                    KernelOverride forced = KernelOverride::kAuto) {
  core::Plan plan;
  const Status status = plan_by(chunk_backward_catalogue(), b, {0, capability, 132, {}},
                                {forced, {}}, core::PlanFor::kCall, &plan);
  return status.ok() ? plan.kernel : status.message;
}

TEST(StageSelection, GradientsHaveTheStatesLimit) {
  core::ChunkBackwardProblem b;
  b.forward.q = rows(3, 576, {4, 16});
  b.forward.K = 512;
  EXPECT_EQ(name_of(b), "cuda.chunk_backward.plain");
  b.forward.K = 576;
  EXPECT_EQ(name_of(b), "chunk_backward: k.shape[3] = 576, expected at most 512 (CUDA kernels)");
}

TEST(StageSelection, GradientsByTensorCoresOnHopper) {
  constexpr sluice_dtype kBf16{4, 16};
  core::ChunkBackwardProblem b;
  core::DeltaRuleProblem& p = b.forward;
  p.rows = {2, 300, 2, {}, 300};
  p.H = p.HV = 3, p.r = 1, p.K = p.V = 128;
  p.q = p.k = p.v = b.d_o = rows(3, 128, kBf16);
  const std::string plain = "cuda.chunk_backward.plain";
  EXPECT_EQ(name_of(b), "cuda.chunk_backward.sm_90.bf16.k128");
  EXPECT_EQ(name_of(b, 80), plain);
  EXPECT_EQ(name_of(b, 90, KernelOverride::kGeneric), plain);
  p.state.layout = SLUICE_STATE_VK;
  EXPECT_EQ(name_of(b), "cuda.chunk_backward.sm_90.bf16.k128");
  p.rule = SLUICE_RULE_LINEAR_ATTENTION;
  EXPECT_EQ(name_of(b), "cuda.chunk_backward.sm_90.bf16.k128");
  p.rule = SLUICE_RULE_GATED_DELTA, p.state.layout = SLUICE_STATE_KV;
  const core::ChunkBackwardProblem good = b;
  const auto refused = [&](auto change) {
    b = good;
    change();
    EXPECT_EQ(name_of(b), plain);
  };
  refused([&] { p.K = 64; });
  refused([&] { p.V = 64; });
  refused([&] { p.rows.T = 0; });
  refused([&] {
    p.q = p.k = p.v = rows(3, 128, {2, 16});
    b.d_o = rows(3, 128, {2, 32});  // float16 has not its exponents
  });
  refused([&] { p.v = rows(3, 128, {2, 16}); });
  refused([&] { p.q = p.k = p.v = b.d_o = rows(3, 128, {2, 32}); });
}

}  // namespace
}  // namespace sluice::cuda
