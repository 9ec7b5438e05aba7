// Tests the reference's convolution, gated norm and layer against definitions written out here, and
// a sequence in pieces against the same sequence at once. Problems are float64 views, so equal
// means equal bits unless a tolerance is given.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "unit/ref_case.hpp"

namespace sluice {
namespace {

using check::kBF16;
using check::kI64;
using check::TestTensor;

constexpr int64_t kChannels = 6;

double silu(double x) { return x / (1.0 + std::exp(-x)); }

/// Strides of dimension 1 onwards, from row `first` of a [1,T,1,C] array.
sluice_tensor rows_of(const Array& array, int64_t first, int64_t count) {
  sluice_tensor view = view_of(array);
  view.data = static_cast<double*>(view.data) + first * view.stride[1];
  view.shape[1] = count;
  return view;
}

/// One convolution over kChannels channels, in pieces that carry a state.
struct Conv {
  int64_t W, L;
  Array x, weight, bias, out, state;

  Conv(int64_t T, int64_t width, int64_t columns)
      : W(width),
        L(columns),
        x(check::make_normal({1, T, 1, kChannels}, 1)),
        weight(check::make_normal({kChannels, width}, 2)),
        bias(check::make_normal({kChannels}, 3)),
        out({1, T, 1, kChannels}, std::nan("")),
        state({1, kChannels, columns}) {}

  core::CausalConvProblem problem(int64_t first, int64_t count) const {
    core::CausalConvProblem p;
    p.rows = {1, count, 1, {}, count};
    p.G = 1, p.C = kChannels, p.W = W, p.L = L;
    p.x = rows_of(x, first, count), p.out = rows_of(out, first, count);
    p.weight = view_of(weight), p.bias = view_of(bias);
    p.state.initial = p.state.final = view_of(state);
    p.activation = SLUICE_ACTIVATION_SILU;
    return p;
  }
  /// The definition, inputs before the first one being zero.
  double expected(int64_t t, int64_t d) const {
    double sum = bias(d);
    for (int64_t w = 0; w < W; ++w) {
      if (t - W + 1 + w >= 0) sum += weight(d, w) * x(0, t - W + 1 + w, 0, d);
    }
    return silu(sum);
  }
  void expect_defined(int64_t tokens) const {
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t d = 0; d < kChannels; ++d) EXPECT_NEAR(out(0, t, 0, d), expected(t, d), 1e-14);
    }
  }
};

void run(const core::CausalConvProblem& problem) {
  ASSERT_TRUE(ref::recurrent_backend().causal_conv1d.run(problem, {}, {}, nullptr).ok());
}

TEST(RefConv, ShiftFormInPiecesIsTheDefinition) {
  for (const int64_t W : {2, 3, 4}) {
    for (const int64_t L : {W - 1, W + 2}) {
      Conv conv(17, W, L);
      int64_t first = 0;
      for (const int64_t count : {1, 2, 0, 5, 1, 8}) {
        run(conv.problem(first, count));
        first += count;
      }
      conv.expect_defined(17);
      for (int64_t column = 0; column < L; ++column) {
        EXPECT_EQ(conv.state(0, 2, column), conv.x(0, 17 - L + column, 0, 2));
      }
    }
  }
}

TEST(RefConv, RingFormInPiecesIsTheDefinition) {
  for (const int64_t W : {2, 4}) {
    for (const int64_t L : {W - 1, W, W + 3}) {
      Conv conv(17, W, L);
      int64_t first = 0;
      for (const int64_t count : {1, 2, 0, 5, 1, 8}) {
        core::CausalConvProblem p = conv.problem(first, count);
        const TestTensor position = TestTensor::of_indices(kI64, {first});
        p.state.form = SLUICE_CONV_STATE_RING;
        p.state.ring_position = position.view();
        run(p);
        first += count;
      }
      conv.expect_defined(17);
      for (int64_t t = 17 - L; t < 17; ++t) {
        EXPECT_EQ(conv.state(0, 2, t % L), conv.x(0, t, 0, 2));
      }
    }
  }
}

