// Measures whether layer_prefill depends on how it is launched: captured in a graph and replayed
// with other offsets, slots and values in the same device memory. Bits are compared with those of
// direct calls; capture mode global makes any allocation, wait or host read an error.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "parity/layer_call.hpp"
#include "parity/naming.hpp"
#include "parity/operator_call.hpp"
#include "parity/sequences.hpp"

namespace sluice::check {
namespace {

constexpr int64_t kRows = 200, kSequences = 4;

/// A packed call whose tensors stay where they are on the device.
class DeviceLayer {
 public:
  explicit DeviceLayer(const LayerConfig& c) : c_(c) {
    const LayerValues values = make_layer_values(c);
    host_ = {TestTensor(c.io, values.qkv),
             TestTensor(c.io, values.z),
             TestTensor(c.io, values.b),
             TestTensor(c.io, values.a),
             TestTensor(c.parameters, values.weight),
             TestTensor(kF32, values.A_log),
             TestTensor(c.parameters, values.dt_bias),
             TestTensor(c.parameters, values.norm_weight),
             TestTensor(c.out, {1, c.rows(), c.HV, c.V}),
             TestTensor(c.conv_state, make_normal({kSequences, c.channels(), c.W - 1}, 5)),
             TestTensor(c.state, make_normal({kSequences, c.HV, c.K, c.V}, 6)),
             TestTensor::of_indices(kI32, std::vector<int64_t>(kSequences + 1, 0)),
             TestTensor::of_indices(kI64, {3, 1, 0, 2})};
    sluice_tensor* const views[] = {&args_.qkv,
                                    &args_.z,
                                    &args_.b,
                                    &args_.a,
                                    &args_.conv_weight,
                                    &args_.A_log,
                                    &args_.dt_bias,
                                    &args_.norm_weight,
                                    &args_.out,
                                    &args_.conv_initial,
                                    &args_.state.initial,
                                    &args_.cu_seqlens,
                                    &args_.state.read_slots};
    for (size_t i = 0; i < host_.size(); ++i) *views[i] = host_[i].view();
    args_.struct_size = sizeof args_;
    args_.num_k_heads = c.H, args_.num_v_heads = c.HV;
    args_.head_k_dim = c.K, args_.head_v_dim = c.V;
    args_.gate_activation = SLUICE_ACTIVATION_SILU;
    args_.implementation = SLUICE_IMPL_CUDA;
    device_->upload(views_of(&args_));
    args_.conv_final = args_.conv_initial;
    args_.state.final = args_.state.initial;
    size_t bytes = 0;
    EXPECT_EQ(sluice_workspace_size(SLUICE_OP_LAYER_PREFILL, &args_, &bytes), SLUICE_OK)
        << sluice_last_error();
    workspace_ = device_->workspace(bytes, 0xff);
  }

  /// Other offsets and slots, fresh states, outputs of NaN.
  void set(const std::vector<int64_t>& offsets, const std::vector<int64_t>& slots) {
    write(args_.cu_seqlens, TestTensor::of_indices(kI32, offsets).view());
    write(args_.state.read_slots, TestTensor::of_indices(kI64, slots).view());
    write(args_.conv_initial, host_[9].view());
    write(args_.state.initial, host_[10].view());
    write(args_.out, TestTensor(c_.out, {1, c_.rows(), c_.HV, c_.V}).view());
  }

  int enqueue(cudaStream_t stream) const {
    return sluice_layer_prefill(&args_, workspace_, stream);
  }

  /// out and both pools, after the device is done.
  std::vector<Array> results() const {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return {read(args_.out), read(args_.conv_initial), read(args_.state.initial)};
  }

 private:
  static size_t bytes_of(const sluice_tensor& t) {
    size_t bytes = t.dtype.bits / 8u;
    for (int axis = 0; axis < t.rank; ++axis) bytes *= static_cast<size_t>(t.shape[axis]);
    return bytes;
  }
  static void write(const sluice_tensor& to, const sluice_tensor& from) {
    ASSERT_EQ(cudaMemcpy(to.data, from.data, bytes_of(to), cudaMemcpyHostToDevice), cudaSuccess);
  }
  static Array read(sluice_tensor view) {
    std::vector<std::byte> host(bytes_of(view));
    EXPECT_EQ(cudaMemcpy(host.data(), view.data, host.size(), cudaMemcpyDeviceToHost), cudaSuccess);
    view.data = host.data();
    return to_array(view);
  }

  LayerConfig c_;
  std::vector<TestTensor> host_;
  sluice_layer_args args_{};
  std::unique_ptr<DeviceCopy> device_ = make_device_copy();
  sluice_workspace workspace_{};
};

LayerConfig config(sluice_dtype io) {
  LayerConfig c{.name = "", .B = 1, .T = kRows, .H = 2, .HV = 4, .K = 128, .V = 128};
  c.io = c.out = c.conv_state = io;
  return c;
}

class CudaLayerReplay : public ::testing::TestWithParam<sluice_dtype> {};
INSTANTIATE_TEST_SUITE_P(Types, CudaLayerReplay, ::testing::Values(kF32, kBF16, kF16),
                         [](const auto& test) { return dtype_name(test.param); });

TEST_P(CudaLayerReplay, FollowsWhatIsOnTheDevice) {
  const LayerConfig c = config(GetParam());
  DeviceLayer captured(c), direct(c);
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t instance = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  captured.set({0, 50, 100, 150, 200}, {0, 1, 2, 3});
  ASSERT_EQ(captured.enqueue(stream), SLUICE_OK) << sluice_last_error();
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(captured.enqueue(stream), SLUICE_OK) << sluice_last_error();
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&instance, graph, 0), cudaSuccess);
  const std::pair<std::vector<int64_t>, std::vector<int64_t>> contents[] = {
      {{0, 1, 1, 130, 180}, {2, 0, 3, 1}},
      {{0, 200, 200, 200, 200}, {1, -1, -1, -1}},
      {{0, 3, 6, 8, 9}, {0, -1, 2, 3}},
      {{0, 0, 0, 0, 0}, {0, 1, 2, 3}}};
  for (const auto& [offsets, slots] : contents) {
    captured.set(offsets, slots);
    direct.set(offsets, slots);
    ASSERT_EQ(cudaGraphLaunch(instance, stream), cudaSuccess);
    ASSERT_EQ(direct.enqueue(nullptr), SLUICE_OK) << sluice_last_error();
    const std::vector<Array> replayed = captured.results(), expected = direct.results();
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(same_bits(replayed[i], expected[i])) << i << " at offset " << offsets[1];
    }
  }
  cudaGraphExecDestroy(instance);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace sluice::check
