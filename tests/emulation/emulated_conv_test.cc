// Runs the convolution's own source on the CPU, threads in random order, in cases that the parity
// suite beside it does not have: no bit may depend on the order of threads or on the size of the
// GPU, NaN stays in its sequence and channel, strides pass 2^31, and bodies agree with each other.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstring>

#include "emulated_backend.hpp"
#include "parity/conv_call.hpp"
#include "parity/naming.hpp"
#include "parity/operator_call.hpp"
#include "parity/sequences.hpp"

namespace sluice::check {
namespace {

class EmulatedConv : public ::testing::TestWithParam<ConvConfig> {};

TEST_P(EmulatedConv, OrderDoesNotMatter) {
  const ConvConfig& c = GetParam();
  ConvResult first;
  for (uint64_t seed = 1; seed < 5; ++seed) {
    cuda::emulation_seed = seed;
    const ConvResult found = run_conv(c, SLUICE_IMPL_CUDA);
    ASSERT_EQ(found.code, SLUICE_OK) << found.message;
    if (seed == 1) first = found;
    EXPECT_TRUE(same_bits(found.out, first.out));
    EXPECT_TRUE(same_bits(found.initial, first.initial));
    EXPECT_TRUE(same_bits(found.final, first.final));
  }
}

/// States in place everywhere: what would tell the order of threads.
std::vector<ConvConfig> in_place_configs() {
  std::vector<ConvConfig> configs;
  for (const int64_t spare : {0, 1, 4}) {
    for (const auto form : {SLUICE_CONV_STATE_SHIFT, SLUICE_CONV_STATE_RING}) {
      ConvConfig c{.name = named("spare", spare, "_form", static_cast<int>(form))};
      c.D = 72, c.L = 3 + spare, c.form = form, c.packed = true, c.in_place = true;
      c.lengths = {1, 2, 0, 3, 4, 40, 5, 1, 0}, c.slots = Slots::kRead, c.fresh = {3};
      c.x = c.out = c.initial = kBF16, c.columns_outside = spare == 1;
      configs.push_back(c);
      c.name += "_channel_first", c.channel_first = true;
      configs.push_back(c);
    }
  }
  ConvConfig c{.name = "accepted", .B = 5, .T = 4, .D = 72, .L = 9};
  c.num_accepted = c.in_place = true, c.slots = Slots::kRead;
  configs.push_back(c);
  return configs;
}
INSTANTIATE_TEST_SUITE_P(InPlace, EmulatedConv, ::testing::ValuesIn(in_place_configs()),
                         [](const auto& test) { return test.param.name; });

/// A call on dense tensors of [1,T,D], two sequences of T/2, no states.
struct Scene {
  explicit Scene(sluice_dtype dtype, bool channel_first, int64_t width = 4)
      : x(dtype, make_normal({1, T, D}, 3),
          channel_first ? Placement::kHeadFirst : Placement::kDense),
        weight(dtype, make_normal({D, width}, 4)),
        out(dtype, {1, T, D}, channel_first ? Placement::kHeadFirst : Placement::kDense),
        cu_seqlens(TestTensor::of_indices(kI32, {0, T / 2, T})) {}

  Array run() {
    sluice_causal_conv1d_args args{};
    args.struct_size = sizeof args;
    args.x = x.view(), args.weight = weight.view(), args.out = out.view();
    args.cu_seqlens = cu_seqlens.view();
    args.activation = SLUICE_ACTIVATION_SILU;
    args.implementation = SLUICE_IMPL_CUDA;
    const CallOutcome call = call_operator(SLUICE_OP_CAUSAL_CONV1D, sluice_causal_conv1d, args);
    EXPECT_EQ(call.code, SLUICE_OK) << call.message;
    return out.values();
  }

