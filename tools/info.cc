// Implements `sluice info`: tells what this build and this machine can do.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include "check/tensors.hpp"
#include "tools/bench/machine.hpp"
#include "tools/commands.hpp"
#include "tools/machine_facts.hpp"
#include "tools/terminal.hpp"

namespace sluice::tools {
namespace {

using check::Array;
using check::TestTensor;

// Kernel that `args` would run on, or why none does.
template <class Args>
std::string kernel_of(int op, const Args& args) {
  const Result<KernelChoice> choice = supported(op, args);
  return choice.ok() ? choice.value.name : std::string("none: ") + choice.status.message;
}

// The kernels of the stages, for chunks of 64 tokens.
void add_stages(sluice_device where, sluice_dtype io, std::vector<OperatorKernel>* kernels) {
  constexpr int64_t T = 1, H = 16, HV = 32, K = 128, V = 128, C = 64;
  const TestTensor keys(io, {1, T, H, K}), values(io, {1, T, HV, V}), outputs(io, {1, T, HV, V}),
      products(io, {1, T, HV, C}), inverse(io, {1, T, HV, C}), w(io, {1, T, HV, K}),
      u(io, {1, T, HV, V}), v_new(io, {1, T, HV, V}), gates(check::kF32, {1, T, HV}),
      sums(check::kF32, {1, T, HV}), h(io, {1, 1, HV, K, V});
  const auto view = [where](const TestTensor& tensor) {
    TensorView out(tensor.view());
    out.device = where;
    return out;
  };
  ChunkStageArgs args;
  args.q = args.k = view(keys);
  args.v = view(values);
  args.gate = args.beta = view(gates);
  args.g_cumsum = view(sums);
  args.A = view(products), args.A_inverse = view(inverse);
  args.w = view(w), args.u = view(u), args.v_new = view(v_new);
  args.h = view(h), args.o = view(outputs);
  constexpr const char* kNames[] = {"chunk_cumsum", "scaled_dot_kkt", "solve_tril", "wy_fast",
                                    "chunk_h",      "chunk_o",        "cumsum_kkt", "solve_wy"};
  for (int32_t stage = 0; stage <= static_cast<int32_t>(Stage::kSolveWy); ++stage) {
    kernels->push_back({kNames[stage], kernel_of(SLUICE_OP_CHUNK_STAGE,
                                                 stage_args(args, static_cast<Stage>(stage)))});
  }
  args.h = {};
  kernels->push_back({"simple_gla", kernel_of(SLUICE_OP_CHUNK_STAGE, simple_gla_args(args))});
}

}  // namespace

// The memory is the host's: nothing is computed.
std::vector<OperatorKernel> model_kernels(sluice_device where, sluice_dtype io) {
  constexpr int64_t T = 1, H = 16, HV = 32, K = 128, V = 128, D = 2 * H * K + HV * V;
  const TestTensor keys(io, {1, T, H, K}), values(io, {1, T, HV, V}), rows(io, {1, T, D}),
      weight(io, {D, 4}), gates(check::kF32, {1, T, HV}), heads(check::kF32, {HV}), norm(io, {V}),
      state(check::kF32, {1, HV, K, V}), columns(io, {1, D, 3}), z(io, {1, T, HV * V}),
      outputs(io, {1, T, HV, V}), convolved(io, {1, T, D});
  const auto view = [where](const TestTensor& tensor) {
    TensorView out(tensor.view());
    out.device = where;
    return out;
  };
  std::vector<OperatorKernel> kernels;

  ChunkForwardArgs prefill;
  prefill.q = prefill.k = view(keys);
  prefill.v = view(values);
  prefill.o = view(outputs);
  prefill.gate = prefill.beta = view(gates);
  kernels.push_back({"chunk_forward", kernel_of(SLUICE_OP_CHUNK_FORWARD, prefill)});

  RecurrentStepArgs decode;
  decode.q = decode.k = view(keys);
  decode.v = view(values);
  decode.o = view(outputs);
  decode.gate = decode.beta = view(gates);
  decode.state.initial = view(state);
  kernels.push_back({"recurrent_step", kernel_of(SLUICE_OP_RECURRENT_STEP, decode)});

  CausalConv1dArgs conv;
  conv.x = view(rows);
  conv.out = view(convolved);
  conv.weight = view(weight);
  kernels.push_back({"causal_conv1d", kernel_of(SLUICE_OP_CAUSAL_CONV1D, conv)});

  GatedRmsNormArgs gated;
  gated.x = gated.z = view(values);
  gated.out = view(outputs);
  gated.weight = view(norm);
  kernels.push_back({"gated_rms_norm", kernel_of(SLUICE_OP_GATED_RMS_NORM, gated)});

  LayerArgs layer;
  layer.qkv = view(rows);
  layer.z = view(z);
  layer.a = layer.b = view(gates);
  layer.conv_weight = view(weight);
  layer.A_log = layer.dt_bias = view(heads);
  layer.norm_weight = view(norm);
  layer.out = view(values);
  layer.conv_initial = view(columns);
  layer.state.initial = view(state);
  layer.num_k_heads = H, layer.num_v_heads = HV, layer.head_k_dim = K, layer.head_v_dim = V;
  kernels.push_back({"layer_prefill", kernel_of(SLUICE_OP_LAYER_PREFILL, layer)});
  kernels.push_back({"layer_decode", kernel_of(SLUICE_OP_LAYER_DECODE, layer)});
  add_stages(where, io, &kernels);
  return kernels;
}

namespace {

void print_kernels(sluice_device where, sluice_dtype io) {
  Table table({"<operator",
               fmt::format("<kernel for {} on {}, H 16, HV 32, K = V = 128", check::dtype_name(io),
                           where.type == SLUICE_DEVICE_CUDA ? "the GPU" : "the host")});
  for (const auto& [op, kernel] : model_kernels(where, io)) table.add({op, kernel});
  table.print();
}

int info() {
  fmt::print("sluice {} (interface {})\n\n", sluice_version(), sluice_abi_version());
  sluice_implementation_info list[16];
  const int count = std::min(sluice_implementations(list, 16), 16);
  Table backends({"<backend", "<here", "<needs", "<what"});
  bool cuda = false, cuda_runs = false;
  for (int i = 0; i < count; ++i) {
    cuda = cuda || list[i].id == SLUICE_IMPL_CUDA;
    cuda_runs = cuda_runs || (list[i].id == SLUICE_IMPL_CUDA && list[i].available != 0);
    backends.add({list[i].name, list[i].available != 0 ? "yes" : "no", list[i].requirement,
                  list[i].description});
  }
  backends.print();
  if (!cuda) fmt::print("The CUDA half is not part of this build.\n");
  fmt::print("\n");
  for (const auto& [key, value] : capabilities()) {
    fmt::print("{}\n", folded(key + ": " + value, 4, terminal_width()));
  }
  fmt::print("\n");
  print_kernels(kCpuDevice, check::kF32);
  if (cuda_runs) {
    for (const sluice_dtype io : {check::kBF16, check::kF32}) {
      fmt::print("\n");
      print_kernels(cuda_device(), io);
    }
  }
  return kExitDone;
}

}  // namespace

Action add_info(CLI::App& app) {
  CLI::App* command = app.add_subcommand("info", "Backends, instruction sets, kernels, version");
  command->footer("Example:\n  sluice info");
  return info;
}

}  // namespace sluice::tools
