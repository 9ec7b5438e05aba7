// Measures the generic CUDA kernel against the float64 recurrence where no other kernel goes: head
// dimensions from 1 to 512 in every dtype, both operators, both rules, and what it refuses. Each
// call runs on poisoned device copies with random strides, and names the kernel that ran.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "device_scene.hpp"
#include "parity/delta_call.hpp"
#include "parity/naming.hpp"

namespace sluice::check {
namespace {

struct Sizes {
  int64_t K, V;
};

std::vector<DeltaConfig> all_sizes() {
  std::vector<DeltaConfig> configs;
  for (const sluice_op op : {SLUICE_OP_CHUNK_FORWARD, SLUICE_OP_RECURRENT_STEP}) {
    for (const sluice_dtype io : {kF32, kBF16, kF16}) {
      for (const auto [K, V] : {Sizes{1, 1},
                                {3, 3},
                                {7, 7},
                                {64, 64},
                                {96, 96},
                                {100, 100},
                                {192, 192},
                                {256, 256},
                                {512, 64},
                                {1, 256},
                                {256, 1},
                                {60, 100},
                                {129, 33},
                                {31, 65},
                                {511, 17},
                                {33, 300},
                                {128, 64},
                                {64, 128}}) {
        const bool prefill = op == SLUICE_OP_CHUNK_FORWARD;
        DeltaConfig c{.name =
                          named(prefill ? "prefill_" : "step_", dtype_name(io), "_K", K, "_V", V)};
        c.op = op, c.io = c.o = io, c.K = K, c.V = V;
        c.T = prefill ? 70 : 5, c.H = 1, c.HV = 2, c.wild = true;
        c.seed = static_cast<uint64_t>(K * 1000 + V);
        c.layout = (K + V) % 2 == 0 ? SLUICE_STATE_KV : SLUICE_STATE_VK;
        c.gates = GateProfile::kMixed;
        if (prefill) c.checkpoint_every = 64;
        configs.push_back(c);
      }
    }
  }
  return configs;
}

/// What the one-launch kernel takes but for one thing, and that one alone.
std::vector<DeltaConfig> nearly_fused() {
  std::vector<DeltaConfig> configs;
  const auto with = [&](const std::string& name, auto change) {
    DeltaConfig c{.name = name};
    c.op = SLUICE_OP_CHUNK_FORWARD, c.K = c.V = 128, c.T = 200, c.HV = 2;
    c.io = c.o = kBF16;
    change(c);
    configs.push_back(c);
  };
  with("float32", [](DeltaConfig& c) { c.io = c.o = kF32; });
  with("float32_output", [](DeltaConfig& c) { c.o = kF32; });
  with("float16_output", [](DeltaConfig& c) { c.o = kF16; });
  with("simple_gla_with_l2norm", [](DeltaConfig& c) {
    c.rule = SLUICE_RULE_LINEAR_ATTENTION;
    c.qk_norm = SLUICE_QK_NORM_L2;
  });
  with("narrow_keys", [](DeltaConfig& c) { c.K = 127; });
  with("wide_values", [](DeltaConfig& c) { c.V = 136; });
  return configs;
}

void skip_without_gpu() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    GTEST_SKIP() << "no CUDA device on this machine";
  }
}

class CudaGeneric : public ::testing::TestWithParam<DeltaConfig> {
 protected:
  void SetUp() override { skip_without_gpu(); }
};

/// Sizes that a faster kernel may take, as far as strides and addresses allow.
bool has_fused_size(const DeltaConfig& c) {
  if (c.op == SLUICE_OP_RECURRENT_STEP) return c.K <= 256 && c.K % 4 == 0 && c.V % 4 == 0;
  return c.name.find("K64_V") != std::string::npos || c.name.find("K128_V") != std::string::npos;
}

TEST_P(CudaGeneric, MatchesRecurrence) {
  const DeltaConfig& c = GetParam();
  const DeltaResult truth = run_delta(c, SLUICE_IMPL_REFERENCE);
  ASSERT_EQ(truth.code, SLUICE_OK) << truth.message;
  const DeltaResult found = run_delta(c, SLUICE_IMPL_CUDA);
  ASSERT_EQ(found.code, SLUICE_OK) << found.message;
  if (!has_fused_size(c)) {
    EXPECT_EQ(found.kernel, c.op == SLUICE_OP_CHUNK_FORWARD ? "cuda.chunk_forward.generic"
                                                            : "cuda.recurrent_step.generic");
  }
  const Verdict verdict = judge_delta(c, found, truth);
  EXPECT_TRUE(verdict.pass) << verdict.line;
}

std::string config_name(const ::testing::TestParamInfo<DeltaConfig>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Sizes, CudaGeneric, ::testing::ValuesIn(all_sizes()), config_name);
INSTANTIATE_TEST_SUITE_P(NearlyFused, CudaGeneric, ::testing::ValuesIn(nearly_fused()),
                         config_name);

class CudaKernelChoice : public ::testing::Test {
 protected:
  void SetUp() override { skip_without_gpu(); }
};

/// The one-launch kernel where it applies, unless the environment asks for the generic one.
TEST_F(CudaKernelChoice, FollowsTheEnvironment) {
  SLUICE_SKIP_WITHOUT_GPU();
  DeltaConfig c{.name = "fused"};
  c.op = SLUICE_OP_CHUNK_FORWARD, c.K = c.V = 128, c.T = 100, c.io = c.o = kBF16;
  const char* forced = std::getenv("SLUICE_CUDA_KERNEL");
  const bool generic = forced != nullptr && std::strcmp(forced, "generic") == 0;
  const DeltaResult found = run_delta(c, SLUICE_IMPL_CUDA);
  ASSERT_EQ(found.code, SLUICE_OK) << found.message;
  // How the call is spread over the GPU, the end of a one-launch kernel's name, is another choice.
  const std::string fused = "cuda.chunk_forward.sm_90a.bf16.k128.v128";
  EXPECT_EQ(generic ? found.kernel : found.kernel.substr(0, fused.size()),
            generic ? "cuda.chunk_forward.generic" : fused);
}

TEST_F(CudaKernelChoice, RefusesWiderKeys) {
  DeltaConfig c{.name = "wide"};
  c.K = 513, c.V = 8, c.T = 1;
  DeltaResult found = run_delta(c, SLUICE_IMPL_CUDA);
  EXPECT_EQ(found.code, SLUICE_UNSUPPORTED);
  EXPECT_EQ(found.message, "recurrent_step: k.shape[3] = 513, expected at most 512 (CUDA kernels)");
  c.op = SLUICE_OP_CHUNK_FORWARD;
  found = run_delta(c, SLUICE_IMPL_CUDA);
  EXPECT_EQ(found.code, SLUICE_UNSUPPORTED);
  EXPECT_EQ(found.message, "chunk_forward: k.shape[3] = 513, expected at most 512 (CUDA kernels)");
}

}  // namespace
}  // namespace sluice::check
