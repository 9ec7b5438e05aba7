// Compares bits of chunk_backward's gradients: the same call twice, other strides, other sequences
// beside one, rows and heads that nobody may touch.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "parity/backward_call.hpp"
#include "parity/naming.hpp"
#include "parity/sequences.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

/// What a test is asked of beside its own configuration.
struct Change {
  const char* name;
  void (*change)(BackwardConfig* c);
};
void PrintTo(const Change& change, std::ostream* out) { *out << change.name; }
std::string change_name(const ::testing::TestParamInfo<Change>& info) { return info.param.name; }

TEST(ChunkBackwardBits, TwiceTheSame) {
  BackwardConfig c;
  c.T = 200, c.H = 2, c.HV = 6, c.gate_space = SLUICE_GATE_RAW;
  const auto implementation = implementations_under_test().front();
  const BackwardResult first = run_backward(c, implementation);
  const BackwardResult second = run_backward(c, implementation, {}, 0x00);
  ASSERT_EQ(first.code, SLUICE_OK) << first.message;
  for (size_t i = 0; i < first.gradients.size(); ++i) {
    EXPECT_TRUE(same_bits(first.gradients[i].second, second.gradients[i].second))
        << first.gradients[i].first;
  }
}

class ChunkBackwardBitsOfPlaces : public ::testing::TestWithParam<Change> {};

/// Strides decide what is copied, and how many heads and batch entries go through the workspace at
/// once.
TEST_P(ChunkBackwardBitsOfPlaces, TheSameWhereverRowsLie) {
  BackwardConfig c;
  c.T = 130, c.H = 4, c.HV = 8, c.K = c.V = 128, c.io = c.d_o = kBF16;
  c.qk_norm = SLUICE_QK_NORM_L2, c.gate_space = SLUICE_GATE_RAW;
  GetParam().change(&c);
  const auto implementation = implementations_under_test().front();
  const BackwardResult dense = run_backward(c, implementation, c.io);
  c.apart = true;
  const BackwardResult apart = run_backward(c, implementation, c.io);
  ASSERT_EQ(dense.code, SLUICE_OK) << dense.message;
  ASSERT_EQ(apart.code, SLUICE_OK) << apart.message;
  EXPECT_EQ(apart.kernel, dense.kernel);
  EXPECT_EQ(apart.damage, "");
  for (size_t i = 0; i < dense.gradients.size(); ++i) {
    const auto& [name, x] = dense.gradients[i];
    EXPECT_TRUE(same_bits(x, apart.gradients[i].second)) << name;
    EXPECT_TRUE(
        std::none_of(x.values.begin(), x.values.end(), [](double y) { return std::isnan(y); }))
        << name << ": no numbers have the same bits everywhere";
  }
}

void make_cyclic(BackwardConfig* c) {
  c->head_map = SLUICE_HEAD_MAP_CYCLIC;
  c->initial = c->d_final = c->outputs[7] = false;  // states are not cut
}
void make_one_head(BackwardConfig* c) { c->T = 421, c->H = c->HV = 1; }
constexpr Change kPlaces[] = {
    {"neighbours", [](BackwardConfig*) {}},
    {"cyclic", [](BackwardConfig* c) { make_cyclic(c); }},
    {"cyclic_pair", [](BackwardConfig* c) { make_cyclic(c), c->H = 2, c->HV = 4; }},
    {"batch", [](BackwardConfig* c) { c->B = 3, c->H = 1, c->HV = 2; }},
    {"cyclic_batch",
     [](BackwardConfig* c) {
       c->head_map = SLUICE_HEAD_MAP_CYCLIC, c->B = 2, c->H = 2, c->HV = 4;
     }},
    {"batch_of_segments",
     [](BackwardConfig* c) {
       c->B = 3, c->H = 1, c->HV = 2, c->split = SLUICE_SPLIT_LENGTH, c->split_value = 64;
     }},
    // Strengths that 16 bits could lose are undone where dv is stored: another place, another kernel.
    {"strengths_of_zero", [](BackwardConfig* c) { c->betas = BetaProfile::kZero; }},
    // What can be cut by neither goes in windows of chunks.
    {"one_head", [](BackwardConfig* c) { make_one_head(c); }},
    {"one_head_of_a_pack",
     [](BackwardConfig* c) {
       make_one_head(c), c->lengths = {30, 0, 300, 1, 90}, c->layout = SLUICE_STATE_VK;
     }},
    {"one_head_in_segments",
     [](BackwardConfig* c) {
       // A window's border lies in the third of five segments, which forgets little.
       make_one_head(c), c->T = 1100, c->split = SLUICE_SPLIT_LENGTH, c->split_value = 256;
       c->gate_space = SLUICE_GATE_LOG, c->gates = GateProfile::kSlow;
     }},
    {"one_head_of_a_pack_in_segments",
     [](BackwardConfig* c) {
       make_one_head(c), c->T = 900, c->lengths = {30, 0, 300, 570};
       c->split = SLUICE_SPLIT_LENGTH, c->split_value = 256;
     }},
    {"one_head_of_a_pack_in_three_segments",
     [](BackwardConfig* c) {
       make_one_head(c), c->T = 900, c->lengths = {30, 0, 700, 170};
       c->split = SLUICE_SPLIT_SEGMENTS, c->split_value = 3;
     }},
    {"one_float16_head",
     [](BackwardConfig* c) { make_one_head(c), c->io = c->d_o = kF16, c->size = 0x1p-20; }},
    {"one_head_for_initial_states",
     [](BackwardConfig* c) {
       make_one_head(c);
       for (int i = 0; i < 7; ++i) c->outputs[i] = false;
     }},
    {"cyclic_with_states",
     [](BackwardConfig* c) {
       c->head_map = SLUICE_HEAD_MAP_CYCLIC, c->T = 330, c->H = 2, c->HV = 4;
     }},
};
INSTANTIATE_TEST_SUITE_P(Places, ChunkBackwardBitsOfPlaces, ::testing::ValuesIn(kPlaces),
                         change_name);

