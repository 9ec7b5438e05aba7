// Lists the cases of recurrent_step: one token and several, speculation, and sessions on a replay
// buffer.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "delta.hpp"

namespace sluice::checksums {
namespace {

struct Step {
  Delta delta;
  States states = {.final = false, .in_place = true};
  StateWrites writes = StateWrites::kLast;
  bool speculative = false;
};

/// One column of slots for each token: rows n, columns t.
TensorView slot_columns(Scene& s, int64_t N, int64_t W, int64_t first) {
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < N * W; ++i) slots.push_back(first + N * W - 1 - i);
  return shaped(s.integers(slots), {N, W});
}

void set_speculation(Scene& s, const Step& step, RecurrentStepArgs* a) {
  const Delta& d = step.delta;
  const int64_t N = d.sequences(), W = d.T;
  const bool vk = step.states.layout == StateLayout::kVK;
  a->state.layout = step.states.layout;
  a->state.initial = s.both("states", step.states.dtype,
                            {N * W + 1, d.HV, vk ? d.V : d.K, vk ? d.K : d.V}, {-128, 127, -9});
  a->state.read_slots = a->state.write_slots = slot_columns(s, N, W, 1);
  std::vector<int64_t> accepted;
  for (int64_t n = 0; n < N; ++n) accepted.push_back(n % (W + 1));
  a->num_accepted = s.integers(accepted);
  a->state_writes = StateWrites::kPerToken;
}

void add(const Run& run, const Step& step) {
  std::string name = "recurrent_step." + name_of(step.delta) + name_of(step.states);
  if (step.speculative) name += ".speculative";
  if (step.writes == StateWrites::kNone) name += ".unwritten";
  run.scene(name, [&](Scene& s) {
    RecurrentStepArgs a;
    set_inputs(s, step.delta, &a);
    a.o = s.out("o", step.delta.io, {step.delta.B, step.delta.T, step.delta.HV, step.delta.V});
    a.state_writes = step.writes;
    if (step.speculative) {
      set_speculation(s, step, &a);
    } else {
      set_states(s, step.delta, step.states, &a.state);
    }
    for (const int64_t length : step.delta.lengths) a.max_tokens = std::max(a.max_tokens, length);
    s.run(SLUICE_OP_RECURRENT_STEP, a, recurrent_step);
  });
}

Delta model(int64_t B) {
  return {
      .B = B, .T = 1, .H = 16, .HV = 32, .gates = Gates::kRaw, .betas = Betas::kLogit, .l2 = true};
}

void models(const Run& run) {
  for (const DType state : {kFloat32, kBFloat16}) {
    for (const int64_t B : {1, 4, 16, 64, 128}) {
      if (B > 16 && !run.large) continue;
      Step step{.delta = model(B)};
      step.states.dtype = state;
      step.states.slots = true;
      add(run, step);
      step.states.slots = false;
      step.delta.gates = Gates::kLog, step.delta.betas = Betas::kValue;
      add(run, step);
      step.delta.H = step.delta.HV = 8;
      add(run, step);
      step.states.layout = StateLayout::kVK;
      add(run, step);
    }
  }
}

void sizes(const Run& run) {
  const int64_t dims[][2] = {{32, 32},  {64, 64},   {128, 128}, {128, 64},
                             {64, 128}, {256, 256}, {96, 80},   {512, 40}};
  for (const DType io : {kBFloat16, kFloat16, kFloat32}) {
    for (const auto& [K, V] : dims) {
      if (K > 256 && !run.gpu) continue;
      for (const int64_t T : {1, 2, 3, 4, 8, 16}) {
        Step step{.delta = {.io = io, .B = 3, .T = T, .K = K, .V = V}};
        add(run, step);
        if (T == 2 || T == 3) continue;
        step.states.dtype = kBFloat16;
        step.delta.l2 = true;
        add(run, step);
      }
      Step step{.delta = packed({.io = io, .K = K, .V = V}, {1, 3, 0, 2})};
      step.states.slots = true;
      add(run, step);
    }
  }
}

void options(const Run& run, DType io) {
  for (const int64_t T : {1, 4}) {
    const Delta base{.io = io, .B = 4, .T = T};
    const auto with = [&](auto change) {
      Step step{.delta = base};
      change(step);
      add(run, step);
    };
    for (const Gates gates : {Gates::kNone, Gates::kStrong, Gates::kLinear, Gates::kRaw,
                              Gates::kKeyLog, Gates::kKeyLinear}) {
      with([&](Step& x) { x.delta.gates = gates; });
      with([&](Step& x) {
        x.delta.gates = gates, x.delta.linear = true, x.delta.betas = Betas::kNone;
      });
    }
    with([](Step& x) { x.delta.betas = Betas::kNone, x.delta.cyclic = true; });
    with([](Step& x) { x.delta.negative = true, x.delta.scaled = true; });
    with([](Step& x) { x.states.layout = StateLayout::kVK; });
    with([](Step& x) { x.states = {.final = true, .slots = true}; });
    with([](Step& x) { x.states.has_initial = true; });
    with([](Step& x) {
      x.states = {.final = false};
      x.writes = StateWrites::kNone;
    });
    for (const DType state : {kFloat32, kBFloat16}) {
      with([&](Step& x) { x.speculative = true, x.states.dtype = state; });
      with([&](Step& x) {
        x.speculative = true, x.states.layout = StateLayout::kVK, x.states.dtype = state;
      });
    }
  }
}

struct Ring {
  Delta delta;  ///< of one call
  int64_t entries = 8;
  DType state = kFloat32, delta_dtype = kFloat32;
  StateLayout layout = StateLayout::kKV;
  int accepted = 1;  ///< tokens of each call
};

constexpr int64_t kCalls = 7;

void add_ring(const Run& run, const Ring& ring) {
  const Delta& d = ring.delta;
  const std::string name = "ring." + name_of(d) + ".l" + std::to_string(ring.entries) + ".s" +
                           word(ring.state) + ".d" + word(ring.delta_dtype) +
                           (ring.layout == StateLayout::kVK ? ".vk" : "") + ".accept" +
                           std::to_string(ring.accepted);
  run.scene(name, [&](Scene& s) {
    const int64_t N = d.sequences(), slots = N + 2, L = ring.entries;
    const bool vk = ring.layout == StateLayout::kVK;
    RecurrentStepArgs a;
    const TensorView o = s.out("o", d.io, {kCalls, d.B, d.T, d.HV, d.V});
    a.state.layout = ring.layout;
    a.state.initial = s.both("states", ring.state, {slots, d.HV, vk ? d.V : d.K, vk ? d.K : d.V},
                             {-128, 127, -9});
    std::vector<int64_t> slot, at(static_cast<size_t>(N), 5);
    for (int64_t n = 0; n < N; ++n) slot.push_back(n == 1 ? -1 : slots - 1 - n);
    a.state.read_slots = s.integers(slot);
    a.ring.k = s.both("ring.k", d.io, {slots, L, d.H, d.K}, kZeros);
    a.ring.delta = s.both("ring.delta", ring.delta_dtype, {slots, L, d.HV, d.V}, kZeros);
    a.ring.decay = s.both("ring.decay", kFloat32, {slots, L, d.HV}, kZeros);
    const TensorView checkpoints[] = {s.cursors("checkpoint.even", at),
                                      s.cursors("checkpoint.odd", at)};
    for (int64_t call = 0; call < kCalls; ++call) {
      set_inputs(s, d, &a);
      a.o = entry(o, call);
      a.ring.position = s.integers(at);
      a.ring.checkpoint = checkpoints[call % 2];
      a.ring.next_checkpoint = checkpoints[(call + 1) % 2];
      a.ring.fold = call == 4 ? RingFold::kAlways : RingFold::kAuto;
      s.run(SLUICE_OP_RECURRENT_STEP, a, recurrent_step);
      for (int64_t& position : at) position += ring.accepted;
    }
  });
}

}  // namespace

