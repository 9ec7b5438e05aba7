// sluice info: what this build and this machine can do.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <vector>

#include "support/tensors.hpp"
#include "tools/commands.hpp"
#include "tools/table.hpp"

namespace sluice::tools {
namespace {

using testing::Array;
using testing::TestTensor;

// Kernel that `args` would run on, or why none does.
template <class Args>
std::string kernel_of(int op, const Args& args) {
  const Result<KernelChoice> choice = supported(op, args);
  return choice.ok() ? choice.value.name : std::string("none: ") + choice.status.message;
}

// Which kernels a Qwen3-Next layer would get on the host.
void print_kernels() {
  constexpr int64_t T = 1, H = 16, HV = 32, K = 128, V = 128, D = 2 * H * K + HV * V;
  const TestTensor keys(testing::kF32, {1, T, H, K}), values(testing::kF32, {1, T, HV, V}),
      rows(testing::kF32, {1, T, D}), weight(testing::kF32, {D, 4}),
      gates(testing::kF32, {1, T, HV}), heads(testing::kF32, {HV}), norm(testing::kF32, {V}),
      state(testing::kF32, {1, HV, K, V}), columns(testing::kF32, {1, D, 3}),
      z(testing::kF32, {1, T, HV * V}), outputs(testing::kF32, {1, T, HV, V});
  Table table({"<operator", "<kernel for float32, H 16, HV 32, K = V = 128"});

  ChunkForwardArgs prefill;
  prefill.q = prefill.k = TensorView(keys.view());
  prefill.v = TensorView(values.view());
  prefill.o = TensorView(outputs.view());
  prefill.gate = prefill.beta = TensorView(gates.view());
  table.add({"chunk_forward", kernel_of(SLUICE_OP_CHUNK_FORWARD, prefill)});

  RecurrentStepArgs decode;
  decode.q = decode.k = TensorView(keys.view());
  decode.v = TensorView(values.view());
  decode.o = TensorView(outputs.view());
  decode.gate = decode.beta = TensorView(gates.view());
  decode.state.initial = TensorView(state.view());
  table.add({"recurrent_step", kernel_of(SLUICE_OP_RECURRENT_STEP, decode)});

  const TestTensor convolved(testing::kF32, {1, T, D});
  CausalConv1dArgs conv;
  conv.x = TensorView(rows.view());
  conv.out = TensorView(convolved.view());
  conv.weight = TensorView(weight.view());
  table.add({"causal_conv1d", kernel_of(SLUICE_OP_CAUSAL_CONV1D, conv)});

  GatedRmsNormArgs gated;
  gated.x = gated.z = TensorView(values.view());
  gated.out = TensorView(outputs.view());
  gated.weight = TensorView(norm.view());
  table.add({"gated_rms_norm", kernel_of(SLUICE_OP_GATED_RMS_NORM, gated)});

  LayerArgs layer;
  layer.qkv = TensorView(rows.view());
  layer.z = TensorView(z.view());
  layer.a = layer.b = TensorView(gates.view());
  layer.conv_weight = TensorView(weight.view());
  layer.A_log = layer.dt_bias = TensorView(heads.view());
  layer.norm_weight = TensorView(norm.view());
  layer.out = TensorView(values.view());
  layer.conv_initial = TensorView(columns.view());
  layer.state.initial = TensorView(state.view());
  layer.num_k_heads = H, layer.num_v_heads = HV, layer.head_k_dim = K, layer.head_v_dim = V;
  table.add({"layer_prefill", kernel_of(SLUICE_OP_LAYER_PREFILL, layer)});
  table.add({"layer_decode", kernel_of(SLUICE_OP_LAYER_DECODE, layer)});
  table.print();
}

int info() {
  fmt::print("sluice {} (interface {})\n\n", sluice_version(), sluice_abi_version());
  sluice_implementation_info list[16];
  const int count = std::min(sluice_implementations(list, 16), 16);
  Table backends({"<backend", "<here", "<needs", "<what"});
  bool cuda = false;
  for (int i = 0; i < count; ++i) {
    cuda = cuda || list[i].id == SLUICE_IMPL_CUDA;
    backends.add({list[i].name, list[i].available != 0 ? "yes" : "no", list[i].requirement,
                  list[i].description});
  }
  backends.print();
  if (!cuda) fmt::print("The CUDA half is not part of this build.\n");
  std::vector<char> text(sluice_capability(nullptr, 0) + 1);
  sluice_capability(text.data(), text.size());
  fmt::print("\n{}\n", text.data());
  print_kernels();
  return kExitDone;
}

}  // namespace

Action add_info(CLI::App& app) {
  CLI::App* command = app.add_subcommand("info", "Backends, instruction sets, kernels, version");
  command->footer("Example:\n  sluice info");
  return info;
}

}  // namespace sluice::tools
