// Measures which stage calls have the same bits on the CPU: any threads, task order and workspace
// content, any strides, absent gates and zero ones, either state layout, a sequence alone or
// packed, states supplied or computed. And that the whole chain is chunk_forward, within rounding.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "parity/sequences.hpp"
#include "parity/stage_call.hpp"
#include "sluice/sluice.hpp"

namespace sluice::check {
namespace {

StageResult run(const StageConfig& c, int fill = 0xff) {
  StageResult r = run_stage(c, implementations_under_test().front(), {}, fill);
  EXPECT_EQ(r.code, SLUICE_OK) << r.message;
  EXPECT_EQ(r.damage, "");
  return r;
}

bool same_outputs(const StageResult& a, const StageResult& b) {
  return std::equal(
      a.outputs.begin(), a.outputs.end(), b.outputs.begin(), b.outputs.end(),
      [](const StageOutput& x, const StageOutput& y) { return same_bits(x.values, y.values); });
}

void expect_same(const StageResult& a, const StageResult& b) { EXPECT_TRUE(same_outputs(a, b)); }

template <class Body>
void for_each_kind(Body body) {
  for (const StageKind& kind : kStageKinds) {
    SCOPED_TRACE(kind.name);
    StageConfig c = of_kind(kind);
    c.T = 150, c.H = 2, c.HV = 4, c.K = 40, c.V = 100, c.io = kBF16;
    body(c);
  }
}

/// Tasks on this thread, last one first.
void run_backwards(void*, int64_t count, void (*task)(void*, int64_t), void* context) {
  for (int64_t i = count; i-- > 0;) task(context, i);
}

TEST(StageBits, ThreadsOrderAndWorkspaceDoNotMatter) {
  for_each_kind([](const StageConfig& c) {
    const StageResult expected = run(c);
    expect_same(run(c, 0), expected);
    for (const int threads : {1, 3, 64}) {  // 64: as many pieces of a state as there can be
      ASSERT_EQ(sluice_set_executor(run_backwards, nullptr, threads), SLUICE_OK);
      expect_same(run(c), expected);
      ASSERT_EQ(sluice_set_executor(nullptr, nullptr, 0), SLUICE_OK);
    }
  });
}

TEST(StageBits, StridesDoNotMatter) {
  for_each_kind([](StageConfig c) {
    c.lengths = {64, 0, 3, 70}, c.K = 12, c.V = 20;
    c.gates = GateProfile::kNone;  // views of gates would be broadcast too often
    c.beta = false;
    if (sums_gates(c)) return;
    int compared = 0;
    for (c.seed = 1; c.seed < 13; ++c.seed) {
      StageConfig wild = c;
      wild.wild = true;
      // Where a view was broadcast the inputs are others; the reference tells.
      const StageResult truth = run_stage(c, SLUICE_IMPL_REFERENCE, kF32);
      const StageResult again = run_stage(wild, SLUICE_IMPL_REFERENCE, kF32);
      if (!same_outputs(truth, again)) continue;
      expect_same(run(wild), run(c));
      ++compared;
    }
    EXPECT_GE(compared, 3);
  });
}

TEST(StageBits, AbsentGateIsZeroGate) {
  for_each_kind([](StageConfig c) {
    if (sums_gates(c)) return;
    c.gates = GateProfile::kNone;
    const StageResult absent = run(c);
    c.gates = GateProfile::kZero;
    for (const bool cumulated : {true, false}) {
      c.cumulated = cumulated;
      if (c.key_gates && c.stage != SLUICE_STAGE_CHUNK_H) {
        // Products of tokens are other sums there.
        EXPECT_TRUE(judge_stage(c, run(c), absent).pass);
      } else {
        expect_same(run(c), absent);
      }
    }
  });
}

TEST(StageBits, StateLayoutsAreTransposes) {
  for_each_kind([](StageConfig c) {
    if (c.stage != SLUICE_STAGE_CHUNK_H) return;
    c.initial = false;  // the same random numbers would be another state
    const StageResult kv = run(c);
    c.layout = SLUICE_STATE_VK;
    const StageResult vk = run(c);
    const Array &a = kv.outputs[1].values, &b = vk.outputs[1].values;
    ASSERT_EQ(kv.outputs[1].name, "h");
    for (int64_t chunk = 0; chunk < c.chunks(); ++chunk) {
      for (int64_t i = 0; i < c.K; ++i) {
        for (int64_t j = 0; j < c.V; ++j) EXPECT_EQ(a(0, chunk, 3, i, j), b(0, chunk, 3, j, i));
      }
    }
  });
}

// -------------------------------------------------------------------------- the whole chain ----

/// A chain of the facade's calls on dense tensors, and chunk_forward on the same inputs.
struct Chain {
  int64_t T = 200, H = 2, HV = 4, K = 64, V = 48;
  ChunkStageArgs args;
  ChunkForwardArgs fused;
  std::vector<TestTensor> memory;
  HostWorkspace scratch;
  size_t most_bytes = 0;  ///< of workspace, of any stage

