// Measures whether a CUDA prefill's bits depend on timing: a library whose bfloat16 kernel sleeps
// at random before its waits (SLUICE_STRESS_ROLES, src/cuda/tile/pipeline.cuh) runs the same calls
// as the normal one, many times.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "device_scene.hpp"

namespace sluice::check {
namespace {

constexpr int kRuns = 300;

struct StressCase {
  const char* name;
  std::vector<int64_t> lengths;
  int64_t H, HV;
  int32_t segments = 0;  ///< of a sequence; 0: whole; -1: as many as the model says
};

void PrintTo(const StressCase& stress, std::ostream* out) { *out << stress.name; }

class CudaStress : public ::testing::TestWithParam<StressCase> {
 protected:
  void SetUp() override {
    SLUICE_SKIP_WITHOUT_GPU();
    // WHY deep: both libraries export the C interface, and each must find its own.
    library_ = dlopen("libsluice_stressed.so", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    ASSERT_NE(library_, nullptr) << dlerror();
    function_ = reinterpret_cast<ChunkForward>(dlsym(library_, "sluice_chunk_forward"));
    ASSERT_NE(function_, nullptr);
    ASSERT_NE(function_, &sluice_chunk_forward);
  }

  void* library_ = nullptr;
  ChunkForward function_ = nullptr;
};

TEST_P(CudaStress, DelayedRolesGiveTheSameBits) {
  GdnCase c = prefill_case(GetParam().name, GetParam().lengths, GetParam().H, GetParam().HV);
  c.split_value = std::max(GetParam().segments, 0);
  if (c.split_value > 0) c.split = SLUICE_SPLIT_SEGMENTS;
  if (GetParam().segments < 0) c.split = SLUICE_SPLIT_AUTO, c.history = SLUICE_HISTORY_STRICT;
  DeviceScene scene(c, make_inputs(c));
  ASSERT_EQ(scene.run(), "");
  const std::vector<std::byte> o = scene.o_bits(), states = scene.state_bits();
  for (int run = 0; run < kRuns; ++run) {
    ASSERT_EQ(scene.run(function_), "") << "run " << run;
    ASSERT_TRUE(o == scene.o_bits()) << "run " << run;
    ASSERT_TRUE(states == scene.state_bits()) << "run " << run;
  }
}

std::vector<StressCase> cases() {
  std::vector<int64_t> many;
  for (int64_t n = 0; n < 40; ++n) many.push_back(n * 37 % 150);
  return {{"planned", many, 2, 4},
          {"long", {700, 64, 513}, 1, 3},
          {"one", {300}, 1, 1},
          {"cut", {700, 64, 513}, 1, 3, 4},
          {"first_segments_lead", {16384}, 2, 8, -1}};
}

INSTANTIATE_TEST_SUITE_P(All, CudaStress, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace sluice::check
