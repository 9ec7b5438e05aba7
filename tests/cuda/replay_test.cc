// Measures whether a CUDA prefill depends on how it is launched: captured in a graph and replayed
// with other lengths, beside another stream's work, many times in a row. Bits are compared with a
// direct call's, and those with the float64 recurrence.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <tuple>

#include "device_scene.hpp"
#include "parity/naming.hpp"

namespace sluice::check {
namespace {

constexpr int kRuns = 50;

/// Work for more items than an H200 has multiprocessors, so that the planner runs.
std::vector<int64_t> many_lengths() {
  std::vector<int64_t> lengths;
  for (int64_t n = 0; n < 60; ++n) lengths.push_back(n * 37 % 200);
  return lengths;
}

struct ReplayCase {
  std::string name;
  std::vector<int64_t> captured;
  std::vector<std::vector<int64_t>> replayed;  ///< as many sequences, at most as many rows
  sluice_split split = SLUICE_SPLIT_NEVER;
  int32_t split_value = 0;
};

void PrintTo(const ReplayCase& replay, std::ostream* out) { *out << replay.name; }

std::vector<ReplayCase> replay_cases() {
  std::vector<int64_t> many = many_lengths(), one_long(many.size(), 0), all_empty(many.size(), 0);
  int64_t rows = 0;
  for (const int64_t length : many) rows += length;
  one_long[17] = rows;
  const std::vector<int64_t> reversed(many.rbegin(), many.rend());
  const std::vector<std::vector<int64_t>> few = {
      {0, 193, 0}, {1, 0, 191}, {0, 0, 0}, {64, 64, 65}, {0, 0, 1}};
  const std::vector<std::vector<int64_t>> planned = {reversed, one_long, all_empty, many};
  return {{"few", {100, 64, 29}, few},
          {"planned", many, planned},
          {"few_cut", {100, 64, 29}, few, SLUICE_SPLIT_SEGMENTS, 3},
          {"planned_cut", many, planned, SLUICE_SPLIT_SEGMENTS, 4},
          {"by_model", many, planned, SLUICE_SPLIT_AUTO, 0},
          {"by_length", many, planned, SLUICE_SPLIT_LENGTH, 128}};
}

/// A captured call, instantiated.
class Graph {
 public:
  Graph(const DeviceScene& scene, cudaStream_t stream) {
    // WHY global mode: it makes any allocation, wait or host read of this process an error.
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    EXPECT_EQ(scene.enqueue(stream), SLUICE_OK) << sluice_last_error();
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph_), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&instance_, graph_, 0), cudaSuccess);
  }
  ~Graph() {
    cudaGraphExecDestroy(instance_);
    cudaGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch(cudaStream_t stream) const {
    ASSERT_EQ(cudaGraphLaunch(instance_, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t instance_ = nullptr;
};

class CudaReplay : public ::testing::TestWithParam<ReplayCase> {
 protected:
  void SetUp() override { SLUICE_SKIP_WITHOUT_GPU(); }
};

TEST_P(CudaReplay, GraphEqualsDirectCall) {
  const ReplayCase& replay = GetParam();
  GdnCase c = prefill_case(replay.name, replay.captured, 2, 4);
  c.split = replay.split;
  c.split_value = replay.split_value;
  const GdnInputs inputs = make_inputs(c);
  DeviceScene scene(c, inputs);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  // The first call of a process loads the kernels, which a capture may not.
  ASSERT_EQ(sluice_warm_up({SLUICE_DEVICE_CUDA, 0}), SLUICE_OK) << sluice_last_error();
  {
    const Graph graph(scene, stream);
    std::vector<std::vector<int64_t>> all = replay.replayed;
    all.push_back(replay.captured);
    for (const std::vector<int64_t>& lengths : all) {
      scene.set_lengths(lengths);
      c.lengths = lengths;
      scene.poison_outputs();
      graph.launch(stream);
      const std::vector<std::byte> o = scene.o_bits(), states = scene.state_bits();
      EXPECT_TRUE(scene.guards_intact());
      ASSERT_EQ(scene.run(), "");
      EXPECT_TRUE(o == scene.o_bits());
      EXPECT_TRUE(states == scene.state_bits());
      GdnOutputs found = scene.outputs();
      const Verdict verdict = judge_run(c, inputs, found, truth_of(c, inputs));
      EXPECT_TRUE(verdict.pass) << verdict.line;
    }
  }
  cudaStreamDestroy(stream);
}

INSTANTIATE_TEST_SUITE_P(All, CudaReplay, ::testing::ValuesIn(replay_cases()),
                         [](const auto& test) { return test.param.name; });

/// dtype of q, k, v and o; segments of a sequence.
using Repeat = std::tuple<sluice_dtype, int32_t>;

class CudaRepeat : public ::testing::TestWithParam<Repeat> {
 protected:
  void SetUp() override { SLUICE_SKIP_WITHOUT_GPU(); }
  static void set_variant(GdnCase* c) {
    std::tie(c->io, c->split_value) = GetParam();
    if (c->split_value > 0) c->split = SLUICE_SPLIT_SEGMENTS;
  }
};

TEST_P(CudaRepeat, SameBitsEveryRun) {
  GdnCase c = prefill_case("repeat", many_lengths(), 2, 8);
  set_variant(&c);
  DeviceScene scene(c, make_inputs(c));
  ASSERT_EQ(scene.run(), "");
  const std::vector<std::byte> o = scene.o_bits(), states = scene.state_bits();
  for (int run = 1; run < kRuns; ++run) {
    ASSERT_EQ(scene.run(), "");
    ASSERT_TRUE(o == scene.o_bits()) << "run " << run;
    ASSERT_TRUE(states == scene.state_bits()) << "run " << run;
  }
}

TEST_P(CudaRepeat, TwoStreamsEqualOneAfterTheOther) {
  cudaStream_t streams[2];
  std::vector<DeviceScene> scenes;
  std::vector<std::byte> o[2], states[2];
  for (int i = 0; i < 2; ++i) {
    std::vector<int64_t> lengths = many_lengths();
    if (i == 1) lengths.assign(24, 130);
    GdnCase c = prefill_case(named("stream", i), lengths, 2, 8);
    set_variant(&c);
    c.seed = static_cast<uint64_t>(i) + 1;
    scenes.emplace_back(c, make_inputs(c));
    ASSERT_EQ(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(scenes.back().run(), "");
    o[i] = scenes.back().o_bits(), states[i] = scenes.back().state_bits();
  }
  for (int round = 0; round < kRuns; ++round) {
    for (DeviceScene& scene : scenes) scene.poison_outputs();
    for (int repeat = 0; repeat < 4; ++repeat) {
      for (int i = 0; i < 2; ++i) {
        ASSERT_EQ(scenes[static_cast<size_t>(i)].enqueue(streams[i]), SLUICE_OK);
      }
    }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (int i = 0; i < 2; ++i) {
      const DeviceScene& scene = scenes[static_cast<size_t>(i)];
      ASSERT_TRUE(o[i] == scene.o_bits()) << "round " << round << " stream " << i;
      ASSERT_TRUE(states[i] == scene.state_bits()) << "round " << round << " stream " << i;
      ASSERT_TRUE(scene.guards_intact());
    }
  }
  for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
}

/// Views of the given sizes whose data is nowhere.
sluice_chunk_forward_args sizes_only(int64_t N, int64_t T) {
  uintptr_t address = 0;
  const auto view = [&](sluice_dtype dtype, std::vector<int64_t> shape) {
    sluice_tensor t{};
    t.data = reinterpret_cast<void*>(address += 4096);
    t.device = {SLUICE_DEVICE_CUDA, 0};
    t.dtype = dtype;
    t.rank = static_cast<uint16_t>(shape.size());
    int64_t stride = 1;
    for (size_t axis = shape.size(); axis-- > 0; stride *= shape[axis]) {
      t.shape[axis] = shape[axis];
      t.stride[axis] = stride;
    }
    return t;
  };
  sluice_chunk_forward_args args{};
  args.struct_size = sizeof args;
  args.q = view(kBF16, {1, T, 2, 128}), args.k = view(kBF16, {1, T, 2, 128});
  args.v = view(kBF16, {1, T, 4, 128}), args.o = view(kBF16, {1, T, 4, 128});
  args.cu_seqlens = view(kI32, {N + 1});
  return args;
}

/// The size comes from sizes alone, holds for every smaller T, and never falls as N rises.
TEST(CudaWorkspace, ComesFromSizesAlone) {
  SLUICE_SKIP_WITHOUT_GPU();
  size_t last = 0;
  for (const int64_t N : {0, 1, 2, 64, 65535, 65536, 65537, 1 << 20}) {
    size_t large = 0, small = 0;
    const sluice_chunk_forward_args many = sizes_only(N, 1 << 20), few = sizes_only(N, 1);
    ASSERT_EQ(sluice_workspace_size(SLUICE_OP_CHUNK_FORWARD, &many, &large), SLUICE_OK)
        << sluice_last_error();
    ASSERT_EQ(sluice_workspace_size(SLUICE_OP_CHUNK_FORWARD, &few, &small), SLUICE_OK);
    EXPECT_GE(large, small);
    EXPECT_GE(large, static_cast<size_t>(N) * sizeof(int32_t));
    EXPECT_GE(large, last);
    last = large;
  }
}

std::string repeat_name(const ::testing::TestParamInfo<Repeat>& test) {
  const auto [io, segments] = test.param;
  return std::string(dtype_name(io)) + (segments > 0 ? "_cut" : "");
}

INSTANTIATE_TEST_SUITE_P(All, CudaRepeat,
                         ::testing::Combine(::testing::Values(kBF16, kF16),
                                            ::testing::Values(0, 3)),
                         repeat_name);

}  // namespace
}  // namespace sluice::check
