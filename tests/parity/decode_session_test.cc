// Measures what recurrent_step promises across calls: bits that depend neither on batch mates nor
// on how many tokens a call takes, speculation that ends where plain decoding does, and memory that
// a malformed index or a NaN cannot reach. Sessions of public calls on pools that live on between
// them.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "check/generate.hpp"
#include "parity/draw.hpp"
#include "parity/naming.hpp"
#include "parity/operator_call.hpp"
#include "parity/sequences.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

sluice_implementation backend() { return implementations_under_test().front(); }

struct Model {
  std::string name;
  int64_t H = 1, HV = 2, K = 64, V = 64;
  sluice_dtype io = kBF16, state = kF32;
  sluice_state_layout layout = SLUICE_STATE_KV;
};

void PrintTo(const Model& model, std::ostream* out) { *out << model.name; }

/// Tokens of N sequences, T each.
struct Tokens {
  Array q, k, v, gate, beta;

  Tokens(const Model& m, int64_t N, int64_t T)
      : q(make_normal({N, T, m.H, m.K}, 1)),
        k(make_normal({N, T, m.H, m.K}, 2)),
        v(make_normal({N, T, m.HV, m.V}, 3)),
        gate(make_normal({N, T, m.HV}, 4)),
        beta(make_normal({N, T, m.HV}, 5)) {}

  /// Of sequences `rows`, tokens first .. first + count - 1.
  Tokens part(const std::vector<int64_t>& rows, int64_t first, int64_t count) const {
    Tokens out = *this;
    for (Array* array : {&out.q, &out.k, &out.v, &out.gate, &out.beta}) {
      *array = take(take(*array, 0, rows), 1, range(first, count));
    }
    return out;
  }
};

/// A pool, and calls on it.
class Session {
 public:
  Session(const Model& model, int64_t slots)
      : m_(model),
        A_log_(kF32, make_normal({model.HV}, 6)),
        dt_bias_(kBF16, make_normal({model.HV}, 7)),
        pool(model.state, make_normal({slots, model.HV, rows(), columns()}, 8)) {}

  /// o of one call; read: [N] or [N, columns] slots.
  Array run(const Tokens& tokens, const TestTensor& read, const TestTensor& write = {},
            sluice_state_writes writes = SLUICE_STATE_WRITE_LAST, const TestTensor& accepted = {}) {
    const TestTensor q(m_.io, tokens.q), k(m_.io, tokens.k), v(m_.io, tokens.v),
        gate(m_.io, tokens.gate), beta(kF32, tokens.beta), o(m_.io, tokens.v.shape);
    sluice_recurrent_step_args args{};
    args.struct_size = sizeof args;
    args.q = q.view(), args.k = k.view(), args.v = v.view(), args.o = o.view();
    args.gate = gate.view(), args.beta = beta.view();
    args.A_log = A_log_.view(), args.dt_bias = dt_bias_.view();
    args.state.initial = pool.view(), args.state.layout = m_.layout;
    args.state.read_slots = read.view(), args.state.write_slots = write.view();
    args.num_accepted = accepted.view(), args.state_writes = writes;
    args.options.gate_space = SLUICE_GATE_RAW, args.options.beta_space = SLUICE_BETA_LOGIT;
    args.options.qk_norm = SLUICE_QK_NORM_L2, args.implementation = backend();
    args.cu_seqlens = offsets_.view(), args.max_tokens = offsets_.view().data != nullptr ? 16 : 0;
    const CallOutcome outcome =
        call_operator(SLUICE_OP_RECURRENT_STEP, sluice_recurrent_step, args);
    EXPECT_EQ(outcome.code, SLUICE_OK) << outcome.message;
    EXPECT_EQ(outcome.damage, "");
    EXPECT_TRUE(o.guards_intact() && pool.guards_intact());
    return o.values();
  }
  void pack(const std::vector<int64_t>& offsets) {
    offsets_ = TestTensor::of_indices(kI32, offsets);
  }
  Array states(const std::vector<int64_t>& slots) const { return take(pool.values(), 0, slots); }

 private:
  int64_t rows() const { return m_.layout == SLUICE_STATE_KV ? m_.K : m_.V; }
  int64_t columns() const { return m_.layout == SLUICE_STATE_KV ? m_.V : m_.K; }
  Model m_;
  TestTensor A_log_, dt_bias_, offsets_;

 public:
  TestTensor pool;
};

TestTensor slots_of(const std::vector<int64_t>& values) {
  return TestTensor::of_indices(kI32, values);
}

TestTensor table_of(const std::vector<int64_t>& values, int64_t columns) {
  Array array({static_cast<int64_t>(values.size()) / columns, columns});
  std::copy(values.begin(), values.end(), array.values.begin());
  return {kI64, array};
}

class DecodeSession : public ::testing::TestWithParam<Model> {};

