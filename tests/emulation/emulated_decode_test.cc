// Runs the decode kernel's own source on the CPU, CTAs and warps in random order, where the parity
// suites beside it do not go: every split of a head over CTAs, malformed device data, NaN. Bits are
// compared wherever two calls have to agree; so are all bytes that a call may not touch.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "check/tensors.hpp"
#include "emulated_decode_backend.hpp"
#include "parity/delta_call.hpp"
#include "parity/naming.hpp"
#include "parity/ring_session.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

using cuda::decode_emulation;

DeltaConfig model(const std::string& name) {
  DeltaConfig c{.name = name, .B = 2, .T = 1, .H = 1, .HV = 2, .K = 128, .V = 128};
  c.io = c.o = c.gate = c.beta = kBF16;
  c.gate_space = SLUICE_GATE_RAW, c.beta_space = SLUICE_BETA_LOGIT;
  c.qk_norm = SLUICE_QK_NORM_L2;
  return c;
}

std::vector<DeltaConfig> models() {
  std::vector<DeltaConfig> configs;
  for (const auto layout : {SLUICE_STATE_KV, SLUICE_STATE_VK}) {
    for (const sluice_dtype state : {kF32, kBF16, kF16}) {
      for (const int64_t K : {64, 128, 256}) {
        DeltaConfig c =
            model(named("K", K, layout == SLUICE_STATE_KV ? "_kv_" : "_vk_", dtype_name(state)));
        c.layout = layout, c.initial = c.final = state, c.K = K, c.V = K == 128 ? 192 : 128;
        c.T = K == 64 ? 3 : 1, c.HV = K == 128 ? 3 : 1, c.B = 1;
        c.io = c.o = K == 256 ? kF32 : (K == 64 ? kF16 : kBF16);
        configs.push_back(c);
        c.name += "_keys", c.key_gates = true;
        c.gate_space = layout == SLUICE_STATE_KV ? SLUICE_GATE_LOG : SLUICE_GATE_RAW;
        c.gate = kF32, c.gates = GateProfile::kFlashQla;
        configs.push_back(c);
      }
    }
  }
  for (const bool parameters : {true, false}) {
    DeltaConfig c = model(named("bounded_", parameters));
    c.gate_space = SLUICE_GATE_RAW_BOUNDED, c.gate_lower_bound = -3;
    c.has_gate_parameters = parameters;
    configs.push_back(c);
  }
  for (const auto layout : {SLUICE_STATE_KV, SLUICE_STATE_VK}) {
    for (const sluice_dtype io : {kBF16, kF16}) {
      for (const sluice_dtype state : {kF32, io}) {
        DeltaConfig c = model(named("single_", layout == SLUICE_STATE_KV ? "kv_" : "vk_",
                                    dtype_name(io), "_", dtype_name(state)));
        c.layout = layout, c.io = c.o = io, c.initial = c.final = state, c.HV = 4, c.H = 2;
        configs.push_back(c);
        c.name += "_keys", c.key_gates = true;
        c.gate = io, c.gates = GateProfile::kFlashQla;
        c.B = 4;  // 16 heads: more than twelve on one multiprocessor
        configs.push_back(c);
        c.B = 2, c.name += "_log", c.gate_space = SLUICE_GATE_LOG;
        configs.push_back(c);
      }
    }
  }
  return configs;
}

/// Single tokens in packed rows, whose states are [V,K].
std::vector<DeltaConfig> packed_models() {
  std::vector<DeltaConfig> configs;
  for (const sluice_dtype io : {kBF16, kF16}) {
    for (const sluice_dtype state : {kF32, io}) {
      DeltaConfig c = model(named(dtype_name(io), "_", dtype_name(state)));
      c.layout = SLUICE_STATE_VK, c.io = c.o = io, c.initial = c.final = state;
      c.HV = 4, c.H = 2, c.packed = true, c.lengths = {1, 0, 1, 1}, c.rows_past_end = 2,
      c.most_tokens = 1;
      c.slots = Slots::kSeparate;
      configs.push_back(c);
      c.name += "_keys", c.key_gates = true, c.gate = io, c.gates = GateProfile::kFlashQla;
      configs.push_back(c);
    }
  }
  return configs;
}

class EmulatedDecode : public ::testing::TestWithParam<DeltaConfig> {};

TEST_P(EmulatedDecode, NeitherOrderNorSplitMatter) {
  const DeltaConfig& c = GetParam();
  const DeltaResult truth = run_delta(c, SLUICE_IMPL_REFERENCE);
  ASSERT_EQ(truth.code, SLUICE_OK) << truth.message;
  DeltaResult first;
  int splits = 0;
  for (const int multiprocessors : {1, 4, 100}) {
    decode_emulation.multiprocessors = multiprocessors;
    decode_emulation.seed += 1000;
    const DeltaResult found = run_delta(c, SLUICE_IMPL_CUDA);
    EXPECT_NE(found.kernel.find("sm_90a"), std::string::npos) << found.kernel;
    const bool single = c.name.find("single") == 0;
    EXPECT_EQ(found.kernel.find("single_k128") != std::string::npos, single) << found.kernel;
    const Verdict verdict = judge_delta(c, found, truth);
    EXPECT_TRUE(verdict.pass) << verdict.line << decode_emulation.trouble;
    if (multiprocessors == 1) first = found;
    EXPECT_TRUE(same_bits(found.o, first.o));
    EXPECT_TRUE(same_bits(found.final, first.final));
    splits = std::max(splits, decode_emulation.ctas_of_unit);
  }
  EXPECT_GE(splits, 4);
}

