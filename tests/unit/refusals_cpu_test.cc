// Measures what the CPU backend refuses though it is legal: head dimensions past 256. Each call is
// asked for the backend by name, must name the argument as that operator knows it, and writes
// nothing.
// SPDX-License-Identifier: Apache-2.0
#include "refusals_scene.hpp"

namespace sluice::check {
namespace {

/// One token, one head, of dimensions K and V.
template <class Args>
Scene<Args> delta_scene(int64_t K, int64_t V) {
  Scene<Args> s;
  Memory& m = *s.memory;
  s.args.struct_size = sizeof s.args;
  s.args.q = m.tensor(kBFloat16, {1, 1, 1, K});
  s.args.k = m.tensor(kBFloat16, {1, 1, 1, K});
  s.args.v = m.tensor(kBFloat16, {1, 1, 1, V});
  s.args.o = m.tensor(kBFloat16, {1, 1, 1, V});
  // Never read, so that its memory need not be there.
  s.args.state.initial = m.tensor(kBFloat16, {1, 1, 1, 1});
  s.args.state.initial.shape[2] = K, s.args.state.initial.shape[3] = V;
  s.args.state.initial.stride[1] = K * V, s.args.state.initial.stride[2] = V;
  s.args.implementation = SLUICE_IMPL_CPU;
  return s;
}

Scene<sluice_layer_args> layer_scene(int64_t K, int64_t V) {
  Scene<sluice_layer_args> s;
  Memory& m = *s.memory;
  s.args.struct_size = sizeof s.args;
  s.args.qkv = m.tensor(kBFloat16, {1, 1, 2 * K + V});
  s.args.z = m.tensor(kBFloat16, {1, 1, V});
  s.args.b = m.tensor(kBFloat16, {1, 1, 1});
  s.args.a = m.tensor(kBFloat16, {1, 1, 1});
  s.args.conv_weight = m.tensor(kBFloat16, {2 * K + V, 2});
  s.args.A_log = m.tensor(kFloat32, {1});
  s.args.dt_bias = m.tensor(kFloat32, {1});
  s.args.norm_weight = m.tensor(kFloat32, {V});
  s.args.out = m.tensor(kBFloat16, {1, 1, 1, V});
  s.args.num_k_heads = s.args.num_v_heads = 1;
  s.args.head_k_dim = K, s.args.head_v_dim = V;
  s.args.gate_activation = SLUICE_ACTIVATION_SILU;
  s.args.conv_initial = m.tensor(kBFloat16, {1, 2 * K + V, 1});
  s.args.state.initial = delta_scene<sluice_chunk_forward_args>(K, V).args.state.initial;
  s.args.implementation = SLUICE_IMPL_CPU;
  return s;
}

template <class Args>
void expect_unsupported(sluice_op op, Scene<Args> scene, const char* message) {
  expect_refused<Args>(op, {"", [](Scene<Args>&) {}, message, Seen::kBySizes, SLUICE_UNSUPPORTED},
                       scene);
}

TEST(CpuRefusals, ChunkForward) {
  expect_unsupported(SLUICE_OP_CHUNK_FORWARD, delta_scene<sluice_chunk_forward_args>(257, 8),
                     "chunk_forward: k.shape[3] = 257, expected at most 256 (cpu kernels)");
  expect_unsupported(SLUICE_OP_CHUNK_FORWARD, delta_scene<sluice_chunk_forward_args>(8, 300),
                     "chunk_forward: v.shape[3] = 300, expected at most 256 (cpu kernels)");
}

TEST(CpuRefusals, ChunkBackward) {
  const auto scene = [](int64_t K, int64_t V) {
    Scene<sluice_chunk_backward_args> s;
    Memory& m = *s.memory;
    s.args.struct_size = sizeof s.args;
    s.args.q = m.tensor(kBFloat16, {1, 1, 1, K});
    s.args.k = m.tensor(kBFloat16, {1, 1, 1, K});
    s.args.v = m.tensor(kBFloat16, {1, 1, 1, V});
    s.args.d_o = m.tensor(kBFloat16, {1, 1, 1, V});
    s.args.dq = m.tensor(kBFloat16, {1, 1, 1, K});
    s.args.implementation = SLUICE_IMPL_CPU;
    return s;
  };
  expect_unsupported(SLUICE_OP_CHUNK_BACKWARD, scene(257, 8),
                     "chunk_backward: k.shape[3] = 257, expected at most 256 (cpu kernels)");
  expect_unsupported(SLUICE_OP_CHUNK_BACKWARD, scene(8, 257),
                     "chunk_backward: v.shape[3] = 257, expected at most 256 (cpu kernels)");
}

TEST(CpuRefusals, RecurrentStep) {
  expect_unsupported(SLUICE_OP_RECURRENT_STEP, delta_scene<sluice_recurrent_step_args>(512, 8),
                     "recurrent_step: k.shape[3] = 512, expected at most 256 (cpu kernels)");
  expect_unsupported(SLUICE_OP_RECURRENT_STEP, delta_scene<sluice_recurrent_step_args>(8, 257),
                     "recurrent_step: v.shape[3] = 257, expected at most 256 (cpu kernels)");
}

TEST(CpuRefusals, Layer) {
  expect_unsupported(SLUICE_OP_LAYER_PREFILL, layer_scene(257, 8),
                     "layer_prefill: head_k_dim = 257, expected at most 256 (cpu kernels)");
  expect_unsupported(SLUICE_OP_LAYER_PREFILL, layer_scene(8, 257),
                     "layer_prefill: head_v_dim = 257, expected at most 256 (cpu kernels)");
  expect_unsupported(SLUICE_OP_LAYER_DECODE, layer_scene(257, 8),
                     "layer_decode: head_k_dim = 257, expected at most 256 (cpu kernels)");
  expect_unsupported(SLUICE_OP_LAYER_DECODE, layer_scene(8, 257),
                     "layer_decode: head_v_dim = 257, expected at most 256 (cpu kernels)");
}

}  // namespace
}  // namespace sluice::check
