// Draws nearly valid arguments of a layer and of its other operators: convolutions and norms.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "arguments_scene.hpp"

namespace sluice::fuzz {
namespace {

constexpr sluice_dtype kF32{2, 32};

// Of sizes that may be huge: what overflows wraps, as it may for a caller.
int64_t product(int64_t a, int64_t b, int64_t c = 1) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b) *
                              static_cast<uint64_t>(c));
}

int64_t sum(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

}  // namespace

void Scene::fill_conv(sluice_causal_conv1d_args* args) {
  Sizes s = draw_sizes(20);
  const int64_t D = 1 + bytes_.below(20), W = 1 + bytes_.below(5);
  const int64_t L = W - 1 + bytes_.below(5);
  args->cu_seqlens = draw_rows(&s);
  args->x = tensor(float_type(), {s.B, s.T, D});
  args->out = tensor(float_type(), {s.B, s.T, D});
  args->weight = tensor(float_type(), {D, W});
  if (bytes_.flag()) args->bias = tensor(float_type(), {D});
  const int64_t slots = s.N + bytes_.below(3);
  if (bytes_.flag()) args->state.initial = tensor(args->x.dtype, {slots, D, L});
  switch (bytes_.below(3)) {
    case 0:
      args->state.final = args->state.initial;
      break;
    case 1:
      args->state.final = tensor(float_type(), {slots, D, L});
      break;
    default:
      break;
  }
  fill_slots(&args->state, s.N, slots);
  args->state.form = static_cast<int32_t>(bytes_.below(2));
  if (bytes_.flag()) {
    args->state.ring_position = indices({s.N}, 100);
    if (s.N > 0 && bytes_.one_in(4)) set_index(args->state.ring_position, 0, draw_position());
  }
  if (bytes_.one_in(4)) args->state.num_accepted = indices({s.N}, 6);
  args->activation = static_cast<int32_t>(bytes_.below(2));
}

void Scene::fill_norm(sluice_gated_rms_norm_args* args) {
  const int64_t a = bytes_.below(4), b = bytes_.below(4), V = 1 + bytes_.below(40);
  args->x = tensor(float_type(), {a, b, V});
  args->z = tensor(float_type(), {a, b, V});
  args->weight = tensor(float_type(), {V});
  args->out = bytes_.flag() ? args->x : tensor(float_type(), {a, b, V});
  args->activation = 1 + static_cast<int32_t>(bytes_.below(2));
  args->rounding = static_cast<int32_t>(bytes_.below(2));
}

void Scene::fill_conv_backward(sluice_causal_conv1d_backward_args* args) {
  Sizes s = draw_sizes(20);
  const int64_t D = 1 + bytes_.below(20), W = 1 + bytes_.below(5), L = W - 1 + bytes_.below(5);
  args->cu_seqlens = draw_rows(&s);
  args->x = tensor(float_type(), {s.B, s.T, D});
  args->d_out = tensor(float_type(), {s.B, s.T, D});
  args->weight = tensor(float_type(), {D, W});
  if (bytes_.flag()) args->bias = tensor(float_type(), {D});
  if (bytes_.flag()) args->initial = tensor(float_type(), {s.N, D, L});
  if (bytes_.flag()) args->d_final = tensor(float_type(), {s.N, D, L});
  if (bytes_.flag()) args->dx = tensor(float_type(), {s.B, s.T, D});
  if (bytes_.flag()) args->dweight = tensor(float_type(), {D, W});
  if (bytes_.flag()) args->dbias = tensor(float_type(), {D});
  if (bytes_.flag()) args->dinitial = tensor(float_type(), {s.N, D, L});
  args->activation = static_cast<int32_t>(bytes_.below(2));
}

void Scene::fill_norm_backward(sluice_gated_rms_norm_backward_args* args) {
  const int64_t a = bytes_.below(4), b = bytes_.below(4), V = 1 + bytes_.below(40);
  args->x = tensor(float_type(), {a, b, V});
  args->z = tensor(float_type(), {a, b, V});
  args->weight = tensor(float_type(), {V});
  args->d_out = tensor(float_type(), {a, b, V});
  if (bytes_.flag()) args->dx = tensor(float_type(), {a, b, V});
  if (bytes_.flag()) args->dz = tensor(float_type(), {a, b, V});
  if (bytes_.flag()) args->dweight = tensor(float_type(), {V});
  args->activation = 1 + static_cast<int32_t>(bytes_.below(2));
  args->rounding = static_cast<int32_t>(bytes_.below(2));
}