// Three drafted tokens of which `accepted` count: the next call goes on from there.
TEST(RefConv, NumAcceptedRollsBack) {
  for (const int64_t accepted : {1, 2, 3}) {
    Conv conv(12, 4, 5);
    run(conv.problem(0, 4));
    core::CausalConvProblem p = conv.problem(4, 3);
    // After plain tokens the history is the newest columns; SHIFT speculation starts at a - 1 = 0,
    // so the window's history must be at the front: the last three of five columns move there.
    for (int64_t d = 0; d < kChannels; ++d) {
      for (int64_t column = 0; column < 3; ++column) {
        conv.state(0, d, column) = conv.state(0, d, column + 2);
      }
    }
    const TestTensor one = TestTensor::of_indices(kI64, {0});
    p.state.num_accepted = one.view();
    run(p);
    conv.expect_defined(7);
    // The rejected inputs are replaced and recomputed.
    for (int64_t t = 4 + accepted; t < 12; ++t) {
      for (int64_t d = 0; d < kChannels; ++d) conv.x(0, t, 0, d) *= -2.0;
    }
    p = conv.problem(4 + accepted, 3);
    const TestTensor count = TestTensor::of_indices(kI64, {accepted});
    p.state.num_accepted = count.view();
    run(p);
    conv.expect_defined(4 + accepted + 3);
  }
}

TEST(RefConv, SpeculationPassesAnEmptySequenceThroughAndStaysInsideTheState) {
  Conv conv(12, 4, 5);
  conv.state = check::make_normal({1, kChannels, 5}, 4);
  const Array before = conv.state;
  const TestTensor many = TestTensor::of_indices(kI64, {99});
  core::CausalConvProblem p = conv.problem(0, 0);
  p.state.num_accepted = many.view();
  run(p);
  EXPECT_EQ(conv.state.values, before.values);
  // The last window there is: columns 2, 3, 4 are the history.
  p = conv.problem(0, 1);
  p.state.num_accepted = many.view();
  run(p);
  double sum = conv.bias(1) + conv.weight(1, 3) * conv.x(0, 0, 0, 1);
  for (int64_t w = 0; w < 3; ++w) sum += conv.weight(1, w) * before(0, 1, 2 + w);
  EXPECT_NEAR(conv.out(0, 0, 0, 1), silu(sum), 1e-14);
}

TEST(RefConv, PaddedRowsAreZeroAndTouchNoState) {
  Conv conv(3, 4, 3);
  conv.state = check::make_normal({1, kChannels, 3}, 4);
  const Array before = conv.state;
  core::CausalConvProblem p = conv.problem(0, 3);
  const TestTensor slots = TestTensor::of_indices(kI64, {-1});
  p.state.read_slots = p.state.write_slots = slots.view();
  run(p);
  EXPECT_EQ(conv.out.values, Array({1, 3, 1, kChannels}).values);
  EXPECT_EQ(conv.state.values, before.values);
}

// --------------------------------------------------------------------------------------- norm ----

constexpr int64_t kRows = 3, kWidth = 10;

struct Norm {
  Array x = check::make_normal({1, 1, 1, kRows, kWidth}, 1);
  Array z = check::make_normal({1, 1, 1, kRows, kWidth}, 2);
  Array weight = check::make_normal({kWidth}, 3);
  Array out = Array({1, 1, 1, kRows, kWidth});

  core::GatedNormProblem problem() const {
    core::GatedNormProblem p;
    p.V = kWidth, p.eps = 1e-2;
    p.x = view_of(x), p.z = view_of(z), p.weight = view_of(weight), p.out = view_of(out);
    return p;
  }
  double normalised(int64_t row, int64_t j) const {
    double sum = 0.0;
    for (int64_t i = 0; i < kWidth; ++i) sum += x(0, 0, 0, row, i) * x(0, 0, 0, row, i);
    return x(0, 0, 0, row, j) / std::sqrt(sum / static_cast<double>(kWidth) + 1e-2);
  }
};

