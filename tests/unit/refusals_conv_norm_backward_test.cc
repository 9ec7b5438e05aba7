// Measures that gradients of the convolution and of the gated norm refuse every argument outside
// their contract, by name, and write nothing then. Each row spoils one thing in a valid call.
// SPDX-License-Identifier: Apache-2.0
#include "refusals_scene.hpp"

namespace sluice::check {
namespace {

using ConvArgs = sluice_causal_conv1d_backward_args;
using ConvScene = Scene<ConvArgs>;
using ConvRow = Refusal<ConvArgs>;

ConvScene conv_scene() {
  constexpr int64_t kB = 2, kT = 3, kD = 8, kW = 4, kL = 3;
  ConvScene s;
  Memory& m = *s.memory;
  ConvArgs& a = s.args;
  a.struct_size = sizeof a;
  a.x = m.tensor(kFloat32, {kB, kT, kD});
  a.weight = m.tensor(kFloat32, {kD, kW});
  a.bias = m.tensor(kFloat32, {kD});
  a.initial = m.tensor(kFloat32, {kB, kD, kL});
  a.d_out = m.tensor(kBFloat16, {kB, kT, kD});
  a.d_final = m.tensor(kFloat32, {kB, kD, kL});
  a.dx = m.tensor(kFloat32, {kB, kT, kD});
  a.dweight = m.tensor(kFloat32, {kD, kW});
  a.dbias = m.tensor(kFloat32, {kD});
  a.dinitial = m.tensor(kFloat32, {kB, kD, kL});
  a.activation = SLUICE_ACTIVATION_SILU;
  a.implementation = SLUICE_IMPL_REFERENCE;
  return s;
}

class CausalConv1dBackwardRefusals : public ::testing::TestWithParam<ConvRow> {};

TEST_P(CausalConv1dBackwardRefusals, NamesArgumentAndWritesNothing) {
  expect_refused(SLUICE_OP_CAUSAL_CONV1D_BACKWARD, GetParam(), conv_scene());
}

const ConvRow kConvRefused[] = {
    {"x_absent", [](ConvScene& s) { s.args.x = {}; },
     "causal_conv1d_backward: x = absent, expected a view of rank 3 (required)"},
    {"d_out_absent", [](ConvScene& s) { s.args.d_out = {}; },
     "causal_conv1d_backward: d_out = absent, expected a view of rank 3 (required)"},
    {"d_out_shape", [](ConvScene& s) { s.args.d_out.shape[1] = 2; },
     "causal_conv1d_backward: d_out.shape[1] = 2, expected 3 (shape of x)"},
    {"weight_width", [](ConvScene& s) { s.args.weight.shape[1] = 1; },
     "causal_conv1d_backward: weight.shape[1] = 1, expected 2, 3 or 4 (width W)"},
    {"weight_channels", [](ConvScene& s) { s.args.weight.shape[0] = 7; },
     "causal_conv1d_backward: weight.shape[0] = 7, expected 8 (D channels of x)"},
    {"initial_sequences", [](ConvScene& s) { s.args.initial.shape[0] = 3; },
     "causal_conv1d_backward: initial.shape[0] = 3, expected 2 (N sequences)"},
    {"initial_channels", [](ConvScene& s) { s.args.initial.shape[1] = 7; },
     "causal_conv1d_backward: initial.shape[1] = 7, expected 8 (D channels)"},
    {"initial_columns", [](ConvScene& s) { s.args.initial.shape[2] = 2; },
     "causal_conv1d_backward: initial.shape[2] = 2, expected >= 3 (columns, at least W - 1)"},
    {"d_final_columns", [](ConvScene& s) { s.args.d_final.shape[2] = 4; },
     "causal_conv1d_backward: d_final.shape[2] = 4, expected 3 (columns of the other states)"},
    {"dinitial_dtype", [](ConvScene& s) { s.args.dinitial.dtype = kInt32; },
     "causal_conv1d_backward: dinitial dtype = int32, expected float32, float16 or bfloat16"},
    {"dx_shape", [](ConvScene& s) { s.args.dx.shape[2] = 9; },
     "causal_conv1d_backward: dx.shape[2] = 9, expected 8 (shape of x)"},
    {"dx_shares_memory", [](ConvScene& s) { s.args.dx.stride[1] = 7; },
     "causal_conv1d_backward: dx.stride[1] = 7, expected >= 8 (elements of an output may not share "
     "memory)"},
    {"dweight_shape", [](ConvScene& s) { s.args.dweight.shape[1] = 3; },
     "causal_conv1d_backward: dweight.shape[1] = 3, expected 4 (shape of weight)"},
    {"dbias_alone", [](ConvScene& s) { s.args.bias = {}; },
     "causal_conv1d_backward: dbias = given, expected absent (bias is absent)"},
    {"activation", [](ConvScene& s) { s.args.activation = 2; },
     "causal_conv1d_backward: activation = 2, expected 0 (NONE) or 1 (SILU)"},
    {"implementation", [](ConvScene& s) { s.args.implementation = 5; },
     "causal_conv1d_backward: implementation = 5, expected 0 to 4 (sluice_implementation)"},
    {"dx_is_d_out", [](ConvScene& s) { s.args.dx.data = s.args.d_out.data; },
     "causal_conv1d_backward: dx.data = 0 bytes after d_out.data, expected memory of its own (what "
     "a call writes may overlap no other view)",
     Seen::kByCall},
    {"offsets",
     [](ConvScene& s) {
       for (sluice_tensor* t : {&s.args.x, &s.args.d_out, &s.args.dx}) t->shape[0] = 1;
       s.args.cu_seqlens = s.memory->indices({0, 2, 1});
     },
     "causal_conv1d_backward: cu_seqlens[2] = 1, expected >= 2 (ascending from 0, at most T = 3)",
     Seen::kByCall},
};
INSTANTIATE_TEST_SUITE_P(Rules, CausalConv1dBackwardRefusals, ::testing::ValuesIn(kConvRefused),
                         row_name<ConvArgs>);

using NormArgs = sluice_gated_rms_norm_backward_args;
using NormScene = Scene<NormArgs>;
using NormRow = Refusal<NormArgs>;

NormScene norm_scene() {
  constexpr int64_t kRows = 3, kHV = 2, kV = 8;
  NormScene s;
  Memory& m = *s.memory;
  NormArgs& a = s.args;
  a.struct_size = sizeof a;
  a.x = m.tensor(kFloat32, {kRows, kHV, kV});
  a.z = m.tensor(kBFloat16, {kRows, kHV, kV});
  a.weight = m.tensor(kFloat32, {kV});
  a.d_out = m.tensor(kFloat32, {kRows, kHV, kV});
  a.dx = m.tensor(kFloat32, {kRows, kHV, kV});
  a.dz = m.tensor(kBFloat16, {kRows, kHV, kV});
  a.dweight = m.tensor(kFloat32, {kV});
  a.activation = SLUICE_ACTIVATION_SILU;
  a.implementation = SLUICE_IMPL_REFERENCE;
  s.workspace = {m.take(kV * sizeof(double)), kV * sizeof(double)};  // float64 sums of dweight
  return s;
}

class GatedRmsNormBackwardRefusals : public ::testing::TestWithParam<NormRow> {};

TEST_P(GatedRmsNormBackwardRefusals, NamesArgumentAndWritesNothing) {
  expect_refused(SLUICE_OP_GATED_RMS_NORM_BACKWARD, GetParam(), norm_scene());
}

const NormRow kNormRefused[] = {
    {"x_absent", [](NormScene& s) { s.args.x = {}; },
     "gated_rms_norm_backward: x = absent, expected a view of rank 2 to 4 (required)"},
    {"d_out_absent", [](NormScene& s) { s.args.d_out = {}; },
     "gated_rms_norm_backward: d_out = absent, expected a view of rank 3 (required)"},
    {"d_out_stride", [](NormScene& s) { s.args.d_out.stride[2] = 2; },
     "gated_rms_norm_backward: d_out.stride[2] = 2, expected 1 (contiguous last dimension)"},
    {"z_shape", [](NormScene& s) { s.args.z.shape[0] = 2; },
     "gated_rms_norm_backward: z.shape[0] = 2, expected 3 (shape of x)"},
    {"dx_shape", [](NormScene& s) { s.args.dx.shape[1] = 3; },
     "gated_rms_norm_backward: dx.shape[1] = 3, expected 2 (shape of x)"},
    {"dz_rank", [](NormScene& s) { s.args.dz.rank = 2; },
     "gated_rms_norm_backward: dz rank = 2, expected 3"},
    {"dz_rank_of_no_view", [](NormScene& s) { s.args.dz.rank = 9; },
     "gated_rms_norm_backward: dz rank = 9, expected 3"},
    {"dz_stride", [](NormScene& s) { s.args.dz.stride[2] = 2; },
     "gated_rms_norm_backward: dz.stride[2] = 2, expected 1 (contiguous last dimension)"},
    {"dweight_size", [](NormScene& s) { s.args.dweight.shape[0] = 7; },
     "gated_rms_norm_backward: dweight.shape[0] = 7, expected 8 (V of x)"},
    {"epsilon", [](NormScene& s) { s.args.eps = -1; },
     "gated_rms_norm_backward: eps = -1, expected a finite number >= 0 (0 = the default 1e-6)"},
    {"activation", [](NormScene& s) { s.args.activation = 0; },
     "gated_rms_norm_backward: activation = 0, expected 1 (SILU) or 2 (SIGMOID)"},
    {"rounding", [](NormScene& s) { s.args.rounding = 2; },
     "gated_rms_norm_backward: rounding = 2, expected 0 (ROUND_ONCE) or 1 (ROUND_HF)"},
    {"reserved", [](NormScene& s) { s.args.reserved = 1; },
     "gated_rms_norm_backward: reserved = 1, expected 0"},
    {"dx_is_x", [](NormScene& s) { s.args.dx.data = s.args.x.data; },
     "gated_rms_norm_backward: dx.data = 0 bytes after x.data, expected memory of its own (what a "
     "call writes may overlap no other view)",
     Seen::kByCall},
};
INSTANTIATE_TEST_SUITE_P(Rules, GatedRmsNormBackwardRefusals, ::testing::ValuesIn(kNormRefused),
                         row_name<NormArgs>);

TEST(GradientsAccept, LegalNeighboursOfRefusals) {
  ConvScene conv = conv_scene();
  expect_accepted(SLUICE_OP_CAUSAL_CONV1D_BACKWARD, conv);
  conv.args.initial = conv.args.bias = conv.args.dbias = {};
  expect_accepted(SLUICE_OP_CAUSAL_CONV1D_BACKWARD, conv);
  NormScene norm = norm_scene();
  expect_accepted(SLUICE_OP_GATED_RMS_NORM_BACKWARD, norm);
  norm.args.dx = norm.args.dweight = {};
  norm.args.dx.rank = 9;  // of an absent view only the address counts
  expect_accepted(SLUICE_OP_GATED_RMS_NORM_BACKWARD, norm);
}

}  // namespace
}  // namespace sluice::check
