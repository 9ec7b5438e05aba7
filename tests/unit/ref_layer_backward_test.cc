// Tests the reference's gradients of a layer against central differences of its own forward layer,
// along random directions of every input, in float64 and either packing. The two share no formula.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <utility>
#include <vector>

#include "core/layer_views.hpp"
#include "unit/ref_case.hpp"

namespace sluice {
namespace {

using check::make_normal;

template <class Problem>
void run_operator(const core::Operator<Problem>& op, const Problem& problem) {
  core::Plan plan;
  ASSERT_TRUE(op.plan(problem, core::PlanFor::kCall, &plan).ok());
  const check::TestWorkspace workspace(plan.workspace_bytes);
  ASSERT_TRUE(op.run(problem, plan, workspace.get(), nullptr).ok());
  EXPECT_TRUE(workspace.guards_intact());
}

double dot(const Array& a, const Array& b) {
  double sum = 0;
  for (size_t i = 0; i < a.values.size(); ++i) sum += a.values[i] * b.values[i];
  return sum;
}

/// A layer of two sequences, its loss <out, d_out> + <final, d_final> + <conv_final, d_conv_final>,
/// and the gradients of that.
struct LayerCase {
  static constexpr int64_t B = 2, T = 7, H = 2, HV = 4, K = 5, V = 3, W = 3, L = 4;
  static constexpr int64_t D = 2 * H * K + HV * V;

  /// An input and its gradient.
  struct Both {
    Array value, gradient;
    Both(std::vector<int64_t> shape, uint64_t seed)
        : value(make_normal(shape, seed)), gradient(std::move(shape), std::nan("")) {}
  };

  sluice_packing packing;
  bool flat = packing == SLUICE_PACKING_FLAT;
  sluice_head_map head_map = SLUICE_HEAD_MAP_BLOCK;
  Both qkv{{B, T, flat ? D : D + HV* V}, 1}, z{{B, T, HV* V}, 2};
  Both b{{B, T, flat ? HV : 2 * HV}, 3}, a{{B, T, HV}, 4};
  Both weight{{D, W}, 5}, bias{{D}, 6}, A_log{{HV}, 7}, dt_bias{{HV}, 8}, norm_weight{{V}, 9};
  Both initial{{B, HV, K, V}, 10}, conv_initial{{B, D, L}, 11};
  Array d_out = make_normal({B, T, HV, V}, 12), d_final = make_normal({B, HV, K, V}, 13);
  Array d_conv_final = make_normal({B, D, L}, 14);
  Array out{{B, T, HV, V}}, core_out{{B, T, HV, V}}, final{{B, HV, K, V}}, conv_final{{B, D, L}};
  core::Rows rows{B, T, B, {}, T};

  explicit LayerCase(sluice_packing p) : packing(p) {}

  /// Views of values, or of gradients.
  sluice_layer_args arguments(Array Both::* of) const {
    sluice_layer_args f{};
    f.qkv = view_of(qkv.*of), f.b = view_of(b.*of);
    if (flat) f.z = view_of(z.*of), f.a = view_of(a.*of);
    f.conv_weight = view_of(weight.*of), f.conv_bias = view_of(bias.*of);
    f.A_log = view_of(A_log.*of), f.dt_bias = view_of(dt_bias.*of);
    f.norm_weight = view_of(norm_weight.*of);
    f.state.initial = view_of(initial.*of), f.conv_initial = view_of(conv_initial.*of);
    f.num_k_heads = H, f.num_v_heads = HV, f.head_k_dim = K, f.head_v_dim = V;
    f.packing = packing, f.head_map = head_map;
    f.eigenvalues = SLUICE_EIGENVALUES_NEGATIVE, f.gate_activation = SLUICE_ACTIVATION_SILU;
    f.norm_eps = 1e-2;
    return f;
  }
  double loss() {
    sluice_layer_args f = arguments(&Both::value);
    f.out = view_of(out), f.core_out = view_of(core_out);
    f.state.final = view_of(final), f.conv_final = view_of(conv_final);
    core::LayerProblem p;
    core::fill_delta(f, rows, &p.delta);
    core::fill_conv(f, rows, p.conv);
    core::fill_norm(f, &p.norm);
    run_operator(ref::recurrent_backend().layer_prefill, p);
    return dot(out, d_out) + dot(final, d_final) + dot(conv_final, d_conv_final);
  }
  void gradients(bool with_core) {
    sluice_layer_args f = arguments(&Both::value), g = arguments(&Both::gradient);
    if (with_core) f.core_out = view_of(core_out);
    g.out = view_of(d_out), g.state.final = view_of(d_final);
    g.conv_final = view_of(d_conv_final);
    core::LayerBackwardProblem p;
    core::fill_delta(f, rows, &p.delta.forward);
    core::fill_gradients(f, g, {rows, L}, &p);
    run_operator(ref::recurrent_backend().layer_backward, p);
  }
  void expect_slope(const char* name, Both& input) {
    const Array direction = make_normal(input.value.shape, 99), before = input.value;
    const double step = 1e-5;
    double slope = 0;
    for (const double sign : {1.0, -1.0}) {
      for (size_t i = 0; i < before.values.size(); ++i) {
        input.value.values[i] = before.values[i] + sign * step * direction.values[i];
      }
      slope += sign * loss() / (2 * step);
    }
    input.value = before;
    const double expected = dot(input.gradient, direction);
    const double size = std::sqrt(dot(input.gradient, input.gradient));
    EXPECT_NEAR(slope, expected, 1e-7 * (std::abs(expected) + size)) << name;
  }
  void expect_slopes() {
    expect_slope("qkv", qkv), expect_slope("b", b);
    if (flat) expect_slope("z", z), expect_slope("a", a);
    expect_slope("conv_weight", weight), expect_slope("conv_bias", bias);
    expect_slope("A_log", A_log), expect_slope("dt_bias", dt_bias);
    expect_slope("norm_weight", norm_weight);
    expect_slope("initial", initial), expect_slope("conv_initial", conv_initial);
  }
};

TEST(RefLayerBackward, IsTheSlope) {
  for (const auto packing : {SLUICE_PACKING_FLAT, SLUICE_PACKING_INTERLEAVED}) {
    SCOPED_TRACE(packing);
    LayerCase c(packing);
    c.gradients(false);
    c.expect_slopes();
  }
  LayerCase cyclic(SLUICE_PACKING_FLAT);
  cyclic.head_map = SLUICE_HEAD_MAP_CYCLIC;
  cyclic.gradients(false);
  cyclic.expect_slopes();
}

TEST(RefLayerBackward, CoreOutSavesTheForwardPassAndChangesNothing) {
  LayerCase computed(SLUICE_PACKING_FLAT), given(SLUICE_PACKING_FLAT);
  computed.gradients(false);
  given.loss();  // leaves core_out
  given.gradients(true);
  EXPECT_EQ(given.qkv.gradient.values, computed.qkv.gradient.values);
  EXPECT_EQ(given.norm_weight.gradient.values, computed.norm_weight.gradient.values);
}

}  // namespace
}  // namespace sluice
