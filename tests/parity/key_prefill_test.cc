// Measures chunk_forward with key-wise gates of every profile at the sizes of models against the
// float64 recurrence: float32 and 16-bit rows, packs, both rules; that a value that is not a number
// stays in its head and sequence and leaves earlier tokens alone; and that neither a cut at a chunk
// nor the batch around a sequence changes a bit.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "parity/delta_call.hpp"
#include "parity/naming.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

using Configs = std::vector<DeltaConfig>;

class KeyPrefill : public ::testing::TestWithParam<DeltaConfig> {};

TEST_P(KeyPrefill, MatchesRecurrence) {
  const DeltaConfig& c = GetParam();
  const DeltaResult truth = run_delta(c, SLUICE_IMPL_REFERENCE);
  ASSERT_EQ(truth.code, SLUICE_OK) << truth.message;
  for (const auto implementation : implementations_under_test()) {
    const DeltaResult found = run_delta(c, implementation);
    const Verdict verdict = judge_delta(c, found, truth);
    EXPECT_TRUE(verdict.pass) << found.kernel << "\n" << verdict.line;
  }
}

DeltaConfig model(const std::string& name, sluice_dtype io) {
  DeltaConfig c{.name = name, .op = SLUICE_OP_CHUNK_FORWARD, .B = 1, .T = 100};
  c.H = 1, c.HV = 2, c.K = 128, c.V = 64, c.io = c.o = io, c.key_gates = true;
  c.qk_norm = SLUICE_QK_NORM_L2;
  return c;
}

Configs profiles() {
  const std::pair<const char*, GateProfile> kProfiles[] = {
      {"zero", GateProfile::kZero},
      {"model_init", GateProfile::kModelLike},
      {"bounded", GateProfile::kBounded},
      {"spread", GateProfile::kSpread},
      {"single_resets", GateProfile::kSingleResets},
      {"infinite", GateProfile::kMinusInfinity},
      {"alternating", GateProfile::kAlternating},
      {"even", GateProfile::kEvenSlow},
      {"one_strong", GateProfile::kOneStrong}};
  Configs configs;
  for (const auto& [name, profile] : kProfiles) {
    for (const sluice_dtype io : {kF32, kBF16, kF16}) {
      for (const bool linear : {false, true}) {
        DeltaConfig c = model(named(name, "_", dtype_name(io), linear ? "_gla" : "_kda"), io);
        c.gates = profile, c.seed = configs.size() + 1;
        if (linear) c.rule = SLUICE_RULE_LINEAR_ATTENTION;
        configs.push_back(c);
      }
    }
  }
  return configs;
}

Configs ladder() {
  Configs configs;
  for (const int64_t T : {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 200, 447}) {
    for (const sluice_dtype io : {kF32, kBF16}) {
      DeltaConfig c = model(named("T", T, "_", dtype_name(io)), io);
      c.gates = GateProfile::kSpread, c.T = T, c.K = 64;
      c.betas = T <= 64 && T % 2 == 0 ? BetaProfile::kTwo : BetaProfile::kSigmoid;
      configs.push_back(c);
    }
  }
  for (const sluice_dtype io : {kF32, kBF16}) {
    DeltaConfig c = model(named("pack_", dtype_name(io)), io);
    c.packed = true, c.lengths = {37, 0, 128, 5, 1, 17}, c.rows_past_end = 3;
    c.gates = GateProfile::kBounded, c.checkpoint_every = 64;
    configs.push_back(c);
    c.name += "_wild", c.wild = true, c.HV = 6, c.head_map = SLUICE_HEAD_MAP_CYCLIC, c.H = 2;
    configs.push_back(c);
  }
  return configs;
}

std::string config_name(const ::testing::TestParamInfo<DeltaConfig>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Profiles, KeyPrefill, ::testing::ValuesIn(profiles()), config_name);
INSTANTIATE_TEST_SUITE_P(Ladder, KeyPrefill, ::testing::ValuesIn(ladder()), config_name);

/// Dense arguments of one call on the CPU, changed at will between calls.
struct Call {
  static constexpr int64_t kB = 2, kT = 48, kH = 2, kK = 32, kV = 32;
  std::vector<float> q, k, v, gate, beta, o, initial, final;
  std::vector<std::byte> workspace;

