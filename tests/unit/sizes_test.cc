// Measures what becomes of consistent shapes that no memory holds: sizes are refused or true, never
// wrapped. All inputs are views of stride 0, so that every shape passes the rules of views.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "sluice/sluice.hpp"

namespace sluice::testing {
namespace {

alignas(64) int64_t some_memory[8] = {};

/// A view of one element, repeated; dense where it is written.
TensorView view(DType dtype, std::initializer_list<int64_t> shape, bool written = false) {
  TensorView t(some_memory, dtype, shape);
  for (int axis = 0; axis < t.rank - 1 && !written; ++axis) t.stride[axis] = 0;
  if (!written && t.rank == 1) t.stride[0] = 0;
  return t;
}

struct Sizes {
  int64_t T = 1, H = 1, HV = 1, K = 1, V = 1, N = 1;
};

ChunkForwardArgs prefill(const Sizes& s) {
  ChunkForwardArgs a;
  a.q = a.k = view(kFloat32, {1, s.T, s.H, s.K});
  a.v = view(kFloat32, {1, s.T, s.HV, s.V});
  a.o = view(kFloat32, {1, s.T, s.HV, s.V}, true);
  a.o.data = some_memory + 4;
  a.cu_seqlens = view(kInt32, {s.N + 1});
  return a;
}

ChunkBackwardArgs backward(const Sizes& s) {
  ChunkBackwardArgs a;
  a.q = a.k = view(kFloat32, {1, s.T, s.H, s.K});
  a.v = view(kFloat32, {1, s.T, s.HV, s.V});
  a.d_o = view(kFloat32, {1, s.T, s.HV, s.V});
  a.gate = view(kFloat32, {1, s.T, s.HV});
  a.A_log = a.dt_bias = view(kFloat32, {s.HV});
  a.gate_space = GateSpace::kRaw;
  a.dA_log = view(kFloat32, {s.HV}, true);
  a.dA_log.data = some_memory + 4;
  a.dq = view(kFloat32, {1, s.T, s.H, s.K}, true);
  a.dq.data = some_memory + 5;
  a.cu_seqlens = view(kInt32, {s.N + 1});
  return a;
}

ChunkStageArgs stage(const Sizes& s) {
  ChunkStageArgs a;
  a.stage = Stage::kWyFast;
  a.k = view(kFloat32, {1, s.T, s.H, s.K});
  a.v = view(kFloat32, {1, s.T, s.HV, s.V});
  a.A_inverse = view(kFloat32, {1, s.T, s.HV, 64});
  a.w = view(kFloat32, {1, s.T, s.HV, s.K}, true);
  a.u = view(kFloat32, {1, s.T, s.HV, s.V}, true);
  a.w.data = some_memory + 4, a.u.data = some_memory + 5;
  a.cu_seqlens = view(kInt32, {s.N + 1});
  return a;
}

RecurrentStepArgs step(const Sizes& s) {
  RecurrentStepArgs a;
  a.q = a.k = view(kFloat32, {1, s.T, s.H, s.K});
  a.v = view(kFloat32, {1, s.T, s.HV, s.V});
  a.o = view(kFloat32, {1, s.T, s.HV, s.V}, true);
  a.o.data = some_memory + 4;
  a.cu_seqlens = view(kInt32, {s.N + 1});
  a.max_tokens = 1;
  a.state_writes = StateWrites::kNone;
  return a;
}

CausalConv1dArgs convolution(const Sizes& s) {
  CausalConv1dArgs a;
  a.x = view(kFloat32, {1, s.T, s.HV});
  a.weight = view(kFloat32, {s.HV, 4});
  a.out = view(kFloat32, {1, s.T, s.HV}, true);
  a.out.data = some_memory + 4;
  a.cu_seqlens = view(kInt32, {s.N + 1});
  return a;
}

LayerArgs layer(const Sizes& s) {
  LayerArgs a;
  // Modulo 2^64: what does not fit is refused for its rows already.
  const auto u = [](int64_t x) { return static_cast<uint64_t>(x); };
  const auto value_width = static_cast<int64_t>(u(s.HV) * u(s.V));
  const auto channels = static_cast<int64_t>(2 * u(s.H) * u(s.K) + u(value_width));
  a.qkv = view(kFloat32, {1, s.T, channels}), a.z = view(kFloat32, {1, s.T, value_width});
  a.b = a.a = view(kFloat32, {1, s.T, s.HV});
  a.conv_weight = view(kFloat32, {channels, 4});
  a.A_log = a.dt_bias = view(kFloat32, {s.HV}), a.norm_weight = view(kFloat32, {s.V});
  a.out = view(kFloat32, {1, s.T, s.HV, s.V}, true);
  a.out.data = some_memory + 4;
  a.cu_seqlens = view(kInt32, {s.N + 1});
  a.num_k_heads = s.H, a.num_v_heads = s.HV, a.head_k_dim = s.K, a.head_v_dim = s.V;
  return a;
}

TEST(HugeShapes, OffsetsPastThirtyOneBitsAreRefusedUnread) {
  Sizes s;
  s.N = int64_t{1} << 50;
  const std::string expected =
      "cu_seqlens.shape[0] = 1125899906842625, expected at most 2^31 (2^31 - 1 sequences)";
  const Status status = chunk_forward(prefill(s));
  EXPECT_EQ(status.code, Code::kUnsupported);
  EXPECT_EQ(std::string(status.message), "chunk_forward: " + expected);
  EXPECT_EQ(std::string(workspace_size(prefill(s)).status.message), "chunk_forward: " + expected);
  EXPECT_EQ(std::string(chunk_stage(stage(s)).message), "wy_fast: " + expected);
  EXPECT_EQ(std::string(recurrent_step(step(s)).message), "recurrent_step: " + expected);
  EXPECT_EQ(std::string(causal_conv1d(convolution(s)).message), "causal_conv1d: " + expected);
  s.N = int64_t{1} << 31;
  EXPECT_EQ(chunk_backward(backward(s)).code, Code::kUnsupported);
  s.N = (int64_t{1} << 31) - 1;
  EXPECT_TRUE(workspace_size(prefill(s)).ok());
}

TEST(HugeShapes, TheGradientsWorkspaceDoesNotWrap) {
  Sizes s;
  s.HV = int64_t{1} << 28, s.N = int64_t{1} << 33;
  EXPECT_EQ(workspace_size(backward(s)).status.code, Code::kUnsupported);
  s.N = int64_t{1} << 30;
  EXPECT_EQ(std::string(workspace_size(backward(s)).status.message),
            "chunk_backward: tokens + sequences, heads, widest dimension = 1073741825, 268435456, "
            "1, expected a product (with the last one squared) below 2^52 (sizes are computed in "
            "64 bits)");
  s.HV = 1 << 16, s.N = 1 << 30;
  const Result<WorkspaceSize> fits = workspace_size(backward(s));
  ASSERT_TRUE(fits.ok()) << fits.status.message;
  EXPECT_GE(fits.value.bytes, (size_t{1} << 46) * sizeof(double));
}

template <class Args>
Result<WorkspaceSize> bytes_of(const Args& args) {
  return workspace_size(args);
}
Result<WorkspaceSize> bytes_of(const LayerArgs& args) { return layer_prefill_workspace(args); }

/// Twice the sequences, tokens or heads never need less.
template <class Make>
void expect_growth(Make make, uint64_t seed) {
  uint64_t random = seed;
  const auto power = [&](int most) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return int64_t{1} << (random >> 33) % static_cast<uint64_t>(most + 1);
  };
  constexpr Implementation kAll[] = {Implementation::kCpu, Implementation::kReference,
                                     Implementation::kReferenceChunked};
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    Sizes s{.T = power(40), .H = power(8), .HV = 1, .K = power(30), .V = power(30), .N = power(32)};
    s.HV = s.H * power(30);
    for (const Implementation implementation : kAll) {
      size_t last = 0;
      for (int64_t* const size : {&s.N, &s.T, &s.HV}) {
        auto args = make(s);
        args.implementation = implementation;
        const Result<WorkspaceSize> one = bytes_of(args);
        if (!one.ok()) break;
        ++accepted;
        ASSERT_LT(one.value.bytes, size_t{1} << 62) << "round " << round;
        ASSERT_GE(one.value.bytes, last) << "round " << round;
        last = one.value.bytes;
        *size *= 2;
      }
    }
  }
  EXPECT_GT(accepted, 300);
}

TEST(HugeShapes, SizesGrowWithTheShapeOrAreRefused) {
  expect_growth(prefill, 1);
  expect_growth(backward, 2);
  expect_growth(stage, 3);
  expect_growth(step, 4);
  expect_growth(convolution, 5);
  expect_growth(layer, 6);
}

}  // namespace
}  // namespace sluice::testing
