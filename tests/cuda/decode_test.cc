// Measures what only a GPU shows of steps: graphs replayed with other contents of the same memory,
// pools past 2^31 elements, convolution states that the CTAs of a cluster read and replace,
// hundreds of times in a row, and a prefill that a step continues. Bits are compared wherever calls
// must agree.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "device_scene.hpp"
#include "parity/naming.hpp"

namespace sluice::check {
namespace {

/// A stream that lives as long as a test.
struct Stream {
  Stream() { EXPECT_EQ(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), cudaSuccess); }
  ~Stream() { cudaStreamDestroy(handle); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t handle = nullptr;
};

/// Captures one call of a function and instantiates it.
class Graph {
 public:
  template <class Enqueue>
  Graph(const Stream& stream, Enqueue enqueue) {
    EXPECT_EQ(cudaStreamBeginCapture(stream.handle, cudaStreamCaptureModeGlobal), cudaSuccess);
    EXPECT_EQ(enqueue(stream.handle), SLUICE_OK) << sluice_last_error();
    EXPECT_EQ(cudaStreamEndCapture(stream.handle, &graph_), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&instance_, graph_, 0), cudaSuccess);
  }
  ~Graph() {
    cudaGraphExecDestroy(instance_);
    cudaGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(const Stream& stream) const {
    ASSERT_EQ(cudaGraphLaunch(instance_, stream.handle), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream.handle), cudaSuccess);
  }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t instance_ = nullptr;
};

Array counted(int64_t count, int64_t first) {
  Array out({count});
  std::iota(out.values.begin(), out.values.end(), static_cast<double>(first));
  return out;
}

/// A step of the delta rule, all in device memory.
struct StepScene {
  int64_t N, H = 4, HV = 8, K = 128, V = 128;
  DeviceTensor q, k, v, gate, beta, A_log, dt_bias, o, pool, slots;

  StepScene(int64_t sequences, int64_t pool_slots, bool key_gates = false)
      : N(sequences),
        q(kBF16, make_normal({N, 1, H, K}, 1)),
        k(kBF16, make_normal({N, 1, H, K}, 2)),
        v(kBF16, make_normal({N, 1, HV, V}, 3)),
        gate(kBF16, make_normal(of_gates({N, 1, HV}, key_gates), 4)),
        beta(kBF16, make_normal({N, 1, HV}, 5)),
        A_log(kF32, make_normal({HV}, 6)),
        dt_bias(kF32, make_normal(of_gates({HV}, key_gates), 7)),
        o(kBF16, {N, 1, HV, V}),
        pool(kF32, make_normal({pool_slots, HV, K, V}, 8)),
        slots(kI32, counted(N, 0)) {}

