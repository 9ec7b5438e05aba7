// Measures how stages are spread over a GPU, and which kernel a pair gets: sizes as they are in a
// problem. Host code alone; nothing is launched.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cuda/catalogues.h"
#include "cuda/chunk_stage/lower.h"
#include "cuda/kernels/stages/compact.h"
#include "cuda/kernels/stages/config.h"

namespace sluice::cuda {
namespace {

using stages::Kernel;

alignas(16) uint16_t memory[64];  // only its address counts

core::Tensor rows(int64_t columns, sluice_dtype dtype) {
  core::Tensor t{};
  t.data = memory, t.dtype = dtype, t.rank = 4;
  const int64_t shape[] = {1, 8192, 16, columns};
  int64_t step = 1;
  for (int axis = 3; axis >= 0; --axis) {
    t.shape[axis] = shape[axis], t.stride[axis] = step;
    step *= shape[axis];
  }
  return t;
}

core::ChunkStageProblem problem(sluice_stage stage, int64_t C = 64) {
  constexpr sluice_dtype kBf16{4, 16}, kFloat{2, 32};
  core::ChunkStageProblem p;
  p.stage = stage;
  p.rows = {1, 8192, 1, {}, 8192};
  p.H = p.HV = 16, p.r = 1, p.K = p.V = 128, p.C = C;
  p.k = p.values = p.u = p.w = rows(128, kBf16);
  p.A = rows(C, kFloat);
  return p;
}

std::string name_of(const core::ChunkStageProblem& p, int capability = 90) {
  core::Plan plan;
  const Status status = plan_by(chunk_stage_catalogue(), p, {0, capability, 132, {}}, {},
                                core::PlanFor::kCall, &plan);
  return status.ok() ? plan.kernel : status.message;
}

TEST(StagePlan, PairsTakeTensorCoresAsTheirStagesDo) {
  EXPECT_EQ(name_of(problem(SLUICE_STAGE_CUMSUM_KKT, 128)), "cuda.cumsum_kkt.tiles");
  EXPECT_EQ(name_of(problem(SLUICE_STAGE_SOLVE_WY)), "cuda.solve_wy.tiles");
  EXPECT_EQ(name_of(problem(SLUICE_STAGE_SOLVE_WY, 128)), "cuda.solve_wy.tiles");
  EXPECT_EQ(name_of(problem(SLUICE_STAGE_SOLVE_WY, 32)), "cuda.solve_wy.plain");
  core::ChunkStageProblem p = problem(SLUICE_STAGE_SOLVE_WY);
  p.A.stride[1] += 1;  // A comes number by number then
  EXPECT_EQ(name_of(p), "cuda.solve_wy.tiles");
  p.w.stride[1] += 4;
  EXPECT_EQ(name_of(p), "cuda.solve_wy.plain");
}

TEST(StagePlan, KernelsOfFixedSizesHaveNamesOfTheirOwn) {
  EXPECT_EQ(name_of(problem(SLUICE_STAGE_CUMSUM_KKT)), "cuda.cumsum_kkt.compact");
  EXPECT_EQ(name_of(problem(SLUICE_STAGE_SCALED_DOT_KKT)), "cuda.scaled_dot_kkt.compact");
  EXPECT_EQ(name_of(problem(SLUICE_STAGE_SCALED_DOT_KKT, 128)), "cuda.scaled_dot_kkt.tiles");
  core::ChunkStageProblem p = problem(SLUICE_STAGE_WY_FAST);
  p.A_inverse = rows(64, {2, 32});
  EXPECT_EQ(name_of(p), "cuda.wy_fast.tiles");
  p.A_inverse = rows(64, {4, 16});
  EXPECT_EQ(name_of(p), "cuda.wy_fast.compact");
}

TEST(StagePlan, PairsFitTheirGpu) {
  EXPECT_EQ(name_of(problem(SLUICE_STAGE_SOLVE_WY), 86), "cuda.solve_wy.tiles");
  EXPECT_EQ(name_of(problem(SLUICE_STAGE_SOLVE_WY, 128), 86), "cuda.solve_wy.plain");
  device::StageParams params = lower_stage(problem(SLUICE_STAGE_SOLVE_WY, 128));
  EXPECT_LE(stages::plan_launch(Kernel::kPlainSolveWy, params).shared_bytes, 99 * 1024);
  EXPECT_EQ(stages::plan_launch(Kernel::kSolveWy, params).items, 64 * 16);
}

TEST(StagePlan, FewSequencesAndHeadsHaveNarrowStates) {
  device::StageParams p = lower_stage(problem(SLUICE_STAGE_CHUNK_H));
  EXPECT_EQ(stages::state_columns(p, 132), 32);
  p.columns = 32;
  EXPECT_EQ(stages::plan_launch(Kernel::kStates, p).items, 16 * 4);
  p.N = 16;
  p.columns = stages::state_columns(p, 132);
  EXPECT_EQ(p.columns, 64);
  // Two CTAs share a multiprocessor of 227 KB, each with a kilobyte of the system's.
  EXPECT_LE(2 * (stages::plan_launch(Kernel::kStates, p).shared_bytes + 1024), 227 * 1024);
}

/// Sums of gates, heads next to each other, of as many tokens as problem() has.
device::TokenRows gates(device::Number number = device::Number::kFloat32) {
  return {memory, 8192 * 16, 16, 1, number};
}

TEST(StagePlan, ModelsHaveCompactKernels) {
  stages::CompactParams compact;
  stages::CompactLaunch launch;
  core::ChunkStageProblem p = problem(SLUICE_STAGE_SCALED_DOT_KKT);
  const auto fits = [&](Kernel kernel) {
    return stages::plan_compact(kernel, lower_stage(p), &compact, &launch);
  };
  EXPECT_TRUE(fits(Kernel::kKkt));
  EXPECT_TRUE(compact.is_float);
  EXPECT_EQ(launch.heads, 16u);
  EXPECT_EQ(launch.chunks, 128u);
  EXPECT_EQ(launch.batch, 1u);
  p.k.stride[1] = int64_t{1} << 31;
  EXPECT_FALSE(fits(Kernel::kKkt));
  p = problem(SLUICE_STAGE_SCALED_DOT_KKT, 128);
  EXPECT_FALSE(fits(Kernel::kKkt));
  p = problem(SLUICE_STAGE_WY_FAST);
  p.A_inverse = rows(64, {4, 16});
  EXPECT_TRUE(fits(Kernel::kWy));
  p.V = 64;
  EXPECT_FALSE(fits(Kernel::kWy));
  p.V = 128, p.A_inverse = rows(64, {2, 32});
  EXPECT_FALSE(fits(Kernel::kWy));
}

TEST(StagePlan, ModelsHaveCompactSums) {
  stages::CompactSumParams compact;
  stages::CompactLaunch launch;
  device::StageParams p = lower_stage(problem(SLUICE_STAGE_CHUNK_CUMSUM));
  const auto fits = [&] { return stages::plan_compact_sums(p, &compact, &launch); };
  p.gate = p.g_cumsum = gates();
  EXPECT_TRUE(fits());
  EXPECT_EQ(launch.heads, 1u);
  p.HV = 20;
  EXPECT_TRUE(fits());
  EXPECT_EQ(launch.heads, 2u);
  p.HV = 18;
  EXPECT_FALSE(fits());
  p.HV = 16, p.reverse = true;
  EXPECT_FALSE(fits());
  p.reverse = false, p.gate = gates(device::Number::kBfloat16);
  EXPECT_FALSE(fits());
  p.gate = gates();
  p.gate.data = memory + 1;
  EXPECT_FALSE(fits());
  p.gate = gates();
  p.gate.head_stride = 8192, p.gate.token_stride = 1;
  EXPECT_FALSE(fits());
}

TEST(StagePlan, ManyItemsOfKeysComeSeveralInARow) {
  EXPECT_EQ(stages::grid_of(Kernel::kKkt, 100, 132), 100);
  EXPECT_EQ(stages::grid_of(Kernel::kKkt, 2048, 132), 1024);
  EXPECT_EQ(stages::grid_of(Kernel::kKkt, 65537, 132), 16385);
  EXPECT_EQ(stages::grid_of(Kernel::kSolve, 65537, 132), 65537);
  EXPECT_EQ(stages::grid_of(Kernel::kSolve, int64_t{1} << 40, 132), (int64_t{1} << 31) - 1);
}

}  // namespace
}  // namespace sluice::cuda
