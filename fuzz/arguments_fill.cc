// Draws nearly valid arguments from the fuzzer's input: sizes, options and optional views.
// SPDX-License-Identifier: Apache-2.0
#include <initializer_list>
#include <type_traits>

#include "arguments_scene.hpp"
#include "core/delta_options.hpp"
#include "tables.hpp"

namespace sluice::fuzz {
namespace {

constexpr sluice_dtype kF32{2, 32}, kU8{1, 8};

// Sizes of a delta rule call.
struct Sizes {
  int64_t B, T, H, HV, K, V, N;
};

Sizes draw_sizes(Bytes* bytes, int64_t most_tokens) {
  Sizes s{};
  s.B = bytes->below(3);
  s.T = bytes->below(most_tokens + 1);
  s.H = 1 + bytes->below(2);
  s.HV = s.H * (1 + bytes->below(3));
  s.K = 1 + bytes->below(9);
  s.V = 1 + bytes->below(9);
  s.N = s.B;
  return s;
}

}  // namespace

// Slots for N sequences of a pool, each view there or not.
template <class Slots>
void Scene::fill_slots(Slots* state, int64_t N, int64_t slots) {
  if (bytes_.flag()) state->read_slots = indices({N}, slots + 1);
  if (bytes_.flag()) state->write_slots = indices({N}, slots + 1);
  if (bytes_.flag()) {
    state->has_initial_state = indices({N}, 2);
    state->has_initial_state.dtype = kU8;
  }
  state->pad_below = bytes_.below(2);
}

// Every choice of the delta rule, and what goes with them.
void Scene::fill_choices(sluice_delta_options* options) {
  core::for_each_option(*options, [this](const core::Option& option, auto& member) {
    if constexpr (std::is_same_v<decltype(member), int32_t&>) {
      int64_t words = 0;
      while (option.words[words] != nullptr) ++words;
      member = static_cast<int32_t>(bytes_.below(words));
    }
  });
  if (options->gate_space == SLUICE_GATE_RAW_BOUNDED) options->gate_lower_bound = -2;
}

// What both delta rule operators have; q, k, v .. of drawn sizes.
template <class Args>
void Scene::fill_delta_rule(Args* args) {
  const bool step = op_ == SLUICE_OP_RECURRENT_STEP;
  Sizes s = draw_sizes(&bytes_, step ? 16 : 9);
  const sluice_dtype io = float_type();
  if (bytes_.flag()) {  // packed
    s.B = 1;
    s.N = bytes_.below(4);
    args->cu_seqlens = offsets(s.N, s.T);
  }
  args->q = tensor(io, {s.B, s.T, s.H, s.K});
  args->k = tensor(io, {s.B, s.T, s.H, s.K});
  args->v = tensor(io, {s.B, s.T, s.HV, s.V});
  args->o = tensor(float_type(), {s.B, s.T, s.HV, s.V});
  if (bytes_.flag()) args->gate = tensor(float_type(), {s.B, s.T, s.HV});
  const bool key_wise = bytes_.below(4) == 3;
  if (key_wise) args->gate = tensor(float_type(), {s.B, s.T, s.HV, s.K});
  if (bytes_.flag()) args->beta = tensor(float_type(), {s.B, s.T, s.HV});
  fill_choices(&args->options);
  if (args->options.gate_space >= SLUICE_GATE_RAW) {
    args->A_log = tensor(kF32, {s.HV});
    args->dt_bias = tensor(float_type(), {s.HV});
    if (key_wise) args->dt_bias = tensor(float_type(), {s.HV, s.K});
  }
  args->options.scale_mode = static_cast<int32_t>(bytes_.below(2));
  args->options.scale = 0.5;
  args->state.layout = static_cast<int32_t>(bytes_.below(2));
  const int64_t slots = s.N + bytes_.below(3);
  const int64_t rows = args->state.layout == SLUICE_STATE_KV ? s.K : s.V;
  const int64_t columns = args->state.layout == SLUICE_STATE_KV ? s.V : s.K;
  if (step || bytes_.flag()) {
    args->state.initial = tensor(float_type(), {slots, s.HV, rows, columns});
  }
  switch (bytes_.below(3)) {
    case 0:
      args->state.final = args->state.initial;
      break;
    case 1:
      args->state.final = tensor(float_type(), {slots, s.HV, rows, columns});
      break;
    default:
      break;
  }
  fill_slots(&args->state, s.N, slots);
}

void Scene::fill_chunk(sluice_chunk_forward_args* args) {
  fill_delta_rule(args);
  if (bytes_.below(4) != 3) return;
  const int64_t H = args->v.shape[2], K = args->q.shape[3], V = args->v.shape[3];
  const bool kv = args->state.layout == SLUICE_STATE_KV;
  const int64_t N =
      args->cu_seqlens.data != nullptr ? args->cu_seqlens.shape[0] - 1 : args->q.shape[0];
  args->checkpoints = tensor(float_type(), {3, H, kv ? K : V, kv ? V : K});
  args->checkpoint_slots = indices({N, 1 + bytes_.below(2)}, 3);
  args->checkpoint_every = 64;
}

void Scene::fill_step(sluice_recurrent_step_args* args) {
  fill_delta_rule(args);
  args->max_tokens = bytes_.below(18);
  args->state_writes = static_cast<int32_t>(bytes_.below(3));
  if (!bytes_.flag()) return;
  const int64_t N =
      args->cu_seqlens.data != nullptr ? args->cu_seqlens.shape[0] - 1 : args->q.shape[0];
  const int64_t slots = args->state.initial.shape[0], columns = 1 + bytes_.below(16);
  args->state.read_slots = indices({N, columns}, slots + 1);
  if (bytes_.flag()) args->state.write_slots = indices({N, columns}, slots + 1);
  if (bytes_.flag()) args->num_accepted = indices({N}, columns + 1);
}

void Scene::fill_backward(sluice_chunk_backward_args* args) {
  Sizes s = draw_sizes(&bytes_, 9);
  const sluice_dtype io = float_type();
  if (bytes_.flag()) {  // packed
    s.B = 1;
    s.N = bytes_.below(4);
    args->cu_seqlens = offsets(s.N, s.T);
  }
  const auto maybe = [this](sluice_tensor* view, sluice_dtype dtype,
                            std::initializer_list<int64_t> shape) {
    if (bytes_.flag()) *view = tensor(dtype, shape);
  };
  args->q = tensor(io, {s.B, s.T, s.H, s.K});
  args->k = tensor(io, {s.B, s.T, s.H, s.K});
  args->v = tensor(io, {s.B, s.T, s.HV, s.V});
  args->d_o = tensor(float_type(), {s.B, s.T, s.HV, s.V});
  maybe(&args->gate, float_type(), {s.B, s.T, s.HV});
  maybe(&args->beta, float_type(), {s.B, s.T, s.HV});
  fill_choices(&args->options);
  if (args->options.gate_space >= SLUICE_GATE_RAW) {
    args->A_log = tensor(kF32, {s.HV});
    args->dt_bias = tensor(float_type(), {s.HV});
    maybe(&args->dA_log, kF32, {s.HV});
    maybe(&args->ddt_bias, float_type(), {s.HV});
  }
  if (args->gate.data != nullptr) maybe(&args->dgate, float_type(), {s.B, s.T, s.HV});
  if (args->beta.data != nullptr) maybe(&args->dbeta, float_type(), {s.B, s.T, s.HV});
  args->state_layout = static_cast<int32_t>(bytes_.below(2));
  const int64_t rows = args->state_layout == SLUICE_STATE_KV ? s.K : s.V;
  const int64_t columns = args->state_layout == SLUICE_STATE_KV ? s.V : s.K;
  for (sluice_tensor* state : {&args->initial, &args->d_final, &args->dinitial}) {
    maybe(state, float_type(), {s.N, s.HV, rows, columns});
  }
  maybe(&args->dq, float_type(), {s.B, s.T, s.H, s.K});
  maybe(&args->dk, float_type(), {s.B, s.T, s.H, s.K});
  maybe(&args->dv, float_type(), {s.B, s.T, s.HV, s.V});
}

void Scene::fill_stage(sluice_chunk_stage_args* args) {
  Sizes s = draw_sizes(&bytes_, 20);
  const sluice_dtype io = float_type();
  if (bytes_.flag()) {  // packed
    s.B = 1;
    s.N = bytes_.below(4);
    args->cu_seqlens = offsets(s.N, s.T);
  }
  const int64_t C = int64_t{16} << bytes_.below(3);
  args->stage = static_cast<int32_t>(bytes_.below(8));
  args->chunk_size = static_cast<int32_t>(C);
  args->rule = static_cast<int32_t>(bytes_.below(2));
  args->head_map = static_cast<int32_t>(bytes_.below(2));
  args->direction = static_cast<int32_t>(bytes_.below(2));
  args->triangle = static_cast<int32_t>(bytes_.below(2));
  args->state.layout = static_cast<int32_t>(bytes_.below(2));
  const auto rows = [&](sluice_dtype dtype, int64_t columns) {
    return tensor(dtype, {s.B, s.T, s.HV, columns});
  };
  args->q = tensor(io, {s.B, s.T, s.H, s.K});
  args->k = tensor(io, {s.B, s.T, s.H, s.K});
  args->v = rows(io, s.V);
  if (bytes_.flag()) args->gate = tensor(float_type(), {s.B, s.T, s.HV});
  if (bytes_.flag()) args->beta = tensor(float_type(), {s.B, s.T, s.HV});
  if (bytes_.flag()) args->g_cumsum = tensor(kF32, {s.B, s.T, s.HV});
  args->A = rows(float_type(), C);
  args->A_inverse = rows(float_type(), C);
  args->w = rows(float_type(), s.K);
  args->u = rows(float_type(), s.V);
  args->v_new = rows(float_type(), s.V);
  args->o = rows(float_type(), s.V);
  const bool kv = args->state.layout == SLUICE_STATE_KV;
  const int64_t first = kv ? s.K : s.V, second = kv ? s.V : s.K, slots = s.N + bytes_.below(3);
  if (bytes_.flag()) {
    args->h = tensor(float_type(), {s.B, bytes_.below(6), s.HV, first, second});
  }
  if (bytes_.flag()) args->state.initial = tensor(float_type(), {slots, s.HV, first, second});
  if (bytes_.flag()) args->state.final = tensor(float_type(), {slots, s.HV, first, second});
  fill_slots(&args->state, s.N, slots);
  if (bytes_.below(8) != 7) return;
  args->matrices = SLUICE_MATRICES_BATCHED;
  args->cu_seqlens = {};
  args->A = tensor(float_type(), {s.HV, C, C});
  args->A_inverse = tensor(float_type(), {s.HV, C, C});
}

void Scene::fill_conv(sluice_causal_conv1d_args* args) {
  Sizes s = draw_sizes(&bytes_, 20);
  const int64_t D = 1 + bytes_.below(20), W = 1 + bytes_.below(5);
  const int64_t L = W - 1 + bytes_.below(5);
  if (bytes_.flag()) {
    s.B = 1;
    s.N = bytes_.below(4);
    args->cu_seqlens = offsets(s.N, s.T);
  }
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
  if (bytes_.flag()) args->state.ring_position = indices({s.N}, 100);
  if (bytes_.below(4) == 3) args->state.num_accepted = indices({s.N}, 6);
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

void Scene::fill_layer(sluice_layer_args* args) {
  const bool step = op_ == SLUICE_OP_LAYER_DECODE;
  Sizes s = draw_sizes(&bytes_, 9);
  const sluice_dtype io = float_type();
  const int64_t W = 2 + bytes_.below(3), L = W - 1 + bytes_.below(9);
  const int64_t keys = 2 * s.H * s.K, values = s.HV * s.V;
  if (bytes_.flag()) {
    s.B = 1;
    s.N = bytes_.below(4);
    args->cu_seqlens = offsets(s.N, s.T);
  }
  args->packing = static_cast<int32_t>(bytes_.below(2));
  if (args->packing == SLUICE_PACKING_FLAT) {
    args->qkv = tensor(io, {s.B, s.T, keys + values});
    args->z = tensor(float_type(), {s.B, s.T, values});
    args->b = tensor(float_type(), {s.B, s.T, s.HV});
    args->a = tensor(args->b.dtype, {s.B, s.T, s.HV});
    args->head_map = static_cast<int32_t>(bytes_.below(2));
  } else {
    args->qkv = tensor(io, {s.B, s.T, keys + 2 * values});
    args->b = tensor(float_type(), {s.B, s.T, 2 * s.HV});
  }
  args->conv_weight = tensor(float_type(), {keys + values, W});
  if (bytes_.flag()) args->conv_bias = tensor(float_type(), {keys + values});
  args->A_log = tensor(kF32, {s.HV});
  args->dt_bias = tensor(float_type(), {s.HV});
  args->norm_weight = tensor(float_type(), {s.V});
  args->out = tensor(float_type(), {s.B, s.T, s.HV, s.V});
  if (bytes_.flag()) args->core_out = tensor(float_type(), {s.B, s.T, s.HV, s.V});
  const int64_t slots = s.N + bytes_.below(3);
  args->state.layout = static_cast<int32_t>(bytes_.below(2));
  const bool kv = args->state.layout == SLUICE_STATE_KV;
  if (step || bytes_.flag()) {
    args->state.initial = tensor(float_type(), {slots, s.HV, kv ? s.K : s.V, kv ? s.V : s.K});
    args->conv_initial = tensor(io, {slots, keys + values, L});
  }
  if (bytes_.flag()) {
    args->state.final = args->state.initial;
    args->conv_final = args->conv_initial;
  }
  fill_slots(&args->state, s.N, slots);
  args->conv_state_form = bytes_.below(4) == 3 ? SLUICE_CONV_STATE_RING : SLUICE_CONV_STATE_SHIFT;
  if (args->conv_state_form == SLUICE_CONV_STATE_RING) {
    args->ring_position = indices({s.N}, 100);
  } else if (step && bytes_.below(4) == 3) {
    args->num_accepted = indices({s.N}, 6);
    args->state.read_slots = indices({s.N, 4}, slots + 1);
    args->state_writes = static_cast<int32_t>(bytes_.below(3));
  }
  args->num_k_heads = s.H;
  args->num_v_heads = s.HV;
  args->head_k_dim = s.K;
  args->head_v_dim = s.V;
  args->max_tokens = step ? bytes_.below(18) : 0;
  args->eigenvalues = static_cast<int32_t>(bytes_.below(2));
  args->gate_activation = 1 + static_cast<int32_t>(bytes_.below(2));
  args->rounding = static_cast<int32_t>(bytes_.below(3));
}

}  // namespace sluice::fuzz