  std::vector<int64_t> of_gates(std::vector<int64_t> shape, bool key_gates) const {
    if (key_gates) shape.push_back(K);
    return shape;
  }
  sluice_recurrent_step_args args() const {
    sluice_recurrent_step_args a{};
    a.struct_size = sizeof a;
    a.q = q.view(), a.k = k.view(), a.v = v.view(), a.o = o.view();
    a.gate = gate.view(), a.beta = beta.view();
    a.A_log = A_log.view(), a.dt_bias = dt_bias.view();
    a.state.initial = pool.view(), a.state.read_slots = slots.view();
    a.options.gate_space = SLUICE_GATE_RAW, a.options.beta_space = SLUICE_BETA_LOGIT;
    a.options.qk_norm = SLUICE_QK_NORM_L2;
    return a;
  }
  int enqueue(cudaStream_t stream) const {
    const sluice_recurrent_step_args a = args();
    return sluice_recurrent_step(&a, {}, stream);
  }
};

class CudaDecode : public ::testing::Test {
 protected:
  void SetUp() override {
    SLUICE_SKIP_WITHOUT_GPU();
    ASSERT_EQ(sluice_warm_up({SLUICE_DEVICE_CUDA, 0}), SLUICE_OK) << sluice_last_error();
  }
};

/// Whether gates are key-wise.
class CudaDecodeGraph : public CudaDecode, public ::testing::WithParamInterface<bool> {};

TEST_P(CudaDecodeGraph, FollowsDeviceMemory) {
  constexpr int64_t kN = 40, kSlots = 90;
  StepScene captured(kN, kSlots, GetParam()), direct(kN, kSlots, GetParam());
  const Stream stream;
  const Graph graph(stream, [&](cudaStream_t s) { return captured.enqueue(s); });
  for (int64_t round = 0; round < 4; ++round) {
    // Other slots, every third row padding; other tokens.
    Array slots = counted(kN, 10 * round);
    for (int64_t n = 0; n < kN; n += 3) slots(n) = -1;
    const Array v =
        make_normal({kN, 1, captured.HV, captured.V}, static_cast<uint64_t>(100 + round));
    for (StepScene* scene : {&captured, &direct}) {
      scene->slots.assign(slots);
      scene->v.assign(v);
      scene->o.poison();
    }
    graph.launch(stream);
    ASSERT_EQ(direct.enqueue(stream.handle), SLUICE_OK) << sluice_last_error();
    ASSERT_EQ(cudaStreamSynchronize(stream.handle), cudaSuccess);
    EXPECT_TRUE(captured.o.bytes() == direct.o.bytes()) << round;
    EXPECT_TRUE(captured.pool.bytes() == direct.pool.bytes()) << round;
    const Array o = captured.o.values();
    EXPECT_TRUE(std::all_of(o.values.begin(), o.values.begin() + captured.HV * captured.V,
                            [](double x) { return x == 0; }));
    EXPECT_TRUE(captured.o.guards_intact() && captured.pool.guards_intact());
  }
}
INSTANTIATE_TEST_SUITE_P(Gates, CudaDecodeGraph, ::testing::Bool(), [](const auto& test) {
  return std::string(test.param ? "of_keys" : "of_heads");
});

/// The step with a replay ring of its own; cursors in device memory.
struct RingScene : StepScene {
  static constexpr int64_t kL = 8;
  DeviceTensor keys, deltas, decays, position, checkpoint, next;