TEST_P(DecodeSession, BatchMatesDoNotMatter) {
  const Model& m = GetParam();
  const int64_t N = 9;
  const Tokens tokens(m, N, 2);
  std::vector<int64_t> slots = range(0, N);
  std::reverse(slots.begin(), slots.end());
  Session together(m, N), alone(m, N);
  const Array all = together.run(tokens, slots_of(slots));
  for (const int64_t n : {0, 5}) {
    const Array one = alone.run(tokens.part({n}, 0, 2), slots_of({N - 1 - n}));
    EXPECT_TRUE(same_bits(one, take(all, 0, {n})));
    EXPECT_TRUE(same_bits(alone.states({N - 1 - n}), together.states({N - 1 - n})));
  }
}

/// A call of one token, cut up in as many ways as batches are large.
TEST_P(DecodeSession, OneTokenInAnyBatch) {
  const Model& m = GetParam();
  const int64_t N = 9;
  const Tokens tokens(m, N, 1);
  Session together(m, N), alone(m, N);
  const Array all = together.run(tokens, slots_of(range(0, N)));
  for (const int64_t n : {3, 8}) {
    const Array one = alone.run(tokens.part({n}, 0, 1), slots_of({n}));
    EXPECT_TRUE(same_bits(one, take(all, 0, {n})));
    EXPECT_TRUE(same_bits(alone.states({n}), together.states({n})));
  }
}

TEST_P(DecodeSession, TokensInOneCallOrInSeveral) {
  Model m = GetParam();
  m.state = kF32;  // what is stored between calls is rounded otherwise
  const Tokens tokens(m, 2, 5);
  Session together(m, 2), apart(m, 2);
  const Array all = together.run(tokens, slots_of({1, 0}));
  for (int64_t t = 0; t < 5; ++t) {
    const Array one = apart.run(tokens.part({0, 1}, t, 1), slots_of({1, 0}));
    EXPECT_TRUE(same_bits(one, take(all, 1, {t}))) << t;
  }
  EXPECT_TRUE(same_bits(together.states({0, 1}), apart.states({0, 1})));
}

/// Of the GPU: sums go in one order, whichever way a float32 state lies.
TEST_P(DecodeSession, LayoutsGiveTheSameBits) {
  if (backend() != SLUICE_IMPL_CUDA) GTEST_SKIP() << "layouts are swept each its own way";
  Model m = GetParam();
  m.state = kF32, m.layout = SLUICE_STATE_KV;
  const Tokens tokens(m, 2, 3);
  Session kv(m, 2);
  m.layout = SLUICE_STATE_VK;
  Session vk(m, 2);
  const auto transposed = [&](const Array& states) {
    Array out({2, m.HV, m.V, m.K});
    for (int64_t i = 0; i < out.size(); ++i) {
      const int64_t row = i / m.K % m.V, column = i % m.K, head = i / m.K / m.V;
      out.values[static_cast<size_t>(i)] = states(0, head, column, row);
    }
    return out;
  };
  vk.pool.assign(transposed(kv.pool.values()));
  EXPECT_TRUE(same_bits(kv.run(tokens, slots_of({1, 0})), vk.run(tokens, slots_of({1, 0}))));
  EXPECT_TRUE(same_bits(transposed(kv.pool.values()), vk.pool.values()));
}

/// Rounds of three drafted tokens, of which a random number is accepted.
TEST_P(DecodeSession, SpeculationEndsWherePlainDecodingDoes) {
  Model m = GetParam();
  m.state = kF32;
  constexpr int64_t kN = 2, kDrafts = 3, kRounds = 4;
  const Tokens tokens(m, kN, kDrafts * kRounds);
  Session plain(m, kN), drafting(m, kN * kDrafts);
  // Column 0 of both tables holds what the plain session starts from.
  Array pool = drafting.pool.values();
  const Array start = plain.pool.values();
  const auto size = static_cast<std::ptrdiff_t>(start.values.size() / kN);
  for (int64_t n = 0; n < kN; ++n) {
    std::copy_n(start.values.begin() + n * size, size, pool.values.begin() + n * kDrafts * size);
  }
  drafting.pool.assign(pool);
  const TestTensor table = table_of(range(0, kN * kDrafts), kDrafts);
  Random random(5);
  int64_t accepted = 1, done = 0;
  for (int64_t round = 0; round < kRounds; ++round) {
    const TestTensor before = slots_of({accepted, accepted});
    const Array drafted = drafting.run(tokens.part(range(0, kN), done, kDrafts), table, table,
                                       SLUICE_STATE_WRITE_PER_TOKEN, before);
    accepted = 1 + pick(&random, kDrafts);
    const Array kept = plain.run(tokens.part(range(0, kN), done, accepted), slots_of({0, 1}));
    EXPECT_TRUE(same_bits(kept, take(drafted, 1, range(0, accepted)))) << round;
    done += accepted;
    EXPECT_TRUE(
        same_bits(plain.states({0, 1}), drafting.states({accepted - 1, kDrafts + accepted - 1})));
  }
}

