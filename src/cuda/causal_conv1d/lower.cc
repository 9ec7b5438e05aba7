// Lowers validated convolutions, of one tensor or of a layer's three.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/causal_conv1d/lower.h"

#include "cuda/lower_views.h"

namespace sluice::cuda {
namespace {

using conv1d::ConvParams;
using core::CausalConvProblem, core::present, core::Tensor;

void lower_state(const sluice_conv_state_io& state, ConvParams* out) noexcept {
  out->initial = conv_pool(state.initial);
  out->final = conv_pool(state.final);
  out->read_slots = indices_of(state.read_slots);
  out->write_slots = indices_of(state.write_slots);
  out->num_accepted = indices_of(state.num_accepted);
  out->ring = state.form == SLUICE_CONV_STATE_RING;
  out->ring_position = indices_of(state.ring_position);
  out->pad_below = state.pad_below;
  if (!present(state.has_initial_state)) return;
  out->has_initial_state = static_cast<const uint8_t*>(state.has_initial_state.data);
  out->has_initial_stride = state.has_initial_state.stride[0];
}

}  // namespace

conv1d::TokenChannels token_channels(const Tensor& t) noexcept {
  return {t.data, t.stride[0], t.stride[1], t.stride[2], t.stride[3], number_type(t.dtype)};
}

conv1d::ConvPool conv_pool(const Tensor& t) noexcept {
  if (!present(t)) return {};
  return {t.data, t.shape[0], t.stride[0], t.stride[1], t.stride[2], number_type(t.dtype)};
}

void lower_conv(const CausalConvProblem* problems, int parts, ConvParams* out) noexcept {
  const CausalConvProblem& first = problems[0];
  *out = {};
  out->parts = parts;
  for (int i = 0; i < parts; ++i) {
    const CausalConvProblem& part = problems[i];
    out->part[i] = {token_channels(part.x), token_channels(part.out), out->D, part.C};
    out->D += part.G * part.C;
  }
  out->weight = first.weight.data;
  out->weight_stride = first.weight.stride[0];
  out->weight_number = number_type(first.weight.dtype);
  out->bias = vector_of(first.bias);
  out->silu = first.activation == SLUICE_ACTIVATION_SILU;
  out->cu_seqlens = indices_of(first.rows.cu_seqlens);
  lower_state(first.state, out);
  out->B = first.rows.B;
  out->T = first.rows.T;
  out->N = first.rows.N;
  out->max_tokens = first.rows.max_tokens;
  out->W = static_cast<int32_t>(first.W);
  out->L = static_cast<int32_t>(first.L);
}

}  // namespace sluice::cuda