  RingScene(int64_t sequences, int64_t pool_slots)
      : StepScene(sequences, pool_slots),
        keys(kF32, make_normal({pool_slots, kL, H, K}, 9)),
        deltas(kBF16, make_normal({pool_slots, kL, HV, V}, 10)),
        decays(kF32, make_normal({pool_slots, kL, HV}, 11)),
        position(kI32, counted(N, 0)),
        checkpoint(kI32, counted(N, 0)),
        next(kI32, counted(N, 0)) {}
  int enqueue(cudaStream_t stream) const {
    sluice_recurrent_step_args a = args();
    a.ring = {keys.view(),
              deltas.view(),
              decays.view(),
              position.view(),
              checkpoint.view(),
              next.view(),
              0,
              0};
    return sluice_recurrent_step(&a, {}, stream);
  }
};

/// Cursors and slots change between replays; so does who folds.
TEST_F(CudaDecode, ReplayRingGraphFollowsDeviceMemory) {
  constexpr int64_t kN = 21, kSlots = 70;
  RingScene captured(kN, kSlots), direct(kN, kSlots);
  char kernel[64];
  sluice_recurrent_step_args probe = captured.args();
  probe.ring = {captured.keys.view(),
                captured.deltas.view(),
                captured.decays.view(),
                captured.position.view(),
                captured.checkpoint.view(),
                {},
                0,
                0};
  if (sluice_supported(SLUICE_OP_RECURRENT_STEP, &probe, kernel, sizeof kernel) != SLUICE_OK) {
    GTEST_SKIP() << sluice_last_error();
  }
  const Stream stream;
  const Graph graph(stream, [&](cudaStream_t s) { return captured.enqueue(s); });
  for (int64_t round = 0; round < 5; ++round) {
    Array slots = counted(kN, 9 * round), position = counted(kN, 3 * round), checkpoint = position;
    for (int64_t n = 0; n < kN; ++n) {
      if (n % 4 == 0) slots(n) = -1;
      checkpoint(n) =
          std::max(0.0, checkpoint(n) - static_cast<double>((n + round) % RingScene::kL));
    }
    for (RingScene* scene : {&captured, &direct}) {
      scene->slots.assign(slots), scene->position.assign(position);
      scene->checkpoint.assign(checkpoint), scene->o.poison();
    }
    graph.launch(stream);
    ASSERT_EQ(direct.enqueue(stream.handle), SLUICE_OK) << sluice_last_error();
    ASSERT_EQ(cudaStreamSynchronize(stream.handle), cudaSuccess);
    EXPECT_TRUE(captured.o.bytes() == direct.o.bytes()) << round;
    EXPECT_TRUE(captured.pool.bytes() == direct.pool.bytes()) << round;
    EXPECT_TRUE(captured.keys.bytes() == direct.keys.bytes()) << round;
    EXPECT_TRUE(captured.deltas.bytes() == direct.deltas.bytes()) << round;
    const Array next = captured.next.values();
    for (int64_t n = 0; n < kN; ++n) {
      const bool folds = position(n) - checkpoint(n) > RingScene::kL - 2;
      EXPECT_TRUE(slots(n) < 0 || next(n) == (folds ? position(n) : checkpoint(n))) << n;
    }
    EXPECT_TRUE(captured.o.guards_intact() && captured.pool.guards_intact() &&
                captured.keys.guards_intact() && captured.deltas.guards_intact());
  }
}

/// Slot 1 lies past 2^31 elements.
TEST_F(CudaDecode, PoolsPast2To31Elements) {
  StepScene near(1, 2), far(1, 1);
  const auto slot = static_cast<size_t>(near.HV * near.K * near.V);
  constexpr int64_t kStride = (int64_t{1} << 31) + 64;
  const auto bytes = (static_cast<size_t>(kStride) + slot) * sizeof(float);
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes) != cudaSuccess) {
    cudaGetLastError();
    GTEST_SKIP() << "no room for a pool of " << (bytes >> 30) << " GiB";
  }
  auto* const second = static_cast<float*>(memory) + kStride;
  const auto* const source = static_cast<const float*>(near.pool.view().data) + slot;
  cudaMemcpy(second, source, slot * sizeof(float), cudaMemcpyDeviceToDevice);
  near.slots.assign(counted(1, 1));
  far.slots.assign(counted(1, 1));
  sluice_recurrent_step_args args = far.args();
  args.state.initial.data = memory;
  args.state.initial.shape[0] = 2, args.state.initial.stride[0] = kStride;
  ASSERT_EQ(sluice_recurrent_step(&args, {}, nullptr), SLUICE_OK) << sluice_last_error();
  ASSERT_EQ(near.enqueue(nullptr), SLUICE_OK) << sluice_last_error();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_TRUE(near.o.bytes() == far.o.bytes());
  std::vector<float> found(slot), expected(slot);
  cudaMemcpy(found.data(), second, slot * sizeof(float), cudaMemcpyDeviceToHost);
  cudaMemcpy(expected.data(), source, slot * sizeof(float), cudaMemcpyDeviceToHost);
  EXPECT_EQ(std::memcmp(found.data(), expected.data(), slot * sizeof(float)), 0);
  cudaFree(memory);
}

/// A layer step on pools of its own.
struct LayerScene {
  int64_t N, T, H = 2, HV = 8, K = 128, V = 128;
  bool ring;
  DeviceTensor qkv, z, b, a, weight, A_log, dt_bias, norm_weight, out, state, conv, conv_final,
      position;

  LayerScene(int64_t sequences, int64_t tokens, bool is_ring)
      : N(sequences),
        T(tokens),
        ring(is_ring),
        qkv(kBF16, make_normal({N, T, channels()}, 1)),
        z(kBF16, make_normal({N, T, HV * V}, 2)),
        b(kBF16, make_normal({N, T, HV}, 3)),
        a(kBF16, make_normal({N, T, HV}, 4)),
        weight(kBF16, make_normal({channels(), 4}, 5)),
        A_log(kF32, make_normal({HV}, 6)),
        dt_bias(kF32, make_normal({HV}, 7)),
        norm_weight(kBF16, make_normal({V}, 8)),
        out(kBF16, {N, T, HV, V}),
        state(kF32, make_normal({N, HV, K, V}, 9)),
        conv(kBF16, make_normal({N, channels(), 3}, 10)),
        conv_final(kBF16, {N, channels(), 3}),
        position(kI32, counted(N, 5)) {}