TEST(ChunkBackwardBits, RowsPastTheLastSequenceStay) {
  BackwardConfig c;
  c.T = 90, c.HV = 4, c.lengths = {3, 70};
  // WHY zeros: sums of what nobody wrote would be NaN, as outputs are before the call.
  const BackwardResult found = run_backward(c, implementations_under_test().front(), {}, 0x00);
  ASSERT_EQ(found.code, SLUICE_OK) << found.message;
  EXPECT_EQ(found.damage, "");
  for (const auto& [name, x] : found.gradients) {
    if (x.shape.size() < 2 || x.shape[1] != c.T) continue;
    const int64_t row = x.size() / c.T;
    for (int64_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(std::isnan(x.values[static_cast<size_t>(i)]), i / row >= 73) << name << " " << i;
    }
  }
}

TEST(ChunkBackwardBits, HeadsDoNotMeet) {
  BackwardConfig c;
  c.T = 100, c.H = 2, c.HV = 2, c.not_a_number = 50;
  const BackwardResult found = run_backward(c, implementations_under_test().front());
  ASSERT_EQ(found.code, SLUICE_OK) << found.message;
  for (const auto& [name, x] : found.gradients) {
    const int64_t inner = name == "dinitial" ? c.K * c.V : x.shape.size() == 4 ? x.shape[3] : 1;
    for (int64_t i = 0; i < x.size(); ++i) {
      if (i / inner % 2 == 0) continue;
      ASSERT_FALSE(std::isnan(x.values[static_cast<size_t>(i)])) << name << " of the other head";
    }
  }
}

// ------------------------------------------------------------- other sequences beside one ----

class ChunkBackwardBitsOfASequence : public ::testing::TestWithParam<Change> {
 protected:
  static BackwardConfig one_sequence(int64_t T) {
    BackwardConfig c;
    c.gate_space = SLUICE_GATE_RAW, c.H = 1, c.HV = 2;
    GetParam().change(&c);
    c.T = T;
    return c;
  }
  /// The tokens of one sequence; A_log and dt_bias are the same in all.
  static BackwardTensors draw(const BackwardConfig& one, uint64_t seed) {
    BackwardConfig other = one;
    other.seed = seed;
    BackwardTensors tensors = draw_backward(other);
    const GdnInputs parameters = draw_backward(one).in;
    tensors.in.A_log = parameters.A_log, tensors.in.dt_bias = parameters.dt_bias;
    return tensors;
  }
  static BackwardResult run(const BackwardConfig& c, const BackwardTensors& tensors) {
    BackwardResult found = run_backward_on(c, tensors, implementations_under_test().front());
    EXPECT_EQ(found.code, SLUICE_OK) << found.message;
    EXPECT_EQ(found.damage, "");
    return found;
  }
  /// Every gradient but those of A_log and dt_bias, which are sums over all sequences of a call:
  /// rows `first`.. of batch entry `b`, and state `n`, of `all` are `alone`.
  static void expect_same(const BackwardResult& all, int64_t b, int64_t first, int64_t n,
                          const BackwardResult& alone) {
    ASSERT_EQ(all.gradients.size(), alone.gradients.size());
    int compared = 0;
    for (size_t i = 0; i < all.gradients.size(); ++i) {
      const auto& [name, x] = all.gradients[i];
      const Array& expected = alone.gradients[i].second;
      if (name == "dA_log" || name == "ddt_bias") continue;
      const Array found = name == "dinitial"
                              ? take(x, 0, {n})
                              : take(take(x, 0, {b}), 1, range(first, expected.shape[1]));
      EXPECT_TRUE(same_bits(found, expected)) << name << " of sequence " << n;
      ++compared;
    }
    EXPECT_GE(compared, 5);
  }
};

