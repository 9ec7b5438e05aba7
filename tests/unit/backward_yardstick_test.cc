// Measures whether the yardstick of gradients, which is the chunk form, is the reference's
// recurrence where nothing is rounded, and that 16-bit operands take it as far from that as their
// dtype says.
// SPDX-License-Identifier: Apache-2.0
#include "check/backward_yardstick.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "check/comparer.hpp"
#include "sluice/sluice.hpp"

namespace sluice::check {
namespace {

GdnCase base(sluice_rule rule) {
  GdnCase c;
  c.T = 150, c.B = 2, c.H = 2, c.HV = 4, c.K = 24, c.V = 20, c.keys = KeyProfile::kSiluLike;
  c.options.rule = rule, c.gates = GateProfile::kMixed;
  return c;
}

ResultGradients results_of(const GdnCase& c) {
  return {round_to(c.io, make_normal({c.B, c.T, c.HV, c.V}, c.seed + 31)),
          round_to(kF32, make_normal({c.sequences(), c.HV, c.K, c.V}, c.seed + 32))};
}

/// The reference's gradients, stored in float32.
InputGradients reference(const GdnCase& c, const GdnInputs& inputs,
                         const ResultGradients& results) {
  const TestTensor q(c.io, inputs.q), k(c.io, inputs.k), v(c.io, inputs.v), gate(kF32, inputs.gate),
      beta(kF32, inputs.beta), A_log(kF32, inputs.A_log), dt_bias(kF32, inputs.dt_bias),
      initial(kF32, inputs.initial), d_o(c.io, results.d_o), d_final(kF32, results.d_final);
  const std::vector<int64_t> offsets = c.cu_seqlens();
  const TestTensor cu = offsets.empty() ? TestTensor() : TestTensor::of_indices(kI64, offsets);
  const auto like = [](const Array& a) {
    return a.empty() ? TestTensor() : TestTensor(kF32, a.shape);
  };
  const TestTensor dq = like(inputs.q), dk = like(inputs.k), dv = like(inputs.v),
                   dgate = like(inputs.gate), dbeta = like(inputs.beta),
                   dA_log = like(inputs.A_log), ddt_bias = like(inputs.dt_bias),
                   dinitial = like(results.d_final);
  ChunkBackwardArgs args;
  const std::pair<TensorView*, const TestTensor*> views[] = {{&args.q, &q},
                                                             {&args.k, &k},
                                                             {&args.v, &v},
                                                             {&args.gate, &gate},
                                                             {&args.beta, &beta},
                                                             {&args.A_log, &A_log},
                                                             {&args.dt_bias, &dt_bias},
                                                             {&args.cu_seqlens, &cu},
                                                             {&args.initial, &initial},
                                                             {&args.d_o, &d_o},
                                                             {&args.d_final, &d_final},
                                                             {&args.dq, &dq},
                                                             {&args.dk, &dk},
                                                             {&args.dv, &dv},
                                                             {&args.dgate, &dgate},
                                                             {&args.dbeta, &dbeta},
                                                             {&args.dA_log, &dA_log},
                                                             {&args.ddt_bias, &ddt_bias},
                                                             {&args.dinitial, &dinitial}};
  for (const auto& [view, tensor] : views) *view = TensorView(tensor->view());
  core::set_options(c.options, &args);
  args.implementation = Implementation::kReference;
  HostWorkspace memory;
  const Status status = chunk_backward(args, memory.reserve(workspace_size(args).value.bytes));
  EXPECT_TRUE(status.ok()) << status.message;
  const auto values = [](const TestTensor& t) {
    return t.view().data == nullptr ? Array() : t.values();
  };
  return {values(dq),    values(dk),     values(dv),       values(dgate),
          values(dbeta), values(dA_log), values(ddt_bias), values(dinitial)};
}

/// The largest relative L2 error of a gradient.
double distance(const InputGradients& x, const InputGradients& truth) {
  const std::pair<const Array*, const Array*> all[] = {{&x.q, &truth.q},
                                                       {&x.k, &truth.k},
                                                       {&x.v, &truth.v},
                                                       {&x.gate, &truth.gate},
                                                       {&x.beta, &truth.beta},
                                                       {&x.A_log, &truth.A_log},
                                                       {&x.dt_bias, &truth.dt_bias},
                                                       {&x.initial, &truth.initial}};
  double worst = 0.0;
  for (const auto& [found, expected] : all) {
    EXPECT_EQ(found->shape, expected->shape);
    if (expected->size() == 0 || found->shape != expected->shape) continue;
    const Comparison comparison = compare_whole(view_of(*found), view_of(*expected));
    EXPECT_EQ(comparison.fault, "");
    worst = std::max(worst, comparison.relative_l2);
  }
  return worst;
}

double distance_of(const GdnCase& c) {
  const GdnInputs inputs = make_inputs(c);
  const ResultGradients results = results_of(c);
  return distance(backward_yardstick_of(c, inputs, results), reference(c, inputs, results));
}

constexpr sluice_rule kRules[] = {SLUICE_RULE_GATED_DELTA, SLUICE_RULE_LINEAR_ATTENTION};

TEST(BackwardYardstick, WithoutRoundingItIsTheReference) {
  const std::pair<const char*, std::function<void(GdnCase&)>> kChanges[] = {
      {"plain", [](GdnCase&) {}},
      {"norm", [](GdnCase& c) { c.options.qk_norm = SLUICE_QK_NORM_L2; }},
      {"raw",
       [](GdnCase& c) { c.options.gate_space = SLUICE_GATE_RAW, c.gates = GateProfile::kStrong; }},
      {"linear", [](GdnCase& c) { c.options.gate_space = SLUICE_GATE_LINEAR; }},
      {"infinite", [](GdnCase& c) { c.gates = GateProfile::kMinusInfinity; }},
      {"none", [](GdnCase& c) { c.gates = GateProfile::kNone, c.initial = StateProfile::kNone; }},
      {"pack", [](GdnCase& c) { c.B = 1, c.lengths = {0, 1, 64, 85}; }},
      {"cyclic",
       [](GdnCase& c) { c.options.head_map = SLUICE_HEAD_MAP_CYCLIC, c.options.scale = 0.3; }},
      {"logit", [](GdnCase& c) {
         if (c.options.rule == SLUICE_RULE_LINEAR_ATTENTION) return;
         c.options.beta_space = SLUICE_BETA_LOGIT,
         c.options.eigenvalues = SLUICE_EIGENVALUES_NEGATIVE;
       }}};
  for (const sluice_rule rule : kRules) {
    for (const auto& [name, change] : kChanges) {
      GdnCase c = base(rule);
      change(c);
      // The reference's results are stored in float32.
      EXPECT_LT(distance_of(c), 2e-7) << name << ", rule " << rule;
    }
  }
}

TEST(BackwardYardstick, OperandsAreRounded) {
  for (const sluice_rule rule : kRules) {
    GdnCase c = base(rule);
    for (const auto& [dtype, rounding] : {std::pair{kBF16, 0x1p-9}, {kF16, 0x1p-12}}) {
      c.io = dtype;
      // At least a mean rounding of a stored value; not ten of them.
      const double found = distance_of(c);
      EXPECT_GT(found, 0.5 * rounding) << "rule " << rule;
      EXPECT_LT(found, 10 * rounding) << "rule " << rule;
    }
  }
}

TEST(GradientLimits, FollowTheKindOfGradient) {
  const Tolerance many = gradient_tolerance("q", 256, 1e-5, 0),
                  few = gradient_tolerance("k", 255, 1e-5, 0);
  EXPECT_DOUBLE_EQ(many.whole, 1e-5);
  EXPECT_DOUBLE_EQ(many.head, 2e-5);
  EXPECT_DOUBLE_EQ(many.window, 4e-5);
  EXPECT_DOUBLE_EQ(few.whole, 2e-5);
  EXPECT_DOUBLE_EQ(gradient_tolerance("dt_bias", 4, 1e-5, 0).whole, 1e-4);
  EXPECT_TRUE(std::isinf(gradient_tolerance("gate", 300, 1e-5, 0).window));
  EXPECT_DOUBLE_EQ(gradient_tolerance("gate", 300, 1e-5, 0).whole, 1e-5);

  Comparison yardstick;
  yardstick.compared = 1000, yardstick.relative_l2 = 4e-3;
  yardstick.worst_head.relative_l2 = 5e-3, yardstick.worst_window.relative_l2 = 6e-3;
  const Tolerance rounded = gradient_from_yardstick("v", yardstick, 1e-5, kBF16);
  EXPECT_DOUBLE_EQ(rounded.whole, 6e-3);
  EXPECT_DOUBLE_EQ(rounded.head, 1e-2);
  EXPECT_DOUBLE_EQ(rounded.window, 1.2e-2);
  EXPECT_TRUE(std::isinf(gradient_from_yardstick("beta", yardstick, 1e-5, kBF16).head));
  // A gradient that meets no rounded operand, and sums that happen to be lucky.
  yardstick.relative_l2 = yardstick.worst_head.relative_l2 = 1e-9;
  EXPECT_DOUBLE_EQ(gradient_from_yardstick("_initial_state", yardstick, 1e-5, kBF16).whole, 1e-5);
  EXPECT_DOUBLE_EQ(gradient_from_yardstick("A_log", yardstick, 1e-5, kF16).whole, 10 * 0x1p-12);
  EXPECT_DOUBLE_EQ(gradient_from_yardstick("gate", yardstick, 1e-5, kF16).whole, 1e-5);
  yardstick.compared = 255;
  EXPECT_DOUBLE_EQ(gradient_from_yardstick("beta", yardstick, 1e-5, kBF16).whole, 10 * 0x1p-9);
}

}  // namespace
}  // namespace sluice::check
