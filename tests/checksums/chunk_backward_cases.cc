// Lists the cases of chunk_backward: gradients by every input.
// SPDX-License-Identifier: Apache-2.0
#include "delta.hpp"

namespace sluice::checksums {
namespace {

struct Backward {
  Delta delta;
  DType gradient = kFloat32, state = kFloat32;
  bool states = true, vk = false;
};

void set_gradients(Scene& s, const Backward& b, ChunkBackwardArgs* a) {
  const Delta& d = b.delta;
  const Shape keys = {d.B, d.T, d.H, d.K}, values = {d.B, d.T, d.HV, d.V}, rows = {d.B, d.T, d.HV};
  a->d_o = s.in(d.io, values);
  a->dq = s.out("dq", b.gradient, keys);
  a->dk = s.out("dk", b.gradient, keys);
  a->dv = s.out("dv", b.gradient, values);
  if (a->gate.present()) a->dgate = s.out("dgate", kFloat32, rows);
  if (a->beta.present()) a->dbeta = s.out("dbeta", b.gradient, rows);
  if (d.gates == Gates::kRaw) {
    a->dA_log = s.out("dA_log", kFloat32, {d.HV});
    a->ddt_bias = s.out("ddt_bias", kFloat32, {d.HV});
  }
}

void set_states(Scene& s, const Backward& b, ChunkBackwardArgs* a) {
  const Delta& d = b.delta;
  const Shape states = {d.sequences(), d.HV, b.vk ? d.V : d.K, b.vk ? d.K : d.V};
  a->initial = s.in(b.state, states, {-128, 127, -9});
  a->d_final = s.in(b.state, states, {-128, 127, -9});
  a->dinitial = s.out("dinitial", b.state, states);
  a->state_layout = b.vk ? StateLayout::kVK : StateLayout::kKV;
}

void add(const Run& run, const Backward& b) {
  std::string name = "chunk_backward." + name_of(b.delta) + ".d" + word(b.gradient);
  name += b.states ? ".s" + word(b.state) : ".fresh";
  if (b.vk) name += ".vk";
  run.scene(name, [&](Scene& s) {
    ChunkBackwardArgs a;
    set_inputs(s, b.delta, &a);
    set_gradients(s, b, &a);
    if (b.states) set_states(s, b, &a);
    s.run(SLUICE_OP_CHUNK_BACKWARD, a, chunk_backward);
  });
}

void add_both(const Run& run, Backward b) {
  b.delta.B = 2, b.delta.T = 150;
  add(run, b);
  b.delta = packed(b.delta, {70, 1, 0, 129});
  add(run, b);
}

}  // namespace

void chunk_backward_cases(const Run& run) {
  const int64_t dims[][2] = {{64, 64}, {128, 128}, {64, 128}, {128, 256}, {96, 80}};
  for (const DType io : {kBFloat16, kFloat16, kFloat32}) {
    for (const auto& [K, V] : dims) {
      const Delta base{.io = io, .K = K, .V = V};
      add_both(run, {.delta = base, .gradient = io});
      add_both(run, {.delta = base, .states = false});
      Delta linear = base;
      linear.linear = true, linear.betas = Betas::kNone;
      add_both(run, {.delta = linear, .gradient = io, .vk = true});
    }
    for (const Gates gates : {Gates::kNone, Gates::kStrong, Gates::kLinear, Gates::kRaw}) {
      add_both(run, {.delta = {.io = io, .gates = gates}, .gradient = io});
    }
    const Delta model{.io = io, .gates = Gates::kRaw, .betas = Betas::kLogit, .l2 = true};
    add_both(run, {.delta = model, .gradient = io, .state = kBFloat16});
    Delta other = model;
    other.negative = other.cyclic = other.scaled = true;
    add_both(run, {.delta = other, .vk = true});
    add_both(run, {.delta = {.io = io, .H = 4, .HV = 4, .betas = Betas::kNone}});
  }
  Delta model{.T = run.large ? 4096 : 128, .H = 16, .HV = 32, .gates = Gates::kRaw};
  model.betas = Betas::kLogit, model.l2 = true;
  add(run, {.delta = model, .gradient = kBFloat16});
  model.T = run.large ? 8192 : 128, model.H = 2, model.HV = 4;
  add(run, {.delta = model, .gradient = kBFloat16});
}

}  // namespace sluice::checksums
