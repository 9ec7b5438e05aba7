// Measures what stages accept: one struct for a whole chain, views that a stage does not name left
// alone, batched matrices of every rank; and that the facade's names choose their stages.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "refusals_chunk_stage.hpp"
#include "sluice/sluice.hpp"

namespace sluice::check::stages {
namespace {

/// Spoils every view that the stage does not name.
void spoil_others(StageScene& s, std::initializer_list<sluice_tensor*> named) {
  Args& a = s.args;
  for (sluice_tensor* t : {&a.q, &a.k, &a.v, &a.gate, &a.beta, &a.g_cumsum, &a.A, &a.A_inverse,
                           &a.w, &a.u, &a.v_new, &a.h, &a.o, &a.state.initial, &a.state.final}) {
    if (std::find(named.begin(), named.end(), t) == named.end()) t->rank = 77;
  }
}

TEST(ChunkStageAccepts, OneStructForAllStages) {
  for (const auto stage : {kCumsum, kKkt, kSolve, kWy, kStates, kOutputs, kCumsumKkt, kSolveWy}) {
    SCOPED_TRACE(stage);
    expect_accepted(kOp, valid_scene(stage));
  }
}

TEST(ChunkStageAccepts, ViewsOfOtherStagesAreNotLookedAt) {
  const std::pair<sluice_stage, std::function<void(StageScene&)>> rows[] = {
      {kCumsum, [](StageScene& s) { spoil_others(s, {&s.args.gate, &s.args.g_cumsum}); }},
      {kKkt,
       [](StageScene& s) {
         spoil_others(s, {&s.args.k, &s.args.beta, &s.args.g_cumsum, &s.args.A});
       }},
      {kSolve, [](StageScene& s) { spoil_others(s, {&s.args.A, &s.args.A_inverse}); }},
      {kWy,
       [](StageScene& s) {
         spoil_others(s, {&s.args.k, &s.args.v, &s.args.beta, &s.args.g_cumsum, &s.args.A_inverse,
                          &s.args.u, &s.args.w});
       }},
      {kStates,
       [](StageScene& s) {
         spoil_others(s, {&s.args.k, &s.args.u, &s.args.w, &s.args.g_cumsum, &s.args.h,
                          &s.args.v_new, &s.args.state.initial, &s.args.state.final});
       }},
      {kStates,
       [](StageScene& s) {
         s.args.rule = SLUICE_RULE_LINEAR_ATTENTION;
         s.args.h = {};
         spoil_others(s, {&s.args.k, &s.args.v, &s.args.g_cumsum, &s.args.h, &s.args.state.initial,
                          &s.args.state.final});
       }},
      {kOutputs,
       [](StageScene& s) {
         spoil_others(
             s, {&s.args.q, &s.args.k, &s.args.v_new, &s.args.g_cumsum, &s.args.h, &s.args.o});
       }},
      {kCumsumKkt,
       [](StageScene& s) {
         spoil_others(s, {&s.args.k, &s.args.gate, &s.args.beta, &s.args.g_cumsum, &s.args.A});
       }},
      {kSolveWy,
       [](StageScene& s) {
         s.args.A_inverse = {};
         spoil_others(s, {&s.args.k, &s.args.v, &s.args.beta, &s.args.g_cumsum, &s.args.A,
                          &s.args.A_inverse, &s.args.u, &s.args.w});
       }},
  };
  for (const auto& [stage, spoil] : rows) {
    SCOPED_TRACE(stage);
    StageScene scene = valid_scene(stage);
    spoil(scene);
    expect_accepted(kOp, scene);
  }
}

TEST(ChunkStageAccepts, BatchedMatricesOfRank2To4) {
  for (const int rank : {2, 3, 4}) {
    StageScene s = valid_scene(kSolve);
    batch(s, 16);
    for (sluice_tensor* t : {&s.args.A, &s.args.A_inverse}) {
      if (rank == 2) *t = s.memory->tensor(kFloat32, {16, 16});
      if (rank == 4) *t = s.memory->tensor(kFloat32, {1, 2, 16, 16});
    }
    expect_accepted(kOp, s);
  }
}

TEST(ChunkStageFacade, NamesChooseStages) {
  StageScene s = valid_scene(kCumsum);
  ChunkStageArgs args;
  args.gate = TensorView(s.args.gate), args.g_cumsum = TensorView(s.args.g_cumsum);
  args.chunk_size = kC;
  args.implementation = Implementation::kReference;
  const Workspace workspace{s.workspace.data, s.workspace.size};
  EXPECT_TRUE(chunk_cumsum(args, workspace).ok()) << sluice_last_error();
  EXPECT_STREQ(sluice_last_kernel(), "reference.chunk_cumsum");
  EXPECT_STREQ(scaled_dot_kkt(args, workspace).message,
               "scaled_dot_kkt: k = absent, expected a view of rank 4 (required)");
  EXPECT_STREQ(solve_tril(args, workspace).message,
               "solve_tril: A = absent, expected a view of rank 4 (required)");
  EXPECT_STREQ(wy_fast(args, workspace).message,
               "wy_fast: k = absent, expected a view of rank 4 (required)");
  EXPECT_STREQ(cumsum_kkt(args, workspace).message,
               "cumsum_kkt: k = absent, expected a view of rank 4 (required)");
  EXPECT_STREQ(solve_wy(args, workspace).message,
               "solve_wy: k = absent, expected a view of rank 4 (required)");
  EXPECT_STREQ(chunk_h(args, workspace).message,
               "chunk_h: k = absent, expected a view of rank 4 (required)");
  EXPECT_STREQ(chunk_o(args, workspace).message,
               "chunk_o: q = absent, expected a view of rank 4 (required)");
  args.q = TensorView(s.args.q), args.k = TensorView(s.args.k), args.v = TensorView(s.args.v);
  args.o = TensorView(s.args.o);
  EXPECT_TRUE(simple_gla(args, workspace).ok()) << sluice_last_error();
  EXPECT_STREQ(sluice_last_kernel(), "reference.chunk_o");
}

}  // namespace
}  // namespace sluice::check::stages
