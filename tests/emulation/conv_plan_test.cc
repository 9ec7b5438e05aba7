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

/// A convolution of [1,64,96] with SiLU, as channels first where asked.
CausalConv1dArgs conv(DType type, bool channel_first) {
  CausalConv1dArgs args;
  args.activation = Activation::kSilu;
  args.x = channel_first ? view(type, {1, 96, 64}).transposed(1, 2) : view(type, {1, 64, 96});
  args.out = args.x;
  args.out.data = at(1 << 20);
  args.weight = view(type, {96, 4}, 1 << 21);
  return args;
}

/// What a call is for a GPU.
PlannedConv planned(const CausalConv1dArgs& args, int multiprocessors = 132) {
  const sluice_causal_conv1d_args c = args.c();
  core::CausalConvProblem problem;
  const core::Validated call =
      core::validate(SLUICE_OP_CAUSAL_CONV1D, c, core::Depth::kShapes, &problem);
  EXPECT_TRUE(call.status.ok()) << call.status.message;
  PlannedConv conv{};
  lower_conv(&problem, 1, &conv.params);
  plan_launch(multiprocessors, &conv);
  return conv;
}

Form form_of(const CausalConv1dArgs& args) { return planned(args).form; }

TEST(ConvForm, FollowsLayoutTypeAndAlignment) {
  EXPECT_EQ(form_of(conv(kBFloat16, false)), Form::kChannelLast);
  EXPECT_EQ(form_of(conv(kFloat32, false)), Form::kAny);
  EXPECT_EQ(form_of(conv(kFloat16, true)), Form::kChannelFirst);
  EXPECT_EQ(form_of(conv(kFloat32, true)), Form::kAny);
  CausalConv1dArgs mixed = conv(kBFloat16, false);
  mixed.out = view(kFloat32, {1, 64, 96}, 1 << 20);
  EXPECT_EQ(form_of(mixed), Form::kAny);
  CausalConv1dArgs unaligned = conv(kBFloat16, false);
  unaligned.x.data = at(4098);
  EXPECT_EQ(form_of(unaligned), Form::kAny);
  CausalConv1dArgs half_first = conv(kBFloat16, true);
  half_first.out = view(kBFloat16, {1, 64, 96}, 1 << 20);
  EXPECT_EQ(form_of(half_first), Form::kAny);
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
    PlannedConv conv{};
    lower_conv(problem.conv, 3, &conv.params);
    plan_launch(132, &conv);
    const ConvParams& p = conv.params;
    EXPECT_EQ(conv.form, Form::kChannelLast);
    EXPECT_EQ(conv.instance, flat ? kChannelLastBlocks : kBlocksOfGroups);
    EXPECT_EQ(p.D, 2 * H * K + HV * V);
    EXPECT_EQ(p.part[1].first, H * K);
    EXPECT_EQ(p.part[2].first, 2 * H * K);
  }
}

/// Of both layouts; what a state or a weight is does not depend on them.
TEST(ConvForm, FormsOfModelsGoByBlocks) {
  for (const bool first : {false, true}) {
    const Form blocks = first ? Form::kChannelFirst : Form::kChannelLast;
    const auto form_after = [first](auto change) {
      CausalConv1dArgs args = conv(kBFloat16, first);
      change(args);
      return form_of(args);
    };
    EXPECT_EQ(form_after([](auto& a) { a.bias = view(kBFloat16, {96}); }), blocks);
    EXPECT_EQ(form_after([](auto& a) { a.cu_seqlens = view(kInt32, {3}); }), blocks);
    const auto with_states = [](const TensorView& pool) {
      return [pool](auto& a) { a.state.initial = a.state.final = pool; };
    };
    const TensorView outside = view(kBFloat16, {1, 3, 96}).transposed(1, 2);
    EXPECT_EQ(form_after(with_states(outside)), blocks);
    EXPECT_EQ(form_after(with_states(view(kBFloat16, {1, 96, 4}))), blocks);
    EXPECT_EQ(form_after(with_states(view(kBFloat16, {1, 96, 5}))), Form::kAny);
    EXPECT_EQ(form_after(with_states(view(kFloat32, {1, 96, 4}))), Form::kAny);
    EXPECT_EQ(form_after([](auto& a) { a.weight = view(kFloat32, {96, 4}); }), blocks);
    EXPECT_EQ(form_after([](auto& a) { a.weight = view(kFloat16, {96, 4}); }), Form::kAny);
    EXPECT_EQ(form_after([](auto& a) { a.weight = view(kBFloat16, {96, 3}); }), Form::kAny);
    EXPECT_EQ(form_after([](auto& a) { a.activation = Activation::kNone; }), Form::kAny);
  }
}