/// Between the tokens of a call the state is float32, whatever is stored; one of the states is not.
TEST_P(DecodeSession, StatesOfEveryTokenAreRoundedOnce) {
  const Model m = GetParam();
  constexpr int64_t kTokens = 4, kFirst = 2;
  const Tokens tokens(m, 2, kTokens);
  std::vector<int64_t> slots = range(kFirst, 2 * kTokens);
  const int64_t skipped = slots[kTokens + 2];
  slots[kTokens + 2] = -1;
  Session every(m, kFirst + 2 * kTokens);
  Model wide = m;
  wide.state = kF32;
  Session exact(wide, 2);
  exact.pool.assign(every.states({0, 1}));
  const Array before = every.states({0, 1, skipped});
  const Array o =
      every.run(tokens, slots_of({0, 1}), table_of(slots, kTokens), SLUICE_STATE_WRITE_PER_TOKEN);
  for (int64_t t = 0; t < kTokens; ++t) {
    const Array one = exact.run(tokens.part({0, 1}, t, 1), slots_of({0, 1}));
    EXPECT_TRUE(same_bits(one, take(o, 1, {t}))) << t;
    const Array states = TestTensor(m.state, exact.states({0, 1})).values();
    for (int64_t n = 0; n < 2; ++n) {
      const int64_t slot = slots[static_cast<size_t>(n * kTokens + t)];
      if (slot < 0) continue;
      EXPECT_TRUE(same_bits(take(states, 0, {n}), every.states({slot}))) << n << ", token " << t;
    }
  }
  EXPECT_TRUE(same_bits(before, every.states({0, 1, skipped})));
}

/// Of the GPU: a CPU refuses such indices.
TEST_P(DecodeSession, MalformedIndicesReachNothing) {
  if (backend() != SLUICE_IMPL_CUDA) GTEST_SKIP() << "host contents are checked";
  const Model& m = GetParam();
  const Tokens tokens(m, 5, 1);
  Session session(m, 4);
  const Array before = session.pool.values();
  const Array o = session.run(tokens, slots_of({1 << 30, -7, 2, 4, INT32_MIN}));
  for (const int64_t n : {0, 1, 3, 4}) {
    const Array row = take(o, 0, {n});
    EXPECT_TRUE(std::all_of(row.values.begin(), row.values.end(), [](double x) { return x == 0; }));
  }
  EXPECT_TRUE(same_bits(session.states({0, 1, 3}), take(before, 0, {0, 1, 3})));
  EXPECT_FALSE(same_bits(session.states({2}), take(before, 0, {2})));
  // Offsets that go backwards, and past the rows.
  Tokens packed = tokens;
  for (Array* array : {&packed.q, &packed.k, &packed.v, &packed.gate, &packed.beta}) {
    std::swap(array->shape[0], array->shape[1]);
  }
  Session malformed(m, 4);
  malformed.pack({-3, 2, 1, 1 << 30, 7});
  malformed.run(packed, slots_of({0, 1, 2, 3}));
}

/// A NaN of v stays in its column, one of a state in its sequence and head.
TEST_P(DecodeSession, NanStaysWhereItIs) {
  const Model& m = GetParam();
  Tokens tokens(m, 2, 2);
  Session clean(m, 2), spoilt(m, 2);
  const Array expected = clean.run(tokens, slots_of({0, 1}));
  tokens.v(1, 0, 0, 3) = std::nan("");
  const Array found = spoilt.run(tokens, slots_of({0, 1}));
  for (int64_t t = 0; t < 2; ++t) {
    for (int64_t h = 0; h < m.HV; ++h) {
      for (int64_t j = 0; j < m.V; ++j) {
        EXPECT_EQ(found(0, t, h, j), expected(0, t, h, j));
        if (h != 0 || j != 3) {
          EXPECT_EQ(found(1, t, h, j), expected(1, t, h, j)) << t << h << j;
        }
      }
    }
  }
  EXPECT_TRUE(same_bits(clean.states({0}), spoilt.states({0})));
}

std::vector<Model> models() {
  std::vector<Model> all = {{.name = "K64"}, {.name = "K128_r3", .HV = 3, .K = 128}};
  all.push_back({.name = "K32_vk_bfloat16", .H = 2, .K = 32, .V = 48, .state = kBF16});
  all.back().layout = SLUICE_STATE_VK;
  all.push_back({.name = "K256_vk_float16", .H = 1, .K = 256, .V = 32, .state = kF16});
  all.back().layout = SLUICE_STATE_VK;
  all.push_back({.name = "K128_bfloat16", .K = 128, .V = 96, .state = kBF16});
  all.push_back({.name = "K64_float16", .V = 80, .state = kF16});
  all.push_back({.name = "K128_whole_heads", .HV = 16, .K = 128, .V = 128});
  all.push_back({.name = "K128_whole_heads_bfloat16", .K = 128, .V = 128});
  all.back().state = kBF16;
  all.push_back({.name = "K128_whole_heads_float16", .K = 128, .V = 128, .io = kF16});
  all.back().state = kF16;
  all.push_back({.name = "float32", .HV = 1, .K = 20, .V = 12, .io = kF32});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, DecodeSession, ::testing::ValuesIn(models()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace sluice::check
