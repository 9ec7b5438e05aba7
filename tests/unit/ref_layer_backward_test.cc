// Tests the reference's gradients of a layer against central differences of its own forward layer,
// along random directions of every input, in float64 and every packing. The two share no formula.
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
  static constexpr int64_t kKeys = H * K, kValues = HV * V, D = 2 * kKeys + kValues;

  /// An input and its gradient.
  struct Both {
    Array value, gradient;
    Both(std::vector<int64_t> shape, uint64_t seed)
        : value(make_normal(shape, seed)), gradient(std::move(shape), std::nan("")) {}
  };

  /// Channels with a convolution of their own: all, or q's, k's or v's.
  struct Channels {
    Both x, weight, bias, initial;
    Array d_final, final;
    Channels(int64_t width, int64_t channels, uint64_t seed)
        : x({B, T, width}, seed),
          weight({channels, W}, seed + 1),
          bias({channels}, seed + 2),
          initial({B, channels, L}, seed + 3),
          d_final(make_normal({B, channels, L}, seed + 4)),
          final({B, channels, L}) {}
  };
  struct Form {
    sluice_packing packing;
    bool key_gates = false;
    double lower_bound = 0;
  };

  Form form;
  bool separate = form.packing == SLUICE_PACKING_SEPARATE;
  bool interleaved = form.packing == SLUICE_PACKING_INTERLEAVED;
  sluice_head_map head_map = SLUICE_HEAD_MAP_BLOCK;
  Channels qkv{separate ? kKeys : interleaved ? D + kValues : D, separate ? kKeys : D, 20};
  Channels k{kKeys, kKeys, 30}, v{kValues, kValues, 40};  ///< of packing SEPARATE
  Both z{{B, T, kValues}, 2}, b{{B, T, interleaved ? 2 * HV : HV}, 3};
  Both a{per_gate({B, T, HV}), 4}, A_log{{HV}, 7}, dt_bias{per_gate({HV}), 8};
  Both norm_weight{{V}, 9}, initial{{B, HV, K, V}, 10};
  Array d_out = make_normal({B, T, HV, V}, 12), d_final = make_normal({B, HV, K, V}, 13);
  Array out{{B, T, HV, V}}, core_out{{B, T, HV, V}}, final{{B, HV, K, V}};
  core::Rows rows{B, T, B, {}, T};

  explicit LayerCase(const Form& f) : form(f) {}

  std::vector<int64_t> per_gate(std::vector<int64_t> shape) const {
    if (form.key_gates) shape.push_back(K);
    return shape;
  }

  /// Views of values, or of gradients.
  sluice_layer_args arguments(Array Both::* of) const {
    sluice_layer_args f{};
    f.qkv = view_of(qkv.x.*of), f.b = view_of(b.*of);
    f.conv_weight = view_of(qkv.weight.*of), f.conv_bias = view_of(qkv.bias.*of);
    f.conv_initial = view_of(qkv.initial.*of);
    if (separate) {
      f.k = view_of(k.x.*of), f.v = view_of(v.x.*of);
      f.k_conv_weight = view_of(k.weight.*of), f.v_conv_weight = view_of(v.weight.*of);
      f.k_conv_bias = view_of(k.bias.*of), f.v_conv_bias = view_of(v.bias.*of);
      f.k_conv_initial = view_of(k.initial.*of), f.v_conv_initial = view_of(v.initial.*of);
    }
    if (!interleaved) f.z = view_of(z.*of), f.a = view_of(a.*of);
    f.A_log = view_of(A_log.*of), f.dt_bias = view_of(dt_bias.*of);
    f.norm_weight = view_of(norm_weight.*of), f.state.initial = view_of(initial.*of);
    f.num_k_heads = H, f.num_v_heads = HV, f.head_k_dim = K, f.head_v_dim = V;
    f.packing = form.packing, f.head_map = head_map, f.gate_lower_bound = form.lower_bound;
    f.eigenvalues = SLUICE_EIGENVALUES_NEGATIVE, f.gate_activation = SLUICE_ACTIVATION_SILU;
    f.norm_eps = 1e-2;
    return f;
  }
  void give_finals(Array Channels::* of, sluice_layer_args* f) const {
    f->conv_final = view_of(qkv.*of);
    if (separate) f->k_conv_final = view_of(k.*of), f->v_conv_final = view_of(v.*of);
  }
  double loss() {
    sluice_layer_args f = arguments(&Both::value);
    f.out = view_of(out), f.core_out = view_of(core_out), f.state.final = view_of(final);
    give_finals(&Channels::final, &f);
    core::LayerProblem p;
    core::fill_delta(f, rows, &p.delta);
    core::fill_conv(f, rows, p.conv);
    core::fill_norm(f, &p.norm);
    run_operator(ref::recurrent_backend().layer_prefill, p);
    double sum = dot(out, d_out) + dot(final, d_final) + dot(qkv.final, qkv.d_final);
    if (separate) sum += dot(k.final, k.d_final) + dot(v.final, v.d_final);
    return sum;
  }
  void gradients(bool with_core) {
    sluice_layer_args f = arguments(&Both::value), g = arguments(&Both::gradient);
    if (with_core) f.core_out = view_of(core_out);
    g.out = view_of(d_out), g.state.final = view_of(d_final);
    give_finals(&Channels::d_final, &g);
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
  void expect_slopes(const char* name, Channels& of) {
    SCOPED_TRACE(name);
    expect_slope("x", of.x), expect_slope("conv_initial", of.initial);
    expect_slope("conv_weight", of.weight), expect_slope("conv_bias", of.bias);
  }
  void expect_slopes() {
    expect_slopes("qkv", qkv), expect_slope("b", b);
    if (separate) expect_slopes("k", k), expect_slopes("v", v);
    if (!interleaved) expect_slope("z", z), expect_slope("a", a);
    expect_slope("A_log", A_log), expect_slope("dt_bias", dt_bias);
    expect_slope("norm_weight", norm_weight), expect_slope("initial", initial);
  }
};

TEST(RefLayerBackward, IsTheSlope) {
  const LayerCase::Form forms[] = {
      {SLUICE_PACKING_FLAT},           {SLUICE_PACKING_INTERLEAVED},
      {SLUICE_PACKING_SEPARATE},       {SLUICE_PACKING_FLAT, true},
      {SLUICE_PACKING_SEPARATE, true}, {SLUICE_PACKING_SEPARATE, true, -3.0},
      {SLUICE_PACKING_FLAT, false, -3}};
  for (const auto& form : forms) {
    SCOPED_TRACE(::testing::Message() << form.packing << form.key_gates << form.lower_bound);
    LayerCase c(form);
    c.gradients(false);
    c.expect_slopes();
  }
  LayerCase cyclic({SLUICE_PACKING_FLAT});
  cyclic.head_map = SLUICE_HEAD_MAP_CYCLIC;
  cyclic.gradients(false);
  cyclic.expect_slopes();
}

TEST(RefLayerBackward, CoreOutSavesTheForwardPassAndChangesNothing) {
  LayerCase computed({SLUICE_PACKING_FLAT}), given({SLUICE_PACKING_FLAT});
  computed.gradients(false);
  given.loss();  // leaves core_out
  given.gradients(true);
  EXPECT_EQ(given.qkv.x.gradient.values, computed.qkv.x.gradient.values);
  EXPECT_EQ(given.norm_weight.gradient.values, computed.norm_weight.gradient.values);
}

}  // namespace
}  // namespace sluice