void run(const core::GatedNormProblem& problem) {
  ASSERT_TRUE(ref::recurrent_backend().gated_rms_norm.run(problem, {}, {}, nullptr).ok());
}

TEST(RefNorm, IsTheDefinitionForBothActivations) {
  for (const auto activation : {SLUICE_ACTIVATION_SILU, SLUICE_ACTIVATION_SIGMOID}) {
    const Norm norm;
    core::GatedNormProblem p = norm.problem();
    p.activation = activation;
    run(p);
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t j = 0; j < kWidth; ++j) {
        const double z = norm.z(0, 0, 0, row, j);
        const double gate = activation == SLUICE_ACTIVATION_SILU ? silu(z) : silu(z) / z;
        EXPECT_NEAR(norm.out(0, 0, 0, row, j), norm.normalised(row, j) * norm.weight(j) * gate,
                    1e-13);
      }
    }
  }
}

TEST(RefNorm, HfOrderRoundsTheNormalisedInput) {
  Norm norm;
  norm.x = check::round_to(kBF16, norm.x);
  const TestTensor x(kBF16, norm.x);
  core::GatedNormProblem p = norm.problem();
  p.x = x.view();
  p.rounding = SLUICE_NORM_ROUND_HF;
  run(p);
  for (int64_t j = 0; j < kWidth; ++j) {
    const double n = check::round_to(kBF16, norm.normalised(1, j));
    const double expected = n * norm.weight(j) * silu(norm.z(0, 0, 0, 1, j));
    EXPECT_NEAR(norm.out(0, 0, 0, 1, j), expected, 1e-13);
    EXPECT_NE(n, norm.normalised(1, j));
  }
}

// -------------------------------------------------------------------------------------- layer ----

constexpr int64_t kT = 9, kH = 2, kHV = 4, kK = 6, kV = 5, kConvWidth = 4;

/// A layer over separate arrays, as the packings' views would give it.
struct Layer {
  Array x[3] = {check::make_normal({1, kT, kH, kK}, 1), check::make_normal({1, kT, kH, kK}, 2),
                check::make_normal({1, kT, kH, 2 * kV}, 3)};
  Array weight[3] = {check::make_normal({kH * kK, kConvWidth}, 4),
                     check::make_normal({kH * kK, kConvWidth}, 5),
                     check::make_normal({kHV * kV, kConvWidth}, 6)};
  Array a = check::make_normal({1, kT, kH, 2}, 7), b = check::make_normal({1, kT, kH, 2}, 8);
  Array A_log = check::make_normal({kHV}, 9), dt_bias = check::make_normal({kHV}, 10);
  Array z = check::make_normal({1, kT, kH, 2, kV}, 11), norm_weight{{kV}, 1.5};
  Array core_out = Array({1, kT, kHV, kV}), out = Array({1, kT, kH, 2, kV});

  core::LayerProblem problem() const {
    core::LayerProblem p;
    const core::Rows rows{1, kT, 1, {}, kT};
    for (int part = 0; part < 3; ++part) {
      core::CausalConvProblem& conv = p.conv[part];
      conv.rows = rows;
      conv.G = kH, conv.C = x[part].shape[3], conv.W = kConvWidth;
      conv.x = view_of(x[part]), conv.weight = view_of(weight[part]);
      conv.activation = SLUICE_ACTIVATION_SILU;
    }
    p.delta.rows = rows;
    p.delta.H = kH, p.delta.HV = kHV, p.delta.K = kK, p.delta.V = kV, p.delta.r = 2;
    p.delta.gate = view_of(a), p.delta.beta = view_of(b), p.delta.o = view_of(core_out);
    p.delta.A_log = view_of(A_log), p.delta.dt_bias = view_of(dt_bias);
    p.delta.scale = 0.5, p.delta.l2norm_eps = 1e-6;
    p.delta.gate_space = SLUICE_GATE_RAW, p.delta.beta_space = SLUICE_BETA_LOGIT;
    p.delta.qk_norm = SLUICE_QK_NORM_L2;
    p.norm.V = kV, p.norm.eps = 1e-6;
    p.norm.z = view_of(z), p.norm.weight = view_of(norm_weight), p.norm.out = view_of(out);
    return p;
  }
};

