// Measures that results keep their bits whatever stands beside them: other sequences and
// heads, NaN elsewhere, another split of the same tokens, another spelling of the same arguments.
// The same rows are computed twice in different company and compared bit for bit.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "parity/naming.hpp"
#include "parity/sequences.hpp"

namespace sluice::check {
namespace {

/// The CPU backend, or CUDA in the executable that is for it.
RunOptions backend() { return {.implementation = implementations_under_test().front()}; }

GdnOutputs run(const GdnCase& c, const GdnInputs& inputs) {
  GdnOutputs outputs = run_chunk_forward(c, inputs, backend());
  EXPECT_EQ(outputs.code, SLUICE_OK) << outputs.message;
  EXPECT_TRUE(outputs.memory_intact);
  return outputs;
}

/// The kernels' shapes differ with these.
struct Shape {
  const char* name;
  int64_t H, HV, K, V;
  sluice_dtype io;
};
void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }
std::string shape_name(const ::testing::TestParamInfo<Shape>& info) { return info.param.name; }

class Invariance : public ::testing::TestWithParam<Shape> {
 protected:
  GdnCase gdn_case(int64_t T, uint64_t seed) const {
    const Shape& s = GetParam();
    GdnCase c{.name = "", .T = T, .H = s.H, .HV = s.HV, .K = s.K, .V = s.V, .seed = seed};
    c.io = s.io, c.gates = GateProfile::kMixed;
    return c;
  }
  GdnCase packed_case(const std::vector<int64_t>& lengths) const {
    GdnCase c = gdn_case(0, 1);
    c.lengths = lengths;
    for (const int64_t length : lengths) c.T += length;
    return c;
  }
};

INSTANTIATE_TEST_SUITE_P(Shapes, Invariance,
                         ::testing::Values(Shape{"plain", 1, 1, 64, 64, kF32},
                                           Shape{"grouped", 2, 6, 32, 48, kF32},
                                           Shape{"odd", 2, 4, 60, 33, kF32},
                                           Shape{"bfloat16", 2, 4, 64, 64, kBF16},
                                           Shape{"float16_wide", 1, 2, 128, 128, kF16}),
                         shape_name);

TEST_P(Invariance, SequenceAloneOrPackedInAnyOrder) {
  const std::vector<int64_t> lengths{65, 0, 1, 130, 64, 17, 63};
  std::vector<GdnInputs> sequences;
  std::vector<GdnOutputs> alone;
  for (size_t n = 0; n < lengths.size(); ++n) {
    const GdnCase c = gdn_case(lengths[n], 100 + n);
    sequences.push_back(make_inputs(c));
    alone.push_back(run(c, sequences.back()));
  }
  for (const std::vector<int64_t>& order :
       {range(0, 7), std::vector<int64_t>{6, 5, 4, 3, 2, 1, 0}, {3, 0, 2, 6, 1, 5, 4}, {4, 3}}) {
    std::vector<GdnInputs> ordered;
    std::vector<int64_t> ordered_lengths;
    for (const int64_t n : order) {
      ordered.push_back(sequences[static_cast<size_t>(n)]);
      ordered_lengths.push_back(lengths[static_cast<size_t>(n)]);
    }
    const GdnOutputs packed = run(packed_case(ordered_lengths), pack_sequences(ordered));
    int64_t row = 0;
    for (size_t place = 0; place < order.size(); ++place) {
      const GdnOutputs& expected = alone[static_cast<size_t>(order[place])];
      const int64_t length = ordered_lengths[place];
      EXPECT_TRUE(same_bits(take(packed.o, 1, range(row, length)), expected.o)) << order[place];
      const auto n = static_cast<int64_t>(place);
      EXPECT_TRUE(same_bits(take(packed.final_state, 0, {n}), expected.final_state)) << n;
      row += length;
    }
  }
}

TEST_P(Invariance, SequenceAloneOrInABatch) {
  GdnCase c = gdn_case(75, 3);
  c.B = 4;
  const GdnInputs inputs = make_inputs(c);
  const GdnOutputs batch = run(c, inputs);
  for (int64_t b = 0; b < c.B; ++b) {
    GdnInputs one = inputs;
    for (Array* array : {&one.q, &one.k, &one.v, &one.gate, &one.beta, &one.initial}) {
      *array = take(*array, 0, {b});
    }
    const GdnOutputs alone = run(gdn_case(75, 3), one);
    EXPECT_TRUE(same_bits(take(batch.o, 0, {b}), alone.o)) << b;
    EXPECT_TRUE(same_bits(take(batch.final_state, 0, {b}), alone.final_state)) << b;
  }
}

TEST_P(Invariance, HeadsAloneOrPermuted) {
  const GdnCase c = gdn_case(75, 5);
  const GdnInputs inputs = make_inputs(c);
  const GdnOutputs all = run(c, inputs);
  const int64_t r = c.HV / c.H;
  for (int64_t h = 0; h < c.H; ++h) {
    GdnCase one = c;
    one.H = 1, one.HV = r;
    const GdnOutputs alone = run(one, take_heads(inputs, {h}));
    EXPECT_TRUE(same_bits(take(all.o, 2, range(h * r, r)), alone.o)) << h;
    EXPECT_TRUE(same_bits(take(all.final_state, 1, range(h * r, r)), alone.final_state)) << h;
  }
  std::vector<int64_t> reversed = range(0, c.H);
  std::reverse(reversed.begin(), reversed.end());
  const GdnOutputs permuted = run(c, take_heads(inputs, reversed));
  for (int64_t h = 0; h < c.H; ++h) {
    const auto from = range((c.H - 1 - h) * r, r);
    EXPECT_TRUE(same_bits(take(permuted.o, 2, from), take(all.o, 2, range(h * r, r)))) << h;
  }
}

TEST_P(Invariance, RoundTripAtChunkBorders) {
  const GdnCase c = gdn_case(200, 7);
  const GdnInputs inputs = make_inputs(c);
  const GdnOutputs whole = run(c, inputs);
  for (const int64_t first : {64, 128, 192}) {
    const GdnOutputs head = run(gdn_case(first, 7), take_tokens(inputs, 0, first));
    GdnInputs rest = take_tokens(inputs, first, 200 - first);
    rest.initial = head.final_state;
    const GdnOutputs tail = run(gdn_case(200 - first, 7), rest);
    EXPECT_TRUE(same_bits(join({head.o, tail.o}, 1), whole.o)) << first;
    EXPECT_TRUE(same_bits(tail.final_state, whole.final_state)) << first;
  }
}

TEST_P(Invariance, RoundTripElsewhere) {
  const GdnCase c = gdn_case(150, 9);
  const GdnInputs inputs = make_inputs(c);
  const GdnOutputs truth = truth_of(c, inputs);
  for (const int64_t first : {1, 17, 63, 100, 149}) {
    const GdnOutputs head = run(gdn_case(first, 9), take_tokens(inputs, 0, first));
    GdnInputs rest = take_tokens(inputs, first, 150 - first);
    rest.initial = head.final_state;
    GdnOutputs tail = run(gdn_case(150 - first, 9), rest);
    tail.o = join({head.o, tail.o}, 1);
    const Verdict verdict = judge_run(c, inputs, tail, truth);
    EXPECT_TRUE(verdict.pass) << first << "\n" << verdict.line;
  }
}

TEST_P(Invariance, DecodeAfterPrefill) {
  const GdnCase c = gdn_case(77, 11);
  const GdnInputs inputs = make_inputs(c);
  const GdnOutputs truth = truth_of(c, inputs);
  for (const int64_t step : {1, 3, 13}) {  // of the last 13 tokens
    GdnOutputs so_far = run(gdn_case(64, 11), take_tokens(inputs, 0, 64));
    for (int64_t t = 64; t < 77;) {
      const int64_t count = std::min(step, 77 - t);
      GdnInputs next = take_tokens(inputs, t, count);
      next.initial = so_far.final_state;
      const GdnOutputs decoded = run_recurrent_step(gdn_case(count, 11), next, backend());
      ASSERT_EQ(decoded.code, SLUICE_OK) << decoded.message;
      so_far.o = join({so_far.o, decoded.o}, 1);
      so_far.final_state = decoded.final_state;
      t += count;
    }
    const Verdict verdict = judge_run(c, inputs, so_far, truth);
    EXPECT_TRUE(verdict.pass) << step << "\n" << verdict.line;
  }
}

TEST_P(Invariance, CheckpointIsTheStateOfThePrefix) {
  GdnCase c = gdn_case(200, 13);
  c.checkpoint_every = 64;
  const GdnInputs inputs = make_inputs(c);
  const GdnOutputs whole = run(c, inputs);
  ASSERT_EQ(whole.checkpoints.shape[1], 3);
  GdnCase plain = c;
  plain.checkpoint_every = 0;
  EXPECT_TRUE(same_bits(run(plain, inputs).o, whole.o));
  for (int64_t m = 1; m <= 3; ++m) {
    const GdnOutputs prefix = run(gdn_case(64 * m, 13), take_tokens(inputs, 0, 64 * m));
    Array checkpoint = take(whole.checkpoints, 1, {m - 1});
    checkpoint.shape.erase(checkpoint.shape.begin() + 1);
    EXPECT_TRUE(same_bits(checkpoint, prefix.final_state)) << m;
  }
}

TEST_P(Invariance, FutureTokensDoNotMatter) {
  const GdnCase c = gdn_case(150, 15);
  const GdnInputs inputs = make_inputs(c);
  const GdnOutputs before = run(c, inputs);
  const GdnInputs other = make_inputs(gdn_case(150, 16));
  for (const int64_t t : {1, 20, 64, 77, 149}) {
    GdnInputs changed = pack_sequences({take_tokens(inputs, 0, t), take_tokens(other, t, 150 - t)});
    changed.initial = inputs.initial;
    const GdnOutputs after = run(c, changed);
    EXPECT_TRUE(same_bits(take(after.o, 1, range(0, t)), take(before.o, 1, range(0, t)))) << t;
    EXPECT_FALSE(same_bits(after.final_state, before.final_state)) << t;
  }
}

/// Poison in one tensor of one sequence and head, and what it may reach.
TEST_P(Invariance, PoisonStaysInItsHead) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  GdnCase c = gdn_case(200, 17);
  c.B = 2;
  const GdnInputs inputs = make_inputs(c);
  const GdnOutputs clean = run(c, inputs);
  const int64_t r = c.HV / c.H, key_head = c.H - 1, value_head = c.HV - 1;
  struct Poisoned {
    const char* name;
    Array GdnInputs::* member;
    bool per_key_head;
  };
  for (const Poisoned& p : {Poisoned{"q", &GdnInputs::q, true},
                            {"k", &GdnInputs::k, true},
                            {"v", &GdnInputs::v, false},
                            {"gate", &GdnInputs::gate, false},
                            {"beta", &GdnInputs::beta, false}}) {
    for (const double poison : {kNan, kInfinity}) {
      SCOPED_TRACE(named(p.name, " = ", poison));
      GdnInputs spoilt = inputs;
      Array& array = spoilt.*p.member;
      const int64_t head = p.per_key_head ? key_head : value_head;
      // Token 140 of sequence 0: in the chunk that starts at 128.
      const int64_t width = array.shape.size() == 4 ? array.shape[3] : 1;
      array.values[static_cast<size_t>((140 * array.shape[2] + head) * width + width / 2)] = poison;
      const GdnOutputs found = run(c, spoilt);
      EXPECT_TRUE(same_bits(take(found.o, 0, {1}), take(clean.o, 0, {1})));
      EXPECT_TRUE(same_bits(take(found.final_state, 0, {1}), take(clean.final_state, 0, {1})));
      const int64_t untouched = p.per_key_head ? key_head * r : value_head;
      const auto others = range(0, untouched), earlier = range(0, 128);
      EXPECT_TRUE(same_bits(take(found.o, 2, others), take(clean.o, 2, others)));
      EXPECT_TRUE(
          same_bits(take(found.final_state, 1, others), take(clean.final_state, 1, others)));
      EXPECT_TRUE(same_bits(take(found.o, 1, earlier), take(clean.o, 1, earlier)));
      EXPECT_FALSE(same_bits(found.o, clean.o)) << "the poison went nowhere";
    }
  }
  GdnInputs spoilt = inputs;
  spoilt.initial(0, value_head, c.K / 2, c.V / 2) = kNan;
  const GdnOutputs found = run(c, spoilt);
  const auto others = range(0, value_head);
  EXPECT_TRUE(same_bits(take(found.o, 0, {1}), take(clean.o, 0, {1})));
  EXPECT_TRUE(same_bits(take(found.o, 2, others), take(clean.o, 2, others)));
  EXPECT_TRUE(same_bits(take(found.final_state, 1, others), take(clean.final_state, 1, others)));
}

