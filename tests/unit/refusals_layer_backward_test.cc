// Measures that layer_backward refuses every argument outside its contract, by name, and writes
// nothing then. Each row spoils one thing in a valid call.
// SPDX-License-Identifier: Apache-2.0
#include "refusals_scene.hpp"

namespace sluice::check {
namespace {

using Args = sluice_layer_backward_args;
using LayerScene = Scene<Args>;
using Row = Refusal<Args>;

constexpr int64_t kB = 2, kT = 3, kH = 2, kHV = 4, kK = 4, kV = 6, kW = 4, kL = 3;
constexpr int64_t kD = 2 * kH * kK + kHV * kV;

/// Two sequences of three tokens, packing FLAT, all gradients.
LayerScene scene() {
  LayerScene s;
  Memory& m = *s.memory;
  Args& a = s.args;
  a.struct_size = sizeof a;
  a.qkv = m.tensor(kBFloat16, {kB, kT, kD}), a.dqkv = m.tensor(kBFloat16, {kB, kT, kD});
  a.z = m.tensor(kBFloat16, {kB, kT, kHV * kV}), a.dz = m.tensor(kFloat32, {kB, kT, kHV * kV});
  a.b = m.tensor(kBFloat16, {kB, kT, kHV}), a.db = m.tensor(kFloat32, {kB, kT, kHV});
  a.a = m.tensor(kBFloat16, {kB, kT, kHV}), a.da = m.tensor(kFloat32, {kB, kT, kHV});
  a.conv_weight = m.tensor(kFloat32, {kD, kW}), a.dconv_weight = m.tensor(kFloat32, {kD, kW});
  a.conv_bias = m.tensor(kFloat32, {kD}), a.dconv_bias = m.tensor(kFloat32, {kD});
  a.A_log = m.tensor(kFloat32, {kHV}), a.dA_log = m.tensor(kFloat32, {kHV});
  a.dt_bias = m.tensor(kFloat32, {kHV}), a.ddt_bias = m.tensor(kFloat32, {kHV});
  a.norm_weight = m.tensor(kFloat32, {kV}), a.dnorm_weight = m.tensor(kFloat32, {kV});
  a.conv_initial = m.tensor(kFloat32, {kB, kD, kL});
  a.dconv_initial = m.tensor(kFloat32, {kB, kD, kL});
  a.d_conv_final = m.tensor(kFloat32, {kB, kD, kL});
  a.initial = m.tensor(kFloat32, {kB, kHV, kK, kV});
  a.dinitial = m.tensor(kFloat32, {kB, kHV, kK, kV});
  a.d_final = m.tensor(kFloat32, {kB, kHV, kK, kV});
  a.core_out = m.tensor(kBFloat16, {kB, kT, kHV, kV});
  a.d_out = m.tensor(kBFloat16, {kB, kT, kHV, kV});
  a.num_k_heads = kH, a.num_v_heads = kHV, a.head_k_dim = kK, a.head_v_dim = kV;
  a.gate_activation = SLUICE_ACTIVATION_SILU;
  a.implementation = SLUICE_IMPL_REFERENCE;
  s.workspace = {m.take(16384), 16384};
  return s;
}

/// The same layer in packing SEPARATE, k's and v's gradients among what is asked for.
void make_separate(LayerScene* s) {
  Memory& m = *s->memory;
  Args& a = s->args;
  constexpr int64_t kKeys = kH * kK, kValues = kHV * kV;
  a.packing = SLUICE_PACKING_SEPARATE;
  a.conv_bias = a.dconv_bias = {};
  a.qkv.shape[2] = a.dqkv.shape[2] = kKeys;
  for (sluice_tensor* t : {&a.conv_weight, &a.dconv_weight}) t->shape[0] = kKeys;
  for (sluice_tensor* t : {&a.conv_initial, &a.dconv_initial, &a.d_conv_final}) t->shape[1] = kKeys;
  a.k = m.tensor(kBFloat16, {kB, kT, kKeys}), a.dk = m.tensor(kBFloat16, {kB, kT, kKeys});
  a.v = m.tensor(kBFloat16, {kB, kT, kValues}), a.dv = m.tensor(kBFloat16, {kB, kT, kValues});
  a.k_conv_weight = m.tensor(kFloat32, {kKeys, kW});
  a.v_conv_weight = m.tensor(kFloat32, {kValues, kW});
  a.dv_conv_weight = m.tensor(kFloat32, {kValues, kW});
  a.k_conv_initial = m.tensor(kFloat32, {kB, kKeys, kL});
  a.v_conv_initial = m.tensor(kFloat32, {kB, kValues, kL});
  a.d_v_conv_final = m.tensor(kFloat32, {kB, kValues, kL});
}

class LayerBackwardRefusals : public ::testing::TestWithParam<Row> {};

TEST_P(LayerBackwardRefusals, NamesArgumentAndWritesNothing) {
  expect_refused(SLUICE_OP_LAYER_BACKWARD, GetParam(), scene());
}

const Row kRefused[] = {
    {"qkv_absent", [](LayerScene& s) { s.args.qkv = {}; },
     "layer_backward: qkv = absent, expected a view of rank 3 (required)"},
    {"qkv_width", [](LayerScene& s) { s.args.qkv.shape[2] = 41; },
     "layer_backward: qkv.shape[2] = 41, expected 40 (2 H K + HV V)"},
    {"d_out_absent", [](LayerScene& s) { s.args.d_out = {}; },
     "layer_backward: d_out = absent, expected a view of rank 4 (required)"},
    {"d_out_heads", [](LayerScene& s) { s.args.d_out.shape[2] = 3; },
     "layer_backward: d_out.shape[2] = 3, expected 4 (HV value heads)"},
    {"d_out_columns", [](LayerScene& s) { s.args.d_out.stride[3] = 2; },
     "layer_backward: d_out.stride[3] = 2, expected 1 (contiguous last dimension)"},
    {"core_out_tokens", [](LayerScene& s) { s.args.core_out.shape[1] = 2; },
     "layer_backward: core_out.shape[1] = 2, expected 3 (T of qkv)"},
    {"key_wise_da",
     [](LayerScene& s) {
       s.args.a = s.memory->tensor(kBFloat16, {kB, kT, kHV, kK});
       s.args.dt_bias = s.memory->tensor(kFloat32, {kHV, kK});
     },
     "layer_backward: da rank = 3, expected 4"},
    {"packing", [](LayerScene& s) { s.args.packing = 3; },
     "layer_backward: packing = 3, expected 0 (FLAT), 1 (INTERLEAVED) or 2 (SEPARATE)"},
    {"flat_k", [](LayerScene& s) { s.args.k = s.args.qkv; },
     "layer_backward: k = given, expected absent (only with packing SEPARATE)"},
    {"flat_dk", [](LayerScene& s) { s.args.dk = s.args.dqkv; },
     "layer_backward: dk = given, expected absent (k is absent)"},
    {"flat_d_k_conv_final", [](LayerScene& s) { s.args.d_k_conv_final = s.args.d_conv_final; },
     "layer_backward: d_k_conv_final = given, expected absent (only with packing SEPARATE)"},
    {"flat_dv_conv_initial", [](LayerScene& s) { s.args.dv_conv_initial = s.args.dconv_initial; },
     "layer_backward: dv_conv_initial = given, expected absent (only with packing SEPARATE)"},
    {"separate_v",
     [](LayerScene& s) {
       make_separate(&s);
       s.args.v = {};
     },
     "layer_backward: v = absent, expected a view of rank 3 (required)"},
    {"separate_dk",
     [](LayerScene& s) {
       make_separate(&s);
       s.args.dk.shape[2] = 7;
     },
     "layer_backward: dk.shape[2] = 7, expected 8 (shape of k)"},
    {"separate_dv_conv_weight",
     [](LayerScene& s) {
       make_separate(&s);
       s.args.dv_conv_weight.shape[0] = 23;
     },
     "layer_backward: dv_conv_weight.shape[0] = 23, expected 24 (shape of v_conv_weight)"},
    {"separate_d_v_conv_final",
     [](LayerScene& s) {
       make_separate(&s);
       s.args.d_v_conv_final.shape[1] = 8;
     },
     "layer_backward: d_v_conv_final.shape[1] = 8, expected 24 (D channels)"},
    {"separate_dk_is_dv",
     [](LayerScene& s) {
       make_separate(&s);
       s.args.dv.data = s.args.dk.data;
     },
     "layer_backward: dk.data = 0 bytes after dv.data, expected memory of its own (what a call "
     "writes may overlap no other view)",
     Seen::kByCall},
    {"gate_lower_bound", [](LayerScene& s) { s.args.gate_lower_bound = 1; },
     "layer_backward: gate_lower_bound = 1, expected a finite number < 0, or 0 (gates without a "
     "bound)"},
    {"dA_log_alone",
     [](LayerScene& s) {
       s.args.gate_lower_bound = -1;
       s.args.A_log = {};
     },
     "layer_backward: dA_log = given, expected absent (A_log is absent)"},
    {"rounding", [](LayerScene& s) { s.args.rounding = SLUICE_NORM_ROUND_INPUT; },
     "layer_backward: rounding = 2, expected 0 (ROUND_ONCE) or 1 (ROUND_HF)"},
    {"state_layout", [](LayerScene& s) { s.args.state_layout = 2; },
     "layer_backward: state_layout = 2, expected 0 (KV) or 1 (VK)"},
    {"gate_activation", [](LayerScene& s) { s.args.gate_activation = 0; },
     "layer_backward: gate_activation = 0, expected 1 (SILU) or 2 (SIGMOID)"},
    {"interleaved_map",
     [](LayerScene& s) {
       s.args.packing = SLUICE_PACKING_INTERLEAVED, s.args.head_map = SLUICE_HEAD_MAP_CYCLIC;
     },
     "layer_backward: head_map = 1, expected 0 (packing INTERLEAVED groups value heads by key "
     "head)"},
    {"heads", [](LayerScene& s) { s.args.num_k_heads = 3; },
     "layer_backward: num_v_heads = 4, expected a multiple of num_k_heads = 3 (grouped value "
     "heads)"},
    {"dqkv_shape", [](LayerScene& s) { s.args.dqkv.shape[2] = 39; },
     "layer_backward: dqkv.shape[2] = 39, expected 40 (shape of qkv)"},
    {"dqkv_shares_memory", [](LayerScene& s) { s.args.dqkv.stride[1] = 39; },
     "layer_backward: dqkv.stride[1] = 39, expected >= 40 (elements of an output may not share "
     "memory)"},
    {"dz_alone",
     [](LayerScene& s) {
       Args& a = s.args;
       a.packing = SLUICE_PACKING_INTERLEAVED, a.z = a.a = a.da = {};
       a.qkv = s.memory->tensor(kBFloat16, {kB, kT, kD + kHV * kV}), a.dqkv = {};
       a.b = s.memory->tensor(kBFloat16, {kB, kT, 2 * kHV}), a.db = {};
     },
     "layer_backward: dz = given, expected absent (z is absent)"},
    {"dconv_bias_alone", [](LayerScene& s) { s.args.conv_bias = {}; },
     "layer_backward: dconv_bias = given, expected absent (conv_bias is absent)"},
    {"dA_log_dtype", [](LayerScene& s) { s.args.dA_log.dtype = kInt32; },
     "layer_backward: dA_log dtype = int32, expected float32, float16 or bfloat16"},
    {"initial_sequences", [](LayerScene& s) { s.args.initial.shape[0] = 3; },
     "layer_backward: initial.shape[0] = 3, expected 2 (N sequences)"},
    {"d_conv_final_columns", [](LayerScene& s) { s.args.d_conv_final.shape[2] = 4; },
     "layer_backward: d_conv_final.shape[2] = 4, expected 3 (columns of the other states)"},
    {"conv_initial_channels", [](LayerScene& s) { s.args.conv_initial.shape[1] = 39; },
     "layer_backward: conv_initial.shape[1] = 39, expected 40 (D channels)"},
    {"implementation", [](LayerScene& s) { s.args.implementation = 5; },
     "layer_backward: implementation = 5, expected 0 to 4 (sluice_implementation)"},
    {"dqkv_is_qkv", [](LayerScene& s) { s.args.dqkv.data = s.args.qkv.data; },
     "layer_backward: dqkv.data = 0 bytes after qkv.data, expected memory of its own (what a call "
     "writes may overlap no other view)",
     Seen::kByCall},
    {"da_is_db", [](LayerScene& s) { s.args.da.data = s.args.db.data; },
     "layer_backward: db.data = 0 bytes after da.data, expected memory of its own (what a call "
     "writes may overlap no other view)",
     Seen::kByCall},
    {"workspace", [](LayerScene& s) { s.workspace.size = 16; },
     "layer_backward: workspace.size = 16, expected >= 8248 bytes (sluice_workspace_size tells)",
     Seen::kByCall, SLUICE_WORKSPACE_TOO_SMALL},
    {"offsets",
     [](LayerScene& s) {
       Args& a = s.args;
       for (sluice_tensor* t :
            {&a.qkv, &a.z, &a.b, &a.a, &a.dqkv, &a.dz, &a.db, &a.da, &a.d_out, &a.core_out}) {
         t->shape[0] = 1;
       }
       a.cu_seqlens = s.memory->indices({0, 2, 1});
     },
     "layer_backward: cu_seqlens[2] = 1, expected >= 2 (ascending from 0, at most T = 3)",
     Seen::kByCall},
};
INSTANTIATE_TEST_SUITE_P(Rules, LayerBackwardRefusals, ::testing::ValuesIn(kRefused),
                         row_name<Args>);

}  // namespace
}  // namespace sluice::check