void run(const core::LayerProblem& problem) {
  const core::Operator<core::LayerProblem>& op = ref::chunked_backend().layer_prefill;
  core::Plan plan;
  ASSERT_TRUE(op.plan(problem, core::PlanFor::kCall, &plan).ok());
  const check::TestWorkspace workspace(plan.workspace_bytes);
  ASSERT_TRUE(op.run(problem, plan, workspace.get(), nullptr).ok());
  EXPECT_TRUE(workspace.guards_intact());
}

TEST(RefLayer, IsItsPartsOneAfterAnother) {
  const Layer layer;
  run(layer.problem());

  core::LayerProblem parts = layer.problem();
  Array convolved[3], core({1, kT, kHV, kV}), out({1, kT, kH, 2, kV});
  for (int part = 0; part < 3; ++part) {
    convolved[part] = Array(layer.x[part].shape);
    parts.conv[part].out = view_of(convolved[part]);
    run(parts.conv[part]);
  }
  convolved[2].shape = {1, kT, kHV, kV};
  parts.delta.q = view_of(convolved[0]), parts.delta.k = view_of(convolved[1]);
  parts.delta.v = view_of(convolved[2]), parts.delta.o = view_of(core);
  run_recurrent(parts.delta);
  Array core_rows = core;
  core_rows.shape = {1, kT, kH, 2, kV};
  parts.norm.x = view_of(core_rows), parts.norm.out = view_of(out);
  run(parts.norm);

  EXPECT_EQ(layer.core_out.values, core.values);
  EXPECT_EQ(layer.out.values, out.values);
}

TEST(RefLayer, PaddedSequenceIsZeroEvenWhereZIsNaN) {
  Layer layer;
  for (Array* array : {&layer.z, &layer.out, &layer.core_out}) {
    array->values.assign(array->values.size(), std::nan(""));
  }
  core::LayerProblem p = layer.problem();
  const TestTensor slots = TestTensor::of_indices(kI64, {-1});
  p.delta.state.read_slots = slots.view();
  for (core::CausalConvProblem& conv : p.conv) conv.state.read_slots = slots.view();
  run(p);
  EXPECT_EQ(layer.out.values, Array(layer.out.shape).values);
  EXPECT_EQ(layer.core_out.values, Array(layer.core_out.shape).values);
}

// In both orders the norm starts from a core output of out's type; HF's also rounds what it made of
// it.
TEST(RefLayer, RoundInputAndHfRoundToTheOutputsType) {
  for (const auto rounding : {SLUICE_NORM_ROUND_INPUT, SLUICE_NORM_ROUND_HF}) {
    const Layer layer;
    core::LayerProblem p = layer.problem();
    const TestTensor out(kBF16, layer.out);
    p.norm.rounding = rounding;
    p.norm.out = out.view();
    run(p);
    const Array found = out.values();
    double sum = 0.0;
    const auto core = [&](int64_t j) { return check::round_to(kBF16, layer.core_out(0, 4, 3, j)); };
    for (int64_t j = 0; j < kV; ++j) sum += core(j) * core(j);
    for (int64_t j = 0; j < kV; ++j) {
      double n = core(j) / std::sqrt(sum / static_cast<double>(kV) + 1e-6);
      if (rounding == SLUICE_NORM_ROUND_HF) n = check::round_to(kBF16, n);
      const double expected = n * 1.5 * silu(layer.z(0, 4, 1, 1, j));
      EXPECT_EQ(found(0, 4, 1, 1, j), check::round_to(kBF16, expected));
    }
  }
}

}  // namespace
}  // namespace sluice
