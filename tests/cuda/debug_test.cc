// Measures what only a GPU shows of checks and errors: SLUICE_DEBUG=1 leaves graphs alone, and an
// error that the caller left behind is not a call's.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "device_scene.hpp"

namespace sluice::check {
namespace {

/// Captures a call, replays it; an exit status.
int capture_and_replay() {
  const GdnCase c = prefill_case("captured", {70, 64}, 1, 2);
  DeviceScene scene(c, make_inputs(c));
  scene.poison_outputs();
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t instance = nullptr;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  const int code = scene.enqueue(stream);
  if (code != SLUICE_OK) std::fprintf(stderr, "%s\n", sluice_last_error());
  const bool replayed = cudaStreamEndCapture(stream, &graph) == cudaSuccess &&
                        cudaGraphInstantiate(&instance, graph, 0) == cudaSuccess &&
                        cudaGraphLaunch(instance, stream) == cudaSuccess &&
                        cudaStreamSynchronize(stream) == cudaSuccess;
  return code == SLUICE_OK && replayed && scene.guards_intact() ? 0 : 1;
}

TEST(CudaDebugDeathTest, CapturedCallsAreNotLookedAt) {
  SLUICE_SKIP_WITHOUT_GPU();
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        setenv("SLUICE_DEBUG", "1", 1);
        std::_Exit(capture_and_replay());
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(CudaErrors, OfTheCallerAreNotTheCalls) {
  SLUICE_SKIP_WITHOUT_GPU();
  const GdnCase c = prefill_case("after an error", {70}, 1, 2);
  DeviceScene scene(c, make_inputs(c));
  void* memory = nullptr;
  ASSERT_NE(cudaMalloc(&memory, size_t{1} << 60), cudaSuccess);
  EXPECT_EQ(scene.run(), "");
  EXPECT_NE(cudaGetLastError(), cudaSuccess) << "the caller's error was taken away";
}

}  // namespace
}  // namespace sluice::check