void Scene::fill_layer_backward(sluice_layer_backward_args* a) {
  Sizes s = draw_sizes(9);
  const int64_t W = 2 + bytes_.below(3), L = W - 1 + bytes_.below(5);
  const int64_t values = product(1, s.HV, s.V), D = sum(product(2, s.H, s.K), values);
  a->cu_seqlens = draw_rows(&s);
  a->packing = static_cast<int32_t>(bytes_.below(3));
  const bool interleaved = a->packing == SLUICE_PACKING_INTERLEAVED;
  const bool separate = a->packing == SLUICE_PACKING_SEPARATE;
  const int64_t keys = product(1, s.H, s.K), channels = separate ? keys : D;
  const bool key_wise = !interleaved && bytes_.flag();
  // An input, and by chance its gradient.
  const auto both = [&](sluice_tensor* t, sluice_tensor* by, sluice_dtype dtype,
                        std::initializer_list<int64_t> shape) {
    *t = tensor(dtype, shape);
    if (bytes_.flag()) *by = tensor(float_type(), shape);
  };
  both(&a->qkv, &a->dqkv, float_type(), {s.B, s.T, interleaved ? sum(D, values) : channels});
  if (!interleaved) both(&a->z, &a->dz, float_type(), {s.B, s.T, values});
  both(&a->b, &a->db, float_type(), {s.B, s.T, interleaved ? product(2, s.HV) : s.HV});
  if (key_wise) both(&a->a, &a->da, float_type(), {s.B, s.T, s.HV, s.K});
  if (!key_wise && !interleaved) both(&a->a, &a->da, float_type(), {s.B, s.T, s.HV});
  both(&a->conv_weight, &a->dconv_weight, float_type(), {channels, W});
  if (bytes_.flag()) both(&a->conv_bias, &a->dconv_bias, float_type(), {channels});
  if (separate) {
    both(&a->k, &a->dk, a->qkv.dtype, {s.B, s.T, keys});
    both(&a->v, &a->dv, a->qkv.dtype, {s.B, s.T, values});
    both(&a->k_conv_weight, &a->dk_conv_weight, a->conv_weight.dtype, {keys, W});
    both(&a->v_conv_weight, &a->dv_conv_weight, a->conv_weight.dtype, {values, W});
  }
  a->gate_lower_bound = -static_cast<double>(bytes_.below(2));
  both(&a->A_log, &a->dA_log, kF32, {s.HV});
  if (key_wise) both(&a->dt_bias, &a->ddt_bias, float_type(), {s.HV, s.K});
  if (!key_wise) both(&a->dt_bias, &a->ddt_bias, float_type(), {s.HV});
  both(&a->norm_weight, &a->dnorm_weight, float_type(), {s.V});
  a->state_layout = static_cast<int32_t>(bytes_.below(2));
  const bool kv = a->state_layout == SLUICE_STATE_KV;
  const int64_t rows = kv ? s.K : s.V, columns = kv ? s.V : s.K;
  if (bytes_.flag()) both(&a->initial, &a->dinitial, float_type(), {s.N, s.HV, rows, columns});
  if (bytes_.flag()) both(&a->conv_initial, &a->dconv_initial, float_type(), {s.N, channels, L});
  if (bytes_.flag()) a->d_final = tensor(float_type(), {s.N, s.HV, rows, columns});
  if (bytes_.flag()) a->d_conv_final = tensor(float_type(), {s.N, channels, L});
  if (bytes_.flag()) a->core_out = tensor(float_type(), {s.B, s.T, s.HV, s.V});
  a->d_out = tensor(float_type(), {s.B, s.T, s.HV, s.V});
  a->num_k_heads = s.H, a->num_v_heads = s.HV, a->head_k_dim = s.K, a->head_v_dim = s.V;
  a->gate_activation = 1 + static_cast<int32_t>(bytes_.below(2));
  a->rounding = static_cast<int32_t>(bytes_.below(2));
}