  int64_t channels() const { return 2 * H * K + HV * V; }
  int run(bool in_place) const {
    sluice_layer_args args{};
    args.struct_size = sizeof args;
    args.qkv = qkv.view(), args.z = z.view(), args.b = b.view(), args.a = a.view();
    args.conv_weight = weight.view(), args.A_log = A_log.view(), args.dt_bias = dt_bias.view();
    args.norm_weight = norm_weight.view(), args.out = out.view();
    args.conv_initial = conv.view();
    if (!in_place) args.conv_final = conv_final.view();
    args.state.initial = state.view();
    if (ring) {
      args.ring_position = position.view();
      args.conv_state_form = SLUICE_CONV_STATE_RING;
    }
    args.num_k_heads = H, args.num_v_heads = HV, args.head_k_dim = K, args.head_v_dim = V;
    args.gate_activation = SLUICE_ACTIVATION_SILU;
    return sluice_layer_decode(&args, {}, nullptr);
  }
};

struct RaceCase {
  int64_t N, T;
  bool ring;
};
std::string race_name(const RaceCase& c) {
  return named("N", c.N, "_T", c.T, c.ring ? "_ring" : "_shift");
}
void PrintTo(const RaceCase& c, std::ostream* out) { *out << race_name(c); }

class CudaLayerDecode : public ::testing::TestWithParam<RaceCase> {
 protected:
  void SetUp() override { SLUICE_SKIP_WITHOUT_GPU(); }
};

/// In place, the columns that all CTAs of a cluster read are replaced by one of them; in two pools
/// they stay. Many launches in a row, each on what the one before left.
TEST_P(CudaLayerDecode, ConvStatesInPlaceEqualTwoPools) {
  const RaceCase& c = GetParam();
  const LayerScene in_place(c.N, c.T, c.ring), two_pools(c.N, c.T, c.ring);
  constexpr int kRuns = 300;
  for (int run = 0; run < kRuns; ++run) {
    ASSERT_EQ(in_place.run(true), SLUICE_OK) << sluice_last_error();
    ASSERT_EQ(two_pools.run(false), SLUICE_OK) << sluice_last_error();
    cudaMemcpyAsync(two_pools.conv.view().data, two_pools.conv_final.view().data,
                    two_pools.conv.size(), cudaMemcpyDeviceToDevice, nullptr);
    if (run % 20 != 0) continue;
    ASSERT_TRUE(in_place.out.bytes() == two_pools.out.bytes()) << run;
    ASSERT_TRUE(in_place.conv.bytes() == two_pools.conv.bytes()) << run;
    ASSERT_TRUE(in_place.state.bytes() == two_pools.state.bytes()) << run;
  }
  EXPECT_TRUE(in_place.conv.guards_intact() && in_place.state.guards_intact());
}

// Two to 1,400 units: clusters of eight, four, two, and none.
INSTANTIATE_TEST_SUITE_P(All, CudaLayerDecode,
                         ::testing::Values(RaceCase{1, 1, false}, RaceCase{1, 1, true},
                                           RaceCase{20, 4, false}, RaceCase{40, 1, true},
                                           RaceCase{700, 1, false}),
                         [](const auto& test) { return race_name(test.param); });

/// A state that prefill wrote, continued by a step, is the state of a longer prefill.
TEST_F(CudaDecode, ContinuesAPrefill) {
  GdnCase c = prefill_case("prefill", {130}, 2, 4);
  const GdnInputs inputs = make_inputs(c);
  const GdnOutputs truth = truth_of(c, inputs);
  DeviceScene whole(c, inputs);
  ASSERT_EQ(whole.run(), "");
  DeviceScene part(c, inputs);
  part.set_lengths({129});
  ASSERT_EQ(part.run(), "");
  sluice_recurrent_step_args step{};
  step.struct_size = sizeof step;
  const auto row = [](sluice_tensor t) {
    t.data = static_cast<std::byte*>(t.data) + 129 * t.stride[1] * (t.dtype.bits / 8);
    t.shape[1] = 1;
    return t;
  };
  step.q = row(part.q.view()), step.k = row(part.k.view()), step.v = row(part.v.view());
  step.o = row(part.o.view());
  step.gate = row(part.gate.view()), step.beta = row(part.beta.view());
  step.state.initial = part.final_state.view();
  ASSERT_EQ(sluice_recurrent_step(&step, {}, nullptr), SLUICE_OK) << sluice_last_error();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const Verdict verdict = judge_run(c, inputs, part.outputs(), truth);
  EXPECT_TRUE(verdict.pass) << verdict.line;
}

}  // namespace
}  // namespace sluice::check
