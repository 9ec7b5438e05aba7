// Makes one call of causal_conv1d_backward or gated_rms_norm_backward from a config and a seed.
// SPDX-License-Identifier: Apache-2.0
#include "parity/gradient_call.hpp"

#include <numeric>

#include "parity/call_tensors.hpp"

namespace sluice::check {
namespace {

sluice_tensor exchanged(sluice_tensor view) {
  std::swap(view.shape[1], view.shape[2]);
  std::swap(view.stride[1], view.stride[2]);
  return view;
}

void collect(const char* name, const sluice_tensor& view, GradientResult* result) {
  if (view.data != nullptr) result->gradients.emplace_back(name, to_array(view));
}

}  // namespace

GradientResult run_gradients(const ConvGradientConfig& c, sluice_implementation implementation,
                             int workspace_fill) {
  CallTensors tensors(c.seed, c.wild);
  const bool packed = !c.lengths.empty();
  const int64_t B = packed ? 1 : c.B, N = packed ? static_cast<int64_t>(c.lengths.size()) : c.B;
  const int64_t T =
      packed ? std::accumulate(c.lengths.begin(), c.lengths.end(), c.rows_past_end) : c.T;
  const int64_t L = c.L > 0 ? c.L : c.W - 1;
  const std::vector<int64_t> rows =
      c.channel_first ? std::vector<int64_t>{B, c.D, T} : std::vector<int64_t>{B, T, c.D};
  const auto ordered = [&](sluice_tensor view) { return c.channel_first ? exchanged(view) : view; };
  sluice_causal_conv1d_backward_args args{};
  args.struct_size = sizeof args;
  args.x = ordered(tensors.input(c.io, rows, Freedom::kAnyInput));
  args.weight = tensors.input(c.parameters, {c.D, c.W}, Freedom::kInput);
  if (c.has_bias) args.bias = tensors.input(c.parameters, {c.D}, Freedom::kAnyInput);
  args.d_out = ordered(tensors.input(c.io, rows, Freedom::kAnyInput));
  if (packed) {
    Array offsets({N + 1});
    for (size_t n = 0; n < c.lengths.size(); ++n) {
      offsets.values[n + 1] = offsets.values[n] + static_cast<double>(c.lengths[n]);
    }
    args.cu_seqlens = tensors.input(kI32, offsets, Freedom::kAnyOutput);
  }
  if (c.has_initial) args.initial = tensors.input(c.io, {N, c.D, L}, Freedom::kAnyInput);
  if (c.has_final) args.d_final = tensors.input(c.gradients, {N, c.D, L}, Freedom::kAnyInput);
  if (c.wanted & 1) args.dx = ordered(tensors.output(c.gradients, rows, Freedom::kAnyOutput));
  if (c.wanted & 2) args.dweight = tensors.output(c.gradients, {c.D, c.W}, Freedom::kAnyOutput);
  if ((c.wanted & 4) && c.has_bias) {
    args.dbias = tensors.output(c.gradients, {c.D}, Freedom::kAnyOutput);
  }
  if (c.wanted & 8) args.dinitial = tensors.output(c.gradients, {N, c.D, L}, Freedom::kAnyOutput);
  args.activation = c.activation;
  args.implementation = implementation;
  tensors.remember();
  GradientResult result;
  result.call = call_operator(SLUICE_OP_CAUSAL_CONV1D_BACKWARD, sluice_causal_conv1d_backward, args,
                              workspace_fill);
  collect("dx", args.dx, &result);
  collect("dweight", args.dweight, &result);
  collect("dbias", args.dbias, &result);
  collect("dinitial", args.dinitial, &result);
  result.intact = tensors.intact() && result.call.damage.empty();
  return result;
}

GradientResult run_gradients(const NormGradientConfig& c, sluice_implementation implementation,
                             int workspace_fill) {
  CallTensors tensors(c.seed, c.wild);
  Array x = make_normal(c.shape, c.seed + 100);
  for (double& value : x.values) value *= c.loudness;
  sluice_gated_rms_norm_backward_args args{};
  args.struct_size = sizeof args;
  args.x = tensors.input(c.x, x, Freedom::kInput);
  args.z = tensors.input(c.z, c.shape, Freedom::kInput);
  args.weight = tensors.input(c.weight, {c.shape.back()}, Freedom::kAnyInput);
  args.d_out = tensors.input(c.d_out, c.shape, Freedom::kInput);
  if (c.wanted & 1) args.dx = tensors.output(c.gradients, c.shape, Freedom::kOutput);
  if (c.wanted & 2) args.dz = tensors.output(c.gradients, c.shape, Freedom::kOutput);
  if (c.wanted & 4) {
    args.dweight = tensors.output(c.gradients, {c.shape.back()}, Freedom::kAnyOutput);
  }
  args.activation = c.activation;
  args.rounding = c.rounding;
  args.implementation = implementation;
  tensors.remember();
  GradientResult result;
  result.call = call_operator(SLUICE_OP_GATED_RMS_NORM_BACKWARD, sluice_gated_rms_norm_backward,
                              args, workspace_fill);
  collect("dx", args.dx, &result);
  collect("dz", args.dz, &result);
  collect("dweight", args.dweight, &result);
  result.intact = tensors.intact() && result.call.damage.empty();
  return result;
}

}  // namespace sluice::check
