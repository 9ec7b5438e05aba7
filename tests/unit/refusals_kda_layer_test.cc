// Measures that layers with key-wise gates and projections of their own for q, k and v refuse every
// argument outside their contract, by name, and write nothing then.
// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "core/validate.hpp"
#include "refusals_scene.hpp"

namespace sluice::check {
namespace {

using Args = sluice_layer_args;
using LayerScene = Scene<Args>;
using Row = Refusal<Args>;

constexpr int64_t kB = 2, kT = 3, kH = 2, kHV = 4, kK = 4, kV = 6, kW = 4, kL = 3;

/// Packing SEPARATE and bounded key-wise gates, both kinds of state in place.
LayerScene valid_scene() {
  LayerScene s;
  Memory& m = *s.memory;
  Args& a = s.args;
  a.struct_size = sizeof a;
  a.packing = SLUICE_PACKING_SEPARATE;
  a.qkv = m.tensor(kBFloat16, {kB, kT, kH * kK}), a.k = m.tensor(kBFloat16, {kB, kT, kH * kK});
  a.v = m.tensor(kBFloat16, {kB, kT, kHV * kV}), a.z = m.tensor(kBFloat16, {kB, kT, kHV * kV});
  a.b = m.tensor(kFloat32, {kB, kT, kHV}), a.a = m.tensor(kBFloat16, {kB, kT, kHV, kK});
  a.conv_weight = m.tensor(kFloat32, {kH * kK, kW});
  a.k_conv_weight = m.tensor(kFloat32, {kH * kK, kW});
  a.v_conv_weight = m.tensor(kFloat32, {kHV * kV, kW});
  a.conv_bias = m.tensor(kFloat32, {kH * kK}), a.k_conv_bias = m.tensor(kFloat32, {kH * kK});
  a.v_conv_bias = m.tensor(kFloat32, {kHV * kV});
  a.A_log = m.tensor(kFloat32, {kHV}), a.dt_bias = m.tensor(kFloat32, {kHV, kK});
  a.norm_weight = m.tensor(kFloat32, {kV});
  a.out = m.tensor(kBFloat16, {kB, kT, kHV, kV});
  a.conv_initial = m.tensor(kBFloat16, {kB, kH * kK, kL});
  a.k_conv_initial = m.tensor(kBFloat16, {kB, kH * kK, kL});
  a.v_conv_initial = m.tensor(kBFloat16, {kB, kHV * kV, kL});
  a.state.initial = m.tensor(kFloat32, {kB, kHV, kK, kV});
  a.num_k_heads = kH, a.num_v_heads = kHV, a.head_k_dim = kK, a.head_v_dim = kV;
  a.gate_activation = SLUICE_ACTIVATION_SIGMOID;
  a.gate_lower_bound = -5;
  a.implementation = SLUICE_IMPL_REFERENCE;
  s.workspace = {m.take(16384), 16384};
  return s;
}

void flatten(LayerScene& s) {
  Args& a = s.args;
  Memory& m = *s.memory;
  constexpr int64_t kChannels = 2 * kH * kK + kHV * kV;
  a.packing = SLUICE_PACKING_FLAT;
  a.qkv = m.tensor(kBFloat16, {kB, kT, kChannels});
  a.conv_weight = m.tensor(kFloat32, {kChannels, kW});
  a.conv_bias = {};
  a.conv_initial = m.tensor(kBFloat16, {kB, kChannels, kL});
  a.k = a.v = a.k_conv_weight = a.v_conv_weight = a.k_conv_bias = a.v_conv_bias = {};
  a.k_conv_initial = a.v_conv_initial = {};
}

class KdaLayerRefusals : public ::testing::TestWithParam<Row> {};

TEST_P(KdaLayerRefusals, NamesArgumentAndWritesNothing) {
  expect_refused(SLUICE_OP_LAYER_DECODE, GetParam(), valid_scene());
}

const Row kRows[] = {
    {"bound_above_zero", [](LayerScene& s) { s.args.gate_lower_bound = 5; },
     "layer_decode: gate_lower_bound = 5, expected a finite number < 0, or 0 (gates without a "
     "bound)"},
    {"bound_infinite",
     [](LayerScene& s) { s.args.gate_lower_bound = -std::numeric_limits<double>::infinity(); },
     "layer_decode: gate_lower_bound = -inf, expected a finite number < 0, or 0 (gates without a "
     "bound)"},
    {"rates_without_bound",
     [](LayerScene& s) {
       s.args.gate_lower_bound = 0;
       s.args.A_log = {};
     },
     "layer_decode: A_log = absent, expected a view of rank 1 (required)"},
    {"bias_of_heads", [](LayerScene& s) { s.args.dt_bias = s.memory->tensor(kFloat32, {kHV}); },
     "layer_decode: dt_bias rank = 1, expected 2"},
    {"gate_channels", [](LayerScene& s) { s.args.a.shape[3] = 3; },
     "layer_decode: a.shape[3] = 3, expected 4 (K: key-wise gates)"},
    {"gate_stride", [](LayerScene& s) { s.args.a.stride[3] = 2; },
     "layer_decode: a.stride[3] = 2, expected 1 (contiguous last dimension)"},
    {"gates_interleaved",
     [](LayerScene& s) {
       flatten(s);
       s.args.packing = SLUICE_PACKING_INTERLEAVED;
       s.args.qkv = s.memory->tensor(kBFloat16, {kB, kT, 2 * kH * kK + 2 * kHV * kV});
       s.args.b = s.memory->tensor(kFloat32, {kB, kT, 2 * kHV});
       s.args.z = {};
     },
     "layer_decode: a = given, expected absent (packing INTERLEAVED has it in b)"},
    {"replay_ring",
     [](LayerScene& s) { s.args.ring.k = s.memory->tensor(kFloat32, {kB, 8, kH, kK}); },
     "layer_decode: a rank = 4, expected 3 (a replay ring has one decay an entry)"},
    {"q_width", [](LayerScene& s) { s.args.qkv = s.memory->tensor(kBFloat16, {kB, kT, 40}); },
     "layer_decode: qkv.shape[2] = 40, expected 8 (H K, SEPARATE)"},
    {"no_k", [](LayerScene& s) { s.args.k = {}; },
     "layer_decode: k = absent, expected a view of rank 3 (required)"},
    {"v_width", [](LayerScene& s) { s.args.v.shape[2] = 23; },
     "layer_decode: v.shape[2] = 23, expected 24 (HV V)"},
    {"v_dtype", [](LayerScene& s) { s.args.v = s.memory->tensor(kFloat32, {kB, kT, kHV * kV}); },
     "layer_decode: v dtype = float32, expected bfloat16 (that of qkv)"},
    {"k_weights", [](LayerScene& s) { s.args.k_conv_weight = {}; },
     "layer_decode: k_conv_weight = absent, expected a view of rank 2 (required)"},
    {"weight_channels", [](LayerScene& s) { s.args.conv_weight.shape[0] = 9; },
     "layer_decode: conv_weight.shape[0] = 9, expected 8 (H K channels)"},
    {"v_weight_width",
     [](LayerScene& s) { s.args.v_conv_weight = s.memory->tensor(kFloat32, {kHV * kV, 3}); },
     "layer_decode: v_conv_weight.shape[1] = 3, expected 4 (W of conv_weight)"},
    {"one_bias_less", [](LayerScene& s) { s.args.k_conv_bias = {}; },
     "layer_decode: k_conv_bias = absent, expected a view (as conv_bias)"},
    {"one_pool_less", [](LayerScene& s) { s.args.v_conv_initial = {}; },
     "layer_decode: v_conv_initial = absent, expected a view (as conv_initial)"},
    {"one_pool_more", [](LayerScene& s) { s.args.k_conv_final = s.args.k_conv_initial; },
     "layer_decode: k_conv_final = given, expected absent (as conv_final)"},
    {"pool_channels", [](LayerScene& s) { s.args.v_conv_initial.shape[1] = 8; },
     "layer_decode: v_conv_initial.shape[1] = 8, expected 24 (D channels)"},
    {"pool_columns",
     [](LayerScene& s) { s.args.k_conv_initial = s.memory->tensor(kBFloat16, {kB, 8, 4}); },
     "layer_decode: k_conv_initial.shape[2] = 4, expected 3 (L of q's)"},
    {"k_of_flat",
     [](LayerScene& s) {
       const sluice_tensor k = s.args.k;
       flatten(s);
       s.args.k = k;
     },
     "layer_decode: k = given, expected absent (only with packing SEPARATE)"},
    {"slot_past_v_pool",
     [](LayerScene& s) {
       s.args.state.read_slots = s.memory->indices({0, 1});
       s.args.v_conv_initial.shape[0] = 1;
     },
     "layer_decode: state.read_slots[1,0] = 1, expected < 1 (slots of the pool)", Seen::kByCall},
    {"one_pool_for_two", [](LayerScene& s) { s.args.k_conv_initial = s.args.conv_initial; },
     "layer_decode: conv_initial.data = 0 bytes after k_conv_initial.data, expected memory of its "
     "own (what a call writes may overlap no other view)",
     Seen::kByCall},
    {"out_over_v", [](LayerScene& s) { s.args.out.data = s.args.v.data; },
     "layer_decode: out.data = 0 bytes after v.data, expected memory of its own (what a call "
     "writes may overlap no other view)",
     Seen::kByCall},
};
INSTANTIATE_TEST_SUITE_P(Layers, KdaLayerRefusals, ::testing::ValuesIn(kRows), row_name<Args>);

/// The scene that every row spoils.
TEST(KdaLayer, TakesSeparateProjections) {
  LayerScene s = valid_scene();
  core::LayerProblem problem;
  EXPECT_TRUE(
      core::validate(SLUICE_OP_LAYER_DECODE, s.args, core::Depth::kContents, &problem).status.ok());
}

}  // namespace
}  // namespace sluice::check
