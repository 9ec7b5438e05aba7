// Lists the cases of layer_prefill and layer_decode: both packings, both forms of convolution
// states, speculation and replay.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "scene.hpp"

namespace sluice::checksums {
namespace {

struct Layer {
  DType io = kBFloat16, state = kFloat32;
  int64_t B = 2, T = 1, H = 2, HV = 4, K = 128, V = 128, W = 4;
  std::vector<int64_t> lengths = {};
  bool interleaved = false, core = false, conv_ring = false, speculative = false, ring = false;
  bool vk = false, bias = false;
  NormRounding rounding = NormRounding::kOnce;

  [[nodiscard]] int64_t sequences() const {
    return lengths.empty() ? B : static_cast<int64_t>(lengths.size());
  }
  [[nodiscard]] int64_t channels() const { return 2 * H * K + HV * V; }
};

std::string name_of(const Layer& l) {
  std::string name = word(l.io) + ".b" + std::to_string(l.B) + ".t" + std::to_string(l.T) + ".h" +
                     std::to_string(l.H) + "x" + std::to_string(l.HV) + ".k" + std::to_string(l.K) +
                     "x" + std::to_string(l.V) + ".w" + std::to_string(l.W) + ".s" + word(l.state);
  if (!l.lengths.empty()) name += ".n" + std::to_string(l.lengths.size());
  if (l.interleaved) name += ".interleaved";
  if (l.core) name += ".core";
  if (l.conv_ring) name += ".convring";
  if (l.speculative) name += ".speculative";
  if (l.ring) name += ".ring";
  if (l.vk) name += ".vk";
  if (l.bias) name += ".bias";
  if (l.rounding == NormRounding::kHf) name += ".hf";
  if (l.rounding == NormRounding::kInput) name += ".input";
  return name;
}

void set_projections(Scene& s, const Layer& l, LayerArgs* a) {
  const Range raw{-128, 127, -6}, logits{-128, 127, -5};
  const int64_t r = l.HV / l.H;
  if (l.interleaved) {
    a->packing = Packing::kInterleaved;
    a->qkv = s.in(l.io, {l.B, l.T, l.H * (2 * l.K + 2 * r * l.V)});
    a->b = s.in(l.io, {l.B, l.T, 2 * l.HV}, raw);
    return;
  }
  a->qkv = s.in(l.io, {l.B, l.T, l.channels()});
  a->z = s.in(l.io, {l.B, l.T, l.HV * l.V}, raw);
  a->b = s.in(l.io, {l.B, l.T, l.HV}, logits);
  a->a = s.in(l.io, {l.B, l.T, l.HV}, raw);
}

void set_weights(Scene& s, const Layer& l, LayerArgs* a) {
  a->conv_weight = s.in(l.io, {l.channels(), l.W});
  if (l.bias) a->conv_bias = s.in(l.io, {l.channels()});
  a->A_log = s.in(kFloat32, {l.HV});
  a->dt_bias = s.in(kFloat32, {l.HV});
  a->norm_weight = s.in(l.io, {l.V}, {64, 255, -7});
  a->num_k_heads = l.H, a->num_v_heads = l.HV, a->head_k_dim = l.K, a->head_v_dim = l.V;
  a->rounding = l.rounding;
}

void set_outputs(Scene& s, const Layer& l, LayerArgs* a) {
  a->out = s.out("out", l.io, {l.B, l.T, l.HV, l.V});
  if (l.core) a->core_out = s.out("core_out", l.io, {l.B, l.T, l.HV, l.V});
  if (!l.lengths.empty()) a->cu_seqlens = s.integers(offsets(l.lengths));
  for (const int64_t length : l.lengths) a->max_tokens = std::max(a->max_tokens, length);
}

void set_layer(Scene& s, const Layer& l, LayerArgs* a) {
  set_projections(s, l, a);
  set_weights(s, l, a);
  set_outputs(s, l, a);
}

/// Pools in another order than the sequences; prefill writes other pools.
void set_pools(Scene& s, const Layer& l, LayerArgs* a, bool in_place) {
  const int64_t N = l.sequences(), columns = l.speculative ? l.T : 1;
  const int64_t slots = N * columns + 2;
  const int64_t history = l.W - 1 + (l.conv_ring ? l.T : l.speculative ? l.T - 1 : 0);
  const Range small{-128, 127, -9};
  const Shape conv = {slots, l.channels(), history};
  const Shape pool = {slots, l.HV, l.vk ? l.V : l.K, l.vk ? l.K : l.V};
  a->state.layout = l.vk ? StateLayout::kVK : StateLayout::kKV;
  a->conv_initial = in_place ? s.both("conv", l.io, conv) : s.in(l.io, conv);
  a->state.initial = in_place ? s.both("states", l.state, pool, small) : s.in(l.state, pool, small);
  if (!in_place) {
    a->conv_final = s.out("conv", l.io, conv);
    a->state.final = s.out("final", l.state, pool);
  }
  std::vector<int64_t> read, accepted, positions;
  for (int64_t i = 0; i < N * columns; ++i) read.push_back(slots - 1 - i);
  for (int64_t n = 0; n < N; ++n) accepted.push_back(n % (l.T + 1)), positions.push_back(3 + n);
  a->state.read_slots = s.integers(read);
  if (l.speculative && !l.ring) {
    a->state.read_slots = shaped(a->state.read_slots, {N, columns});
    a->state.write_slots = a->state.read_slots;
    a->state_writes = StateWrites::kPerToken;
  }
  if (l.speculative) a->num_accepted = s.integers(accepted);
  if (l.conv_ring) a->conv_state_form = ConvStateForm::kRing;
  if (l.conv_ring) a->ring_position = s.integers(positions);
}

void add_prefill(const Run& run, const Layer& l) {
  run.scene("layer_prefill." + name_of(l), [&](Scene& s) {
    LayerArgs a;
    set_layer(s, l, &a);
    set_pools(s, l, &a, false);
    s.run(SLUICE_OP_LAYER_PREFILL, a, layer_prefill);
  });
}

void add_decode(const Run& run, const Layer& l) {
  run.scene("layer_decode." + name_of(l), [&](Scene& s) {
    LayerArgs a;
    set_layer(s, l, &a);
    set_pools(s, l, &a, true);
    s.run(SLUICE_OP_LAYER_DECODE, a, layer_decode);
  });
}

/// Several calls on one ring, which the convolution states share the position of.
void add_session(const Run& run, const Layer& l) {
  constexpr int64_t kCalls = 9, kEntries = 8;
  run.scene("layer_decode.session." + name_of(l), [&](Scene& s) {
    const int64_t N = l.sequences(), slots = N + 2;
    LayerArgs a;
    set_weights(s, l, &a);
    set_pools(s, l, &a, true);
    a.ring.k = s.both("ring.k", l.io, {slots, kEntries, l.H, l.K}, kZeros);
    a.ring.delta = s.both("ring.delta", kFloat32, {slots, kEntries, l.HV, l.V}, kZeros);
    a.ring.decay = s.both("ring.decay", kFloat32, {slots, kEntries, l.HV}, kZeros);
    std::vector<int64_t> at(static_cast<size_t>(N), 4);
    const TensorView checkpoints[] = {s.cursors("checkpoint.even", at),
                                      s.cursors("checkpoint.odd", at)};
    const TensorView out = s.out("out", l.io, {kCalls, l.B, l.T, l.HV, l.V});
    for (int64_t call = 0; call < kCalls; ++call) {
      set_projections(s, l, &a);
      a.out = entry(out, call);
      a.ring.position = a.ring_position = s.integers(at);
      a.ring.checkpoint = checkpoints[call % 2];
      a.ring.next_checkpoint = checkpoints[(call + 1) % 2];
      s.run(SLUICE_OP_LAYER_DECODE, a, layer_decode);
      for (int64_t& position : at) position += (l.T + 1) / 2;
    }
  });
}

void prefills(const Run& run) {
  for (const DType io : {kBFloat16, kFloat16, kFloat32}) {
    for (const bool interleaved : {false, true}) {
      Layer l{.io = io, .T = 150, .interleaved = interleaved};
      add_prefill(run, l);
      l.K = l.V = 64, l.bias = true, l.W = 3, l.core = true;
      add_prefill(run, l);
      l.B = 1, l.lengths = {70, 1, 0, 129}, l.T = 200, l.state = kBFloat16;
      add_prefill(run, l);
      l.K = 128, l.V = 128, l.W = 4, l.rounding = NormRounding::kHf;
      add_prefill(run, l);
      l.rounding = NormRounding::kInput, l.vk = true, l.core = false, l.W = 2;
      add_prefill(run, l);
      l.lengths = {}, l.K = 96, l.V = 80, l.T = 70;
      add_prefill(run, l);
    }
  }
  Layer model{.B = 1, .T = run.large ? 4096 : 256, .H = 16, .HV = 32};
  add_prefill(run, model);
  model.interleaved = true;
  add_prefill(run, model);
}

void decodes(const Run& run) {
  for (const bool interleaved : {false, true}) {
    for (const DType state : {kFloat32, kBFloat16}) {
      for (const int64_t B : {1, 4, 16, 64}) {
        if (B == 64 && !run.large) continue;
        Layer l{.state = state, .B = B, .H = 16, .HV = 32, .interleaved = interleaved};
        add_decode(run, l);
      }
      Layer l{.state = state, .B = 3, .T = 4, .H = 16, .HV = 32, .interleaved = interleaved};
      add_decode(run, l);
      l.speculative = true;
      add_decode(run, l);
    }
    for (const DType io : {kBFloat16, kFloat16, kFloat32}) {
      Layer l{.io = io, .interleaved = interleaved};
      for (const int64_t T : {1, 3, 16}) {
        l.T = T;
        add_decode(run, l);
      }
      l = {.io = io, .B = 1, .T = 6, .lengths = {1, 3, 0, 2}, .interleaved = interleaved};
      l.core = true;
      add_decode(run, l);
      l = {
          .io = io, .K = 64, .V = 96, .W = 3, .interleaved = interleaved, .vk = true, .bias = true};
      add_decode(run, l);
      l.conv_ring = true, l.rounding = NormRounding::kHf, l.T = 2;
      add_decode(run, l);
      for (const int64_t T : {1, 2, 4}) {
        Layer session{
            .io = io, .T = T, .interleaved = interleaved, .conv_ring = true, .ring = true};
        add_session(run, session);
      }
    }
    for (const int64_t B : {1, 4, 16}) {
      Layer session{.B = B, .H = 16, .HV = 32, .interleaved = interleaved};
      session.conv_ring = session.ring = true;
      add_session(run, session);
    }
  }
}

}  // namespace

void layer_cases(const Run& run) {
  prefills(run);
  decodes(run);
}

}  // namespace sluice::checksums
