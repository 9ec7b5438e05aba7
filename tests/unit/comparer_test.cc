// Tests the comparer: outputs that are wrong in known ways must fail in the gate regimes where the
// mistake shows, and right ones pass. The mutants are made by a recurrence of its own with one
// switchable mistake each, on T = 1024, H = 2, HV = 4, K = 128, judged by the bf16 caps.
// SPDX-License-Identifier: Apache-2.0
#include "check/comparer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "check/generate.hpp"
#include "check/yardstick.hpp"

namespace sluice::check {
namespace {

constexpr int64_t kT = 1024, kH = 2, kHV = 4, kK = 128, kV = 64;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Inputs {
  Array q, k, v, g, beta, h0;
};

Inputs make_regime(GateProfile gates) {
  return {make_keys(KeyProfile::kRandomUnit, {1, kT, kH, kK}, 1),
          make_keys(KeyProfile::kSiluLike, {1, kT, kH, kK}, 2),
          make_normal({1, kT, kHV, kV}, 3),
          make_gates(gates, {1, kT, kHV}, 4),
          make_betas(BetaProfile::kSigmoid, {1, kT, kHV}, 5),
          make_normal({1, kHV, kK, kV}, 6)};
}

/// One mistake each; the default makes none.
struct Mistake {
  int64_t drop_state_at = -1;  ///< S = 0 before this token
  bool ignore_h0 = false;
  bool cyclic_key_heads = false;  ///< h mod H where h / r is right
  bool skip_last_write = false;
  bool error_before_decay = false;
  int64_t shift_gates_in_chunk = -1;  ///< this chunk uses the next token's gates
  bool bf16_cumsum = false;           ///< gates as differences of a bf16 sum within the chunk
};

/// g of token t as the mistake sees it.
double gate_of(const Inputs& in, const Mistake& mistake, int64_t t, int64_t h, double* sum) {
  if (t % 64 == 0) *sum = 0.0;
  if (mistake.shift_gates_in_chunk == t / 64) return in.g(0, std::min(t + 1, kT - 1), h);
  const double g = in.g(0, t, h);
  if (!mistake.bf16_cumsum) return g;
  const double before = round_to(kBF16, *sum);
  *sum += g;
  return round_to(kBF16, *sum) - before;
}

/// One token: S [kK,kV] of head h and its row of o.
void step(const Inputs& in, const Mistake& mistake, int64_t t, int64_t h, double g, double* S,
          Array* o) {
  const int64_t key_head = mistake.cyclic_key_heads ? h % kH : h / (kHV / kH);
  const double alpha = std::exp(g), beta = in.beta(0, t, h);
  const double* k = &in.k.values[in.k.position(0, t, key_head, 0)];
  const double* q = &in.q.values[in.q.position(0, t, key_head, 0)];
  double delta[kV], out[kV] = {};
  for (int64_t j = 0; j < kV; ++j) delta[j] = in.v(0, t, h, j);
  for (int64_t i = 0; i < kK; ++i) {
    const double factor = mistake.error_before_decay ? k[i] : alpha * k[i];
    for (int64_t j = 0; j < kV; ++j) delta[j] -= factor * S[i * kV + j];
  }
  const bool write = !(mistake.skip_last_write && t == kT - 1);
  for (int64_t i = 0; i < kK; ++i) {
    for (int64_t j = 0; j < kV; ++j) {
      double& s = S[i * kV + j];
      s = alpha * s + (write ? beta * k[i] * delta[j] : 0.0);
      out[j] += q[i] * s;
    }
  }
  for (int64_t j = 0; j < kV; ++j) (*o)(0, t, h, j) = out[j] / std::sqrt(double{kK});
}

struct Outputs {
  Array o, state;
};

Outputs evaluate(const Inputs& in, const Mistake& mistake) {
  Outputs out{Array({1, kT, kHV, kV}), in.h0};
  for (int64_t h = 0; h < kHV; ++h) {
    double* S = &out.state(0, h, 0, 0);
    if (mistake.ignore_h0) std::fill_n(S, kK * kV, 0.0);
    double sum = 0.0;
    for (int64_t t = 0; t < kT; ++t) {
      if (t == mistake.drop_state_at) std::fill_n(S, kK * kV, 0.0);
      step(in, mistake, t, h, gate_of(in, mistake, t, h, &sum), S, &out.o);
    }
  }
  return out;
}

/// Inputs and truth of a regime, computed once.
struct Regime {
  Inputs inputs;
  Outputs truth;
};
const Regime& regime(GateProfile gates) {
  static std::map<GateProfile, Regime> all;
  if (all.count(gates) == 0) {
    const Inputs inputs = make_regime(gates);
    all[gates] = {inputs, evaluate(inputs, {})};
  }
  return all[gates];
}
constexpr GateProfile kRegimes[] = {GateProfile::kSlow, GateProfile::kFlashQla,
                                    GateProfile::kStrong};

bool o_passes(const Array& o, const Array& truth, sluice_dtype tolerance_of = kBF16) {
  return judge("o", compare_tokens(view_of(o), view_of(truth)),
               cap(tolerance_of, Quantity::kOutput, Conditioning::kBenign))
      .pass;
}
bool state_passes(const Array& state, const Array& truth, sluice_dtype tolerance_of = kBF16) {
  return judge("state", compare_states(view_of(state), view_of(truth)),
               cap(tolerance_of, Quantity::kState, Conditioning::kBenign))
      .pass;
}

/// What the comparer says of a mutant in a regime.
struct Found {
  bool o_fails, state_fails;
};
Found mutate(GateProfile gates, const Mistake& mistake) {
  const Regime& r = regime(gates);
  const Outputs mutant = evaluate(r.inputs, mistake);
  return {!o_passes(mutant.o, r.truth.o), !state_passes(mutant.state, r.truth.state)};
}

// ------------------------------------------------------------------------- right outputs pass ----

TEST(Comparer, PassesTheTruthRoundedAndTheYardstick) {
  for (const GateProfile gates : kRegimes) {
    const Regime& r = regime(gates);
    EXPECT_TRUE(o_passes(round_to(kBF16, r.truth.o), r.truth.o));
    EXPECT_TRUE(o_passes(round_to(kF16, r.truth.o), r.truth.o, kF16));
    EXPECT_TRUE(o_passes(round_to(kF32, r.truth.o), r.truth.o, kF32));
    EXPECT_TRUE(state_passes(round_to(kF32, r.truth.state), r.truth.state, kF32));
    YardstickInputs in;
    in.q = r.inputs.q, in.k = r.inputs.k, in.v = r.inputs.v;
    in.g = r.inputs.g, in.beta = r.inputs.beta, in.initial = r.inputs.h0;
    in.scale = 1.0 / std::sqrt(double{kK});
    const YardstickOutputs exact = evaluate_yardstick(in, kF64, kF64);
    EXPECT_LE(compare_tokens(view_of(exact.o), view_of(r.truth.o)).relative_l2, 1e-12);
    const YardstickOutputs rounded = evaluate_yardstick(in, kBF16, kF32);
    const Comparison found = compare_tokens(view_of(rounded.o), view_of(r.truth.o));
    EXPECT_LE(found.relative_l2, 0.005);
    EXPECT_GE(found.relative_l2, 0.001);
    EXPECT_TRUE(state_passes(rounded.final_state, r.truth.state));
    EXPECT_TRUE(
        judge("o", found, from_yardstick(found, cap(kBF16, Quantity::kOutput, {}), kBF16)).pass);
  }
}

// ------------------------------------------------------------------------ mutants must fail ----

TEST(ComparerMutants, AllZeroFailsEverywhere) {
  for (const GateProfile gates : kRegimes) {
    const Regime& r = regime(gates);
    EXPECT_FALSE(o_passes(Array(r.truth.o.shape), r.truth.o));
    EXPECT_FALSE(state_passes(Array(r.truth.state.shape), r.truth.state));
  }
}

TEST(ComparerMutants, StateDroppedAtAChunkBorderFailsUnderSlowDecay) {
  for (const int64_t token : {int64_t{64}, int64_t{512}, kT - 64}) {
    Mistake mistake;
    mistake.drop_state_at = token;
    const Found found = mutate(GateProfile::kSlow, mistake);
    EXPECT_TRUE(found.o_fails) << token;
    EXPECT_TRUE(found.state_fails) << token;
  }
}

TEST(ComparerMutants, IgnoredInitialStateFailsUnderSlowDecay) {
  Mistake mistake;
  mistake.ignore_h0 = true;
  const Found found = mutate(GateProfile::kSlow, mistake);
  EXPECT_TRUE(found.o_fails);
  EXPECT_TRUE(found.state_fails);
}

TEST(ComparerMutants, WrongKeyHeadFailsEverywhere) {
  Mistake mistake;
  mistake.cyclic_key_heads = true;
  for (const GateProfile gates : kRegimes) {
    EXPECT_TRUE(mutate(gates, mistake).o_fails);
    EXPECT_TRUE(mutate(gates, mistake).state_fails);
  }
}

TEST(ComparerMutants, SwappedValueHeadsFailEverywhere) {
  for (const GateProfile gates : kRegimes) {
    const Regime& r = regime(gates);
    Outputs swapped = r.truth;
    for (int64_t t = 0; t < kT; ++t) {
      for (int64_t j = 0; j < kV; ++j) std::swap(swapped.o(0, t, 0, j), swapped.o(0, t, 1, j));
    }
    std::swap_ranges(&swapped.state(0, 0, 0, 0), &swapped.state(0, 1, 0, 0),
                     &swapped.state(0, 1, 0, 0));
    EXPECT_FALSE(o_passes(swapped.o, r.truth.o));
    EXPECT_FALSE(state_passes(swapped.state, r.truth.state));
  }
}

TEST(ComparerMutants, LastTokenNotWrittenFailsInTheState) {
  Mistake mistake;
  mistake.skip_last_write = true;
  for (const GateProfile gates : kRegimes) EXPECT_TRUE(mutate(gates, mistake).state_fails);
}

TEST(ComparerMutants, ErrorBeforeDecayFailsUnderStrongDecay) {
  Mistake mistake;
  mistake.error_before_decay = true;
  EXPECT_TRUE(mutate(GateProfile::kStrong, mistake).o_fails);
  EXPECT_TRUE(mutate(GateProfile::kStrong, mistake).state_fails);
}

TEST(ComparerMutants, ShiftedGatesFailUnderStrongDecayInTheirWindow) {
  Mistake mistake;
  mistake.shift_gates_in_chunk = 7;
  const Regime& r = regime(GateProfile::kStrong);
  const Outputs mutant = evaluate(r.inputs, mistake);
  const Comparison found = compare_tokens(view_of(mutant.o), view_of(r.truth.o));
  EXPECT_FALSE(o_passes(mutant.o, r.truth.o));
  EXPECT_GT(found.worst_window.relative_l2, 0.1);
  EXPECT_EQ(found.worst_window.token, 7 * 64);
}

TEST(ComparerMutants, Bf16CumsumFailsUnderStrongDecay) {
  Mistake mistake;
  mistake.bf16_cumsum = true;
  EXPECT_TRUE(mutate(GateProfile::kStrong, mistake).o_fails);
  EXPECT_TRUE(mutate(GateProfile::kStrong, mistake).state_fails);
}

TEST(ComparerMutants, TransposedStateFailsEverywhere) {
  for (const GateProfile gates : kRegimes) {
    const Regime& r = regime(gates);
    Array transposed(r.truth.state.shape);  // [V,K] memory read as [K,V]
    for (int64_t h = 0; h < kHV; ++h) {
      for (int64_t i = 0; i < kK; ++i) {
        for (int64_t j = 0; j < kV; ++j) {
          transposed(0, h, 0, j * kK + i) = r.truth.state(0, h, i, j);
        }
      }
    }
    EXPECT_FALSE(state_passes(transposed, r.truth.state));
  }
}

TEST(ComparerMutants, OneHeadWrongByTwoPercentFailsAsWorstHead) {
  for (const GateProfile gates : kRegimes) {
    const Regime& r = regime(gates);
    Array o = r.truth.o;
    for (int64_t t = 0; t < kT; ++t) {
      for (int64_t j = 0; j < kV; ++j) o(0, t, 2, j) *= 1.02;
    }
    const Comparison found = compare_tokens(view_of(o), view_of(r.truth.o));
    EXPECT_EQ(found.worst_head.head, 2);
    EXPECT_NEAR(found.worst_head.relative_l2, 0.02, 1e-6);
    EXPECT_FALSE(o_passes(o, r.truth.o));
    Tolerance whole_only = cap(kBF16, Quantity::kOutput, Conditioning::kBenign);
    whole_only.whole = whole_only.window = 1.0;
    EXPECT_FALSE(judge("o", found, whole_only).pass);
  }
}

TEST(ComparerMutants, OneNaNOrInfinityFails) {
  const Regime& r = regime(GateProfile::kSlow);
  for (const double bad : {kNaN, std::numeric_limits<double>::infinity()}) {
    Array o = r.truth.o;
    o(0, 700, 3, 1) = bad;
    const Comparison found = compare_tokens(view_of(o), view_of(r.truth.o));
    EXPECT_NE(found.fault.find("[0,700,3,1]"), std::string::npos) << found.fault;
    EXPECT_FALSE(o_passes(o, r.truth.o));
    EXPECT_FALSE(o_passes(r.truth.o, o)) << "a number where the reference has none";
    EXPECT_TRUE(o_passes(o, Array(o))) << "the same in both is equal";
  }
}

TEST(ComparerMutants, OutputShiftedByOneTokenFails) {
  for (const GateProfile gates : kRegimes) {
    const Regime& r = regime(gates);
    Array o = r.truth.o;
    std::copy(r.truth.o.values.begin(), r.truth.o.values.end() - kHV * kV,
              o.values.begin() + kHV * kV);
    EXPECT_FALSE(o_passes(o, r.truth.o));
  }
}

TEST(ComparerMutants, OneZeroedWindowFailsAsWorstWindow) {
  const Regime& r = regime(GateProfile::kSlow);
  Array o = r.truth.o;
  for (int64_t t = 320; t < 384; ++t) {
    for (int64_t j = 0; j < kV; ++j) o(0, t, 1, j) = 0.0;
  }
  const Comparison found = compare_tokens(view_of(o), view_of(r.truth.o));
  EXPECT_EQ(found.worst_window.token, 320);
  EXPECT_EQ(found.worst_window.head, 1);
  EXPECT_DOUBLE_EQ(found.worst_window.relative_l2, 1.0);
  EXPECT_FALSE(judge("o", found, {1.0, 1.0, 0.01}).pass);
}

TEST(ComparerMutants, SwappedSequencesFail) {
  const Array truth = make_normal({1, 128, 2, 8}, 1);  // packed: two sequences of 64
  Array o = truth;
  std::rotate(o.values.begin(), o.values.begin() + o.size() / 2, o.values.end());
  const Tolerance limit = cap(kBF16, Quantity::kOutput, Conditioning::kBenign);
  EXPECT_FALSE(judge("o", compare_tokens(view_of(o), view_of(truth), {0, 64, 128}), limit).pass);
  EXPECT_TRUE(
      judge("o", compare_tokens(view_of(Array(truth)), view_of(truth), {0, 64, 128}), limit).pass);
}

TEST(ComparerMutants, ToleranceOfAFinerTypeFails) {
  const Regime& r = regime(GateProfile::kSlow);
  EXPECT_FALSE(o_passes(round_to(kBF16, r.truth.o), r.truth.o, kF16));
  EXPECT_FALSE(o_passes(round_to(kF16, r.truth.o), r.truth.o, kF32));
}

TEST(Comparer, DegenerateKeysAreJudgedByTheYardstickAlone) {
  Comparison yardstick;
  yardstick.compared = 1 << 20;
  yardstick.relative_l2 = 0.02;
  const auto limit = [&](Conditioning conditioning) {
    return from_yardstick(yardstick, cap(kBF16, Quantity::kOutput, conditioning), kBF16).whole;
  };
  EXPECT_DOUBLE_EQ(limit(Conditioning::kDegenerate), 0.03);
  EXPECT_DOUBLE_EQ(limit(Conditioning::kBenign), 0.005) << "the cap";
  yardstick.relative_l2 = 0.002;
  EXPECT_DOUBLE_EQ(limit(Conditioning::kBenign), 0.0025);
  EXPECT_LE(cap(kF32, Quantity::kOutput, Conditioning::kDegenerate).whole, 1e-4);
}

// ------------------------------------------------------------------------------ empty, aliased
// ----

TEST(Comparer, NothingComparedFails) {
  const Array nothing({1, 0, 2, 8}), something = make_normal({1, 4, 2, 8}, 1);
  const Tolerance generous{1.0, 1.0, 1.0};
  EXPECT_FALSE(
      judge("o", compare_tokens(view_of(Array(nothing)), view_of(nothing)), generous).pass);
  const Comparison rows = compare_tokens(view_of(Array(something)), view_of(something), {0, 0});
  EXPECT_EQ(rows.fault, "nothing was compared");
  EXPECT_FALSE(judge("o", compare_tokens(view_of(Array()), view_of(something)), generous).pass);
}

TEST(Comparer, AliasingAndOtherShapesFail) {
  const Array x = make_normal({1, 4, 2, 8}, 1);
  EXPECT_EQ(compare_tokens(view_of(x), view_of(x)).fault,
            "output and reference are the same memory");
  const Array other = make_normal({1, 4, 2, 7}, 1);
  EXPECT_EQ(compare_tokens(view_of(other), view_of(x)).fault, "shapes differ");
}

TEST(Comparer, WhereTheReferenceIsZeroOnlyZeroPasses) {
  const Tolerance generous{1.0, 1.0, 1.0};
  const Array zero({1, 4, 2, 8});
  Array x = zero;
  EXPECT_TRUE(judge("o", compare_tokens(view_of(x), view_of(zero)), generous).pass);
  x(0, 1, 1, 2) = 1e-30;
  EXPECT_FALSE(judge("o", compare_tokens(view_of(x), view_of(zero)), generous).pass);
  Array reference = make_normal({1, 4, 2, 8}, 1);
  for (int64_t t = 0; t < 4; ++t) {
    for (int64_t j = 0; j < 8; ++j) reference(0, t, 1, j) = 0.0;
  }
  Array nearly = reference;
  nearly(0, 3, 1, 7) = 1e-20;
  EXPECT_FALSE(judge("o", compare_tokens(view_of(nearly), view_of(reference)), generous).pass);
}

TEST(Comparer, ReadsStridedViewsAndNamesTheWorstElement) {
  const Array truth = make_normal({1, 4, 2, 8}, 1);
  Array head_first({1, 2, 4, 8});
  for (int64_t t = 0; t < 4; ++t) {
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t j = 0; j < 8; ++j) head_first(0, h, t, j) = truth(0, t, h, j);
    }
  }
  head_first(0, 1, 2, 5) += 0.25;
  sluice_tensor view = view_of(head_first);
  std::swap(view.shape[1], view.shape[2]);
  std::swap(view.stride[1], view.stride[2]);
  const Comparison found = compare_tokens(view, view_of(truth));
  EXPECT_NEAR(found.max_abs, 0.25, 1e-12);
  EXPECT_EQ(found.max_abs_at, (std::vector<int64_t>{0, 2, 1, 5}));
  const std::string line = judge("o", found, {1.0, 1.0, 1.0}).line;
  EXPECT_NE(line.find("[0,2,1,5]"), std::string::npos) << line;
  EXPECT_NE(line.find("PASS"), std::string::npos) << line;
}

}  // namespace
}  // namespace sluice::check