TEST_P(Invariance, PoisonInPadsTouchesNothing) {
  GdnCase c = packed_case({71, 30, 21});  // odd: a kernel that works on pairs of tokens has a half
  c.T += 9;                               // rows past the last sequence
  c.slots = true, c.padded = {1};
  const GdnInputs inputs = make_inputs(c);
  const GdnOutputs clean = run(c, inputs);
  GdnInputs spoilt = inputs;
  for (Array* array : {&spoilt.q, &spoilt.k, &spoilt.v, &spoilt.gate, &spoilt.beta}) {
    const auto row = static_cast<int64_t>(array->values.size()) / c.T;
    for (int64_t i = 0; i < array->size(); ++i) {
      const int64_t t = i / row;
      if ((t >= 71 && t < 101) || t >= 122) array->values[static_cast<size_t>(i)] = std::nan("");
    }
  }
  const GdnOutputs found = run(c, spoilt);
  EXPECT_TRUE(same_bits(found.o, clean.o));
  EXPECT_TRUE(same_bits(found.final_state, clean.final_state));
}

/// Zero states are made of 0 times random numbers; an absent state is one of +0.
GdnInputs positive_zeros(GdnInputs inputs) {
  for (double& value : inputs.initial.values) value += 0.0;
  return inputs;
}