  TensorView input(const Array& array) {
    return TensorView(memory.emplace_back(kF32, array).view());
  }
  TensorView output(std::vector<int64_t> shape) {
    return TensorView(memory.emplace_back(kF32, std::move(shape)).view());
  }

  Chain(Rule rule, int32_t chunk, const std::vector<int64_t>& cu, bool key_wise = false) {
    memory.reserve(32);
    const int64_t N = cu.empty() ? 1 : static_cast<int64_t>(cu.size()) - 1;
    args.q = input(make_keys(KeyProfile::kRandomUnit, {1, T, H, K}, 1));
    args.k = input(make_keys(KeyProfile::kCos75, {1, T, H, K}, 2));
    args.v = input(make_normal({1, T, HV, V}, 3));
    const std::vector<int64_t> heads = {1, T, HV}, channels = {1, T, HV, K};
    args.gate = input(key_wise ? make_key_gates(GateProfile::kMixed, channels, 4)
                               : make_gates(GateProfile::kMixed, heads, 4));
    if (rule == Rule::kGatedDelta) {
      args.beta = input(make_betas(BetaProfile::kSigmoid, {1, T, HV}, 5));
    }
    args.state.initial = input(make_normal({N, HV, K, V}, 6));
    if (!cu.empty()) {
      args.cu_seqlens = TensorView(memory.emplace_back(TestTensor::of_indices(kI32, cu)).view());
    }
    args.rule = rule, args.chunk_size = chunk;
    args.g_cumsum = output(key_wise ? channels : heads);
    args.A = output({1, T, HV, chunk}), args.A_inverse = output({1, T, HV, chunk});
    args.w = output({1, T, HV, K}), args.u = output({1, T, HV, V});
    args.v_new = output({1, T, HV, V}), args.o = output({1, T, HV, V});
    args.h = output({1, T / chunk + 1 + N, HV, K, V});
    args.state.final = output({N, HV, K, V});
    fused.q = args.q, fused.k = args.k, fused.v = args.v, fused.gate = args.gate;
    fused.beta = args.beta, fused.state = args.state, fused.cu_seqlens = args.cu_seqlens;
    fused.rule = rule;
    fused.o = output({1, T, HV, V}), fused.state.final = output({N, HV, K, V});
    const Result<WorkspaceSize> size = chunk_stages_workspace(args);
    EXPECT_TRUE(size.ok()) << size.status.message;
    most_bytes = size.value.bytes;
  }

  using StageFunction = Status (*)(const ChunkStageArgs&, Workspace, Stream) noexcept;
  void call(StageFunction stage) {
    ASSERT_TRUE(stage(args, scratch.reserve(most_bytes), nullptr).ok()) << sluice_last_error();
  }

