// Measures every stage on CUDA views against the float64 reference on the same inputs: dtypes,
// lengths, packings, strides, chunk sizes, state layouts. Outputs start as NaN, so that what is not
// written, or written where nothing belongs, shows.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "check/comparer.hpp"
#include "stage_judge.hpp"

namespace sluice::check {
namespace {

constexpr auto kDelta = SLUICE_RULE_GATED_DELTA;

class CudaStage : public ::testing::TestWithParam<StageConfig> {};

TEST_P(CudaStage, MatchesReference) { expect_reference(GetParam()); }

void add_sums(const Add& add) {
  constexpr auto kStage = SLUICE_STAGE_CHUNK_CUMSUM;
  add("cumsum", kStage, [](auto& c) { c.HV = 33, c.gates = GateProfile::kMinusInfinity; });
  add("cumsum_reverse_packed", kStage, [](auto& c) {
    c.lengths = kLengths, c.direction = SLUICE_DIRECTION_REVERSE, c.gate = kBF16;
  });
  add("cumsum_head_first_bounded", kStage, [](auto& c) {
    c.placement = Placement::kHeadFirst, c.gate = kF16, c.gate_space = SLUICE_GATE_RAW_BOUNDED;
  });
}

void add_kkt(const Add& add) {
  constexpr auto kStage = SLUICE_STAGE_SCALED_DOT_KKT;
  add("kkt_tiles", kStage, [](auto& c) { c.K = 128, c.B = 2; });
  add("kkt_tiles_c128_packed", kStage,
      [](auto& c) { c.C = 128, c.lengths = kLengths, c.A = kBF16, c.io = kF16, c.summed = false; });
  add("kkt_tiles_head_first", kStage,
      [](auto& c) { c.placement = Placement::kHeadFirst, c.has_beta = false, c.K = 192; });
  add("kkt_plain_float32", kStage, [](auto& c) {
    c.io = kF32, c.K = 20, c.C = 32, c.HV = 3, c.placement = Placement::kFusedRow;
  });
  add("kkt_plain_c128", kStage, [](auto& c) {
    c.C = 128, c.K = 100, c.A = kF16, c.H = 2, c.HV = 4, c.head_map = SLUICE_HEAD_MAP_CYCLIC;
  });
}

void add_solves(const Add& add) {
  constexpr auto kStage = SLUICE_STAGE_SOLVE_TRIL;
  constexpr int64_t kSizes[] = {16, 32, 64, 128};
  for (const int64_t n : kSizes) {
    for (const auto triangle : {SLUICE_TRIANGLE_LOWER, SLUICE_TRIANGLE_UPPER}) {
      const bool upper = triangle == SLUICE_TRIANGLE_UPPER;
      const std::string name = std::string(upper ? "solve_upper" : "solve") + std::to_string(n);
      add(name.c_str(), kStage, [&](auto& c) {
        c.C = n, c.triangle = triangle, c.T = n + n / 2 + 3, c.A_inverse = upper ? kF32 : kBF16;
      });
    }
  }
  add("solve_float32_c128_fused_rows", kStage, [](auto& c) {
    c.C = 128, c.T = 300, c.A_inverse = kF32, c.placement = Placement::kFusedRow;
  });
  add("solve_packed", kStage, [](auto& c) { c.lengths = kLengths, c.A = kBF16, c.index = kI64; });
  add("solve_batched", kStage,
      [](auto& c) { c.matrices = SLUICE_MATRICES_BATCHED, c.T = c.C = 32, c.B = 2, c.HV = 3; });
}

void add_wy(const Add& add) {
  constexpr auto kStage = SLUICE_STAGE_WY_FAST;
  add("wy_tiles", kStage, [](auto& c) { c.K = 128, c.V = 64, c.B = 2; });
  add("wy_tiles_c128_packed", kStage, [](auto& c) {
    c.C = 128, c.lengths = kLengths, c.io = c.A_inverse = kF16, c.V = 128, c.summed = false;
  });
  add("wy_tiles_head_first", kStage, [](auto& c) {
    c.placement = Placement::kHeadFirst, c.A_inverse = kF32, c.gates = GateProfile::kNone;
  });
  add("wy_plain_float32", kStage,
      [](auto& c) { c.io = c.A_inverse = kF32, c.K = 20, c.V = 33, c.C = 16, c.has_beta = false; });
  add("wy_plain_c128", kStage, [](auto& c) { c.C = 128, c.K = 72, c.V = 40, c.io = kF16; });
}

void add_pairs(const Add& add) {
  constexpr auto kSums = SLUICE_STAGE_CUMSUM_KKT, kSolve = SLUICE_STAGE_SOLVE_WY;
  add("cumsum_kkt_tiles", kSums, [](auto& c) { c.K = 128, c.B = 2, c.gate = kBF16; });
  add("cumsum_kkt_tiles_c128_packed", kSums, [](auto& c) {
    c.C = 128, c.lengths = kLengths, c.io = c.A = kF16, c.gates = GateProfile::kMinusInfinity;
  });
  add("cumsum_kkt_plain_head_first", kSums, [](auto& c) {
    c.io = kF32, c.K = 20, c.C = 32, c.HV = 3, c.placement = Placement::kHeadFirst;
  });
  add("solve_wy_tiles", kSolve, [](auto& c) { c.K = 128, c.V = 64, c.B = 2; });
  add("solve_wy_tiles_inverse_packed", kSolve, [](auto& c) {
    c.lengths = kLengths, c.with_inverse = true, c.A = kBF16, c.A_inverse = kF32;
  });
  add("solve_wy_tiles_c128_packed", kSolve, [](auto& c) {
    c.C = 128, c.lengths = kLengths, c.io = kF16, c.V = 128, c.summed = false;
    c.with_inverse = true;
  });
  add("solve_wy_tiles_c128_head_first", kSolve, [](auto& c) {
    c.C = 128, c.placement = Placement::kHeadFirst, c.gates = GateProfile::kNone;
    c.has_beta = false;
  });
  for (const int64_t C : {16, 32, 64, 128}) {
    const std::string name = "solve_wy_plain_c" + std::to_string(C);
    add(name.c_str(), kSolve, [&](auto& c) {
      c.C = C, c.io = kF32, c.K = 20, c.V = 33, c.with_inverse = C < 64, c.A_inverse = kF32;
    });
  }
}

void add_states(const Add& add) {
  constexpr auto kStage = SLUICE_STAGE_CHUNK_H;
  add("h_tiles", kStage, [](auto& c) { c.K = 128, c.B = 2; });
  add("h_tiles_c128_packed", kStage, [](auto& c) {
    c.C = 128, c.lengths = kLengths, c.io = c.h = kF16, c.V = 128, c.slots = true;
  });
  add("h_tiles_gla_head_first", kStage, [](auto& c) {
    c.placement = Placement::kHeadFirst, c.rule = kGla, c.has_initial = false, c.summed = false;
  });
  add("h_tiles_only_final", kStage, [](auto& c) {
    c.with_h = false, c.layout = SLUICE_STATE_VK, c.state = kBF16, c.gates = GateProfile::kNone;
  });
  add("h_plain_float32", kStage, [](auto& c) {
    c.io = c.h = kF32, c.K = 20, c.V = 33, c.C = 32, c.lengths = kLengths, c.slots = true;
  });
  add("h_plain_vk", kStage, [](auto& c) { c.layout = SLUICE_STATE_VK, c.C = 128, c.h = kF32; });
}

void add_key_gates(const Add& add) {
  constexpr auto kSums = SLUICE_STAGE_CHUNK_CUMSUM, kStates = SLUICE_STAGE_CHUNK_H;
  add("key_cumsum", kSums, [](auto& c) {
    c.key_gates = true, c.K = 100, c.B = 2, c.gates = GateProfile::kMinusInfinity;
  });
  add("key_cumsum_reverse_packed", kSums, [](auto& c) {
    c.key_gates = true, c.lengths = kLengths, c.direction = SLUICE_DIRECTION_REVERSE;
    c.gate = kBF16, c.C = 128, c.HV = 3, c.gate_space = SLUICE_GATE_LINEAR;
  });
  add("key_cumsum_head_first", kSums, [](auto& c) {
    c.key_gates = true, c.placement = Placement::kHeadFirst, c.gate_space = SLUICE_GATE_RAW;
  });
  add("key_h_tiles_bf16", kStates, [](auto& c) { c.key_gates = true, c.K = 128, c.B = 2; });
  add("key_h_tiles_c128_packed", kStates, [](auto& c) {
    c.key_gates = true, c.C = 128, c.lengths = kLengths, c.io = c.h = kF16, c.slots = true;
    c.summed = false, c.gate = kBF16;
  });
  add("key_h_tiles_gla_head_first", kStates, [](auto& c) {
    c.key_gates = true, c.placement = Placement::kHeadFirst, c.rule = kGla, c.summed = false;
    c.has_initial = false;
  });
  add("key_h_tiles_groups", kStates, [](auto& c) {
    c.key_gates = true, c.H = 2, c.HV = 4, c.head_map = SLUICE_HEAD_MAP_CYCLIC, c.K = c.V = 128;
    c.lengths = {0, 1, 63, 64, 65, 130}, c.gates = GateProfile::kMinusInfinity;
  });
  add("key_h_plain_c32", kStates, [](auto& c) { c.key_gates = true, c.C = 32; });
  add("key_h_float32_vk", kStates, [](auto& c) {
    c.key_gates = true, c.io = c.h = kF32, c.K = 20, c.V = 33, c.C = 32, c.lengths = kLengths;
    c.layout = SLUICE_STATE_VK, c.gates = GateProfile::kStrong;
  });
  add("key_h_infinite", kStates, [](auto& c) {
    c.key_gates = true, c.io = c.h = kF32, c.gates = GateProfile::kMinusInfinity, c.summed = false;
  });
  add("key_h_growth", kStates, [](auto& c) {
    c.key_gates = true, c.io = c.h = kF32, c.gates = GateProfile::kSlow, c.growth = 0.02;
  });
  add("key_h_only_final_k512", kStates, [](auto& c) {
    c.key_gates = true, c.with_h = false, c.K = 512, c.V = 40, c.state = kBF16, c.summed = false;
  });
}

void add_outputs(const Add& add) {
  constexpr auto kStage = SLUICE_STAGE_CHUNK_O;
  add("o_tiles", kStage, [](auto& c) { c.K = c.V = 128, c.B = 2; });
  add("o_tiles_c128_packed", kStage, [](auto& c) {
    c.C = 128, c.lengths = kLengths, c.io = c.h = kF16, c.rule = kGla, c.summed = false;
  });
  add("o_tiles_head_first", kStage,
      [](auto& c) { c.placement = Placement::kHeadFirst, c.gates = GateProfile::kNone; });
  add("o_tiles_edges", kStage, [](auto& c) {
    c.lengths = {0, 1, 63, 64, 65, 127, 128, 129}, c.V = 192;
    c.gates = GateProfile::kMinusInfinity, c.io = c.h = kF16;
  });
  add("o_tiles_v256_groups", kStage, [](auto& c) {
    c.H = 2, c.HV = 4, c.head_map = SLUICE_HEAD_MAP_CYCLIC, c.K = 128, c.V = 256, c.B = 2;
    c.summed = false;
  });
  add("o_plain_float32", kStage,
      [](auto& c) { c.io = c.h = kF32, c.K = 20, c.V = 33, c.C = 32, c.lengths = kLengths; });
  add("o_plain_vk", kStage, [](auto& c) { c.layout = SLUICE_STATE_VK, c.C = 128; });
}

void add_gla(const Add& add) {
  constexpr auto kStage = SLUICE_STAGE_CHUNK_O;
  add("gla_tiles", kStage, [](auto& c) { c.rule = kGla, c.with_h = false, c.K = 128, c.B = 2; });
  add("gla_tiles_c128_packed", kStage, [](auto& c) {
    c.rule = kGla, c.with_h = false, c.C = 128, c.lengths = kLengths, c.io = kF16;
    c.slots = true, c.V = 128, c.layout = SLUICE_STATE_VK;
  });
  add("gla_tiles_resets", kStage, [](auto& c) {
    c.rule = kGla, c.with_h = false, c.gates = GateProfile::kResets, c.summed = false;
    c.placement = Placement::kHeadFirst, c.has_initial = false;
  });
  add("gla_tiles_no_gates", kStage,
      [](auto& c) { c.rule = kGla, c.with_h = false, c.gates = GateProfile::kNone, c.C = 128; });
  add("gla_tiles_segments", kStage, [](auto& c) {
    c.rule = kGla, c.with_h = false, c.T = 1100, c.state = kBF16, c.layout = SLUICE_STATE_VK;
    c.HV = 1;
  });
  add("gla_tiles_segments_packed", kStage, [](auto& c) {
    c.rule = kGla, c.with_h = false, c.lengths = {1030, 0, 512}, c.HV = 1, c.C = 128;
    c.slots = true;
  });
  add("gla_tiles_edges", kStage, [](auto& c) {
    c.rule = kGla, c.with_h = false, c.lengths = {0, 1, 63, 64, 65, 127, 128, 129}, c.V = 192;
    c.gates = GateProfile::kMinusInfinity, c.summed = false, c.gate = kBF16;
  });
  add("gla_tiles_groups", kStage, [](auto& c) {
    c.rule = kGla, c.with_h = false, c.H = 2, c.HV = 4, c.head_map = SLUICE_HEAD_MAP_CYCLIC;
    c.K = 128, c.V = 256, c.io = c.gate = kF16, c.lengths = {70, 200}, c.summed = false;
  });
  add("gla_tiles_segments_c128_of_odd_chunks", kStage, [](auto& c) {
    c.rule = kGla, c.with_h = false, c.T = 1000, c.C = 128, c.HV = 1;
    c.placement = Placement::kHeadFirst;
  });
  for (const auto& [name, io, summed] : {std::tuple{"gla_tiles_growth", kBF16, false},
                                         std::tuple{"gla_tiles_growth_sums", kF16, true},
                                         std::tuple{"gla_plain_growth", kF32, false}}) {
    add(name, kStage, [io, summed](auto& c) {
      c.rule = kGla, c.with_h = false, c.gates = GateProfile::kSlow, c.growth = 0.02;
      c.io = io, c.summed = summed;
    });
  }
  add("gla_plain_float32", kStage, [](auto& c) {
    c.rule = kGla, c.with_h = false, c.io = kF32, c.K = 20, c.V = 33, c.C = 16;
    c.lengths = kLengths, c.slots = true;
  });
  add("o_plain_carries", kStage, [](auto& c) { c.with_h = false, c.K = 72, c.C = 128; });
}

/// Sizes of models, which have kernels of their own. WHY last: seeds are places in the list.
void add_models(const Add& add) {
  constexpr auto kSums = SLUICE_STAGE_CHUNK_CUMSUM, kKkt = SLUICE_STAGE_SCALED_DOT_KKT;
  constexpr auto kWy = SLUICE_STAGE_WY_FAST, kStates = SLUICE_STAGE_CHUNK_H;
  add("cumsum_float32", kSums,
      [](auto& c) { c.HV = 20, c.B = 2, c.gates = GateProfile::kMinusInfinity; });
  add("cumsum_float32_packed", kSums,
      [](auto& c) { c.HV = 4, c.lengths = kLengths, c.index = kI64; });
  add("cumsum_float32_many_packed", kSums,
      [](auto& c) { c.HV = 4, c.lengths.assign(70, 1), c.lengths[40] = 130, c.lengths[41] = 0; });
  add("kkt_tiles_packed", kKkt, [](auto& c) {
    c.K = 128, c.lengths = kLengths, c.A = c.io = kF16, c.summed = false, c.H = 2, c.HV = 4;
  });
  add("kkt_tiles_cyclic_head_first", kKkt, [](auto& c) {
    c.K = 128, c.placement = Placement::kHeadFirst, c.H = 2, c.HV = 4, c.B = 2;
    c.head_map = SLUICE_HEAD_MAP_CYCLIC, c.has_beta = false, c.gates = GateProfile::kNone;
  });
  add("wy_tiles_k128_v128", kWy, [](auto& c) { c.K = c.V = 128, c.B = 2, c.summed = false; });
  add("wy_tiles_k128_v128_packed", kWy, [](auto& c) {
    c.K = c.V = 128, c.lengths = kLengths, c.io = c.A_inverse = kF16, c.beta = kBF16;
    c.H = 2, c.HV = 4, c.index = kI64;
  });
  add("h_tiles_packed", kStates,
      [](auto& c) { c.K = c.V = 128, c.lengths = kLengths, c.slots = true, c.H = 2, c.HV = 4; });
  add("h_tiles_float16_head_first", kStates, [](auto& c) {
    c.io = c.h = kF16, c.V = 192, c.placement = Placement::kHeadFirst, c.summed = false;
    c.lengths = {0, 1, 63, 64, 65, 127, 128, 129}, c.gates = GateProfile::kMinusInfinity;
  });
  add("gla_tiles_float16_k128", SLUICE_STAGE_CHUNK_O, [](auto& c) {
    c.rule = kGla, c.with_h = false, c.io = kF16, c.K = c.V = 128, c.T = 700, c.B = 2;
  });
}

/// Simple GLA that starts from zeros in whole tensors, which has a kernel of its own, too.
void add_from_zeros(const Add& add) {
  const auto add_gla_case = [&](const char* name, auto change) {
    add(name, SLUICE_STAGE_CHUNK_O, [change](auto& c) {
      c.rule = kGla, c.with_h = c.has_initial = false, c.K = c.V = 128;
      change(c);
    });
  };
  add_gla_case("gla_tiles_from_zeros", [](auto& c) { c.T = 330, c.B = 2, c.summed = false; });
  add_gla_case("gla_tiles_from_zeros_sums", [](auto& c) { c.T = 450, c.C = 128, c.io = kF16; });
  add_gla_case("gla_tiles_from_zeros_groups", [](auto& c) {
    c.T = 200, c.H = 2, c.HV = 4, c.K = 64, c.V = 256, c.gate = kBF16, c.summed = false;
    c.placement = Placement::kHeadFirst, c.head_map = SLUICE_HEAD_MAP_CYCLIC;
  });
  add_gla_case("gla_tiles_from_zeros_growth", [](auto& c) {
    c.T = 400, c.gates = GateProfile::kSlow, c.growth = 0.02, c.summed = false;
  });
}

std::vector<StageConfig> configs() {
  std::vector<StageConfig> all;
  const Add add{&all};
  for (const auto part : {add_sums, add_kkt, add_solves, add_wy, add_pairs, add_states,
                          add_key_gates, add_outputs, add_gla, add_models, add_from_zeros})
    part(add);
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, CudaStage, ::testing::ValuesIn(configs()),
                         [](const auto& test) { return test.param.name; });

/// The inverse of the triangle of ones is one beside -1 below it, exactly; so is that of A when
/// only what lies next to the diagonal is not zero.
TEST(CudaSolve, TriangleOfOnesIsExact) {
  for (const int64_t n : {16, 32, 64, 128}) {
    StageConfig c;
    c.stage = SLUICE_STAGE_SOLVE_TRIL, c.C = c.T = n, c.HV = 1, c.A_inverse = kF32;
    c.ones = true;
    const StageResult found = run_stage(c, SLUICE_IMPL_CUDA, false);
    ASSERT_EQ(found.code, SLUICE_OK) << found.message;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        const double expected = i == j ? 1.0 : i == j + 1 ? -1.0 : 0.0;
        ASSERT_EQ(found.outputs[0].second(0, i, 0, j), expected) << n << " " << i << " " << j;
      }
    }
  }
}

