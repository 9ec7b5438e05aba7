// Runs cases of a layer, step by step: prefill of the text, then decode steps on the states it
// left.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "tools/call.hpp"

namespace sluice::tools {
namespace {

using check::Array;
using check::TestTensor;

void fill(const LayerTensors& layer, const io::Case& c, const ExecuteOptions& options,
          LayerArgs* args) {
  args->conv_weight = TensorView(layer.conv_weight.view());
  args->conv_bias = TensorView(layer.conv_bias.view());
  args->A_log = TensorView(layer.A_log.view());
  args->dt_bias = TensorView(layer.dt_bias.view());
  args->norm_weight = TensorView(layer.norm_weight.view());
  args->conv_initial = args->conv_final = TensorView(layer.conv_state.view());
  args->state.initial = args->state.final = TensorView(layer.state.view());
  args->state.layout = static_cast<StateLayout>(c.state_layout);
  args->num_k_heads = c.shape.H;
  args->num_v_heads = c.shape.HV;
  args->head_k_dim = c.shape.K;
  args->head_v_dim = c.shape.V;
  args->scale = c.options.scale;
  args->l2norm_eps = c.options.l2norm_eps;
  args->norm_eps = c.norm_eps;
  args->gate_lower_bound = c.options.gate_lower_bound;
  args->packing = static_cast<Packing>(c.packing);
  args->eigenvalues = static_cast<Eigenvalues>(c.options.eigenvalues);
  args->head_map = static_cast<HeadMap>(c.options.head_map);
  args->gate_activation = static_cast<Activation>(c.activation);
  args->rounding = static_cast<NormRounding>(c.rounding);
  args->implementation = options.implementation;
}

// output[b,t,:] = weight * norm_out[b,t,:], the model's out_proj, which is no operator of Sluice.
Array project(const Array& weight, const Array& norm_out) {
  const int64_t hidden = weight.shape[0], width = weight.shape[1];
  Array output({norm_out.shape[0], norm_out.shape[1], hidden});
  const int64_t rows = norm_out.shape[0] * norm_out.shape[1];
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t j = 0; j < hidden; ++j) {
      double sum = 0.0;
      for (int64_t i = 0; i < width; ++i) {
        sum += weight.values[static_cast<size_t>(j * width + i)] *
               norm_out.values[static_cast<size_t>(row * width + i)];
      }
      output.values[static_cast<size_t>(row * hidden + j)] = sum;
    }
  }
  return output;
}

}  // namespace

LayerTensors::LayerTensors(const io::CaseFile& file, const io::Case& c,
                           const ExecuteOptions& options)
    : conv_weight(options.inputs, load(file, c, "conv_weight")),
      conv_bias(options.inputs, load(file, c, "conv_bias")),
      A_log(check::kF32, load(file, c, "A_log")),
      dt_bias(check::kF32, load(file, c, "dt_bias")),
      norm_weight(options.inputs, load(file, c, "norm_weight")) {
  const io::CaseShape& s = c.shape;
  const bool vk = c.state_layout == SLUICE_STATE_VK;
  Array initial = load(file, c, "initial_state");
  if (initial.empty()) initial = Array({s.B, s.HV, vk ? s.V : s.K, vk ? s.K : s.V});
  state = TestTensor(io::dlpack_type(c.state_type), initial);
  Array columns = load(file, c, "initial_conv_state");
  if (columns.empty()) {
    columns = Array({s.B, 2 * s.H * s.K + s.HV * s.V, s.L > 0 ? s.L : s.W - 1});
  }
  conv_state = TestTensor(options.inputs, columns);
}

void add_step_results(const io::CaseFile& file, const io::Case& c, const std::string& prefix,
                      Array core_out, Array norm_out, Execution* out) {
  const Array weight = load(file, c, "out_proj_weight");
  if (!weight.empty()) out->results[prefix + "output"] = project(weight, norm_out);
  out->results[prefix + "core_out"] = std::move(core_out);
  out->results[prefix + "norm_out"] = std::move(norm_out);
}

Execution execute_layer(const io::CaseFile& file, const io::Case& c,
                        const ExecuteOptions& options) {
  Execution out;
  const LayerTensors layer(file, c, options);
  const bool flat = c.packing == SLUICE_PACKING_FLAT;
  for (int64_t step = 0; step < c.steps; ++step) {
    const std::string prefix = "step" + std::to_string(step) + ".";
    const Array projected = load(file, c, prefix + (flat ? "qkv" : "qkvz"));
    const int64_t B = c.shape.B, T = projected.shape[1];
    const TestTensor qkv(options.inputs, projected), z(options.inputs, load(file, c, prefix + "z")),
        b(options.inputs, load(file, c, prefix + (flat ? "b" : "ba"))),
        a(options.inputs, load(file, c, prefix + "a")),
        norm_out(options.outputs, {B, T, c.shape.HV, c.shape.V}),
        core_out(options.outputs, {B, T, c.shape.HV, c.shape.V});
    LayerArgs args;
    fill(layer, c, options, &args);
    args.qkv = TensorView(qkv.view());
    args.z = TensorView(z.view());
    args.b = TensorView(b.view());
    args.a = TensorView(a.view());
    args.out = TensorView(norm_out.view());
    args.core_out = TensorView(core_out.view());
    const bool prefill = step == 0;
    const OperatorFunctions<LayerArgs> op =
        prefill ? OperatorFunctions<LayerArgs>{SLUICE_OP_LAYER_PREFILL, sluice_layer_prefill}
                : OperatorFunctions<LayerArgs>{SLUICE_OP_LAYER_DECODE, sluice_layer_decode};
    if (!call(op, args, {prefill ? "prefill" : "decode", B * T, 0, {}}, &out)) return out;
    add_step_results(file, c, prefix, core_out.values(), norm_out.values(), &out);
  }
  out.results["final_state"] = layer.state.values();
  out.results["final_conv_state"] = layer.conv_state.values();
  return out;
}

}  // namespace sluice::tools
