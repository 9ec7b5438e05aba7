// Measures the rules of the C interface that no operator owns: versions of argument structs, null
// pointers, queries, status names and the executor. Calls go through sluice.h and the C++ facade.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "refusals_scene.hpp"
#include "sluice/sluice.hpp"

namespace sluice::check {
namespace {

constexpr const char* kNames[SLUICE_OP_COUNT] = {
    "chunk_forward",  "recurrent_step",         "causal_conv1d",
    "gated_rms_norm", "layer_prefill",          "layer_decode",
    "chunk_stage",    "chunk_backward",         "chunk_summary",
    "state_fold",     "causal_conv1d_backward", "gated_rms_norm_backward",
    "layer_backward"};
constexpr size_t kSizes[SLUICE_OP_COUNT] = {sizeof(sluice_chunk_forward_args),
                                            sizeof(sluice_recurrent_step_args),
                                            sizeof(sluice_causal_conv1d_args),
                                            sizeof(sluice_gated_rms_norm_args),
                                            sizeof(sluice_layer_args),
                                            sizeof(sluice_layer_args),
                                            sizeof(sluice_chunk_stage_args),
                                            sizeof(sluice_chunk_backward_args),
                                            sizeof(sluice_chunk_summary_args),
                                            sizeof(sluice_state_fold_args),
                                            sizeof(sluice_causal_conv1d_backward_args),
                                            sizeof(sluice_gated_rms_norm_backward_args),
                                            sizeof(sluice_layer_backward_args)};

/// One row of 4 values through gated_rms_norm, the smallest valid call.
struct NormCall {
  alignas(8) std::array<float, 4> x{1, 2, 3, 4}, z{1, 1, 1, 1}, weight{1, 1, 1, 1}, out{};
  sluice_gated_rms_norm_args args{};