  Call() {
    const auto fill = [](int64_t size, uint64_t seed) {
      const Array values = make_normal({size}, seed);
      return std::vector<float>(values.values.begin(), values.values.end());
    };
    q = fill(kB * kT * kH * kK, 1), k = fill(kB * kT * kH * kK, 2), v = fill(kB * kT * kH * kV, 3);
    gate = fill(kB * kT * kH * kK, 4), beta = fill(kB * kT * kH, 5);
    initial = fill(kB * kH * kK * kV, 6);
    for (float& x : q) x *= 0.2f;
    for (float& x : k) x *= 0.2f;
    for (float& x : gate) x = -std::fabs(x);
    for (float& x : beta) x = 0.5f + 0.1f * x;
  }
  static sluice_tensor view(std::vector<float>& values, std::initializer_list<int64_t> shape) {
    sluice_tensor t{};
    t.data = values.data(), t.device = {SLUICE_DEVICE_CPU, 0}, t.dtype = kF32;
    for (const int64_t size : shape) t.shape[t.rank++] = size;
    int64_t stride = 1;
    for (int axis = t.rank; axis-- > 0; stride *= t.shape[axis]) t.stride[axis] = stride;
    return t;
  }
  /// Tokens first .. end - 1 of sequences sequence .. B - 1, from `from`.
  void run(int64_t sequence, int64_t first, int64_t end, std::vector<float>& from) {
    if (o.empty()) o.resize(kB * kT * kH * kV);
    if (final.empty()) final.resize(initial.size());
    sluice_chunk_forward_args args{};
    args.struct_size = sizeof args;
    args.q = view(q, {kB, kT, kH, kK}), args.k = view(k, {kB, kT, kH, kK});
    args.v = view(v, {kB, kT, kH, kV}), args.o = view(o, {kB, kT, kH, kV});
    args.gate = view(gate, {kB, kT, kH, kK}), args.beta = view(beta, {kB, kT, kH});
    args.state.initial = view(from, {kB, kH, kK, kV});
    args.state.final = view(final, {kB, kH, kK, kV});
    for (sluice_tensor* t : {&args.q, &args.k, &args.v, &args.o, &args.gate, &args.beta}) {
      auto* const data = static_cast<float*>(t->data);
      t->data = data + sequence * t->stride[0] + first * t->stride[1];
      t->shape[0] = kB - sequence, t->shape[1] = end - first;
    }
    for (sluice_tensor* t : {&args.state.initial, &args.state.final}) {
      t->data = static_cast<float*>(t->data) + sequence * t->stride[0];
      t->shape[0] = kB - sequence;
    }
    args.implementation = SLUICE_IMPL_CPU;
    size_t bytes = 0;
    ASSERT_EQ(sluice_workspace_size(SLUICE_OP_CHUNK_FORWARD, &args, &bytes), SLUICE_OK);
    workspace.resize(bytes + 256);
    const auto misfit = reinterpret_cast<uintptr_t>(workspace.data()) % 256;
    ASSERT_EQ(
        sluice_chunk_forward(&args, {workspace.data() + (256 - misfit) % 256, bytes}, nullptr),
        SLUICE_OK);
  }
};

TEST(KeyPrefillBits, NeitherCutNorBatchMatters) {
  Call whole, cut, alone;
  whole.run(0, 0, Call::kT, whole.initial);
  cut.run(0, 0, 16, cut.initial);
  std::vector<float> between = cut.final;
  cut.run(0, 16, Call::kT, between);
  EXPECT_EQ(cut.o, whole.o);
  EXPECT_EQ(cut.final, whole.final);
  alone.run(1, 0, Call::kT, alone.initial);
  const auto half = static_cast<int64_t>(whole.o.size() / 2);
  EXPECT_TRUE(std::equal(alone.o.begin() + half, alone.o.end(), whole.o.begin() + half));
}

TEST(KeyPrefillBits, WhatIsNoNumberStaysWhereItIs) {
  constexpr int64_t kToken = 21, kHead = 1, kRow = Call::kH * Call::kV;
  Call sound, spoilt;
  sound.run(0, 0, Call::kT, sound.initial);
  spoilt.gate[(kToken * Call::kH + kHead) * Call::kK + 7] = std::nanf("");
  spoilt.run(0, 0, Call::kT, spoilt.initial);
  for (int64_t i = 0; i < static_cast<int64_t>(sound.o.size()); ++i) {
    const int64_t token = i / kRow, head = i / Call::kV % Call::kH;
    const bool reached = token >= kToken && token < Call::kT && head == kHead;
    const float x = spoilt.o[static_cast<size_t>(i)];
    if (reached) {
      EXPECT_TRUE(std::isnan(x)) << token;
    } else {
      EXPECT_EQ(x, sound.o[static_cast<size_t>(i)]) << token << " " << head;
    }
  }
}

}  // namespace
}  // namespace sluice::check
