// Measures how convolutions are cut for a GPU, without one: which body runs for the layouts of
// models, and that the work covers every token and channel. Host arithmetic on made-up addresses.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>

#include "core/validate.hpp"
#include "cuda/causal_conv1d/lower.h"
#include "cuda/kernels/conv1d/launch.h"
#include "sluice/sluice.hpp"

namespace sluice::cuda::conv1d {
namespace {

/// An address that nothing reads.
void* at(uintptr_t address) { return reinterpret_cast<void*>(address); }

TensorView view(DType type, std::initializer_list<int64_t> shape, uintptr_t address = 4096) {
  return TensorView(at(address), type, shape, cuda_device());
}

/// A convolution of [1,64,96], as channels first where asked.
CausalConv1dArgs conv(DType type, bool channel_first) {
  CausalConv1dArgs args;
  args.x = channel_first ? view(type, {1, 96, 64}).transposed(1, 2) : view(type, {1, 64, 96});
  args.out = args.x;
  args.out.data = at(1 << 20);
  args.weight = view(type, {96, 4}, 1 << 21);
  return args;
}

ConvParams lowered(const CausalConv1dArgs& args) {
  const sluice_causal_conv1d_args c = args.c();
  core::CausalConvProblem problem;
  const core::Validated call = core::validate(c, core::Depth::kShapes, &problem);
  EXPECT_TRUE(call.status.ok()) << call.status.message;
  return lower_conv(&problem, 1);
}

TEST(ConvBody, FollowsLayoutTypeAndAlignment) {
  EXPECT_EQ(choose_body(lowered(conv(kBFloat16, false))), Body::kRowsOfBfloats);
  EXPECT_EQ(choose_body(lowered(conv(kFloat32, false))), Body::kRowsOfFloats);
  EXPECT_EQ(choose_body(lowered(conv(kFloat16, true))), Body::kLinesOfHalves);
  EXPECT_EQ(choose_body(lowered(conv(kFloat32, true))), Body::kLinesOfElements);
  CausalConv1dArgs mixed = conv(kBFloat16, false);
  mixed.out = view(kFloat32, {1, 64, 96}, 1 << 20);
  EXPECT_EQ(choose_body(lowered(mixed)), Body::kRowsOfElements);
  CausalConv1dArgs unaligned = conv(kBFloat16, false);
  unaligned.x.data = at(4098);
  EXPECT_EQ(choose_body(lowered(unaligned)), Body::kRowsOfElements);
  CausalConv1dArgs half_first = conv(kBFloat16, true);
  half_first.out = view(kBFloat16, {1, 64, 96}, 1 << 20);
  EXPECT_EQ(choose_body(lowered(half_first)), Body::kRowsOfElements);
}

/// q, k and v of a layer, one launch: the packs must hold for either packing.
TEST(ConvBody, LayersGoByPacks) {
  for (const auto packing : {Packing::kFlat, Packing::kInterleaved}) {
    constexpr int64_t H = 16, HV = 32, K = 128, V = 128, T = 70;
    LayerArgs args;
    const bool flat = packing == Packing::kFlat;
    args.packing = packing;
    args.qkv = view(kBFloat16, {1, T, 2 * H * K + (flat ? 1 : 2) * HV * V});
    if (flat) args.z = view(kBFloat16, {1, T, HV * V}, 1 << 22);
    if (flat) args.a = view(kBFloat16, {1, T, HV});
    args.b = view(kBFloat16, {1, T, flat ? HV : 2 * HV});
    args.conv_weight = view(kBFloat16, {2 * H * K + HV * V, 4});
    args.A_log = args.dt_bias = view(kFloat32, {HV});
    args.norm_weight = view(kBFloat16, {V});
    args.out = view(kBFloat16, {1, T, HV, V}, 1 << 24);
    args.num_k_heads = H, args.num_v_heads = HV, args.head_k_dim = K, args.head_v_dim = V;
    core::LayerProblem problem;
    const core::Validated call =
        core::validate(SLUICE_OP_LAYER_PREFILL, args.c(), core::Depth::kShapes, &problem);
    ASSERT_TRUE(call.status.ok()) << call.status.message;
    for (core::CausalConvProblem& part : problem.conv) {
      part.out = part.x;
      part.out.data = at(1 << 25);
    }
    const ConvParams p = lower_conv(problem.conv, 3);
    EXPECT_EQ(choose_body(p), flat ? Body::kPatches : Body::kRowsOfBfloats);
    EXPECT_TRUE(p.weight_in_fours);
    EXPECT_EQ(p.D, 2 * H * K + HV * V);
    EXPECT_EQ(p.part[1].first, H * K);
    EXPECT_EQ(p.part[2].first, 2 * H * K);
  }
}

/// One sequence in the form of models, [1,64,96].
CausalConv1dArgs models_conv() {
  CausalConv1dArgs args = conv(kBFloat16, false);
  args.activation = Activation::kSilu;
  return args;
}

TEST(ConvBody, FormsOfModelsGoByPatches) {
  EXPECT_EQ(choose_body(lowered(models_conv())), Body::kPatches);
  const auto body_after = [](auto change) {
    CausalConv1dArgs args = models_conv();
    change(args);
    return choose_body(lowered(args));
  };
  EXPECT_EQ(body_after([](auto& a) { a.bias = view(kBFloat16, {96}); }), Body::kPatches);
  EXPECT_EQ(body_after([](auto& a) { a.cu_seqlens = view(kInt32, {3}); }), Body::kCutPatches);
  const auto with_states = [](const TensorView& pool) {
    return [pool](auto& a) { a.state.initial = a.state.final = pool; };
  };
  const TensorView outside = view(kBFloat16, {1, 3, 96}).transposed(1, 2);
  EXPECT_EQ(body_after(with_states(outside)), Body::kCutPatches);
  EXPECT_EQ(body_after(with_states(view(kBFloat16, {1, 96, 4}))), Body::kCutPatches);
  EXPECT_EQ(body_after(with_states(view(kBFloat16, {1, 96, 5}))), Body::kRowsOfBfloats);
  EXPECT_EQ(body_after(with_states(view(kFloat32, {1, 96, 4}))), Body::kRowsOfBfloats);
  EXPECT_EQ(body_after([](auto& a) { a.weight = view(kFloat32, {96, 4}); }), Body::kRowsOfBfloats);
  EXPECT_EQ(body_after([](auto& a) { a.weight = view(kBFloat16, {96, 3}); }), Body::kRowsOfBfloats);
  EXPECT_EQ(body_after([](auto& a) { a.activation = Activation::kNone; }), Body::kRowsOfBfloats);
}

/// Of 8 tokens and 512 channels; heads of 256. What a grid cannot hold goes by rows.
TEST(ConvPlan, PatchesCoverTokensAndHeads) {
  const auto grid_after = [](const CausalConv1dArgs& args) {
    ConvParams p = lowered(args);
    const Body body = choose_body(p);
    plan_launch(body, 132, &p);
    EXPECT_EQ(shared_bytes(body, p), 0u);
    EXPECT_GE(p.tiles * p.tile_tokens, p.T);
    return grid_of(body, p);
  };
  CausalConv1dArgs args = models_conv();
  args.x = view(kBFloat16, {5, 65, 1024}), args.out = view(kBFloat16, {5, 65, 1024}, 1 << 24);
  args.weight = view(kBFloat16, {1024, 4});
  const GridSize plain = grid_after(args);
  EXPECT_EQ(plain.x, 2u);
  EXPECT_EQ(plain.y, 9u);
  EXPECT_EQ(plain.z, 5u);
  args.state.initial = args.state.final = view(kBFloat16, {5, 1024, 4});
  EXPECT_EQ(grid_after(args).y, 2u + 9u);
  args = models_conv();
  args.cu_seqlens = view(kInt32, {8});
  EXPECT_EQ(grid_after(args).y, 2u * 7u + 8u);
  args.cu_seqlens = view(kInt32, {32765});
  EXPECT_EQ(choose_body(lowered(args)), Body::kRowsOfBfloats);
}

TEST(ConvPlan, CoversAllTokensOnAnyGpu) {
  for (const bool channel_first : {false, true}) {
    for (const int multiprocessors : {0, 1, 132, 100000}) {
      ConvParams p = lowered(conv(kBFloat16, channel_first));
      plan_launch(choose_body(p), multiprocessors, &p);
      EXPECT_GE(p.tiles * p.tile_tokens, p.T);
      EXPECT_LT((p.tiles - 1) * p.tile_tokens, p.T);
      EXPECT_EQ(p.warps, p.head_warps * p.N + p.tiles * p.channel_warps);
      EXPECT_GE(p.channel_warps * (channel_first ? p.lines : 256), p.D);
    }
  }
}

TEST(ConvPlan, DecodeIsHeadsAlone) {
  CausalConv1dArgs args = conv(kBFloat16, false);
  args.x = view(kBFloat16, {7, 3, 96});
  args.out = view(kBFloat16, {7, 3, 96}, 1 << 20);
  ConvParams p = lowered(args);
  EXPECT_EQ(choose_body(p), Body::kHeadsOfBfloats);
  plan_launch(choose_body(p), 132, &p);
  EXPECT_EQ(p.head_form, HeadForm::kColumnsOutside);  // of no state at all
  EXPECT_EQ(p.warps, 7);
  for (const auto form : {HeadForm::kColumnsOutside, HeadForm::kColumnsInside}) {
    const bool outside = form == HeadForm::kColumnsOutside;
    const TensorView pool =
        outside ? view(kBFloat16, {7, 3, 96}).transposed(1, 2) : view(kBFloat16, {7, 96, 3});
    args.state.initial = args.state.final = pool;
    p = lowered(args);
    plan_launch(choose_body(p), 132, &p);
    EXPECT_EQ(p.head_form, form);
    EXPECT_EQ(p.warps, 7);
  }
  args.state.final = view(kFloat32, {7, 96, 3}, 1 << 22);
  p = lowered(args);
  EXPECT_EQ(choose_body(p), Body::kRowsOfElements);
  plan_launch(choose_body(p), 132, &p);
  EXPECT_EQ(p.head_form, HeadForm::kElements);
  EXPECT_EQ(p.warps, 7 * 3);
}

TEST(ConvPlan, OneTokenInTheFormsOfModelsIsAnUpdate) {
  CausalConv1dArgs args = conv(kBFloat16, false);
  args.x = view(kBFloat16, {7, 1, 96});
  args.out = view(kBFloat16, {7, 1, 96}, 1 << 20);
  args.state.initial = args.state.final = view(kBFloat16, {7, 96, 4});
  ConvParams p = lowered(args);
  EXPECT_EQ(choose_body(p), Body::kUpdates);
  plan_launch(choose_body(p), 132, &p);
  const GridSize grid = grid_of(Body::kUpdates, p);
  EXPECT_EQ(grid.x, 1u);
  EXPECT_EQ(grid.y, 7u);
  EXPECT_EQ(shared_bytes(Body::kUpdates, p), 0u);
  const auto body_after = [&](auto change) {
    CausalConv1dArgs other = args;
    change(other);
    return choose_body(lowered(other));
  };
  EXPECT_EQ(
      body_after([](auto& a) { a.state.initial = a.state.final = view(kBFloat16, {7, 96, 5}); }),
      Body::kRowsOfElements);
  EXPECT_EQ(body_after([](auto& a) { a.weight = view(kFloat32, {96, 4}); }), Body::kHeadsOfBfloats);
  EXPECT_EQ(body_after([](auto& a) { a.weight = view(kBFloat16, {96, 3}); }),
            Body::kHeadsOfBfloats);
  EXPECT_EQ(body_after([](auto& a) { a.bias = view(kFloat32, {96}); }), Body::kHeadsOfBfloats);
  EXPECT_EQ(body_after([](auto& a) {
              a.x = a.out = view(kBFloat16, {7, 2, 96});
              a.out.data = at(1 << 20);
            }),
            Body::kHeadsOfBfloats);
}

}  // namespace
}  // namespace sluice::cuda::conv1d