/// Two ways to say the same thing.
TEST_P(Invariance, SpellingsAgree) {
  struct Spelling {
    const char* name;
    void (*one)(GdnCase&);
    void (*other)(GdnCase&);
  };
  const Spelling spellings[] = {
      {"gate absent = 0", [](GdnCase& c) { c.gates = GateProfile::kNone; },
       [](GdnCase& c) { c.gates = GateProfile::kZero; }},
      {"beta absent = 1", [](GdnCase& c) { c.betas = BetaProfile::kAbsent; },
       [](GdnCase& c) { c.betas = BetaProfile::kOne; }},
      {"state absent = zeros", [](GdnCase& c) { c.initial = StateProfile::kNone; },
       [](GdnCase& c) { c.initial = StateProfile::kZero; }},
      {"int32 = int64", [](GdnCase& c) { c.index_dtype = kI32, c.slots = true; },
       [](GdnCase& c) { c.index_dtype = kI64, c.slots = true; }},
      {"kv = vk", [](GdnCase&) {}, [](GdnCase& c) { c.state_layout = SLUICE_STATE_VK; }},
      {"dense = head first", [](GdnCase&) {}, [](GdnCase& c) { c.tokens = Placement::kHeadFirst; }},
      {"dense = fused row", [](GdnCase&) {}, [](GdnCase& c) { c.tokens = Placement::kFusedRow; }},
      {"separate = in place", [](GdnCase&) {}, [](GdnCase& c) { c.in_place = true; }},
      {"dense = padded slots", [](GdnCase&) {},
       [](GdnCase& c) { c.pool = Placement::kPaddedSlots, c.slots = true; }},
      {"fresh = zeros", [](GdnCase& c) { c.no_initial = {0, 1, 2}; },
       [](GdnCase& c) { c.initial = StateProfile::kZero; }},
      {"default scale = K^-0.5", [](GdnCase&) {},
       [](GdnCase& c) { c.options.scale = 1.0 / std::sqrt(static_cast<double>(c.K)); }},
  };
  for (const auto operation : {run_chunk_forward, run_recurrent_step}) {
    GdnCase base = packed_case({70, 0, 33});
    if (operation == run_recurrent_step) base = packed_case({16, 0, 3});
    for (const Spelling& spelling : spellings) {
      SCOPED_TRACE(spelling.name);
      GdnCase one = base, other = base;
      spelling.one(one);
      spelling.other(other);
      const GdnOutputs a = operation(one, positive_zeros(make_inputs(one)), backend());
      const GdnOutputs b = operation(other, positive_zeros(make_inputs(other)), backend());
      ASSERT_EQ(a.code, SLUICE_OK) << a.message;
      ASSERT_EQ(b.code, SLUICE_OK) << b.message;
      EXPECT_TRUE(same_bits(a.o, b.o));
      EXPECT_TRUE(same_bits(a.final_state, b.final_state));
    }
  }
}

