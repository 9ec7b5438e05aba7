// Measures that gated_rms_norm refuses every argument outside its contract, by name, and writes
// nothing then. Each table row spoils one thing in a valid call and states the whole message.
// SPDX-License-Identifier: Apache-2.0
#include "refusals_scene.hpp"

namespace sluice::check {
namespace {

using Args = sluice_gated_rms_norm_args;
using NormScene = Scene<Args>;
using Row = Refusal<Args>;

constexpr sluice_op kOp = SLUICE_OP_GATED_RMS_NORM;
constexpr int64_t kRows = 3, kHV = 2, kV = 8;

NormScene valid_scene() {
  NormScene s;
  Memory& m = *s.memory;
  s.args.struct_size = sizeof s.args;
  s.args.x = m.tensor(kFloat32, {kRows, kHV, kV});
  s.args.z = m.tensor(kBFloat16, {kRows, kHV, kV});
  s.args.weight = m.tensor(kFloat32, {kV});
  s.args.out = m.tensor(kFloat32, {kRows, kHV, kV});
  s.args.activation = SLUICE_ACTIVATION_SILU;
  s.args.implementation = SLUICE_IMPL_REFERENCE;
  return s;
}

class GatedRmsNormRefusals : public ::testing::TestWithParam<Row> {};

TEST_P(GatedRmsNormRefusals, NamesArgumentAndWritesNothing) {
  expect_refused(kOp, GetParam(), valid_scene());
}

const Row kRefused[] = {
    {"x_absent", [](NormScene& s) { s.args.x = {}; },
     "gated_rms_norm: x = absent, expected a view of rank 2 to 4 (required)"},
    {"x_rank_1", [](NormScene& s) { s.args.x.rank = 1; },
     "gated_rms_norm: x rank = 1, expected 2 to 4"},
    {"x_rank_5", [](NormScene& s) { s.args.x.rank = 5; },
     "gated_rms_norm: x rank = 5, expected 2 to 4"},
    {"z_rank", [](NormScene& s) { s.args.z.rank = 2; }, "gated_rms_norm: z rank = 2, expected 3"},
    {"z_absent", [](NormScene& s) { s.args.z = {}; },
     "gated_rms_norm: z = absent, expected a view of rank 3 (required)"},
    {"weight_absent", [](NormScene& s) { s.args.weight = {}; },
     "gated_rms_norm: weight = absent, expected a view of rank 1 (required)"},
    {"out_absent", [](NormScene& s) { s.args.out = {}; },
     "gated_rms_norm: out = absent, expected a view of rank 3 (required)"},
    {"x_dtype", [](NormScene& s) { s.args.x.dtype = kInt64; },
     "gated_rms_norm: x dtype = int64, expected float32, float16 or bfloat16"},
    {"no_columns", [](NormScene& s) { s.args.x.shape[2] = 0; },
     "gated_rms_norm: x.shape[2] = 0, expected >= 1 (head dimension V)"},
    {"z_shape", [](NormScene& s) { s.args.z.shape[0] = 2; },
     "gated_rms_norm: z.shape[0] = 2, expected 3 (shape of x)"},
    {"out_shape", [](NormScene& s) { s.args.out.shape[1] = 1; },
     "gated_rms_norm: out.shape[1] = 1, expected 2 (shape of x)"},
    {"weight_size", [](NormScene& s) { s.args.weight.shape[0] = 7; },
     "gated_rms_norm: weight.shape[0] = 7, expected 8 (V of x)"},
    {"x_stride", [](NormScene& s) { s.args.x.stride[2] = 2; },
     "gated_rms_norm: x.stride[2] = 2, expected 1 (contiguous last dimension)"},
    {"z_stride", [](NormScene& s) { s.args.z.stride[2] = 0; },
     "gated_rms_norm: z.stride[2] = 0, expected 1 (contiguous last dimension)"},
    {"out_stride", [](NormScene& s) { s.args.out.stride[2] = 2; },
     "gated_rms_norm: out.stride[2] = 2, expected 1 (contiguous last dimension)"},
    {"out_shares_memory", [](NormScene& s) { s.args.out.stride[1] = 7; },
     "gated_rms_norm: out.stride[1] = 7, expected >= 8 (elements of an output may not share "
     "memory)"},
    {"out_is_z", [](NormScene& s) { s.args.out.data = s.args.z.data; },
     "gated_rms_norm: out.data = z.data, expected other memory (this operator cannot work in "
     "place)"},
    {"in_place_dtype",
     [](NormScene& s) {
       s.args.out = s.args.x;
       s.args.out.dtype = kFloat16;
     },
     "gated_rms_norm: out dtype = float16, expected float32 (that of x, whose "
     "memory it is)"},
    {"in_place_stride",
     [](NormScene& s) {
       s.args.out = s.args.x;
       s.args.out.stride[0] = 32;
     },
     "gated_rms_norm: out.stride[0] = 32, expected 16 (that of x, whose memory it is)"},
    {"epsilon", [](NormScene& s) { s.args.eps = -1; },
     "gated_rms_norm: eps = -1, expected a finite number >= 0 (0 = the default 1e-6)"},
    {"no_activation", [](NormScene& s) { s.args.activation = 0; },
     "gated_rms_norm: activation = 0, expected 1 (SILU) or 2 (SIGMOID)"},
    {"activation", [](NormScene& s) { s.args.activation = 3; },
     "gated_rms_norm: activation = 3, expected 1 (SILU) or 2 (SIGMOID)"},
    {"rounding", [](NormScene& s) { s.args.rounding = SLUICE_NORM_ROUND_INPUT; },
     "gated_rms_norm: rounding = 2, expected 0 (ROUND_ONCE) or 1 (ROUND_HF)"},
    {"implementation", [](NormScene& s) { s.args.implementation = 6; },
     "gated_rms_norm: implementation = 6, expected 0 to 4 (sluice_implementation)"},
    {"reserved", [](NormScene& s) { s.args.reserved = 1; },
     "gated_rms_norm: reserved = 1, expected 0"},
    {"stream", [](NormScene& s) { s.stream = &s; },
     "gated_rms_norm: stream = given, expected null (CPU views have no stream)", Seen::kByCall},
};
INSTANTIATE_TEST_SUITE_P(Rules, GatedRmsNormRefusals, ::testing::ValuesIn(kRefused),
                         row_name<Args>);

const Row kAccepted[] = {
    {"as_is", [](NormScene&) {}, ""},
    {"in_place", [](NormScene& s) { s.args.out = s.args.x; }, ""},
    {"no_rows",
     [](NormScene& s) {
       for (sluice_tensor* t : {&s.args.x, &s.args.z, &s.args.out}) t->shape[0] = 0;
     },
     ""},
};

TEST(GatedRmsNormAccepts, LegalNeighboursOfRefusals) {
  for (const Row& row : kAccepted) {
    SCOPED_TRACE(row.name);
    NormScene scene = valid_scene();
    row.spoil(scene);
    expect_accepted(kOp, scene);
  }
}

}  // namespace
}  // namespace sluice::check
