// Computes what a case can deliver in 16 bits: the delta rule and its gradients by their yardsticks;
// a layer by its operators one after the other, each storing its result in the activations' dtype as
// separate kernels do. Convolution, decode and norm are exact in between, prefill rounds where
// chunked kernels do.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "check/backward_yardstick.hpp"
#include "check/gdn_case.hpp"
#include "tools/call.hpp"
#include "tools/judge.hpp"

namespace sluice::tools {
namespace {

using check::Array;
using check::TestTensor;

/// A state in the case's layout as [N,HV,K,V], and back.
Array exchange_state(const io::Case& c, Array state) {
  return c.state_layout == SLUICE_STATE_KV || state.empty() ? state : transposed_states(state);
}

check::GdnCase gdn_case_of(const io::CaseFile& file, const io::Case& c, sluice_dtype dtype) {
  check::GdnCase g;
  g.B = c.shape.B, g.T = c.shape.T, g.H = c.shape.H, g.HV = c.shape.HV;
  g.K = c.shape.K, g.V = c.shape.V;
  g.io = dtype;
  g.state_dtype = io::dlpack_type(c.state_type);
  g.options = c.options;
  if (const io::TensorEntry* entry = file.find(c, "cu_seqlens"); entry != nullptr) {
    const std::vector<int64_t> offsets = io::read_integers(*entry);
    for (size_t n = 1; n < offsets.size(); ++n) g.lengths.push_back(offsets[n] - offsets[n - 1]);
  }
  return g;
}

check::GdnInputs gdn_inputs_of(const io::CaseFile& file, const io::Case& c, sluice_dtype dtype) {
  check::GdnInputs inputs;
  inputs.q = check::round_to(dtype, load(file, c, "q"));
  inputs.k = check::round_to(dtype, load(file, c, "k"));
  inputs.v = check::round_to(dtype, load(file, c, "v"));
  inputs.gate = load(file, c, "g");
  inputs.beta = load(file, c, "beta");
  inputs.A_log = load(file, c, "A_log");
  inputs.dt_bias = load(file, c, "dt_bias");
  inputs.initial = check::round_to(io::dlpack_type(c.state_type),
                                   exchange_state(c, load(file, c, "initial_state")));
  return inputs;
}

// Inputs of one step as tensors of their own, whatever the packing.
struct StepArrays {
  Array qkv, z, b, a;  // [B,T,2HK+HVV], [B,T,HV,V], [B,T,HV], [B,T,HV]
};

// Copies `count` values and moves both positions on.
void take(const Array& from, size_t* source, Array* to, size_t target, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to->values[target++] = from.values[(*source)++];
}

// Undoes the packing of Qwen3-Next: per key head [q | k | r v | r z] and [r b | r a].
StepArrays unpack(const io::CaseShape& s, const Array& qkvz, const Array& ba) {
  const int64_t B = qkvz.shape[0], T = qkvz.shape[1], r = s.HV / s.H;
  const int64_t width = 2 * s.H * s.K + s.HV * s.V;
  StepArrays out{Array({B, T, width}), Array({B, T, s.HV, s.V}), Array({B, T, s.HV}),
                 Array({B, T, s.HV})};
  size_t source = 0, gates = 0;
  for (int64_t row = 0; row < B * T; ++row) {
    for (int64_t h = 0; h < s.H; ++h) {
      const auto at = [&](int64_t offset) { return static_cast<size_t>(row * width + offset); };
      const auto head = static_cast<size_t>(row * s.HV + h * r);
      take(qkvz, &source, &out.qkv, at(h * s.K), s.K);
      take(qkvz, &source, &out.qkv, at((s.H + h) * s.K), s.K);
      take(qkvz, &source, &out.qkv, at(2 * s.H * s.K + h * r * s.V), r * s.V);
      take(qkvz, &source, &out.z, head * static_cast<size_t>(s.V), r * s.V);
      take(ba, &gates, &out.b, head, r);
      take(ba, &gates, &out.a, head, r);
    }
  }
  return out;
}

StepArrays load_step(const io::CaseFile& file, const io::Case& c, const std::string& prefix) {
  if (c.packing == SLUICE_PACKING_INTERLEAVED) {
    return unpack(c.shape, load(file, c, prefix + "qkvz"), load(file, c, prefix + "ba"));
  }
  StepArrays out{load(file, c, prefix + "qkv"), load(file, c, prefix + "z"),
                 load(file, c, prefix + "b"), load(file, c, prefix + "a")};
  out.z.shape = {out.z.shape[0], out.z.shape[1], c.shape.HV, c.shape.V};
  return out;
}

// Heads [B,T,heads,width] out of the rows of a convolved [B,T,D] tensor.
TensorView heads_of(const TestTensor& rows, int64_t first, int64_t heads, int64_t width) {
  TensorView view = TensorView(rows.view()).sliced(2, first, heads * width);
  view.rank = 4;
  view.shape[2] = heads;
  view.stride[2] = width;
  view.shape[3] = width;
  view.stride[3] = 1;
  return view;
}

GateSpace space_of(const io::Case& c) {
  return c.options.gate_lower_bound < 0 ? GateSpace::kRawBounded : GateSpace::kRaw;
}

// The delta rule of a prefill, with the rounding points of 16-bit chunk kernels.
void prefill_yardstick(const io::Case& c, sluice_dtype dtype, const ChunkForwardArgs& delta,
                       LayerTensors* layer, TestTensor* core) {
  check::GdnCase g;
  g.B = delta.q.shape[0], g.T = delta.q.shape[1];
  g.H = c.shape.H, g.HV = c.shape.HV, g.K = c.shape.K, g.V = c.shape.V;
  g.io = dtype;
  g.state_dtype = io::dlpack_type(c.state_type);
  g.options = c.options;
  g.key_gates = c.key_gates;
  g.options.gate_space = static_cast<sluice_gate_space>(space_of(c));
  g.options.beta_space = SLUICE_BETA_LOGIT;
  g.options.qk_norm = SLUICE_QK_NORM_L2;
  check::GdnInputs inputs;
  inputs.q = check::to_array(delta.q), inputs.k = check::to_array(delta.k),
  inputs.v = check::to_array(delta.v);
  inputs.gate = check::to_array(delta.gate), inputs.beta = check::to_array(delta.beta);
  inputs.A_log = check::to_array(delta.A_log), inputs.dt_bias = check::to_array(delta.dt_bias);
  inputs.initial = exchange_state(c, layer->state.values());
  const check::YardstickOutputs outputs = check::yardstick_of(g, inputs);
  core->assign(outputs.o);
  layer->state.assign(exchange_state(c, outputs.final_state));
}

}  // namespace

Results delta_rule_yardstick(const io::CaseFile& file, const io::Case& c, sluice_dtype dtype) {
  check::YardstickOutputs outputs =
      check::yardstick_of(gdn_case_of(file, c, dtype), gdn_inputs_of(file, c, dtype));
  return {{"o", std::move(outputs.o)},
          {"final_state", exchange_state(c, std::move(outputs.final_state))}};
}

Results gradient_yardstick(const io::CaseFile& file, const io::Case& c, sluice_dtype dtype) {
  check::ResultGradients results;
  results.d_o = check::round_to(dtype, load(file, c, "d_o"));
  results.d_final = check::round_to(io::dlpack_type(c.state_type),
                                    exchange_state(c, load(file, c, "d_final_state")));
  check::InputGradients out = check::backward_yardstick_of(gdn_case_of(file, c, dtype),
                                                           gdn_inputs_of(file, c, dtype), results);
  return {{"dq", std::move(out.q)},
          {"dk", std::move(out.k)},
          {"dv", std::move(out.v)},
          {"dg", std::move(out.gate)},
          {"dbeta", std::move(out.beta)},
          {"dA_log", std::move(out.A_log)},
          {"ddt_bias", std::move(out.dt_bias)},
          {"d_initial_state", exchange_state(c, std::move(out.initial))}};
}

Execution layer_yardstick(const io::CaseFile& file, const io::Case& c, sluice_dtype dtype) {
  Execution out;
  const io::CaseShape& s = c.shape;
  ExecuteOptions options;
  options.inputs = options.outputs = dtype;
  LayerTensors layer(file, c, options);
  for (int64_t step = 0; step < c.steps; ++step) {
    const std::string prefix = "step" + std::to_string(step) + ".";
    const StepArrays arrays = load_step(file, c, prefix);
    const TestTensor qkv(dtype, arrays.qkv), z(dtype, arrays.z), b(dtype, arrays.b),
        a(dtype, arrays.a), convolved(dtype, arrays.qkv.shape), normed(dtype, arrays.z.shape);
    TestTensor core(dtype, arrays.z.shape);
    CausalConv1dArgs conv;
    conv.implementation = Implementation::kReference;
    conv.x = TensorView(qkv.view());
    conv.weight = TensorView(layer.conv_weight.view());
    conv.bias = TensorView(layer.conv_bias.view());
    conv.out = TensorView(convolved.view());
    conv.state.initial = conv.state.final = TensorView(layer.conv_state.view());
    conv.activation = Activation::kSilu;

    ChunkForwardArgs delta;
    delta.implementation = Implementation::kReference;
    delta.q = heads_of(convolved, 0, s.H, s.K);
    delta.k = heads_of(convolved, s.H * s.K, s.H, s.K);
    delta.v = heads_of(convolved, 2 * s.H * s.K, s.HV, s.V);
    delta.gate = TensorView(a.view());
    delta.beta = TensorView(b.view());
    delta.o = TensorView(core.view());
    delta.A_log = TensorView(layer.A_log.view());
    delta.dt_bias = TensorView(layer.dt_bias.view());
    delta.state.initial = delta.state.final = TensorView(layer.state.view());
    delta.state.layout = static_cast<StateLayout>(c.state_layout);
    core::set_options(c.options, &delta);
    delta.gate_space = space_of(c);
    delta.beta_space = BetaSpace::kLogit;
    delta.qk_norm = QkNorm::kL2;

    GatedRmsNormArgs norm;
    norm.implementation = Implementation::kReference;
    norm.x = TensorView(core.view());
    norm.z = TensorView(z.view());
    norm.weight = TensorView(layer.norm_weight.view());
    norm.out = TensorView(normed.view());
    norm.eps = c.norm_eps;
    norm.activation = static_cast<Activation>(c.activation);
    if (!call<CausalConv1dArgs>({SLUICE_OP_CAUSAL_CONV1D, sluice_causal_conv1d}, conv, {}, &out))
      return out;
    // The chunk form's yardstick normalises with the default eps.
    if (step == 0 && c.options.l2norm_eps == 1e-6 && arrays.z.size() > 0) {
      prefill_yardstick(c, dtype, delta, &layer, &core);
    } else if (!call<ChunkForwardArgs>({SLUICE_OP_CHUNK_FORWARD, sluice_chunk_forward}, delta, {},
                                       &out)) {
      return out;
    }
    if (!call<GatedRmsNormArgs>({SLUICE_OP_GATED_RMS_NORM, sluice_gated_rms_norm}, norm, {}, &out))
      return out;
    out.results[prefix + "core_out"] = core.values();
    out.results[prefix + "norm_out"] = normed.values();
    add_projection(file, c, prefix, &out);
  }
  out.results["final_state"] = layer.state.values();
  out.results["final_conv_state"] = layer.conv_state.values();
  return out;
}

}  // namespace sluice::tools
