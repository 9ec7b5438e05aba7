// Runs cases of single operators, of gradients, and of layers step by step.
// SPDX-License-Identifier: Apache-2.0
#include "tools/execute.hpp"

#include <algorithm>
#include <utility>

#include "tools/call.hpp"
#include "tools/case_tensors.hpp"

namespace sluice::tools {
namespace {

using check::Array;

/// Where results of forward operators of the delta rule go.
template <class Args>
void fill_forward(const io::Case& c, const ExecuteOptions& options, CaseTensors* tensors,
                  Args* args) {
  tensors->fill_delta_rule(args);
  args->o = tensors->output("o", options.outputs, {c.shape.B, c.shape.T, c.shape.HV, c.shape.V},
                            tensors->tokens());
  args->state.layout = static_cast<StateLayout>(c.state_layout);
}

Execution execute_prefill(const io::CaseFile& file, const io::Case& c,
                          const ExecuteOptions& options) {
  Execution out;
  CaseTensors tensors(file, c, options);
  ChunkForwardArgs args;
  fill_forward(c, options, &tensors, &args);
  args.cu_seqlens = tensors.cu_seqlens();
  args.state.initial = tensors.input("initial_state", state_dtype(c));
  args.state.final = tensors.output("final_state", state_dtype(c), state_shape(c));
  if (call<ChunkForwardArgs>({SLUICE_OP_CHUNK_FORWARD, sluice_chunk_forward}, args,
                             {"prefill", c.shape.B * c.shape.T, 0, {}}, &out)) {
    tensors.collect(&out);
  }
  return out;
}

Execution execute_decode(const io::CaseFile& file, const io::Case& c,
                         const ExecuteOptions& options) {
  Execution out;
  CaseTensors tensors(file, c, options);
  RecurrentStepArgs args;
  fill_forward(c, options, &tensors, &args);
  const Array initial = load(file, c, "initial_state");
  args.state.initial = tensors.updated("final_state", state_dtype(c),
                                       initial.empty() ? Array(state_shape(c)) : initial);
  const RecurrentStepArgs all = args;
  const int64_t count = c.shape.T / c.steps;
  for (int64_t step = 0; step < c.steps; ++step) {
    for (const auto tokens :
         {&RecurrentStepArgs::q, &RecurrentStepArgs::k, &RecurrentStepArgs::v,
          &RecurrentStepArgs::gate, &RecurrentStepArgs::beta, &RecurrentStepArgs::o}) {
      if ((all.*tokens).present()) args.*tokens = (all.*tokens).sliced(1, step * count, count);
    }
    if (!call<RecurrentStepArgs>({SLUICE_OP_RECURRENT_STEP, sluice_recurrent_step}, args,
                                 {"decode", c.shape.B * count, 0, {}}, &out)) {
      return out;
    }
  }
  tensors.collect(&out);
  return out;
}

/// Gradients by activations are stored in the outputs' dtype, by states in that of the case's
/// states, by gates, write strengths and gate parameters in float32, as these are.
Execution execute_gradients(const io::CaseFile& file, const io::Case& c,
                            const ExecuteOptions& options) {
  Execution out;
  CaseTensors tensors(file, c, options);
  ChunkBackwardArgs args;
  tensors.fill_delta_rule(&args);
  args.cu_seqlens = tensors.cu_seqlens();
  args.initial = tensors.input("initial_state", state_dtype(c));
  args.d_o = tensors.input("d_o", options.inputs, tensors.tokens());
  args.d_final = tensors.input("d_final_state", state_dtype(c));
  args.state_layout = static_cast<StateLayout>(c.state_layout);
  const io::CaseShape& s = c.shape;
  const std::vector<int64_t> keys = {s.B, s.T, s.H, s.K}, values = {s.B, s.T, s.HV, s.V},
                             heads = {s.B, s.T, s.HV};
  const auto add = [&](const char* tensor, TensorView* view, sluice_dtype dtype,
                       const std::vector<int64_t>& shape, check::Placement placement) {
    if (is_expected(c, tensor)) *view = tensors.output(tensor, dtype, shape, placement);
  };
  add("dq", &args.dq, options.outputs, keys, tensors.tokens());
  add("dk", &args.dk, options.outputs, keys, tensors.tokens());
  add("dv", &args.dv, options.outputs, values, tensors.tokens());
  add("dg", &args.dgate, check::kF32, heads, tensors.tokens());
  add("dbeta", &args.dbeta, check::kF32, heads, tensors.tokens());
  add("dA_log", &args.dA_log, check::kF32, {s.HV}, check::Placement::kDense);
  add("ddt_bias", &args.ddt_bias, check::kF32, {s.HV}, check::Placement::kDense);
  add("d_initial_state", &args.dinitial, state_dtype(c), state_shape(c), check::Placement::kDense);
  if (call<ChunkBackwardArgs>({SLUICE_OP_CHUNK_BACKWARD, sluice_chunk_backward}, args,
                              {"gradients", s.B * s.T, 0, {}}, &out)) {
    tensors.collect(&out);
  }
  return out;
}

Execution execute_conv1d(const io::CaseFile& file, const io::Case& c,
                         const ExecuteOptions& options) {
  Execution out;
  CaseTensors tensors(file, c, options);
  CausalConv1dArgs args;
  args.x = tensors.input("x", options.inputs);
  args.weight = tensors.input("weight", options.inputs);
  args.bias = tensors.input("bias", options.inputs);
  args.out = tensors.output("out", options.outputs, {c.shape.B, c.shape.T, c.shape.D});
  args.cu_seqlens = tensors.cu_seqlens();
  args.state.initial = tensors.input("initial_state", options.inputs);
  if (c.shape.L > 0) {
    args.state.final =
        tensors.output("final_state", options.inputs, {c.shape.N, c.shape.D, c.shape.L});
  }
  args.activation = static_cast<Activation>(c.activation);
  args.implementation = options.implementation;
  if (call<CausalConv1dArgs>({SLUICE_OP_CAUSAL_CONV1D, sluice_causal_conv1d}, args,
                             {"conv1d", c.shape.B * c.shape.T, 0, {}}, &out)) {
    tensors.collect(&out);
  }
  return out;
}

Execution execute_gated_norm(const io::CaseFile& file, const io::Case& c,
                             const ExecuteOptions& options) {
  Execution out;
  CaseTensors tensors(file, c, options);
  const io::TensorEntry& x = *file.find(c, "x");
  GatedRmsNormArgs args;
  args.x = tensors.input("x", options.inputs);
  args.z = tensors.input("z", options.inputs);
  args.weight = tensors.input("weight", options.inputs);
  args.out = tensors.output("out", options.outputs, x.shape);
  args.eps = c.norm_eps;
  args.activation = static_cast<Activation>(c.activation);
  args.rounding = static_cast<NormRounding>(c.rounding);
  args.implementation = options.implementation;
  const int64_t rows = c.shape.V == 0 ? 0 : x.elements / c.shape.V;
  if (call<GatedRmsNormArgs>({SLUICE_OP_GATED_RMS_NORM, sluice_gated_rms_norm}, args,
                             {"gated_norm", rows, 0, {}}, &out)) {
    tensors.collect(&out);
  }
  return out;
}

void fill_layer(const LayerTensors& layer, const io::Case& c, const ExecuteOptions& options,
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

/// Prefill of the text, then decode steps on the states it left.
Execution execute_layer(const io::CaseFile& file, const io::Case& c,
                        const ExecuteOptions& options) {
  Execution out;
  const LayerTensors layer(file, c, options);
  const bool flat = c.packing == SLUICE_PACKING_FLAT;
  for (int64_t step = 0; step < c.steps; ++step) {
    const std::string prefix = "step" + std::to_string(step) + ".";
    CaseTensors tensors(file, c, options);
    LayerArgs args;
    fill_layer(layer, c, options, &args);
    args.qkv = tensors.input(prefix + (flat ? "qkv" : "qkvz"), options.inputs);
    args.z = tensors.input(prefix + "z", options.inputs);
    args.b = tensors.input(prefix + (flat ? "b" : "ba"), options.inputs);
    args.a = tensors.input(prefix + "a", options.inputs);
    const int64_t B = c.shape.B, T = args.qkv.shape[1];
    args.out = tensors.output(prefix + "norm_out", options.outputs, {B, T, c.shape.HV, c.shape.V});
    args.core_out =
        tensors.output(prefix + "core_out", options.outputs, {B, T, c.shape.HV, c.shape.V});
    const bool prefill = step == 0;
    const OperatorFunctions<LayerArgs> op =
        prefill ? OperatorFunctions<LayerArgs>{SLUICE_OP_LAYER_PREFILL, sluice_layer_prefill}
                : OperatorFunctions<LayerArgs>{SLUICE_OP_LAYER_DECODE, sluice_layer_decode};
    if (!call(op, args, {prefill ? "prefill" : "decode", B * T, 0, {}}, &out)) return out;
    tensors.collect(&out);
    add_projection(file, c, prefix, &out);
  }
  out.results["final_state"] = layer.state.values();
  out.results["final_conv_state"] = layer.conv_state.values();
  return out;
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
  Array initial = load(file, c, "initial_state");
  if (initial.empty()) initial = Array(state_shape(c, {s.B}));
  state = check::TestTensor(state_dtype(c), initial);
  Array columns = load(file, c, "initial_conv_state");
  if (columns.empty()) {
    columns = Array({s.B, 2 * s.H * s.K + s.HV * s.V, s.L > 0 ? s.L : s.W - 1});
  }
  conv_state = check::TestTensor(options.inputs, columns);
}

void add_projection(const io::CaseFile& file, const io::Case& c, const std::string& prefix,
                    Execution* out) {
  const Array weight = load(file, c, "out_proj_weight");
  if (weight.empty()) return;
  out->results[prefix + "output"] = project(weight, out->results.at(prefix + "norm_out"));
}

bool is_expected(const io::Case& c, const std::string& tensor) {
  return std::find(c.expected.begin(), c.expected.end(), tensor) != c.expected.end();
}

bool stored_head_first(const io::Case& c, const std::string& tensor) {
  if (!c.head_first) return false;
  for (const char* name : {"q", "k", "v", "g", "beta", "o", "g_cumsum", "A", "A_inverse", "u", "w",
                           "v_new", "d_o", "dq", "dk", "dv", "dg", "dbeta"}) {
    if (tensor == name) return true;
  }
  return false;
}

Array exchange_tokens_and_heads(const Array& array) {
  const bool matrix = array.shape.size() == 4;
  const int64_t inner = matrix ? array.shape[3] : 1;
  std::vector<int64_t> shape = array.shape;
  std::swap(shape[1], shape[2]);
  Array result(shape);
  size_t source = 0;
  for (int64_t b = 0; b < array.shape[0]; ++b) {
    for (int64_t i = 0; i < array.shape[1]; ++i) {
      for (int64_t j = 0; j < array.shape[2]; ++j) {
        const int64_t target = ((b * shape[1] + j) * shape[2] + i) * inner;
        for (int64_t d = 0; d < inner; ++d) {
          result.values[static_cast<size_t>(target + d)] = array.values[source++];
        }
      }
    }
  }
  return result;
}

Array transposed_states(const Array& states) {
  Array result({states.shape[0], states.shape[1], states.shape[3], states.shape[2]});
  for (int64_t n = 0; n < states.shape[0]; ++n) {
    for (int64_t h = 0; h < states.shape[1]; ++h) {
      for (int64_t i = 0; i < states.shape[2]; ++i) {
        for (int64_t j = 0; j < states.shape[3]; ++j) result(n, h, j, i) = states(n, h, i, j);
      }
    }
  }
  return result;
}

Array load(const io::CaseFile& file, const io::Case& c, const std::string& tensor) {
  Array array;
  const io::TensorEntry* entry = file.find(c, tensor);
  if (entry == nullptr) return array;
  array.shape = entry->shape;
  array.values = io::read_floats(*entry);
  return stored_head_first(c, tensor) ? exchange_tokens_and_heads(array) : array;
}

Execution execute(const io::CaseFile& file, const io::Case& c, const ExecuteOptions& options) {
  switch (c.op) {
    case io::CaseOp::kPrefill:
      return execute_prefill(file, c, options);
    case io::CaseOp::kDecode:
      return execute_decode(file, c, options);
    case io::CaseOp::kConv1d:
      return execute_conv1d(file, c, options);
    case io::CaseOp::kGatedNorm:
      return execute_gated_norm(file, c, options);
    case io::CaseOp::kStages:
      return execute_stages(file, c, options);
    case io::CaseOp::kGradients:
      return execute_gradients(file, c, options);
    case io::CaseOp::kLayer:
      break;
  }
  return execute_layer(file, c, options);
}

}  // namespace sluice::tools
