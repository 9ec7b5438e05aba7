// Tests rows, slots, checkpoints and layouts of the reference against the same sequences run alone.
// Problems are float64 views handed to the backend tables directly; equal means equal bits.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "unit/ref_case.hpp"

namespace sluice {
namespace {

TEST(RefStates, PackedSequencesAreTheSequencesAlone) {
  const std::vector<int64_t> offsets{0, 0, 70, 71, 130};  // the last 20 of 150 rows are unused
  for (const auto execute : {run_recurrent, run_chunked}) {
    Case packed;
    packed.generate(KeyProfile::kSiluLike, GateProfile::kSlow, BetaProfile::kSigmoid);
    packed.initial = check::make_normal({4, packed.HV, packed.K, packed.V}, 7);
    packed.final = Array(packed.initial.shape);
    const auto cu_seqlens = check::TestTensor::of_indices(check::kI32, offsets);
    DeltaRuleProblem p = packed.problem();
    p.rows.N = 4;
    p.rows.cu_seqlens = cu_seqlens.view();
    execute(p);
    EXPECT_TRUE(std::isnan(packed.o(0, 130, 0, 0))) << "rows past the last sequence were written";
    for (int64_t j = 0; j < packed.K * packed.V; ++j) {
      EXPECT_EQ(packed.final.values[static_cast<size_t>(j)],
                packed.initial.values[static_cast<size_t>(j)])
          << "an empty sequence passes its state through";
    }
    for (size_t n = 1; n < 4; ++n) {
      Case alone;
      alone.generate(KeyProfile::kSiluLike, GateProfile::kSlow, BetaProfile::kSigmoid);
      const auto from = static_cast<std::ptrdiff_t>(alone.initial.values.size() * n);
      std::copy_n(packed.initial.values.begin() + from, alone.initial.size(),
                  alone.initial.values.begin());
      DeltaRuleProblem q = alone.problem();
      for (core::Tensor* t : {&q.q, &q.k, &q.v, &q.gate, &q.beta, &q.o}) {
        t->data = static_cast<double*>(t->data) + offsets[n] * t->stride[1];
      }
      q.rows.T = offsets[n + 1] - offsets[n];
      execute(q);
      for (int64_t t = offsets[n]; t < offsets[n + 1]; ++t) {
        EXPECT_EQ(packed.o(0, t, 3, 5), alone.o(0, t, 3, 5));
      }
      EXPECT_EQ(packed.final(static_cast<int64_t>(n), 2, 3, 4), alone.final(0, 2, 3, 4));
    }
  }
}

TEST(RefStates, CheckpointsAreFinalStatesOfPrefixes) {
  for (const auto execute : {run_recurrent, run_chunked}) {
    Case whole;
    whole.generate(KeyProfile::kSiluLike, GateProfile::kSlow, BetaProfile::kSigmoid);
    Array pool({3, whole.HV, whole.K, whole.V}, -1.0);
    check::TestTensor slots(check::kI64, {1, 2});
    slots.assign([] {
      Array values({1, 2});
      values.values = {2, -1};  // the second checkpoint is skipped
      return values;
    }());
    DeltaRuleProblem p = whole.problem();
    p.checkpoints = view_of(pool);
    p.checkpoint_slots = slots.view();
    p.checkpoint_every = 64;
    execute(p);
    Case prefix;
    prefix.generate(KeyProfile::kSiluLike, GateProfile::kSlow, BetaProfile::kSigmoid);
    p = prefix.problem();
    p.rows.T = 64;
    execute(p);
    const auto third = pool.values.begin() + 2 * prefix.final.size();
    EXPECT_TRUE(std::equal(prefix.final.values.begin(), prefix.final.values.end(), third));
    EXPECT_TRUE(std::all_of(pool.values.begin(), third, [](double x) { return x == -1.0; }));
  }
}

TEST(RefStates, ValueFirstLayoutIsTheTranspose) {
  Case kv;
  kv.generate(KeyProfile::kSiluLike, GateProfile::kSlow, BetaProfile::kSigmoid);
  Case vk = kv;
  vk.initial = Array({1, vk.HV, vk.V, vk.K});
  vk.final = vk.initial;
  const auto transpose = [&](const Array& from, Array* to) {
    for (int64_t h = 0; h < kv.HV; ++h) {
      for (int64_t i = 0; i < kv.K; ++i) {
        for (int64_t j = 0; j < kv.V; ++j) (*to)(0, h, j, i) = from(0, h, i, j);
      }
    }
  };
  transpose(kv.initial, &vk.initial);
  run_recurrent(kv.problem());
  DeltaRuleProblem p = vk.problem();
  p.state.layout = SLUICE_STATE_VK;
  run_recurrent(p);
  EXPECT_EQ(vk.o.values, kv.o.values);
  Array expected(vk.final.shape);
  transpose(kv.final, &expected);
  EXPECT_EQ(vk.final.values, expected.values);
}

// Slots: sequence 0 reads 2 and writes 0, sequence 1 is padding, sequence 2 starts from zeros
// although its slot holds NaN and does not store its state.
TEST(RefStates, SlotsPadsAndMissingInitialStates) {
  Case c;
  c.B = 3, c.T = 4;
  c.generate(KeyProfile::kSiluLike, GateProfile::kSlow, BetaProfile::kSigmoid);
  c.initial = Array({3, c.HV, c.K, c.V}, std::nan(""));
  const Array start = check::make_normal({1, c.HV, c.K, c.V}, 9);
  std::copy(start.values.begin(), start.values.end(), c.initial.values.begin() + 2 * start.size());
  const auto read = check::TestTensor::of_indices(check::kI32, {2, 0, 1});
  const auto write = check::TestTensor::of_indices(check::kI64, {1, 1, 0});
  const auto flags = check::TestTensor::of_indices(check::kBool, {1, 1, 0});
  DeltaRuleProblem p = c.problem();
  p.state.read_slots = read.view(), p.state.write_slots = write.view();
  p.state.has_initial_state = flags.view();
  p.state.pad_below = 1;
  run_recurrent(p);

  Case alone;
  alone.T = 4;
  alone.generate(KeyProfile::kSiluLike, GateProfile::kSlow, BetaProfile::kSigmoid);
  alone.initial = start;
  const auto take = [&](const Array& from, Array* to, int64_t n) {
    std::copy_n(from.values.begin() + n * to->size(), to->size(), to->values.begin());
  };
  for (const int64_t n : {0, 2}) {
    take(c.q, &alone.q, n), take(c.k, &alone.k, n), take(c.v, &alone.v, n);
    take(c.g, &alone.g, n), take(c.beta, &alone.beta, n);
    if (n == 2) alone.initial = Array(start.shape);
    run_recurrent(alone.problem());
    for (int64_t j = 0; j < c.V; ++j) EXPECT_EQ(c.o(n, 3, 1, j), alone.o(0, 3, 1, j));
    if (n == 0) {
      EXPECT_EQ(c.final(1, 2, 3, 4), alone.final(0, 2, 3, 4));
    }
  }
  for (int64_t j = 0; j < c.V; ++j) EXPECT_EQ(c.o(1, 3, 1, j), 0.0);
  EXPECT_TRUE(std::isnan(c.final(0, 0, 0, 0)) && std::isnan(c.final(2, 0, 0, 0)));
}

TEST(RefStates, StepsReadTheAcceptedColumnAndWriteEveryToken) {
  Case c;
  c.T = 3;
  c.generate(KeyProfile::kSiluLike, GateProfile::kSlow, BetaProfile::kSigmoid);
  Case pool = c;
  pool.initial = Array({6, c.HV, c.K, c.V}, std::nan(""));
  std::copy(c.initial.values.begin(), c.initial.values.end(),
            pool.initial.values.begin() + 4 * c.initial.size());
  pool.final = Array(pool.initial.shape, -1.0);
  const auto table = [](std::vector<double> values) {
    Array array({1, static_cast<int64_t>(values.size())});
    array.values = std::move(values);
    return check::TestTensor(check::kI64, array);
  };
  const auto read = table({0, 4, 1}), write = table({5, 0, 3});
  const auto accepted = check::TestTensor::of_indices(check::kI32, {2});
  DeltaRuleProblem p = pool.problem();
  p.op = SLUICE_OP_RECURRENT_STEP;
  p.state.read_slots = read.view(), p.state.write_slots = write.view();
  p.state.pad_below = 1;  // slot 0 is the null slot: the second token's state is not stored
  p.num_accepted = accepted.view();
  p.state_writes = SLUICE_STATE_WRITE_PER_TOKEN;
  run(ref::chunked_backend().recurrent_step, p);
  for (int64_t T = 1; T <= 3; ++T) {
    Case prefix = c;
    p = prefix.problem();
    p.rows.T = T;
    run_recurrent(p);
    const int64_t slot = T == 1 ? 5 : T == 2 ? -1 : 3;
    if (slot >= 0) {
      EXPECT_EQ(pool.final(slot, 1, 2, 3), prefix.final(0, 1, 2, 3)) << T;
    }
    EXPECT_EQ(pool.o(0, T - 1, 1, 2), prefix.o(0, T - 1, 1, 2)) << T;
  }
  for (const int64_t slot : {0, 1, 2, 4}) EXPECT_EQ(pool.final(slot, 1, 2, 3), -1.0) << slot;
}

}  // namespace
}  // namespace sluice
