// Tests the reference's gradients of the convolution and of the gated norm against central
// differences of its own forward passes, along random directions of every input, in float64. The two
// share no formula.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "unit/ref_case.hpp"

namespace sluice {
namespace {

using check::make_normal;

/// [B,T,D] as [B,T,1,D].
sluice_tensor rows_of(const Array& a) {
  sluice_tensor t = view_of(a);
  t.rank = 4, t.shape[3] = t.shape[2], t.stride[3] = t.stride[2];
  t.shape[2] = 1, t.stride[2] = 0;
  return t;
}

/// [..,V] with leading dimensions of 1.
sluice_tensor rank5(const Array& a) {
  sluice_tensor t = view_of(a);
  sluice_tensor r = t;
  for (int axis = 0, pad = 5 - t.rank; axis < 5; ++axis) {
    r.shape[axis] = axis < pad ? 1 : t.shape[axis - pad];
    r.stride[axis] = axis < pad ? 0 : t.stride[axis - pad];
  }
  r.rank = 5;
  return r;
}

template <class Problem>
void run(const core::Operator<Problem>& op, const Problem& problem) {
  core::Plan plan;
  ASSERT_TRUE(op.plan(problem, core::PlanFor::kCall, &plan).ok());
  std::vector<double> scratch(plan.workspace_bytes / sizeof(double) + 1);
  const sluice_workspace workspace{scratch.data(), plan.workspace_bytes};
  ASSERT_TRUE(op.run(problem, plan, workspace, nullptr).ok());
}

double dot(const Array& a, const Array& b) {
  double sum = 0;
  for (size_t i = 0; i < a.values.size(); ++i) sum += a.values[i] * b.values[i];
  return sum;
}

/// The loss's slope along a random direction of `input` is what its gradient says.
template <class Loss>
void expect_slope(const char* name, Array* input, const Array& gradient, Loss loss) {
  const Array direction = make_normal(input->shape, 99), before = *input;
  const double step = 1e-6;
  double slope = 0;
  for (const double sign : {1.0, -1.0}) {
    for (size_t i = 0; i < before.values.size(); ++i) {
      input->values[i] = before.values[i] + sign * step * direction.values[i];
    }
    slope += sign * loss() / (2 * step);
  }
  *input = before;
  const double expected = dot(gradient, direction);
  EXPECT_NEAR(slope, expected, 1e-7 * (std::abs(expected) + std::sqrt(dot(gradient, gradient))))
      << name;
}

struct ConvCase {
  int64_t B, T, D, W, L;
  sluice_activation activation;
  Array x, weight, bias, initial, d_out, d_final, out, final;

  core::CausalConvProblem forward() const {
    core::CausalConvProblem p;
    p.rows = {B, T, B, {}, T};
    p.G = 1, p.C = D, p.W = W, p.L = L;
    p.x = rows_of(x), p.weight = view_of(weight), p.bias = view_of(bias);
    p.state.initial = view_of(initial);
    p.activation = activation;
    return p;
  }
  double loss() {
    core::CausalConvProblem p = forward();
    p.out = rows_of(out), p.state.final = view_of(final);
    run(ref::recurrent_backend().causal_conv1d, p);
    return dot(out, d_out) + dot(final, d_final);
  }
};

TEST(RefConvBackward, IsTheSlope) {
  for (const int64_t W : {2, 3, 4}) {
    for (const int64_t T : {1, 3, 12}) {
      for (const auto activation : {SLUICE_ACTIVATION_NONE, SLUICE_ACTIVATION_SILU}) {
        const int64_t B = 2, D = 3, L = W + 1;
        ConvCase c{B,
                   T,
                   D,
                   W,
                   L,
                   activation,
                   make_normal({B, T, D}, 1),
                   make_normal({D, W}, 2),
                   make_normal({D}, 3),
                   make_normal({B, D, L}, 4),
                   make_normal({B, T, D}, 5),
                   make_normal({B, D, L}, 6),
                   Array({B, T, D}),
                   Array({B, D, L})};
        Array dx(c.x.shape, NAN), dweight(c.weight.shape, NAN), dbias(c.bias.shape, NAN),
            dinitial(c.initial.shape, NAN);
        core::CausalConvBackwardProblem p{c.forward(),      rows_of(c.d_out), view_of(c.d_final),
                                          rows_of(dx),      view_of(dweight), view_of(dbias),
                                          view_of(dinitial)};
        run(ref::recurrent_backend().causal_conv1d_backward, p);
        const auto loss = [&] { return c.loss(); };
        expect_slope("x", &c.x, dx, loss);
        expect_slope("weight", &c.weight, dweight, loss);
        expect_slope("bias", &c.bias, dbias, loss);
        expect_slope("initial", &c.initial, dinitial, loss);
      }
    }
  }
}

TEST(RefNormBackward, IsTheSlope) {
  for (const auto activation : {SLUICE_ACTIVATION_SILU, SLUICE_ACTIVATION_SIGMOID}) {
    for (const auto rounding : {SLUICE_NORM_ROUND_ONCE, SLUICE_NORM_ROUND_HF}) {
      Array x = make_normal({3, 4, 20}, 1), z = make_normal(x.shape, 2),
            weight = make_normal({20}, 3), d_out = make_normal(x.shape, 4), out(x.shape);
      Array dx(x.shape, NAN), dz(x.shape, NAN), dweight(weight.shape, NAN);
      core::GatedNormProblem forward{20,         rank5(x), rank5(z),   view_of(weight),
                                     rank5(out), 1e-2,     activation, rounding};
      const auto loss = [&] {
        run(ref::recurrent_backend().gated_rms_norm, forward);
        return dot(out, d_out);
      };
      core::GatedNormProblem inputs = forward;
      inputs.out = {};
      core::GatedNormBackwardProblem p{inputs, rank5(d_out), rank5(dx), rank5(dz),
                                       view_of(dweight)};
      run(ref::recurrent_backend().gated_rms_norm_backward, p);
      expect_slope("x", &x, dx, loss);
      expect_slope("z", &z, dz, loss);
      expect_slope("weight", &weight, dweight, loss);
    }
  }
}

}  // namespace
}  // namespace sluice