class EmulatedPackedDecode : public ::testing::TestWithParam<DeltaConfig> {};

/// Sequences without a token keep their state; rows past the last offset are nobody's.
TEST_P(EmulatedPackedDecode, TakesTheRowsOfOffsets) {
  for (const bool padded : {false, true}) {
    DeltaConfig c = GetParam();
    if (padded) c.padded = {1, 2}, c.fresh = {3};
    const DeltaResult truth = run_delta(c, SLUICE_IMPL_REFERENCE);
    ASSERT_EQ(truth.code, SLUICE_OK) << truth.message;
    for (const int multiprocessors : {1, 100}) {
      decode_emulation.multiprocessors = multiprocessors;
      decode_emulation.seed += 1000;
      const DeltaResult found = run_delta(c, SLUICE_IMPL_CUDA);
      EXPECT_EQ(found.kernel, c.key_gates
                                  ? "cuda.recurrent_step.sm_90a.single_k128.key_gates.vk.packed"
                                  : "cuda.recurrent_step.sm_90a.single_k128.vk.packed");
      const Verdict verdict = judge_delta(c, found, truth);
      EXPECT_TRUE(verdict.pass) << verdict.line << decode_emulation.trouble;
      EXPECT_EQ(found.damage, "");
    }
  }
}

/// Kernels read slots ahead of earlier launches' end, and may use only what is true behind it.
TEST_P(EmulatedDecode, SlotsMayBeWrittenByTheLaunchBefore) {
  DeltaConfig c = GetParam();
  c.B = 4, c.slots = Slots::kRead, c.has_final = false;
  // BOUND: CTAs that stay read slots of later heads when others have begun: all are resident.
  for (const int multiprocessors : {2, 100}) {
    decode_emulation.multiprocessors = multiprocessors;
    const DeltaResult early = run_delta(c, SLUICE_IMPL_CUDA);
    decode_emulation.late_slots = true;
    const DeltaResult late = run_delta(c, SLUICE_IMPL_CUDA);
    decode_emulation.late_slots = false;
    EXPECT_EQ(late.damage, "");
    EXPECT_TRUE(same_bits(late.o, early.o));
    EXPECT_TRUE(same_bits(late.initial, early.initial));
  }
}

/// A few heads a multiprocessor: CTAs that stay, among whose heads are padding and fresh states.
TEST_P(EmulatedDecode, HeadsOneAfterTheOther) {
  DeltaConfig c = GetParam();
  if (c.name.find("single") != 0) GTEST_SKIP() << "steps of single tokens alone";
  c.B = 6, c.slots = Slots::kSeparate;
  c.padded = {1}, c.padded_writes = {2}, c.fresh = {4};
  const DeltaResult truth = run_delta(c, SLUICE_IMPL_REFERENCE);
  DeltaResult first;
  for (const int multiprocessors : {100, 4, 6, 7}) {
    decode_emulation.multiprocessors = multiprocessors;
    decode_emulation.seed += 1000;
    const DeltaResult found = run_delta(c, SLUICE_IMPL_CUDA);
    const Verdict verdict = judge_delta(c, found, truth);
    EXPECT_TRUE(verdict.pass) << verdict.line << decode_emulation.trouble;
    if (multiprocessors == 100) {
      first = found;
      continue;
    }
    const bool wide = same_dtype(c.initial, kF32), vk = c.layout == SLUICE_STATE_VK;
    const int ctas_of_processor = wide ? 1 : 2;
    const bool stays = !vk || (!wide && multiprocessors != 7);  // 24 heads: full rounds on 4 and 6
    EXPECT_EQ(found.kernel, std::string("cuda.recurrent_step.sm_90a.single_k128") +
                                (c.key_gates ? ".key_gates" : "") + (vk ? ".vk" : "") +
                                (stays ? ".stream" : ".narrow"));
    if (stays) {
      EXPECT_EQ(decode_emulation.ctas_of_unit, multiprocessors * ctas_of_processor);
    }
    EXPECT_TRUE(same_bits(found.o, first.o));
    EXPECT_TRUE(same_bits(found.final, first.final));
  }
}

/// States with their last two dimensions exchanged.
Array transposed(const Array& states) {
  Array out({states.shape[0], states.shape[1], states.shape[3], states.shape[2]});
  for (int64_t i = 0; i < states.size() / (states.shape[2] * states.shape[3]); ++i) {
    for (int64_t row = 0; row < states.shape[2]; ++row) {
      for (int64_t column = 0; column < states.shape[3]; ++column) {
        out(0, i, column, row) = states(0, i, row, column);
      }
    }
  }
  return out;
}