/// Of 8 tokens and 512 channels; heads of 256. What a grid cannot hold goes channel by channel.
TEST(ConvPlan, ChannelLastCoversTokensAndHeads) {
  CausalConv1dArgs args = conv(kBFloat16, false);
  args.x = view(kBFloat16, {5, 65, 1024}), args.out = view(kBFloat16, {5, 65, 1024}, 1 << 24);
  args.weight = view(kBFloat16, {1024, 4});
  const GridSize plain = planned(args).grid;
  EXPECT_EQ(plain.x, 2u);
  EXPECT_EQ(plain.y, 2u + 9u);
  EXPECT_EQ(plain.z, 5u);
  args.state.initial = args.state.final = view(kBFloat16, {5, 1024, 4});
  EXPECT_EQ(planned(args).grid.y, 2u + 9u);
  args = conv(kBFloat16, false);
  args.cu_seqlens = view(kInt32, {8});
  EXPECT_EQ(planned(args).grid.y, 2u * 7u + 8u);
  args.cu_seqlens = view(kInt32, {32765});
  EXPECT_EQ(form_of(args), Form::kAny);
}

/// Of 256 tokens and 16 channels; heads of 256 channels, a sequence after the other.
TEST(ConvPlan, ChannelFirstCoversTokensAndHeads) {
  CausalConv1dArgs args = conv(kBFloat16, true);
  args.x = view(kBFloat16, {5, 1028, 600}).transposed(1, 2);
  args.out = view(kBFloat16, {5, 1028, 600}, 1 << 24).transposed(1, 2);
  args.weight = view(kBFloat16, {1028, 4});
  const PlannedConv plain = planned(args);
  EXPECT_EQ(plain.form, Form::kChannelFirst);
  EXPECT_EQ(plain.grid.x, 3u);
  EXPECT_EQ(plain.params.heads, 2);  // of 3 CTAs, for 5
  EXPECT_EQ(plain.grid.y, 2u + 65u);
  EXPECT_EQ(plain.grid.z, 5u);
  args = conv(kBFloat16, true);
  args.cu_seqlens = view(kInt32, {8});
  EXPECT_EQ(planned(args).params.heads, 7);
  EXPECT_EQ(planned(args).grid.y, 7u + 6u);
  args.cu_seqlens = view(kInt32, {65536});
  EXPECT_EQ(form_of(args), Form::kAny);
}

TEST(ConvPlan, CoversAllTokensOnAnyGpu) {
  CausalConv1dArgs args = conv(kBFloat16, false);
  args.activation = Activation::kNone;
  for (const int multiprocessors : {0, 1, 132, 100000}) {
    const PlannedConv any = planned(args, multiprocessors);
    const ConvParams& p = any.params;
    EXPECT_EQ(any.form, Form::kAny);
    EXPECT_GE(p.tiles * p.tile_tokens, p.T);
    EXPECT_LT((p.tiles - 1) * p.tile_tokens, p.T);
    EXPECT_EQ(p.warps, p.channel_warps * (p.N + p.tiles));
    EXPECT_GE(p.channel_warps * 32, p.D);
    EXPECT_GE(int64_t{any.grid.x} * kWarps, p.warps);
  }
}