TEST_P(Invariance, DecodeOfASequenceAloneOrInABatch) {
  GdnCase c = gdn_case(3, 19);
  c.B = 5;
  const GdnInputs inputs = make_inputs(c);
  const GdnOutputs batch = run_recurrent_step(c, inputs, backend());
  for (int64_t b = 0; b < c.B; ++b) {
    GdnInputs one = inputs;
    for (Array* array : {&one.q, &one.k, &one.v, &one.gate, &one.beta, &one.initial}) {
      *array = take(*array, 0, {b});
    }
    const GdnOutputs alone = run_recurrent_step(gdn_case(3, 19), one, backend());
    EXPECT_TRUE(same_bits(take(batch.o, 0, {b}), alone.o)) << b;
    EXPECT_TRUE(same_bits(take(batch.final_state, 0, {b}), alone.final_state)) << b;
  }
}

TEST_P(Invariance, StepsTogetherOrOneByOne) {
  const GdnCase c = gdn_case(16, 21);
  const GdnInputs inputs = make_inputs(c);
  const GdnOutputs together = run_recurrent_step(c, inputs, backend());
  GdnOutputs so_far;
  so_far.final_state = inputs.initial;
  std::vector<Array> rows;
  for (int64_t t = 0; t < 16; ++t) {
    GdnInputs next = take_tokens(inputs, t, 1);
    next.initial = so_far.final_state;
    so_far = run_recurrent_step(gdn_case(1, 21), next, backend());
    ASSERT_EQ(so_far.code, SLUICE_OK) << so_far.message;
    rows.push_back(so_far.o);
  }
  EXPECT_TRUE(same_bits(join(rows, 1), together.o));
  EXPECT_TRUE(same_bits(so_far.final_state, together.final_state));
}

}  // namespace
}  // namespace sluice::check
