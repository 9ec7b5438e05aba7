// Measures the waves of heads and batch entries, and the windows of chunks, that share the workspace of
// gradients by tensor cores. Host code alone; nothing is launched.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "backward_problems.hpp"
#include "cuda/chunk_backward/cut.h"
#include "cuda/chunk_backward/lower.h"
#include "cuda/kernels/backward/launch.h"

namespace sluice::cuda {
namespace {

ChunkBackwardProblem cyclic(const Sizes& s) {
  ChunkBackwardProblem b = training(s);
  b.forward.head_map = SLUICE_HEAD_MAP_CYCLIC;
  return b;
}

TEST(BackwardWaves, CyclicHeadsHaveNoMore) {
  for (const Sizes& s : {Sizes{1, 8192, 16, 32}, Sizes{1, 4096, 16, 64}, Sizes{2, 4096, 6, 18},
                         Sizes{1, 8192, 2, 4}}) {
    ChunkBackwardProblem b = cyclic(s);
    const size_t any = plan_of(b, PlanFor::kAnyAddress).workspace_bytes;
    EXPECT_LE(any, 1536 * rows_of(s)) << s.H << " " << s.HV;
    EXPECT_EQ(plan_of(b).workspace_bytes, any);
    EXPECT_EQ(plan_of(b).kept<Waves>().key_heads, s.H);
    misalign(&b);
    EXPECT_EQ(plan_of(b).workspace_bytes, any);
    EXPECT_EQ(plan_of(b).kept<Waves>().key_heads, s.H / 2);
    EXPECT_EQ(plan_of(b).kept<Waves>().entries, s.B);
  }
}

/// Waves of cyclic maps have a divisor of H.
TEST(BackwardWaves, CyclicHeadsAreCutEvenly) {
  ChunkBackwardProblem b = cyclic({1, 4096, 15, 30});
  misalign(&b);
  EXPECT_EQ(plan_of(b).kept<Waves>().key_heads, 5);
  b = cyclic({1, 4096, 7, 14});
  misalign(&b);
  EXPECT_EQ(plan_of(b).kept<Waves>().key_heads, 1);
  // Of one value head a key head they neighbour each other.
  b = cyclic({1, 4096, 15, 15});
  misalign(&b);
  EXPECT_EQ(plan_of(b).kept<Waves>().key_heads, 8);
}

/// States of a pool are neighbours, and gates of some views lie in groups.
TEST(BackwardWindows, OfCyclicHeadsThatNoStepReaches) {
  const Sizes s{1, 4096, 16, 32};
  ChunkBackwardProblem states = cyclic(s), groups = cyclic(s);
  states.d_final = view({2, 32}, {1, 32, 128, 128});
  groups.dbeta.stride[2] = 5, groups.dbeta.stride[1] = 80, groups.dbeta.stride[0] = 80 * 4096;
  for (ChunkBackwardProblem b : {states, groups}) {
    const size_t any = plan_of(b, PlanFor::kAnyAddress).workspace_bytes;
    EXPECT_LE(any, 1536 * rows_of(s));
    EXPECT_EQ(plan_of(b).kept<Waves>().window_rows, 0);
    misalign(&b);
    EXPECT_EQ(plan_of(b).workspace_bytes, any);
    EXPECT_EQ(plan_of(b).kept<Waves>().key_heads, 16);
    EXPECT_EQ(plan_of(b).kept<Waves>().window_rows, 2048);
  }
}

ChunkBackwardProblem pack_of(const Sizes& s, int64_t sequences) {
  ChunkBackwardProblem b = training(s);
  b.forward.rows.cu_seqlens = view({0, 32}, {sequences + 1}), b.forward.rows.N = sequences;
  return b;
}

/// A pack may have a chunk more with each sequence.
TEST(BackwardWindows, OneKeyHeadHasNoMore) {
  for (const int64_t T : {320, 1000, 4096, 32768}) {
    for (const int64_t HV : {1, 2, 4}) {
      for (const int64_t sequences : {0, 1, 2, 7}) {
        const Sizes s{1, T, 1, HV};
        ChunkBackwardProblem b = sequences == 0 ? training(s) : pack_of(s, sequences);
        const int64_t chunks = sequences == 0 ? (T + 63) / 64 : T / 64 + sequences;
        const size_t any = plan_of(b, PlanFor::kAnyAddress).workspace_bytes;
        EXPECT_LE(any, static_cast<size_t>(1536 * 64 * chunks * HV)) << T << " " << HV;
        EXPECT_EQ(plan_of(b).workspace_bytes, any);
        EXPECT_EQ(plan_of(b).kept<Waves>().window_rows, 0) << T << " " << HV;
        misalign(&b);
        EXPECT_EQ(plan_of(b).workspace_bytes, any);
        if (sequences == 7 && T == 320) continue;  // what its sequences allow is enough
        EXPECT_GT(plan_of(b).kept<Waves>().window_rows, 0) << T << " " << HV << " " << sequences;
      }
    }
  }
}

TEST(BackwardWindows, ThreeChunksAreEnough) {
  for (const int64_t T : {129, 150, 192}) {
    ChunkBackwardProblem b = training({1, T, 1, 1});
    misalign(&b);
    EXPECT_EQ(plan_of(b).kept<Waves>().window_rows, 64) << T;
    EXPECT_LE(plan_of(b).workspace_bytes, 1536u * 192) << T;
  }
}

/// What lies at the boundaries of segments comes on top, for windows as without.
TEST(BackwardWindows, SegmentsHaveThemToo) {
  ChunkBackwardProblem b = training({1, 8192, 1, 1});
  b.forward.split = SLUICE_SPLIT_LENGTH, b.forward.split_value = 128;
  const size_t any = plan_of(b, PlanFor::kAnyAddress).workspace_bytes;
  EXPECT_LE(any, 1536 * rows_of({1, 8192, 1, 1}) +
                     boundary_bytes(b.forward, plan_of(b).kept<Waves>().cut));
  misalign(&b);
  EXPECT_EQ(plan_of(b).workspace_bytes, any);
  EXPECT_GT(plan_of(b).kept<Waves>().window_rows, 0);
}

/// States at borders are as large as those of chunks.
TEST(BackwardWindows, FewChunksHaveNone) {
  ChunkBackwardProblem b = training({1, 128, 1, 1});
  misalign(&b);
  EXPECT_EQ(plan_of(b).kept<Waves>().window_rows, 0);
  EXPECT_LT(plan_of(b).workspace_bytes, size_t{1} << 19);
}

/// Rows are prepared for a chunk that ends in the next window, whose gradients of keys are there.
TEST(BackwardWindows, CopiesOfKeysDoNotLieInTheirGradients) {
  ChunkBackwardProblem b = pack_of({1, 1024, 1, 1}, 2);
  for (const int64_t end : {0, 512}) {
    backward::BackwardParams p = lower_backward(b);
    p.window.end = end;
    BackwardWorkspace workspace(b.forward, reinterpret_cast<void*>(uintptr_t{1} << 20), p.window);
    place_tiles(b.forward, WhichAddresses::kThese, workspace, &p);
    EXPECT_EQ(p.q_normal.data == b.dq.data, end == 0);
    EXPECT_EQ(p.k_normal.data == b.dk.data, end == 0);
  }
}

TEST(BackwardWindows, SimpleGlaHasNone) {
  ChunkBackwardProblem b = training({1, 4096, 1, 1});
  b.forward.rule = SLUICE_RULE_LINEAR_ATTENTION;
  misalign(&b);
  EXPECT_EQ(plan_of(b).kept<Waves>().window_rows, 0);
}

/// Where heads are as few as can be.
TEST(BackwardWaves, BatchEntriesAreCutBehindHeads) {
  ChunkBackwardProblem states = cyclic({4, 4096, 16, 32});
  states.forward.state.initial = view({2, 32}, {4, 32, 128, 128});
  for (ChunkBackwardProblem b :
       {training({2, 4096, 1, 4}), training({8, 4096, 1, 4}), training({3, 4096, 1, 4}), states}) {
    const core::Rows& rows = b.forward.rows;
    const size_t count = rows_of({rows.B, rows.T, 0, b.forward.HV});
    const size_t any = plan_of(b, PlanFor::kAnyAddress).workspace_bytes;
    EXPECT_LE(any, 1536 * count) << rows.B << " " << b.forward.HV;
    EXPECT_EQ(plan_of(b).workspace_bytes, any);
    EXPECT_EQ(plan_of(b).kept<Waves>().entries, rows.B);
    misalign(&b);
    EXPECT_EQ(plan_of(b).workspace_bytes, any);
    EXPECT_EQ(plan_of(b).kept<Waves>().entries, (rows.B + 1) / 2);
    EXPECT_EQ(plan_of(b).kept<Waves>().key_heads, b.forward.H);
  }
}

TEST(BackwardWaves, ManyBatchEntriesHaveTwoGibibytes) {
  for (const Sizes& s :
       {Sizes{1024, 2048, 1, 4}, Sizes{100000, 100, 1, 1}, Sizes{512, 4096, 4, 8}}) {
    const Plan plan = plan_of(training(s));
    EXPECT_LE(plan.workspace_bytes, size_t{1} << 31);
    EXPECT_GE(plan.workspace_bytes, size_t{1} << 30);
    EXPECT_EQ(plan.kept<Waves>().key_heads, 1);
    EXPECT_LT(plan.kept<Waves>().entries, s.B);
    EXPECT_EQ(plan.workspace_bytes, plan_of(training(s), PlanFor::kAnyAddress).workspace_bytes);
  }
}

/// What the largest of a call's waves needs.
size_t most_bytes(const ChunkBackwardProblem& b, const Waves& waves) {
  size_t most = 0;
  const int64_t B = b.forward.rows.B;
  for (int64_t number = 0; number * waves.key_heads < b.forward.H; ++number) {
    const ChunkBackwardProblem heads = heads_of_wave(b, number, waves.key_heads);
    for (int64_t entry = 0; entry < B; entry += waves.entries) {
      const auto wave = entries_of_wave(heads, entry, std::min(waves.entries, B - entry));
      BackwardWorkspace workspace(wave.forward, nullptr);
      backward::BackwardParams params = lower_backward(wave);
      place_head_sums(heads.forward, entry, workspace, &params);
      place_tiles(wave.forward, WhichAddresses::kThese, workspace, &params);
      most = std::max(most, workspace.bytes());
    }
  }
  return most;
}

/// Heads 132 numbers apart: those of every second wave lie where the copy engine cannot read them.
TEST(BackwardWaves, EveryWaveFits) {
  for (ChunkBackwardProblem b : {training({160, 8192, 2, 2}), cyclic({1, 65536, 32, 256})}) {
    for (Tensor* t : {&b.forward.q, &b.forward.k, &b.forward.v, &b.d_o, &b.dq, &b.dk, &b.dv}) {
      t->stride[2] = 132, t->stride[1] = 136 * t->shape[2];
      t->stride[0] = t->shape[1] * t->stride[1];
    }
    b.forward.A_log = b.forward.dt_bias = b.dA_log = b.ddt_bias = view({2, 32}, {b.forward.HV});
    const Plan plan = plan_of(b);
    const auto waves = plan.kept<Waves>();
    EXPECT_LT(waves.key_heads, b.forward.H);
    EXPECT_LE(most_bytes(b, waves), plan.workspace_bytes);
  }
}

int64_t offset(const Tensor& part, const Tensor& whole) {
  return static_cast<std::byte*>(part.data) - static_cast<std::byte*>(whole.data);
}

TEST(BackwardWaves, AWaveHasTheHeadsOfItsKeys) {
  ChunkBackwardProblem all = training({1, 64, 16, 32});
  all.d_final = view({2, 32}, {1, 32, 128, 128});
  const ChunkBackwardProblem b = heads_of_wave(all, 1, 5);
  EXPECT_EQ(b.forward.H, 5);
  EXPECT_EQ(b.forward.HV, 10);
  EXPECT_EQ(offset(b.forward.q, all.forward.q), 5 * 128 * 2);
  EXPECT_EQ(offset(b.dv, all.dv), 10 * 128 * 2);
  EXPECT_EQ(offset(b.dgate, all.dgate), 10 * 4);
  EXPECT_EQ(offset(b.d_final, all.d_final), 10 * 128 * 128 * 4);
  EXPECT_EQ(b.forward.A_log.data, nullptr);
  EXPECT_EQ(heads_of_wave(all, 3, 5).forward.H, 1);
  EXPECT_EQ(heads_of_wave(all, 3, 5).dv.shape[2], 2);
}

/// Of 12 key heads in waves of three: 2, 6, 10, and the value heads 2, 6, .., 22.
TEST(BackwardWaves, AWaveOfACyclicMapHasEveryFourthHead) {
  ChunkBackwardProblem all = cyclic({1, 64, 12, 24});
  all.forward.A_log = all.ddt_bias = view({2, 32}, {24});
  const ChunkBackwardProblem b = heads_of_wave(all, 2, 3);
  EXPECT_EQ(b.forward.H, 3);
  EXPECT_EQ(b.forward.HV, 6);
  for (const auto& [part, whole] : {std::pair{b.forward.k, all.forward.k}, {b.dv, all.dv}}) {
    EXPECT_EQ(offset(part, whole), 2 * 128 * 2);
    EXPECT_EQ(part.stride[2], 4 * 128);
    EXPECT_EQ(part.stride[1], whole.stride[1]);
  }
  EXPECT_EQ(b.dk.shape[2], 3);
  EXPECT_EQ(b.d_o.shape[2], 6);
  EXPECT_EQ(offset(b.dgate, all.dgate), 2 * 4);
  EXPECT_EQ(b.dgate.stride[2], 4);
  EXPECT_EQ(b.dgate.shape[2], 6);
  EXPECT_EQ(b.dgate.shape[3], 1);
  EXPECT_EQ(offset(b.ddt_bias, all.ddt_bias), 2 * 4);
  EXPECT_EQ(b.ddt_bias.stride[0], 4);
  for (int64_t head = 0; head < 6; ++head) {
    EXPECT_EQ(2 + 4 * b.forward.key_head(head), all.forward.key_head(2 + 4 * head));
  }
}

TEST(BackwardWaves, AWaveOfEntriesHasTheirRowsStatesAndSegments) {
  ChunkBackwardProblem all = training({5, 64, 1, 4});
  all.dinitial = view({2, 32}, {5, 4, 128, 128});
  all.dA_log = view({2, 32}, {4});
  const ChunkBackwardProblem b = entries_of_wave(all, 3, 2);
  EXPECT_EQ(b.forward.rows.B, 2);
  EXPECT_EQ(b.forward.rows.N, 2);
  EXPECT_EQ(offset(b.forward.q, all.forward.q), 3 * 64 * 128 * 2);
  EXPECT_EQ(offset(b.dbeta, all.dbeta), 3 * 64 * 4 * 4);
  EXPECT_EQ(offset(b.dinitial, all.dinitial), 3 * 4 * 128 * 128 * 4);
  EXPECT_EQ(b.dinitial.shape[0], 2);
  EXPECT_EQ(offset(b.dA_log, all.dA_log), 0);
  backward::SegmentCut cut{};
  cut.length = 4, cut.slots = 35, cut.boundaries = 30;
  const backward::SegmentCut two = cut_of_wave(cut, 5, 2);
  EXPECT_EQ(two.length, 4);
  EXPECT_EQ(two.slots, 14);
  EXPECT_EQ(two.boundaries, 12);
}

}  // namespace
}  // namespace sluice::cuda
