// Runs the one-launch prefill kernel's own source on the CPU, thread by thread in random order with late
// copy engine and tensor cores, and judges it like any implementation. Also: no bit depends on the
// order, and no schedule leaves a thread waiting.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "emulated_backend.hpp"
#include "parity/naming.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

GdnCase fused(const std::string& name, const std::vector<int64_t>& lengths) {
  GdnCase c;
  c.name = name;
  c.lengths = lengths;
  c.T = 5;  // rows that belong to nobody
  for (const int64_t n : lengths) c.T += n;
  c.HV = 2;
  c.K = c.V = 128;
  c.io = kBF16;
  return c;
}

constexpr auto kLinear = SLUICE_RULE_LINEAR_ATTENTION;

std::vector<GdnCase> cases() {
  std::vector<GdnCase> all;
  for (const sluice_dtype io : {kBF16, kF16}) {
    const std::string type = dtype_name(io);
    const auto add = [&](const std::string& name, const std::vector<int64_t>& lengths,
                         auto change) {
      GdnCase c = fused(name + "_" + type, lengths);
      c.io = io;
      change(c);
      all.push_back(c);
    };
    add("lengths", {1, 64, 0, 130, 65}, [](GdnCase&) {});
    add("l2norm", {70, 64, 129}, [](GdnCase& c) { c.options.qk_norm = SLUICE_QK_NORM_L2; });
    add("correlated", {200}, [](GdnCase& c) { c.keys = KeyProfile::kCos75; });
    add("raw", {100, 30}, [](GdnCase& c) {
      c.options.gate_space = SLUICE_GATE_RAW;
      c.options.beta_space = SLUICE_BETA_LOGIT;
      c.options.eigenvalues = SLUICE_EIGENVALUES_NEGATIVE;
    });
    add("short_gates", {130, 1, 65}, [io](GdnCase& c) { c.gate_dtype = io; });
    // Blocks of the launch ahead lie across batch entries.
    add("prepared", {}, [](GdnCase& c) {
      c.B = 3, c.T = 100, c.H = 2, c.HV = 4;
      c.tokens = Placement::kHeadFirst;
      c.options.qk_norm = SLUICE_QK_NORM_L2;
      c.options.gate_space = SLUICE_GATE_RAW;
      c.options.beta_space = SLUICE_BETA_LOGIT;
    });
    for (const sluice_rule rule : {SLUICE_RULE_GATED_DELTA, kLinear}) {
      add(named("bounded_", rule), {100, 30}, [rule](GdnCase& c) {
        c.options.gate_space = SLUICE_GATE_RAW_BOUNDED, c.options.gate_lower_bound = -5,
        c.options.rule = rule;
      });
    }
    add("states", {140, 3, 64}, [](GdnCase& c) {
      c.state_layout = SLUICE_STATE_VK;
      c.slots = true;
      c.padded = {1};
      c.checkpoint_every = 64;
    });
    for (const int64_t K : {64, 128}) {
      for (const int64_t V : {64, 128, 256}) {
        add(named("K", K, "_V", V), {66, 130}, [&](GdnCase& c) {
          c.K = K;
          c.V = V;
          c.HV = 1;
          c.checkpoint_every = 64;
          c.options.qk_norm = V == 64 ? SLUICE_QK_NORM_L2 : SLUICE_QK_NORM_NONE;
        });
      }
    }
    add("in_place", {90, 64}, [](GdnCase& c) {
      c.slots = c.in_place = true;
      c.no_initial = {1};
      c.state_dtype = kBF16;
      c.options.gate_space = SLUICE_GATE_LINEAR;
    });
    for (const int64_t K : {64, 128}) {
      add(named("keys_K", K), {1, 64, 0, 130, 65}, [K](GdnCase& c) {
        c.key_gates = true, c.gates = GateProfile::kSpread, c.K = K;
        if (K == 64) c.options.qk_norm = SLUICE_QK_NORM_L2;
      });
    }
    add("keys_states", {140, 3, 64}, [](GdnCase& c) {
      c.key_gates = true, c.gates = GateProfile::kMinusInfinity;
      c.state_layout = SLUICE_STATE_VK, c.slots = true, c.padded = {1}, c.checkpoint_every = 64;
      c.H = 1, c.V = 64;
    });
    add("keys_bounded", {100, 30}, [](GdnCase& c) {
      c.key_gates = true, c.gate_dtype = kBF16, c.options.beta_space = SLUICE_BETA_LOGIT;
      c.options.gate_space = SLUICE_GATE_RAW_BOUNDED, c.options.gate_lower_bound = -5;
    });
    add("keys_linear", {70, 130}, [](GdnCase& c) {
      c.key_gates = true, c.gates = GateProfile::kSingleResets, c.options.rule = kLinear;
    });
    for (const auto history : {SLUICE_HISTORY_STRICT, SLUICE_HISTORY_FORGET}) {
      add(named("keys_segments_", history), {390, 64}, [history](GdnCase& c) {
        c.key_gates = true, c.gates = GateProfile::kBounded, c.options.qk_norm = SLUICE_QK_NORM_L2;
        c.split = SLUICE_SPLIT_SEGMENTS, c.split_value = 3, c.history = history;
      });
    }
    add("resets", {150}, [](GdnCase& c) { c.gates = GateProfile::kResets; });
    add("linear", {1, 64, 0, 130, 65, 63}, [](GdnCase& c) { c.options.rule = kLinear; });
    add("linear_states", {140, 3, 64}, [](GdnCase& c) {
      c.options.rule = kLinear;
      c.state_layout = SLUICE_STATE_VK;
      c.slots = true;
      c.padded = {1};
      c.checkpoint_every = 64;
      c.V = 256;
    });
    add("linear_in_place", {90, 64}, [](GdnCase& c) {
      c.options.rule = kLinear;
      c.slots = c.in_place = true;
      c.no_initial = {1};
      c.state_dtype = kBF16;
      c.options.gate_space = SLUICE_GATE_LINEAR;
      c.K = c.V = 64;
    });
    add("linear_groups", {66, 200}, [](GdnCase& c) {
      c.options.rule = kLinear;
      c.options.gate_space = SLUICE_GATE_RAW;
      c.H = 2;
      c.HV = 6;
      c.V = 192;
      c.options.head_map = SLUICE_HEAD_MAP_CYCLIC;
    });
    add("groups", {66}, [](GdnCase& c) {
      c.H = 2;
      c.HV = 6;
      c.options.head_map = SLUICE_HEAD_MAP_CYCLIC;
    });
  }
  return all;
}

