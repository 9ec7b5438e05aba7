// Measures the log that SLUICE_VERBOSE=1 writes: one line a call, what it holds, and that nothing
// is written without it. A process reads the variable once, so that each test has its own.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "refusals_scene.hpp"

namespace sluice::check {
namespace {

/// Two sequences of three tokens.
struct Prefill {
  Memory memory;
  sluice_chunk_forward_args args{};
  sluice_workspace workspace{};

  Prefill() {
    args.struct_size = sizeof args;
    args.q = memory.tensor(kFloat32, {2, 3, 2, 8});
    args.k = memory.tensor(kFloat32, {2, 3, 2, 8});
    args.v = memory.tensor(kFloat32, {2, 3, 4, 5});
    args.o = memory.tensor(kFloat32, {2, 3, 4, 5});
    args.state.initial = memory.tensor(kFloat32, {2, 4, 8, 5});
    args.options.qk_norm = SLUICE_QK_NORM_L2;
    alignas(256) static std::byte scratch[1 << 18];
    workspace = {scratch, sizeof scratch};
  }
  int run() const { return sluice_chunk_forward(&args, workspace, nullptr); }
};

/// The body runs in a fresh process, which ends with 0 and whose log matches `pattern`.
#define EXPECT_LOG(value, pattern, ...)                                  \
  do {                                                                   \
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";              \
    EXPECT_EXIT(                                                         \
        {                                                                \
          setenv("SLUICE_VERBOSE", value, 1);                            \
          unsetenv("SLUICE_IMPL");                                       \
          ([] { __VA_ARGS__; })();                                       \
        },                                                               \
        ::testing::ExitedWithCode(0), ::testing::MatchesRegex(pattern)); \
  } while (false)

TEST(VerboseDeathTest, NamesOperatorKernelSizesTypesBackendAndTime) {
  EXPECT_LOG("1",
             "sluice: chunk_forward, cpu.chunk_forward.[a-z0-9-]+, B 2 T 3 H 2 HV 4 K 8 V 5, "
             "q float32 state float32, cpu by device, [0-9.]+ [mu]s\n",
             std::_Exit(Prefill().run()));
}

TEST(VerboseDeathTest, SaysWhatChoseTheBackend) {
  EXPECT_LOG("1", "sluice: chunk_forward, reference.*, reference by argument, [^\n]*\n", {
    Prefill call;
    call.args.implementation = SLUICE_IMPL_REFERENCE;
    std::_Exit(call.run());
  });
  EXPECT_LOG("1", "sluice: chunk_forward, reference.*, reference by SLUICE_IMPL, [^\n]*\n", {
    setenv("SLUICE_IMPL", "reference", 1);
    std::_Exit(Prefill().run());
  });
}

TEST(VerboseDeathTest, WritesRefusals) {
  EXPECT_LOG("1", "sluice: refused, chunk_forward: q = absent, expected [^\n]*\n", {
    Prefill call;
    call.args.q = {};
    std::_Exit(call.run() == SLUICE_INVALID_ARGUMENT ? 0 : 1);
  });
}

TEST(VerboseDeathTest, AsksNothingAboutQuestions) {
  EXPECT_LOG("1", "", {
    const Prefill call;
    size_t bytes = 0;
    std::_Exit(sluice_workspace_size(SLUICE_OP_CHUNK_FORWARD, &call.args, &bytes));
  });
}

TEST(VerboseDeathTest, SilentUnlessItIsOn) {
  EXPECT_LOG("0", "", std::_Exit(Prefill().run()));
  EXPECT_LOG("", "", std::_Exit(Prefill().run()));
}

TEST(VerboseDeathTest, EveryOperatorHasALine) {
  EXPECT_LOG("1", "sluice: causal_conv1d, cpu[^,]*, B 1 T 2 D 6 W 3, x bfloat16, [^\n]*\n", {
    Memory memory;
    sluice_causal_conv1d_args args{};
    args.struct_size = sizeof args;
    args.x = memory.tensor(kBFloat16, {1, 2, 6});
    args.out = memory.tensor(kBFloat16, {1, 2, 6});
    args.weight = memory.tensor(kFloat32, {6, 3});
    const sluice_workspace none{memory.take(4096), 4096};
    std::_Exit(sluice_causal_conv1d(&args, none, nullptr));
  });
  EXPECT_LOG("1", "sluice: gated_rms_norm, cpu[^,]*, rows 4 V 8, x float32, [^\n]*\n", {
    Memory memory;
    sluice_gated_rms_norm_args args{};
    args.struct_size = sizeof args;
    args.x = memory.tensor(kFloat32, {4, 8});
    args.z = memory.tensor(kFloat32, {4, 8});
    args.out = memory.tensor(kFloat32, {4, 8});
    args.weight = memory.tensor(kFloat32, {8});
    args.activation = SLUICE_ACTIVATION_SILU;
    std::_Exit(sluice_gated_rms_norm(&args, {}, nullptr));
  });
  EXPECT_LOG("1", "sluice: chunk_cumsum, cpu[^,]*, B 1 T 70 HV 2 C 64, g_cumsum [^\n]*\n", {
    Memory memory;
    sluice_chunk_stage_args args{};
    args.struct_size = sizeof args;
    args.stage = SLUICE_STAGE_CHUNK_CUMSUM;
    args.gate = memory.tensor(kFloat32, {1, 70, 2});
    args.g_cumsum = memory.tensor(kFloat32, {1, 70, 2});
    alignas(256) static std::byte scratch[1 << 16];
    std::_Exit(sluice_chunk_stage(&args, {scratch, sizeof scratch}, nullptr));
  });
}

}  // namespace
}  // namespace sluice::check