constexpr Change kCompanies[] = {
    {"plain", [](BackwardConfig*) {}},
    {"grouped", [](BackwardConfig* c) { c->H = 2, c->HV = 6, c->K = 60, c->V = 33; }},
    {"linear", [](BackwardConfig* c) { c->rule = SLUICE_RULE_LINEAR_ATTENTION, c->beta = false; }},
    {"key_gates", [](BackwardConfig* c) { c->key_gates = true; }},
    {"key_gates_linear",
     [](BackwardConfig* c) {
       c->key_gates = true, c->rule = SLUICE_RULE_LINEAR_ATTENTION, c->beta = false;
     }},
    {"key_gates_bounded",
     [](BackwardConfig* c) {
       c->key_gates = true, c->gate_space = SLUICE_GATE_RAW_BOUNDED, c->gate_lower_bound = -5;
       c->H = 2, c->HV = 4, c->K = 19, c->V = 24, c->qk_norm = SLUICE_QK_NORM_L2;
     }},
    // By tensor cores, where a backend has them. A call of one head has both of its chains in one
    // launch; more items than multiprocessors have 128 columns of V each in place of 64.
    {"bfloat16_tiles",
     [](BackwardConfig* c) {
       c->HV = 1, c->K = c->V = 128, c->io = c->d_o = c->gradient = kBF16;
       c->qk_norm = SLUICE_QK_NORM_L2;
     }},
    {"bfloat16_segments",
     [](BackwardConfig* c) {
       c->HV = 1, c->K = c->V = 128, c->io = c->d_o = c->gradient = kBF16;
       c->qk_norm = SLUICE_QK_NORM_L2, c->split = SLUICE_SPLIT_LENGTH, c->split_value = 64;
     }},
    {"float16_segments",
     [](BackwardConfig* c) {
       c->K = c->V = 64, c->io = c->d_o = kF16;
       c->split = SLUICE_SPLIT_LENGTH, c->split_value = 64;
     }},
    {"float16_tiles", [](BackwardConfig* c) { c->K = c->V = 128, c->io = c->d_o = kF16; }},
    {"linear_tiles",
     [](BackwardConfig* c) {
       c->K = c->V = 64, c->io = c->d_o = kBF16;
       c->rule = SLUICE_RULE_LINEAR_ATTENTION, c->beta = false;
     }},
};
INSTANTIATE_TEST_SUITE_P(Companies, ChunkBackwardBitsOfASequence, ::testing::ValuesIn(kCompanies),
                         change_name);

TEST_P(ChunkBackwardBitsOfASequence, AloneOrInAPack) {
  const std::vector<int64_t> lengths = {65, 0, 1, 130, 17};
  std::vector<GdnInputs> inputs;
  std::vector<Array> d_o, d_final;
  std::vector<BackwardResult> alone;
  for (size_t n = 0; n < lengths.size(); ++n) {
    const BackwardConfig one = one_sequence(lengths[n]);
    const BackwardTensors tensors = draw(one, 100 + 20 * n);
    inputs.push_back(tensors.in);
    d_o.push_back(tensors.results.d_o), d_final.push_back(tensors.results.d_final);
    alone.push_back(run(one, tensors));
  }
  BackwardConfig pack = one_sequence(213);
  pack.lengths = lengths;
  const BackwardResult packed =
      run(pack, {pack_sequences(inputs), {join(d_o, 1), join(d_final, 0)}});
  for (size_t n = 0; n < lengths.size(); ++n) {
    SCOPED_TRACE(named(packed.kernel, " ", lengths[n], " tokens by ", alone[n].kernel));
    const auto sequence = static_cast<int64_t>(n);
    expect_same(packed, 0, pack.offsets()[n], sequence, alone[n]);
  }
}

TEST_P(ChunkBackwardBitsOfASequence, AloneOrInABatch) {
  const BackwardConfig one = one_sequence(75);
  BackwardConfig batch = one;
  batch.B = 3;
  const BackwardTensors tensors = draw_backward(batch);
  const BackwardResult all = run(batch, tensors);
  for (int64_t b = 0; b < batch.B; ++b) {
    BackwardTensors part = tensors;
    GdnInputs& in = part.in;
    for (Array* a : {&in.q, &in.k, &in.v, &in.gate, &in.beta, &in.initial, &part.results.d_o,
                     &part.results.d_final}) {
      *a = take(*a, 0, {b});
    }
    SCOPED_TRACE(all.kernel);
    expect_same(all, b, 0, b, run(one, part));
  }
}

/// Every multiprocessor of a GPU has chunks one after the other, beside all others.
TEST(ChunkBackwardBits, TwiceTheSameOnAllMultiprocessors) {
  const auto implementation = implementations_under_test().front();
  BackwardConfig c;
  c.T = implementation == SLUICE_IMPL_CUDA ? 8192 : 192, c.H = 16, c.HV = 32, c.K = c.V = 128;
  c.io = c.d_o = c.gradient = kBF16, c.qk_norm = SLUICE_QK_NORM_L2;
  c.initial = c.d_final = false;
  const BackwardResult first = run_backward(c, implementation);
  const BackwardResult second = run_backward(c, implementation, {}, 0x00);
  ASSERT_EQ(first.code, SLUICE_OK) << first.message;
  for (size_t i = 0; i < first.gradients.size(); ++i) {
    EXPECT_TRUE(same_bits(first.gradients[i].second, second.gradients[i].second))
        << first.gradients[i].first;
  }
}

}  // namespace
}  // namespace sluice::check