TEST(ConvPlan, FewTokensAreHeadsAlone) {
  CausalConv1dArgs args = conv(kBFloat16, false);
  args.activation = Activation::kNone;
  args.x = view(kBFloat16, {7, 3, 96});
  args.out = view(kBFloat16, {7, 3, 96}, 1 << 20);
  EXPECT_EQ(form_of(args), Form::kAny);
  EXPECT_EQ(planned(args).params.warps, 7 * 3);
  args.activation = Activation::kSilu;
  EXPECT_EQ(form_of(args), Form::kChannelLast);
  for (const auto order : {StateOrder::kColumnsOutside, StateOrder::kColumnsInside}) {
    const bool outside = order == StateOrder::kColumnsOutside;
    const TensorView pool =
        outside ? view(kBFloat16, {7, 3, 96}).transposed(1, 2) : view(kBFloat16, {7, 96, 3});
    args.state.initial = args.state.final = pool;
    EXPECT_EQ(form_of(args), Form::kChannelLast);
    EXPECT_EQ(planned(args).params.state_order, order);
  }
  args.state.final = view(kFloat32, {7, 96, 3}, 1 << 22);
  EXPECT_EQ(form_of(args), Form::kAny);
  EXPECT_EQ(planned(args).params.warps, 7 * 3);
}

TEST(ConvPlan, OneTokenInTheFormsOfModelsIsAnUpdate) {
  CausalConv1dArgs args = conv(kBFloat16, false);
  args.x = view(kBFloat16, {7, 1, 96});
  args.out = view(kBFloat16, {7, 1, 96}, 1 << 20);
  args.state.initial = args.state.final = view(kBFloat16, {7, 96, 4});
  const PlannedConv update = planned(args);
  EXPECT_EQ(update.form, Form::kUpdate);
  EXPECT_EQ(update.instance, kUpdates + 1);
  EXPECT_EQ(update.grid.x, 1u);
  EXPECT_EQ(update.grid.y, 7u);
  const auto form_after = [&](auto change) {
    CausalConv1dArgs other = args;
    change(other);
    return form_of(other);
  };
  EXPECT_EQ(
      form_after([](auto& a) { a.state.initial = a.state.final = view(kBFloat16, {7, 96, 5}); }),
      Form::kAny);
  EXPECT_EQ(form_after([](auto& a) { a.weight = view(kFloat32, {96, 4}); }), Form::kUpdate);
  EXPECT_EQ(form_after(
                [](auto& a) { a.weight = view(kFloat32, {96, 4}), a.bias = view(kFloat32, {96}); }),
            Form::kUpdate);
  EXPECT_EQ(form_after([](auto& a) { a.weight = view(kBFloat16, {96, 3}); }), Form::kAny);
  EXPECT_EQ(form_after([](auto& a) { a.bias = view(kFloat32, {96}); }), Form::kAny);
  EXPECT_EQ(form_after([](auto& a) {
              a.x = a.out = view(kBFloat16, {7, 2, 96});
              a.out.data = at(1 << 20);
            }),
            Form::kChannelLast);
}

TEST(ConvPlan, RingsWithColumnsOutsideAreUpdates) {
  CausalConv1dArgs args = conv(kBFloat16, false);
  args.x = view(kBFloat16, {7, 1, 96});
  args.out = view(kBFloat16, {7, 1, 96}, 1 << 20);
  args.state.form = ConvStateForm::kRing;
  args.state.ring_position = view(kInt32, {7}, 1 << 23);
  args.state.initial = args.state.final = view(kBFloat16, {7, 4, 96}).transposed(1, 2);
  EXPECT_EQ(form_of(args), Form::kUpdate);
  EXPECT_EQ(planned(args).instance, kRingUpdate);
  args.state.initial = args.state.final = view(kBFloat16, {7, 96, 4});
  EXPECT_EQ(form_of(args), Form::kAny);
}

}  // namespace
}  // namespace sluice::cuda::conv1d