  static constexpr int64_t T = 48, D = 16;
  TestTensor x, weight, out, cu_seqlens;
};

TEST(EmulatedConvNan, StaysWhereItIs) {
  for (const sluice_dtype dtype : {kF32, kBF16}) {
    for (const bool channel_first : {false, true}) {
      for (const int64_t width : {2, 3, 4}) {
        Scene scene(dtype, channel_first, width);
        const Array clean = scene.run();
        Array spoilt_x = scene.x.values();
        constexpr int64_t kRow = Scene::T / 2 - 1, kChannel = 5;
        spoilt_x(0, kRow, kChannel) = std::nan("");
        spoilt_x(0, 3, kChannel) = std::nan("");
        scene.x.assign(spoilt_x);
        const Array spoilt = scene.run();
        for (int64_t t = 0; t < Scene::T; ++t) {
          for (int64_t d = 0; d < Scene::D; ++d) {
            const bool reached = d == kChannel && (t == kRow || (t >= 3 && t < 3 + width));
            EXPECT_EQ(std::isnan(spoilt(0, t, d)), reached) << t << " " << d;
            if (!reached) {
              EXPECT_EQ(spoilt(0, t, d), clean(0, t, d)) << t << " " << d;
            }
          }
        }
      }
    }
  }
}

TEST(EmulatedConvBodies, AgreeBitForBit) {
  for (const sluice_dtype dtype : {kF32, kBF16, kF16}) {
    const Array rows = Scene(dtype, false).run(), lines = Scene(dtype, true).run();
    EXPECT_TRUE(same_bits(rows, lines));
  }
}

/// Sequences that begin and end inside packs of tokens, and a last pack that is not whole: what is
/// past the rows is another tensor's, and stays.
TEST(EmulatedConvBodies, AgreeWherePacksAreCut) {
  constexpr int64_t kRows = 45;
  for (const sluice_dtype dtype : {kBF16, kF16}) {
    for (const int64_t width : {2, 4}) {
      Array results[2];
      for (const bool channel_first : {false, true}) {
        Scene scene(dtype, channel_first, width);
        sluice_causal_conv1d_args args{};
        args.struct_size = sizeof args;
        args.x = scene.x.view(), args.weight = scene.weight.view(), args.out = scene.out.view();
        args.x.shape[1] = args.out.shape[1] = kRows;
        const TestTensor offsets = TestTensor::of_indices(kI32, {0, 1, 13, 14, 30, kRows});
        args.cu_seqlens = offsets.view();
        args.activation = SLUICE_ACTIVATION_SILU;
        args.implementation = SLUICE_IMPL_CUDA;
        scene.out.assign(make_normal({1, Scene::T, Scene::D}, 7));
        const CallOutcome call = call_operator(SLUICE_OP_CAUSAL_CONV1D, sluice_causal_conv1d, args);
        ASSERT_EQ(call.code, SLUICE_OK) << call.message;
        results[channel_first ? 1 : 0] = scene.out.values();
      }
      EXPECT_TRUE(same_bits(results[0], results[1])) << width;
    }
  }
}

/// Two rows of one batch entry 2^31 + 8 elements apart, in address space that is never touched in
/// between.
TEST(EmulatedConvStrides, PastTwoToThe31) {
  constexpr int64_t kApart = (int64_t{1} << 31) + 8, kT = 6, kD = 8;
  const size_t bytes = static_cast<size_t>(kApart * kT + kD) * 2;
  void* memory = mmap(nullptr, 2 * bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no 50 GB of address space";
  sluice_tensor x{memory, {SLUICE_DEVICE_CPU, 0}, kBF16, 3, {1, kT, kD}, {kApart * kT, kApart, 1}};
  sluice_tensor out = x;
  out.data = static_cast<std::byte*>(memory) + bytes;
  const Array values = round_to(kBF16, make_normal({1, kT, kD}, 5));
  for (int64_t i = 0; i < kT * kD; ++i) {
    store_element(x, i / kD * kApart + i % kD, values.values[static_cast<size_t>(i)]);
  }
  const TestTensor weight(kBF16, make_normal({kD, 4}, 6)), dense(kBF16, values),
      expected(kBF16, {1, kT, kD});
  sluice_causal_conv1d_args args{};
  args.struct_size = sizeof args;
  args.x = x, args.weight = weight.view(), args.out = out;
  args.implementation = SLUICE_IMPL_CUDA;
  EXPECT_EQ(call_operator(SLUICE_OP_CAUSAL_CONV1D, sluice_causal_conv1d, args).code, SLUICE_OK);
  args.x = dense.view(), args.out = expected.view();
  EXPECT_EQ(call_operator(SLUICE_OP_CAUSAL_CONV1D, sluice_causal_conv1d, args).code, SLUICE_OK);
  const Array found = to_array(out);
  EXPECT_TRUE(same_bits(found, expected.values()));
  munmap(memory, 2 * bytes);
}

}  // namespace
}  // namespace sluice::check