/// The same of a replay ring, several calls in a row: folds, and entries of one to four tokens.
/// Nor does the layout of states in float32.
TEST(EmulatedReplayRing, NeitherOrderNorSplitMatter) {
  std::vector<Array> first;
  for (const auto layout : {SLUICE_STATE_KV, SLUICE_STATE_VK}) {
    RingModel model{.name = "", .HV = 2, .K = 128, .V = 160, .L = 10};
    model.key = model.delta = kBF16;
    const Array start = RingSession(model, 1).pool.values();
    model.layout = layout;
    for (const int multiprocessors : {1, 100}) {
      decode_emulation.multiprocessors = multiprocessors;
      decode_emulation.seed += 1000;
      RingSession session(model, 1, SLUICE_IMPL_CUDA);
      const bool kv = layout == SLUICE_STATE_KV, is_first = first.size() < 6;
      session.pool.assign(kv ? start : transposed(start));
      for (uint64_t call = 0; call < 5; ++call) {
        const Array o = session.run(RingTokens(model, 1, 4, 50 * call), {0});
        EXPECT_EQ(session.kernel, "cuda.recurrent_step.sm_90a.replay_k128");
        if (is_first) first.push_back(o);
        EXPECT_TRUE(same_bits(o, first[call])) << call;
        session.accept(0, 1 + static_cast<int64_t>(call) % 4);
      }
      const Array states = session.pool.values();
      if (is_first) first.push_back(states);
      EXPECT_TRUE(same_bits(kv ? states : transposed(states), first.back()));
      EXPECT_EQ(decode_emulation.ctas_of_unit, multiprocessors == 1 ? 4 : 10);
    }
  }
}

std::vector<RingModel> ring_models() {
  std::vector<RingModel> models;
  for (const sluice_dtype io : {kBF16, kF16}) {
    for (const sluice_dtype state : {kF32, io}) {
      for (const sluice_dtype entry : {kF32, io}) {
        RingModel m{.name = named(dtype_name(io), "_", dtype_name(state), "_", dtype_name(entry)),
                    .HV = 2,
                    .K = 128,
                    .V = 128,
                    .L = 10};
        m.io = io, m.state = state, m.key = m.delta = entry, m.raw = true;
        models.push_back(m);
      }
    }
  }
  return models;
}

class EmulatedRingModel : public ::testing::TestWithParam<RingModel> {};

/// Steps of models have a kernel of their own, packed rows and narrow tiles the one for all.
TEST_P(EmulatedRingModel, HasTheBitsOfTheKernelForAll) {
  const RingModel& model = GetParam();
  RingSession session(model, 2, SLUICE_IMPL_CUDA), packed(model, 2, SLUICE_IMPL_CUDA),
      narrow(model, 2, SLUICE_IMPL_CUDA);
  const auto run = [&](RingSession* s, const RingTokens& tokens, bool expected,
                       const RingOptions& options = {}) {
    decode_emulation.seed += 1000;
    const Array o = s->run(tokens, {1, 0}, options);
    EXPECT_EQ(s->kernel, expected ? "cuda.recurrent_step.sm_90a.replay_model_k128"
                                  : "cuda.recurrent_step.sm_90a.replay_k128");
    EXPECT_EQ(decode_emulation.trouble, "");
    return o;
  };
  for (uint64_t call = 0; call < 4; ++call) {
    const RingTokens tokens(model, 2, 4, 50 * call);
    RingTokens rows = tokens;
    for (Array* array : {&rows.q, &rows.k, &rows.v, &rows.gate, &rows.beta}) {
      array->shape[0] = 1, array->shape[1] = 8;
    }
    decode_emulation.multiprocessors = 1;
    Array o = run(&session, tokens, true);
    const Array cut = run(&packed, rows, false, {.offsets = {0, 4, 8}, .max_tokens = 4});
    EXPECT_EQ(o.values, cut.values) << call;
    decode_emulation.multiprocessors = 100;
    EXPECT_TRUE(same_bits(o, run(&narrow, tokens, false))) << call;
    for (const RingSession* other : {&packed, &narrow}) {
      EXPECT_TRUE(same_bits(session.pool.values(), other->pool.values())) << call;
      EXPECT_TRUE(same_bits(session.keys.values(), other->keys.values())) << call;
      EXPECT_TRUE(same_bits(session.deltas.values(), other->deltas.values())) << call;
      EXPECT_TRUE(same_bits(session.decays.values(), other->decays.values())) << call;
      EXPECT_EQ(session.checkpoint, other->checkpoint);
    }
    for (RingSession* s : {&session, &packed, &narrow}) {
      s->accept(0, 1 + static_cast<int64_t>(call) % 4), s->accept(1, 4);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, EmulatedRingModel, ::testing::ValuesIn(ring_models()),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Models, EmulatedPackedDecode, ::testing::ValuesIn(packed_models()),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Models, EmulatedDecode, ::testing::ValuesIn(models()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace sluice::check
