// Runs cases of single operators.
// SPDX-License-Identifier: Apache-2.0
#include "tools/execute.hpp"

#include <utility>

#include "tools/call.hpp"
#include "tools/delta_rule_tensors.hpp"

namespace sluice::tools {
namespace {

using check::Array;
using check::TestTensor;

Execution execute_prefill(const io::CaseFile& file, const io::Case& c,
                          const ExecuteOptions& options) {
  Execution out;
  const DeltaRuleTensors tensors(file, c, options);
  ChunkForwardArgs args;
  tensors.fill(c, options, &args);
  args.cu_seqlens = TensorView(tensors.cu_seqlens.view());
  args.state.initial = TensorView(tensors.initial.view());
  args.state.final = TensorView(tensors.final.view());
  if (!call<ChunkForwardArgs>({SLUICE_OP_CHUNK_FORWARD, sluice_chunk_forward}, args,
                              {"prefill", c.shape.B * c.shape.T, 0, {}}, &out)) {
    return out;
  }
  out.results["o"] = tensors.o.values();
  out.results["final_state"] = tensors.final.values();
  return out;
}

TensorView tokens_of(const TestTensor& tensor, int64_t first, int64_t count) {
  const TensorView view(tensor.view());
  return view.present() ? view.sliced(1, first, count) : view;
}

Execution execute_decode(const io::CaseFile& file, const io::Case& c,
                         const ExecuteOptions& options) {
  Execution out;
  DeltaRuleTensors tensors(file, c, options);
  tensors.final.assign(tensors.initial.view().data != nullptr ? tensors.initial.values()
                                                              : Array(state_shape(c)));
  const int64_t count = c.shape.T / c.steps;
  for (int64_t step = 0; step < c.steps; ++step) {
    RecurrentStepArgs args;
    tensors.fill(c, options, &args);
    args.q = tokens_of(tensors.q, step * count, count);
    args.k = tokens_of(tensors.k, step * count, count);
    args.v = tokens_of(tensors.v, step * count, count);
    args.gate = tokens_of(tensors.gate, step * count, count);
    args.beta = tokens_of(tensors.beta, step * count, count);
    args.o = tokens_of(tensors.o, step * count, count);
    args.state.initial = TensorView(tensors.final.view());
    if (!call<RecurrentStepArgs>({SLUICE_OP_RECURRENT_STEP, sluice_recurrent_step}, args,
                                 {"decode", c.shape.B * count, 0, {}}, &out)) {
      return out;
    }
  }
  out.results["o"] = tensors.o.values();
  out.results["final_state"] = tensors.final.values();
  return out;
}

Execution execute_conv1d(const io::CaseFile& file, const io::Case& c,
                         const ExecuteOptions& options) {
  Execution out;
  const sluice_dtype io = options.inputs;
  const TestTensor x(io, load(file, c, "x")), weight(io, load(file, c, "weight")),
      bias(io, load(file, c, "bias")), initial(io, load(file, c, "initial_state")),
      result(options.outputs, {c.shape.B, c.shape.T, c.shape.D});
  TestTensor final, cu_seqlens;
  if (c.shape.L > 0) final = TestTensor(io, {c.shape.N, c.shape.D, c.shape.L});
  if (const io::TensorEntry* entry = file.find(c, "cu_seqlens"); entry != nullptr) {
    cu_seqlens = TestTensor::of_indices(check::kI64, io::read_integers(*entry));
  }
  CausalConv1dArgs args;
  args.x = TensorView(x.view());
  args.weight = TensorView(weight.view());
  args.bias = TensorView(bias.view());
  args.out = TensorView(result.view());
  args.cu_seqlens = TensorView(cu_seqlens.view());
  args.state.initial = TensorView(initial.view());
  args.state.final = TensorView(final.view());
  args.activation = static_cast<Activation>(c.activation);
  args.implementation = options.implementation;
  if (!call<CausalConv1dArgs>({SLUICE_OP_CAUSAL_CONV1D, sluice_causal_conv1d}, args,
                              {"conv1d", c.shape.B * c.shape.T, 0, {}}, &out)) {
    return out;
  }
  out.results["out"] = result.values();
  if (c.shape.L > 0) out.results["final_state"] = final.values();
  return out;
}

Execution execute_gated_norm(const io::CaseFile& file, const io::Case& c,
                             const ExecuteOptions& options) {
  Execution out;
  const TestTensor x(options.inputs, load(file, c, "x")), z(options.inputs, load(file, c, "z")),
      weight(options.inputs, load(file, c, "weight")),
      result(options.outputs, file.find(c, "x")->shape);
  GatedRmsNormArgs args;
  args.x = TensorView(x.view());
  args.z = TensorView(z.view());
  args.weight = TensorView(weight.view());
  args.out = TensorView(result.view());
  args.eps = c.norm_eps;
  args.activation = static_cast<Activation>(c.activation);
  args.rounding = static_cast<NormRounding>(c.rounding);
  args.implementation = options.implementation;
  const int64_t rows = c.shape.V == 0 ? 0 : file.find(c, "x")->elements / c.shape.V;
  if (call<GatedRmsNormArgs>({SLUICE_OP_GATED_RMS_NORM, sluice_gated_rms_norm}, args,
                             {"gated_norm", rows, 0, {}}, &out)) {
    out.results["out"] = result.values();
  }
  return out;
}

}  // namespace

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
