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

TEST(ConvForm, FollowsLayoutTypeAndAlignment) {
  EXPECT_EQ(choose_form(lowered(conv(kBFloat16, false))), Form::kAny);  // no SiLU
  EXPECT_EQ(choose_form(lowered(conv(kFloat32, false))), Form::kAny);
  EXPECT_EQ(choose_form(lowered(conv(kFloat16, true))), Form::kChannelFirst);
  EXPECT_EQ(choose_form(lowered(conv(kFloat32, true))), Form::kAny);
  CausalConv1dArgs mixed = conv(kBFloat16, false);
  mixed.activation = Activation::kSilu;
  EXPECT_EQ(choose_form(lowered(mixed)), Form::kChannelLast);
  mixed.out = view(kFloat32, {1, 64, 96}, 1 << 20);
  EXPECT_EQ(choose_form(lowered(mixed)), Form::kAny);
  CausalConv1dArgs unaligned = conv(kBFloat16, false);
  unaligned.activation = Activation::kSilu;
  unaligned.x.data = at(4098);
  EXPECT_EQ(choose_form(lowered(unaligned)), Form::kAny);
  CausalConv1dArgs half_first = conv(kBFloat16, true);
  half_first.out = view(kBFloat16, {1, 64, 96}, 1 << 20);
  EXPECT_EQ(choose_form(lowered(half_first)), Form::kAny);
}