  void run() {
    for (const StageFunction stage :
         {chunk_cumsum, scaled_dot_kkt, solve_tril, wy_fast, chunk_h, chunk_o}) {
      call(stage);
    }
    HostWorkspace forward;
    const Workspace own = forward.reserve(workspace_size(fused).value.bytes);
    ASSERT_TRUE(chunk_forward(fused, own).ok()) << sluice_last_error();
  }
};

TEST(StageChainOnCpu, IsChunkForward) {
  const std::vector<std::vector<int64_t>> kPacks = {{}, {0, 64, 64, 193, 200}};
  for (const Rule rule : {Rule::kGatedDelta, Rule::kLinearAttention}) {
    for (const int32_t chunk : {64, 128}) {
      for (const std::vector<int64_t>& cu : kPacks) {
        for (const bool key_wise : {false, true}) {
          Chain chain(rule, chunk, cu, key_wise);
          chain.run();
          const Comparison o = compare_tokens(chain.args.o, chain.fused.o, cu);
          EXPECT_EQ(o.fault, "");
          EXPECT_LE(o.worst_window.relative_l2, 2e-5);
          const Comparison final = compare_states(chain.args.state.final, chain.fused.state.final);
          EXPECT_EQ(final.fault, "");
          EXPECT_LE(final.worst_head.relative_l2, 2e-5);
        }
      }
    }
  }
}

TEST(StageChainOnCpu, PairsHaveTheBitsOfTwoStages) {
  const std::pair<std::vector<int64_t>, bool> kPacks[] = {
      {{}, false}, {{0, 64, 64, 193, 200}, false}, {{0, 64, 64, 193, 200}, true}};
  for (const int32_t chunk : {16, 64, 128}) {
    for (const auto& [cu, key_wise] : kPacks) {
      Chain two(Rule::kGatedDelta, chunk, cu, key_wise),
          one(Rule::kGatedDelta, chunk, cu, key_wise);
      const TensorView sums = two.args.g_cumsum;
      two.call(chunk_cumsum);
      two.args.g_cumsum = {};  // a pair's sums are not rounded in between
      two.call(scaled_dot_kkt), two.call(solve_tril), two.call(wy_fast);
      one.call(cumsum_kkt);
      EXPECT_TRUE(same_bits(to_array(one.args.g_cumsum), to_array(sums)));
      EXPECT_TRUE(same_bits(to_array(one.args.A), to_array(two.args.A)));
      one.args.g_cumsum = {};
      one.call(solve_wy);
      EXPECT_TRUE(same_bits(to_array(one.args.A_inverse), to_array(two.args.A_inverse)));
      one.args.A_inverse = {};
      one.args.w = one.output({1, one.T, one.HV, one.K});
      one.call(solve_wy);
      EXPECT_TRUE(same_bits(to_array(one.args.u), to_array(two.args.u)));
      EXPECT_TRUE(same_bits(to_array(one.args.w), to_array(two.args.w)));
    }
  }
}

/// Simple GLA as one call: the chunk is the caller's choice or the library's (0: the bits of 64),
/// and changes rounding alone: under gates, sums of them, and growth.
TEST(SimpleGlaOnCpu, ChunkDoesNotMatter) {
  for (const sluice_dtype io : {kF32, kBF16, kF16}) {
    for (const bool cumulated : {false, true}) {
      for (const double growth : {0.0, 0.02}) {
        StageConfig c;
        c.stage = SLUICE_STAGE_CHUNK_O, c.rule = SLUICE_RULE_LINEAR_ATTENTION;
        c.supplied_h = false, c.io = c.out = io, c.T = 300, c.cumulated = cumulated;
        c.gates = growth > 0 ? GateProfile::kSlow : GateProfile::kFlashQla, c.growth = growth;
        const StageResult truth = run_stage(c, SLUICE_IMPL_REFERENCE, kF32), chunk64 = run(c);
        for (const int64_t C : {16, 32, 64, 128}) {
          c.C = C;
          const StageResult found = run(c);
          const Verdict verdict = judge_stage(c, found, truth);
          EXPECT_TRUE(verdict.pass) << found.kernel << " C = " << C << "\n" << verdict.line;
        }
        c.C = 64, c.default_chunk = true;
        expect_same(run(c), chunk64);
      }
    }
  }
}

TEST(StageChainOnCpu, SimpleGlaIsOneCallWithTheBitsOfTwo) {
  for (const bool key_wise : {false, true}) {
    Chain chain(Rule::kLinearAttention, 64, {}, key_wise);
    chain.run();
    const Array o = to_array(chain.args.o), final = to_array(chain.args.state.final);
    ChunkStageArgs one = chain.args;
    one.h = {};
    one.o = chain.output({1, chain.T, chain.HV, chain.V});
    one.state.final = chain.output({1, chain.HV, chain.K, chain.V});
    const auto size = workspace_size(simple_gla_args(one));
    ASSERT_TRUE(simple_gla(one, chain.scratch.reserve(size.value.bytes)).ok())
        << sluice_last_error();
    EXPECT_TRUE(same_bits(to_array(one.o), o));
    EXPECT_TRUE(same_bits(to_array(one.state.final), final));
  }
}

}  // namespace
}  // namespace sluice::check