bool same_bits(const Array& a, const Array& b) {
  return a.size() == b.size() &&
         std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(double)) == 0;
}

class EmulatedPrefill : public ::testing::TestWithParam<GdnCase> {};

TEST_P(EmulatedPrefill, MatchesRecurrenceInAnyOrder) {
  const GdnCase& c = GetParam();
  const GdnInputs inputs = make_inputs(c);
  const GdnOutputs truth = truth_of(c, inputs);
  ASSERT_EQ(truth.code, SLUICE_OK) << truth.message;
  GdnOutputs first;
  for (const uint64_t seed : {1u, 2u}) {
    cuda::emulation_seed = seed * 1000;
    const GdnOutputs outputs = run_chunk_forward(c, inputs, {.implementation = SLUICE_IMPL_CUDA});
    ASSERT_EQ(outputs.code, SLUICE_OK) << outputs.message;
    const Verdict verdict = judge_run(c, inputs, outputs, truth);
    EXPECT_TRUE(verdict.pass) << verdict.line;
    if (seed == 1) first = outputs;
    EXPECT_TRUE(same_bits(outputs.o, first.o));
    EXPECT_TRUE(same_bits(outputs.final_state, first.final_state));
  }
}

/// The tiles of a sequence's last chunk also hold rows of the next one.
TEST(EmulatedTails, NanInTheNextSequenceStaysThere) {
  for (const sluice_qk_norm norm : {SLUICE_QK_NORM_NONE, SLUICE_QK_NORM_L2}) {
    GdnCase c = fused("tail", {70, 40});
    c.options.qk_norm = norm;
    GdnInputs inputs = make_inputs(c);
    const RunOptions options{.implementation = SLUICE_IMPL_CUDA};
    const GdnOutputs clean = run_chunk_forward(c, inputs, options);
    for (Array* array : {&inputs.q, &inputs.k, &inputs.v, &inputs.gate, &inputs.beta}) {
      const auto row = static_cast<size_t>(array->size() / c.T);
      std::fill_n(array->values.begin() + static_cast<std::ptrdiff_t>(70 * row), 40 * row,
                  std::nan(""));
    }
    const GdnOutputs spoilt = run_chunk_forward(c, inputs, options);
    ASSERT_EQ(spoilt.code, SLUICE_OK) << spoilt.message;
    const auto first = static_cast<size_t>(70 * c.HV * c.V),
               states = static_cast<size_t>(c.HV * c.K * c.V);
    EXPECT_TRUE(std::equal(clean.o.values.begin(),
                           clean.o.values.begin() + static_cast<std::ptrdiff_t>(first),
                           spoilt.o.values.begin()));
    EXPECT_TRUE(std::equal(clean.final_state.values.begin(),
                           clean.final_state.values.begin() + static_cast<std::ptrdiff_t>(states),
                           spoilt.final_state.values.begin()));
  }
}

INSTANTIATE_TEST_SUITE_P(Fused, EmulatedPrefill, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace sluice::check