  NormCall() {
    args.struct_size = sizeof args;
    args.x = TensorView(x.data(), {1, 4});
    args.z = TensorView(z.data(), {1, 4});
    args.weight = TensorView(weight.data(), {4});
    args.out = TensorView(out.data(), {1, 4});
    args.activation = SLUICE_ACTIVATION_SILU;
    args.implementation = SLUICE_IMPL_REFERENCE;
  }
};

TEST(StructSize, NullArgumentsAreRefusedByEveryOperator) {
  for (int op = 0; op < SLUICE_OP_COUNT; ++op) {
    const std::string message = std::string(kNames[op]) + ": args = null, expected a struct";
    EXPECT_EQ(call(static_cast<sluice_op>(op), nullptr, {}, nullptr), SLUICE_INVALID_ARGUMENT);
    EXPECT_EQ(sluice_last_error(), message);
    EXPECT_EQ(sluice_supported(op, nullptr, nullptr, 0), SLUICE_INVALID_ARGUMENT);
    EXPECT_EQ(sluice_last_error(), message);
  }
}

TEST(StructSize, UninitialisedSizesAreRefusedByEveryOperator) {
  for (int op = 0; op < SLUICE_OP_COUNT; ++op) {
    const size_t size = kSizes[op];
    for (const size_t found : {size_t{0}, size_t{8}, sizeof(size_t) + sizeof(sluice_tensor) - 1,
                               size + 4097, SIZE_MAX}) {
      std::vector<std::byte> args(size + 8192);
      std::memcpy(args.data(), &found, sizeof found);
      EXPECT_EQ(call(static_cast<sluice_op>(op), args.data(), {}, nullptr),
                SLUICE_INVALID_ARGUMENT);
      EXPECT_EQ(sluice_last_error(),
                std::string(kNames[op]) + ": struct_size = " + std::to_string(found) +
                    ", expected sizeof the args struct (" + std::to_string(size) + " here)");
    }
  }
}

TEST(StructSize, OlderCallersLackingMembersCountAsZero) {
  NormCall call;
  call.args.struct_size = offsetof(sluice_gated_rms_norm_args, rounding);
  call.args.rounding = 77;  // past the caller's struct: not to be read
  call.args.implementation = 77;
  call.args.reserved = 77;
  EXPECT_EQ(sluice_gated_rms_norm(&call.args, {}, nullptr), SLUICE_OK) << sluice_last_error();
  EXPECT_GT(call.out[0], 0.0f);
}

TEST(StructSize, OlderCallersStillMeetTheRules) {
  NormCall call;
  call.args.struct_size = offsetof(sluice_gated_rms_norm_args, activation);
  EXPECT_EQ(sluice_gated_rms_norm(&call.args, {}, nullptr), SLUICE_INVALID_ARGUMENT);
  EXPECT_STREQ(sluice_last_error(),
               "gated_rms_norm: activation = 0, expected 1 (SILU) or 2 (SIGMOID)");
  EXPECT_EQ(call.out[0], 0.0f);
}

/// The arguments of a caller whose struct has 4096 bytes more.
struct NewerArgs {
  sluice_gated_rms_norm_args args;
  std::array<unsigned char, 4096> tail;
};

TEST(StructSize, NewerCallersWithoutNewOptionsAreServed) {
  NormCall call;
  NewerArgs newer{call.args, {}};
  newer.args.struct_size = sizeof newer;
  EXPECT_EQ(sluice_gated_rms_norm(&newer.args, {}, nullptr), SLUICE_OK) << sluice_last_error();
  EXPECT_GT(call.out[0], 0.0f);
}

TEST(StructSize, NewOptionsAreRefused) {
  for (const size_t place : {size_t{0}, size_t{4095}}) {
    NormCall call;
    NewerArgs newer{call.args, {}};
    newer.args.struct_size = sizeof newer;
    newer.tail[place] = 1;
    EXPECT_EQ(sluice_gated_rms_norm(&newer.args, {}, nullptr), SLUICE_UNSUPPORTED);
    EXPECT_EQ(sluice_last_error(), "gated_rms_norm: struct_size = " + std::to_string(sizeof newer) +
                                       ", expected " + std::to_string(sizeof newer.args) +
                                       " (a newer caller uses an option that this library lacks)");
    EXPECT_EQ(call.out[0], 0.0f);
  }
}

TEST(Queries, OperatorNumber) {
  NormCall call;
  size_t bytes = 7;
  for (const int op : {-1, static_cast<int>(SLUICE_OP_COUNT)}) {
    const std::string message =
        "sluice: op = " + std::to_string(op) + ", expected 0 to 12 (sluice_op)";
    EXPECT_EQ(sluice_workspace_size(op, &call.args, &bytes), SLUICE_INVALID_ARGUMENT);
    EXPECT_EQ(sluice_last_error(), message);
    EXPECT_EQ(sluice_supported(op, &call.args, nullptr, 0), SLUICE_INVALID_ARGUMENT);
    EXPECT_EQ(sluice_last_error(), message);
  }
  EXPECT_EQ(bytes, 7u);
}

TEST(Queries, WorkspaceSizeNeedsWhereToWrite) {
  NormCall call;
  EXPECT_EQ(sluice_workspace_size(SLUICE_OP_GATED_RMS_NORM, &call.args, nullptr),
            SLUICE_INVALID_ARGUMENT);
  EXPECT_STREQ(sluice_last_error(), "workspace_size: bytes = null, expected where to write");
}

TEST(Queries, SupportedNamesTheKernelAndCutsItToSize) {
  NormCall call;
  char kernel[64] = {}, cut[5] = "....";
  EXPECT_EQ(sluice_supported(SLUICE_OP_GATED_RMS_NORM, &call.args, kernel, sizeof kernel),
            SLUICE_OK);
  EXPECT_STREQ(kernel, "reference.gated_rms_norm");
  EXPECT_EQ(sluice_supported(SLUICE_OP_GATED_RMS_NORM, &call.args, cut, sizeof cut), SLUICE_OK);
  EXPECT_STREQ(cut, "refe");
  EXPECT_EQ(sluice_supported(SLUICE_OP_GATED_RMS_NORM, &call.args, nullptr, 0), SLUICE_OK);
}

TEST(Queries, LastKernelIsThatOfTheLastSuccess) {
  NormCall call;
  ASSERT_EQ(sluice_gated_rms_norm(&call.args, {}, nullptr), SLUICE_OK);
  EXPECT_STREQ(sluice_last_kernel(), "reference.gated_rms_norm");
  call.args.reserved = 1;
  EXPECT_EQ(sluice_gated_rms_norm(&call.args, {}, nullptr), SLUICE_INVALID_ARGUMENT);
  EXPECT_STREQ(sluice_last_kernel(), "reference.gated_rms_norm");
}

TEST(Queries, LastErrorEndsWithASuccess) {
  NormCall call;
  EXPECT_EQ(sluice_gated_rms_norm(nullptr, {}, nullptr), SLUICE_INVALID_ARGUMENT);
  EXPECT_STRNE(sluice_last_error(), "");
  EXPECT_EQ(sluice_gated_rms_norm(&call.args, {}, nullptr), SLUICE_OK);
  EXPECT_STREQ(sluice_last_error(), "");
}

TEST(Queries, ImplementationsAreListed) {
  EXPECT_GE(sluice_implementations(nullptr, 0), 3);
  sluice_implementation_info one{}, all[8];
  const int count = sluice_implementations(&one, 1);
  ASSERT_EQ(sluice_implementations(all, 8), count);
  EXPECT_STREQ(one.name, all[0].name);
  const auto listed = [&](const char* name, int id) {
    return std::any_of(all, all + count, [&](const sluice_implementation_info& info) {
      return std::strcmp(info.name, name) == 0 && info.id == id;
    });
  };
  EXPECT_TRUE(listed("cpu", SLUICE_IMPL_CPU));
  EXPECT_TRUE(listed("reference", SLUICE_IMPL_REFERENCE));
  EXPECT_TRUE(listed("reference-chunked", SLUICE_IMPL_REFERENCE_CHUNKED));
}

TEST(Queries, CapabilityIsCutToSize) {
  const size_t length = sluice_capability(nullptr, 0);
  ASSERT_GT(length, 10u);
  std::string whole(length + 1, '.'), cut(11, '.');
  EXPECT_EQ(sluice_capability(whole.data(), whole.size()), length);
  EXPECT_EQ(std::strlen(whole.c_str()), length);
  EXPECT_EQ(sluice_capability(cut.data(), cut.size()), length);
  EXPECT_EQ(sluice_capability(nullptr, 4096), length) << "no memory, whatever the size says";
  EXPECT_EQ(std::string(cut.c_str()), whole.substr(0, 10));
}

TEST(Queries, StatusNames) {
  constexpr const char* kStatusNames[] = {"ok",           "invalid argument",
                                          "unsupported",  "workspace too small",
                                          "device error", "internal error"};
  for (int code = 0; code < 6; ++code) EXPECT_STREQ(sluice_status_name(code), kStatusNames[code]);
  EXPECT_STREQ(sluice_status_name(6), "unknown status");
  EXPECT_STREQ(sluice_status_name(-1), "unknown status");
}

TEST(Executor, ThreadCountMustBeSane) {
  const sluice_parallel_for serial = [](void*, int64_t count, void (*task)(void*, int64_t),
                                        void* context) {
    for (int64_t i = 0; i < count; ++i) task(context, i);
  };
  for (const int threads : {0, -3, 4097}) {
    EXPECT_EQ(sluice_set_executor(serial, nullptr, threads), SLUICE_INVALID_ARGUMENT);
    EXPECT_EQ(sluice_last_error(),
              "set_executor: threads = " + std::to_string(threads) + ", expected 1 to 4096");
  }
  EXPECT_EQ(sluice_set_executor(nullptr, nullptr, 0), SLUICE_OK);
}

TEST(WarmUp, UnknownDeviceIsRefused) {
  EXPECT_EQ(sluice_warm_up({7, 0}), SLUICE_INVALID_ARGUMENT);
  EXPECT_STREQ(sluice_last_error(), "warm_up: device type = 7, expected 1 (CPU) or 2 (CUDA)");
}

TEST(WarmUp, Cpu) { EXPECT_EQ(sluice_warm_up({SLUICE_DEVICE_CPU, 0}), SLUICE_OK); }

TEST(Facade, CarriesCodeAndMessage) {
  const Status status = chunk_forward({});
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  EXPECT_STREQ(status.message, "chunk_forward: q = absent, expected a view of rank 4 (required)");
  const Result<WorkspaceSize> size = workspace_size(RecurrentStepArgs{});
  EXPECT_FALSE(size.ok());
  EXPECT_STREQ(size.status.message,
               "recurrent_step: q = absent, expected a view of rank 4 (required)");
}

TEST(Facade, ViewsOfTooManyDimensionsAreRefused) {
  float x[64] = {};
  const Status status =
      gated_rms_norm({.x = TensorView(x, {1, 1, 1, 1, 1, 4}), .z = TensorView(x, {1, 4})});
  EXPECT_STREQ(status.message, "gated_rms_norm: x rank = 6, expected 2 to 4");
}

}  // namespace
}  // namespace sluice::check