/// q, k and v of a layer, one launch: the packs must hold for either packing.
TEST(ConvForm, LayersAreChannelLast) {
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
    EXPECT_EQ(choose_form(p), Form::kChannelLast);
    EXPECT_EQ(has_groups_apart(p), !flat);
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

TEST(ConvForm, FormsOfModelsAreChannelLast) {
  EXPECT_EQ(choose_form(lowered(models_conv())), Form::kChannelLast);
  const auto form_after = [](auto change) {
    CausalConv1dArgs args = models_conv();
    change(args);
    return choose_form(lowered(args));
  };
  EXPECT_EQ(form_after([](auto& a) { a.bias = view(kBFloat16, {96}); }), Form::kChannelLast);
  EXPECT_EQ(form_after([](auto& a) { a.cu_seqlens = view(kInt32, {3}); }), Form::kChannelLast);
  const auto with_states = [](const TensorView& pool) {
    return [pool](auto& a) { a.state.initial = a.state.final = pool; };
  };
  const TensorView outside = view(kBFloat16, {1, 3, 96}).transposed(1, 2);
  EXPECT_EQ(form_after(with_states(outside)), Form::kChannelLast);
  EXPECT_EQ(form_after(with_states(view(kBFloat16, {1, 96, 4}))), Form::kChannelLast);
  EXPECT_EQ(form_after(with_states(view(kBFloat16, {1, 96, 5}))), Form::kAny);
  EXPECT_EQ(form_after(with_states(view(kFloat32, {1, 96, 4}))), Form::kAny);
  EXPECT_EQ(form_after([](auto& a) { a.weight = view(kFloat32, {96, 4}); }), Form::kAny);
  EXPECT_EQ(form_after([](auto& a) { a.weight = view(kBFloat16, {96, 3}); }), Form::kAny);
  EXPECT_EQ(form_after([](auto& a) { a.activation = Activation::kNone; }), Form::kAny);
}

/// Of 8 tokens and 512 channels; heads of 256. What a grid cannot hold goes channel by channel.
TEST(ConvPlan, ChannelLastCoversTokensAndHeads) {
  const auto grid_after = [](const CausalConv1dArgs& args) {
    ConvParams p = lowered(args);
    const Form form = choose_form(p);
    plan_launch(form, 132, &p);
    EXPECT_GE(p.tiles * p.tile_tokens, p.T);
    return grid_of(form, p);
  };
  CausalConv1dArgs args = models_conv();
  args.x = view(kBFloat16, {5, 65, 1024}), args.out = view(kBFloat16, {5, 65, 1024}, 1 << 24);
  args.weight = view(kBFloat16, {1024, 4});
  const GridSize plain = grid_after(args);
  EXPECT_EQ(plain.x, 2u);
  EXPECT_EQ(plain.y, 2u + 9u);
  EXPECT_EQ(plain.z, 5u);
  args.state.initial = args.state.final = view(kBFloat16, {5, 1024, 4});
  EXPECT_EQ(grid_after(args).y, 2u + 9u);
  args = models_conv();
  args.cu_seqlens = view(kInt32, {8});
  EXPECT_EQ(grid_after(args).y, 2u * 7u + 8u);
  args.cu_seqlens = view(kInt32, {32765});
  EXPECT_EQ(choose_form(lowered(args)), Form::kAny);
}

TEST(ConvPlan, CoversAllTokensOnAnyGpu) {
  for (const bool channel_first : {false, true}) {
    for (const int multiprocessors : {0, 1, 132, 100000}) {
      ConvParams p = lowered(conv(kBFloat16, channel_first));
      plan_launch(choose_form(p), multiprocessors, &p);
      EXPECT_GE(p.tiles * p.tile_tokens, p.T);
      EXPECT_LT((p.tiles - 1) * p.tile_tokens, p.T);
      EXPECT_EQ(p.warps, p.head_warps * p.N + p.tiles * p.channel_warps);
      EXPECT_GE(p.channel_warps * (channel_first ? p.thread_channels : 32), p.D);
    }
  }
}

TEST(ConvPlan, FewTokensAreHeadsAlone) {
  CausalConv1dArgs args = conv(kBFloat16, false);
  args.x = view(kBFloat16, {7, 3, 96});
  args.out = view(kBFloat16, {7, 3, 96}, 1 << 20);
  ConvParams p = lowered(args);
  EXPECT_EQ(choose_form(p), Form::kAny);
  plan_launch(choose_form(p), 132, &p);
  EXPECT_EQ(p.state_order, StateOrder::kColumnsOutside);  // of no state at all
  EXPECT_EQ(p.warps, 7 * 3);
  args.activation = Activation::kSilu;
  EXPECT_EQ(choose_form(lowered(args)), Form::kChannelLast);
  for (const auto order : {StateOrder::kColumnsOutside, StateOrder::kColumnsInside}) {
    const bool outside = order == StateOrder::kColumnsOutside;
    const TensorView pool =
        outside ? view(kBFloat16, {7, 3, 96}).transposed(1, 2) : view(kBFloat16, {7, 96, 3});
    args.state.initial = args.state.final = pool;
    p = lowered(args);
    EXPECT_EQ(choose_form(p), Form::kChannelLast);
    plan_launch(choose_form(p), 132, &p);
    EXPECT_EQ(p.state_order, order);
  }
  args.state.final = view(kFloat32, {7, 96, 3}, 1 << 22);
  p = lowered(args);
  EXPECT_EQ(choose_form(p), Form::kAny);
  plan_launch(choose_form(p), 132, &p);
  EXPECT_EQ(p.state_order, StateOrder::kAny);
  EXPECT_EQ(p.warps, 7 * 3);
}

TEST(ConvPlan, OneTokenInTheFormsOfModelsIsAnUpdate) {
  CausalConv1dArgs args = conv(kBFloat16, false);
  args.x = view(kBFloat16, {7, 1, 96});
  args.out = view(kBFloat16, {7, 1, 96}, 1 << 20);
  args.state.initial = args.state.final = view(kBFloat16, {7, 96, 4});
  ConvParams p = lowered(args);
  EXPECT_EQ(choose_form(p), Form::kUpdate);
  plan_launch(choose_form(p), 132, &p);
  const GridSize grid = grid_of(Form::kUpdate, p);
  EXPECT_EQ(grid.x, 1u);
  EXPECT_EQ(grid.y, 7u);
  const auto form_after = [&](auto change) {
    CausalConv1dArgs other = args;
    change(other);
    return choose_form(lowered(other));
  };
  EXPECT_EQ(
      form_after([](auto& a) { a.state.initial = a.state.final = view(kBFloat16, {7, 96, 5}); }),
      Form::kAny);
  EXPECT_EQ(form_after([](auto& a) { a.weight = view(kFloat32, {96, 4}); }), Form::kAny);
  EXPECT_EQ(form_after([](auto& a) { a.weight = view(kBFloat16, {96, 3}); }), Form::kAny);
  EXPECT_EQ(form_after([](auto& a) { a.bias = view(kFloat32, {96}); }), Form::kAny);
  EXPECT_EQ(form_after([](auto& a) {
              a.x = a.out = view(kBFloat16, {7, 2, 96});
              a.out.data = at(1 << 20);
            }),
            Form::kAny);
}

TEST(ConvPlan, RingsWithColumnsOutsideAreUpdates) {
  CausalConv1dArgs args = conv(kBFloat16, false);
  args.x = view(kBFloat16, {7, 1, 96});
  args.out = view(kBFloat16, {7, 1, 96}, 1 << 20);
  args.state.form = ConvStateForm::kRing;
  args.state.ring_position = view(kInt32, {7}, 1 << 23);
  args.state.initial = args.state.final = view(kBFloat16, {7, 4, 96}).transposed(1, 2);
  EXPECT_EQ(choose_form(lowered(args)), Form::kUpdate);
  EXPECT_TRUE(update_form_of(lowered(args)).ring);
  args.state.initial = args.state.final = view(kBFloat16, {7, 96, 4});
  EXPECT_EQ(choose_form(lowered(args)), Form::kAny);
}

}  // namespace
}  // namespace sluice::cuda::conv1d