void recurrent_step_cases(const Run& run) {
  models(run);
  sizes(run);
  options(run, kBFloat16);
  options(run, kFloat32);
}

void ring_cases(const Run& run) {
  const int64_t dims[][2] = {{128, 128}, {64, 64}, {96, 80}};
  for (const DType io : {kBFloat16, kFloat32}) {
    for (const auto& [K, V] : dims) {
      for (const int64_t T : {1, 2, 4}) {
        Ring ring{.delta = {.io = io, .B = 3, .T = T, .K = K, .V = V, .l2 = true}};
        ring.accepted = static_cast<int>(T + 1) / 2;
        add_ring(run, ring);
        ring.entries = 16, ring.state = kBFloat16, ring.delta_dtype = kBFloat16;
        ring.delta.gates = Gates::kRaw, ring.delta.betas = Betas::kLogit;
        add_ring(run, ring);
        ring.layout = StateLayout::kVK;
        add_ring(run, ring);
      }
    }
    Ring ring{.delta = {.io = io, .B = 2, .T = 1, .betas = Betas::kNone, .linear = true}};
    add_ring(run, ring);
    for (const int64_t B : {1, 4, 16}) {
      ring.delta = model(B);
      ring.delta.io = io;
      add_ring(run, ring);
      ring.delta.T = 4;
      add_ring(run, ring);
    }
  }
}

}  // namespace sluice::checksums