// The pools of a layer, and one of the ways to roll back.
void Scene::fill_layer_states(const Sizes& s, int64_t L, sluice_layer_args* args) {
  const bool step = op_ == SLUICE_OP_LAYER_DECODE;
  const int64_t slots = s.N + bytes_.below(3);
  args->max_tokens = step ? bytes_.below(18) : 0;
  args->state.layout = static_cast<int32_t>(bytes_.below(2));
  const bool kv = args->state.layout == SLUICE_STATE_KV;
  if (step || bytes_.flag()) {
    args->state.initial = tensor(float_type(), {slots, s.HV, kv ? s.K : s.V, kv ? s.V : s.K});
    args->conv_initial = tensor(args->qkv.dtype, {slots, args->conv_weight.shape[0], L});
    if (args->packing == SLUICE_PACKING_SEPARATE) {
      args->k_conv_initial = tensor(args->qkv.dtype, {slots, args->k_conv_weight.shape[0], L});
      args->v_conv_initial = tensor(args->qkv.dtype, {slots, args->v_conv_weight.shape[0], L});
    }
  }
  if (bytes_.flag()) {
    args->state.final = args->state.initial;
    args->conv_final = args->conv_initial;
    args->k_conv_final = args->k_conv_initial;
    args->v_conv_final = args->v_conv_initial;
  }
  fill_slots(&args->state, s.N, slots);
  const bool replay = step && bytes_.one_in(3);
  if (replay) {
    fill_ring(s, slots, args->cu_seqlens.data != nullptr ? args->max_tokens : s.T, &args->ring);
    args->state.write_slots = {};
  }
  if (bytes_.one_in(3)) {
    args->conv_state_form = SLUICE_CONV_STATE_RING;
    args->ring_position = replay && !bytes_.one_in(4) ? args->ring.position : indices({s.N}, 100);
  } else if (step && bytes_.one_in(3)) {
    args->num_accepted = indices({s.N}, 6);
    if (!replay || bytes_.one_in(4)) args->state.read_slots = indices({s.N, 4}, slots + 1);
    if (!replay) args->state_writes = static_cast<int32_t>(bytes_.below(3));
  }
}

// Projections, weights and biases of one convolution of [q | k | v], or of three.
void Scene::fill_layer_convs(const Sizes& s, sluice_dtype io, int64_t W, sluice_layer_args* args) {
  const int64_t key = product(1, s.H, s.K), values = product(1, s.HV, s.V);
  const bool separate = args->packing == SLUICE_PACKING_SEPARATE, biased = bytes_.flag();
  const int64_t channels = separate ? key : sum(product(2, key), values);
  const int64_t width = sum(channels, args->packing == SLUICE_PACKING_INTERLEAVED ? values : 0);
  const sluice_dtype parameters = float_type();
  args->qkv = tensor(io, {s.B, s.T, width});
  args->conv_weight = tensor(parameters, {channels, W});
  if (biased) args->conv_bias = tensor(parameters, {channels});
  if (!separate) return;
  args->k = tensor(io, {s.B, s.T, key});
  args->v = tensor(io, {s.B, s.T, values});
  args->k_conv_weight = tensor(parameters, {key, W});
  args->v_conv_weight = tensor(parameters, {values, W});
  if (!biased) return;
  args->k_conv_bias = tensor(parameters, {key});
  args->v_conv_bias = tensor(parameters, {values});
}

void Scene::fill_layer(sluice_layer_args* args) {
  Sizes s = draw_sizes(9);
  const sluice_dtype io = float_type();
  const int64_t W = 2 + bytes_.below(3), L = W - 1 + bytes_.below(9);
  args->cu_seqlens = draw_rows(&s);
  args->packing = static_cast<int32_t>(bytes_.below(3));
  fill_layer_convs(s, io, W, args);
  bool key_gates = false;
  if (args->packing != SLUICE_PACKING_INTERLEAVED) {
    key_gates = bytes_.flag();
    args->z = tensor(float_type(), {s.B, s.T, product(1, s.HV, s.V)});
    args->b = tensor(float_type(), {s.B, s.T, s.HV});
    args->a = key_gates ? tensor(args->b.dtype, {s.B, s.T, s.HV, s.K})
                        : tensor(args->b.dtype, {s.B, s.T, s.HV});
    args->head_map = static_cast<int32_t>(bytes_.below(2));
  } else {
    args->b = tensor(float_type(), {s.B, s.T, product(2, s.HV)});
  }
  args->A_log = tensor(kF32, {s.HV});
  args->dt_bias = key_gates ? tensor(float_type(), {s.HV, s.K}) : tensor(float_type(), {s.HV});
  if (bytes_.one_in(3)) args->gate_lower_bound = -5;
  args->norm_weight = tensor(float_type(), {s.V});
  args->out = tensor(float_type(), {s.B, s.T, s.HV, s.V});
  if (bytes_.flag()) args->core_out = tensor(float_type(), {s.B, s.T, s.HV, s.V});
  fill_layer_states(s, L, args);
  args->num_k_heads = s.H;
  args->num_v_heads = s.HV;
  args->head_k_dim = s.K;
  args->head_v_dim = s.V;
  args->eigenvalues = static_cast<int32_t>(bytes_.below(2));
  args->gate_activation = 1 + static_cast<int32_t>(bytes_.below(2));
  args->rounding = static_cast<int32_t>(bytes_.below(3));
}

}  // namespace sluice::fuzz