/// A pair has the bits of its two stages, with float32 in between.
TEST(CudaPairs, HaveTheBitsOfTwoStages) {
  StageConfig c;
  c.T = 200, c.K = c.V = 128, c.A_inverse = kF32, c.with_inverse = true;
  for (const int64_t C : {64, 128}) {
    c.C = C;
    c.stage = SLUICE_STAGE_SOLVE_WY;
    const StageResult pair = run_stage(c, SLUICE_IMPL_CUDA, false);
    ASSERT_EQ(pair.outputs.size(), 3u) << pair.message;
    c.stage = SLUICE_STAGE_SOLVE_TRIL;
    const StageResult solve = run_stage(c, SLUICE_IMPL_CUDA, false);
    EXPECT_EQ(
        compare_whole(view_of(pair.outputs[0].second), view_of(solve.outputs[0].second)).max_abs,
        0.0);
    c.stage = SLUICE_STAGE_WY_FAST;
    c.inverse = &solve.outputs[0].second;
    const StageResult wy = run_stage(c, SLUICE_IMPL_CUDA, false);
    c.inverse = nullptr;
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(
          compare_whole(view_of(pair.outputs[i + 1].second), view_of(wy.outputs[i].second)).max_abs,
          0.0);
    }
    c.stage = SLUICE_STAGE_CUMSUM_KKT;
    const StageResult sums = run_stage(c, SLUICE_IMPL_CUDA, false);
    c.stage = SLUICE_STAGE_CHUNK_CUMSUM;
    const StageResult alone = run_stage(c, SLUICE_IMPL_CUDA, false);
    EXPECT_EQ(
        compare_whole(view_of(sums.outputs[0].second), view_of(alone.outputs[0].second)).max_abs,
        0.0);
    c.stage = SLUICE_STAGE_SCALED_DOT_KKT, c.summed = false;
    const StageResult kkt = run_stage(c, SLUICE_IMPL_CUDA, false);
    c.summed = true;
    EXPECT_EQ(
        compare_whole(view_of(sums.outputs[1].second), view_of(kkt.outputs[0].second)).max_abs,
        0.0);
  }
}

}  // namespace
}  // namespace sluice::check
