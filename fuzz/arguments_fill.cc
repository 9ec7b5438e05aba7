// Draws nearly valid arguments of the delta rule's operators: options and optional views.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "arguments_scene.hpp"
#include "core/delta_options.hpp"

namespace sluice::fuzz {
namespace {

constexpr sluice_dtype kF32{2, 32};

}  // namespace

// Gates, one decay a head or one a channel, and what raw ones need.
template <class Args>
void Scene::fill_gates(const Sizes& s, Args* args) {
  const bool key_wise = bytes_.one_in(3);
  if (key_wise) {
    args->gate = tensor(float_type(), {s.B, s.T, s.HV, s.K});
  } else if (bytes_.flag()) {
    args->gate = tensor(float_type(), {s.B, s.T, s.HV});
  }
  if (bytes_.flag()) args->beta = tensor(float_type(), {s.B, s.T, s.HV});
  fill_choices(&args->options);
  if (args->options.gate_space < SLUICE_GATE_RAW) return;
  args->A_log = tensor(kF32, {s.HV});
  args->dt_bias =
      key_wise && bytes_.flag() ? tensor(float_type(), {s.HV, s.K}) : tensor(float_type(), {s.HV});
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
Sizes Scene::fill_delta_rule(Args* args) {
  const bool step = op_ == SLUICE_OP_RECURRENT_STEP;
  Sizes s = draw_sizes(step && bytes_.flag() ? 4 : step ? 16 : 9);
  const sluice_dtype io = float_type();
  args->cu_seqlens = draw_rows(&s);
  args->q = tensor(io, {s.B, s.T, s.H, s.K});
  args->k = tensor(io, {s.B, s.T, s.H, s.K});
  args->v = tensor(io, {s.B, s.T, s.HV, s.V});
  args->o = tensor(float_type(), {s.B, s.T, s.HV, s.V});
  fill_gates(s, args);
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
  return s;
}

template <class Args>
void Scene::fill_split(Args* args) {
  if (!bytes_.one_in(4)) return;
  args->split = static_cast<int32_t>(bytes_.below(5));
  if (args->split == SLUICE_SPLIT_SEGMENTS) args->split_value = 2;
  if (args->split == SLUICE_SPLIT_LENGTH) args->split_value = 64;
}

void Scene::fill_chunk(sluice_chunk_forward_args* args) {
  const Sizes s = fill_delta_rule(args);
  args->history = static_cast<int32_t>(bytes_.below(3));
  fill_split(args);
  if (!bytes_.one_in(4)) return;
  const bool kv = args->state.layout == SLUICE_STATE_KV;
  args->checkpoints = tensor(float_type(), {3, s.HV, kv ? s.K : s.V, kv ? s.V : s.K});
  args->checkpoint_slots = indices({s.N, 1 + bytes_.below(2)}, 3);
  args->checkpoint_every = 64;
}

// A replay ring whose cursors agree, but for what cannot: positions near the end of their type.
void Scene::fill_ring(const Sizes& s, int64_t slots, int64_t tokens, sluice_replay_ring* ring) {
  if (tokens > 32) return;
  const int64_t L = std::max<int64_t>(2, 2 * tokens) + bytes_.below(3);
  ring->k = tensor(float_type(), {slots, L, s.H, s.K});
  ring->delta = tensor(float_type(), {slots, L, s.HV, s.V});
  ring->decay = tensor(kF32, {slots, L, s.HV});
  ring->position = indices({s.N}, 1);
  ring->checkpoint = indices({s.N}, 1);
  if (bytes_.flag()) ring->next_checkpoint = indices({s.N}, 1);
  ring->fold = static_cast<int32_t>(bytes_.below(2));
  for (int64_t n = 0; n < std::min<int64_t>(s.N, 4); ++n) {
    const int64_t position = bytes_.flag() ? 16 + bytes_.below(100) : draw_position();
    const int64_t behind = bytes_.below(L + 1);
    set_index(ring->position, n, position);
    set_index(ring->checkpoint, n, position >= behind ? position - behind : position);
  }
}

void Scene::fill_step(sluice_recurrent_step_args* args) {
  const Sizes s = fill_delta_rule(args);
  args->max_tokens = bytes_.below(18);
  args->state_writes = static_cast<int32_t>(bytes_.below(3));
  const int64_t slots = args->state.initial.shape[0];
  if (bytes_.one_in(3)) {
    fill_ring(s, slots, args->cu_seqlens.data != nullptr ? args->max_tokens : s.T, &args->ring);
    args->state.final = bytes_.flag() ? args->state.initial : sluice_tensor{};
    args->state.write_slots = {};
    args->state_writes = SLUICE_STATE_WRITE_LAST;
    return;
  }
  if (!bytes_.flag()) return;
  const int64_t columns = 1 + bytes_.below(16);
  args->state.read_slots = indices({s.N, columns}, slots + 1);
  if (bytes_.flag()) args->state.write_slots = indices({s.N, columns}, slots + 1);
  if (bytes_.flag()) args->num_accepted = indices({s.N}, columns + 1);
}

void Scene::fill_backward(sluice_chunk_backward_args* args) {
  Sizes s = draw_sizes(9);
  const sluice_dtype io = float_type();
  args->cu_seqlens = draw_rows(&s);
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
  fill_split(args);
}

void Scene::fill_summary(sluice_chunk_summary_args* args) {
  Sizes s = draw_sizes(9);
  const sluice_dtype io = float_type();
  args->cu_seqlens = draw_rows(&s);
  args->k = tensor(io, {s.B, s.T, s.H, s.K});
  args->v = tensor(io, {s.B, s.T, s.HV, s.V});
  args->direction = static_cast<int32_t>(bytes_.below(2));
  if (args->direction == SLUICE_DIRECTION_REVERSE) {
    args->q = tensor(io, {s.B, s.T, s.H, s.K});
    args->d_o = tensor(float_type(), {s.B, s.T, s.HV, s.V});
  }
  if (bytes_.flag()) args->gate = tensor(float_type(), {s.B, s.T, s.HV});
  if (bytes_.flag()) args->beta = tensor(float_type(), {s.B, s.T, s.HV});
  fill_choices(&args->options);
  if (args->options.gate_space >= SLUICE_GATE_RAW) {
    args->A_log = tensor(kF32, {s.HV});
    args->dt_bias = tensor(float_type(), {s.HV});
  }
  args->history = static_cast<int32_t>(bytes_.below(3));
  if (bytes_.flag()) args->wanted = indices({s.N}, 4);
  if (bytes_.flag()) args->addend = tensor(kF32, {s.N, s.HV, s.K, s.V});
  if (bytes_.flag()) args->transition = tensor(kF32, {s.N, s.HV, s.K, s.K});
}

void Scene::fill_fold(sluice_state_fold_args* args) {
  const Sizes s = draw_sizes(5);
  const int64_t P = bytes_.below(4), chains = bytes_.below(3), states = 1 + bytes_.below(3);
  const int64_t steps = P == 0 ? 0 : bytes_.below(5);
  args->transition = tensor(kF32, {P, s.HV, s.K, s.K});
  args->addend = tensor(kF32, {P, s.HV, s.K, s.V});
  args->cu_chains = indices({chains + 1}, steps + 1);
  args->route_pieces = indices({steps}, P + 1);
  args->route_states = indices({steps}, states + 1);
  args->direction = static_cast<int32_t>(bytes_.below(2));
  args->state_layout = static_cast<int32_t>(bytes_.below(2));
  const int64_t rows = args->state_layout == SLUICE_STATE_KV ? s.K : s.V;
  const int64_t columns = args->state_layout == SLUICE_STATE_KV ? s.V : s.K;
  if (bytes_.flag()) args->initial = tensor(float_type(), {chains, s.HV, rows, columns});
  if (bytes_.flag()) args->entering = tensor(float_type(), {states, s.HV, rows, columns});
  if (bytes_.flag()) args->final = tensor(float_type(), {chains, s.HV, rows, columns});
}

void Scene::fill_stage(sluice_chunk_stage_args* args) {
  Sizes s = draw_sizes(20);
  const sluice_dtype io = float_type();
  args->cu_seqlens = draw_rows(&s);
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
  if (bytes_.one_in(3)) {
    args->gate = rows(float_type(), s.K);
    args->g_cumsum = rows(kF32, s.K);
  } else {
    if (bytes_.flag()) args->gate = tensor(float_type(), {s.B, s.T, s.HV});
    if (bytes_.flag()) args->g_cumsum = tensor(kF32, {s.B, s.T, s.HV});
  }
  if (bytes_.flag()) args->beta = tensor(float_type(), {s.B, s.T, s.HV});
  args->gate_space = static_cast<int32_t>(bytes_.below(4));
  if (args->gate_space == SLUICE_GATE_RAW_BOUNDED) args->gate_lower_bound = -2;
  if (args->gate_space >= SLUICE_GATE_RAW) {
    args->A_log = tensor(kF32, {s.HV});
    args->dt_bias =
        args->gate.rank == 4 ? tensor(float_type(), {s.HV, s.K}) : tensor(float_type(), {s.HV});
  }
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
  if (!bytes_.one_in(8)) return;
  args->matrices = SLUICE_MATRICES_BATCHED;
  args->cu_seqlens = {};
  args->A = tensor(float_type(), {s.HV, C, C});
  args->A_inverse = tensor(float_type(), {s.HV, C, C});
}

}  // namespace sluice::fuzz
