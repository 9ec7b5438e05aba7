// Lists the cases of chunk_stage: each stage alone, on tensors of its own, and simple GLA as one
// call.
// SPDX-License-Identifier: Apache-2.0
#include "delta.hpp"

namespace sluice::checksums {
namespace {

struct Chain {
  Delta delta;
  int32_t C = 64;
  States states = {};
  DType h = kBFloat16;
};

constexpr const char* kNames[] = {"chunk_cumsum", "scaled_dot_kkt", "solve_tril", "wy_fast",
                                  "chunk_h",      "chunk_o",        "cumsum_kkt", "solve_wy"};

int64_t chunks_of(const Chain& c) {
  if (c.delta.lengths.empty()) return (c.delta.T + c.C - 1) / c.C;
  int64_t chunks = 0;
  for (const int64_t length : c.delta.lengths) chunks += (length + c.C - 1) / c.C;
  return chunks;
}

/// A tensor that the stage writes, or that another one has written.
TensorView stage_tensor(Scene& s, bool written, const char* name, DType dtype, const Shape& shape,
                        Range range) {
  return written ? s.out(name, dtype, shape) : s.in(dtype, shape, range);
}

void set_tensors(Scene& s, const Chain& c, Stage stage, ChunkStageArgs* a) {
  const Delta& d = c.delta;
  const bool sums = stage == Stage::kChunkCumsum || stage == Stage::kCumsumKkt;
  const bool kkt = stage == Stage::kScaledDotKkt || stage == Stage::kCumsumKkt;
  const bool wy = stage == Stage::kWyFast || stage == Stage::kSolveWy;
  const bool vk = c.states.layout == StateLayout::kVK;
  const Shape rows = {d.B, d.T, d.HV};
  const Shape square = {d.B, d.T, d.HV, c.C};
  const Shape keys = {d.B, d.T, d.HV, d.K}, values = {d.B, d.T, d.HV, d.V};
  const Shape h = {d.B, chunks_of(c), d.HV, vk ? d.V : d.K, vk ? d.K : d.V};
  if (sums) a->gate = gates_in(s, d);
  if (sums || d.gates != Gates::kNone) {
    a->g_cumsum =
        stage_tensor(s, sums, "g_cumsum", kFloat32, d.key_wise() ? keys : rows, {-128, -1, -6});
  }
  if (kkt || stage == Stage::kSolveTril || stage == Stage::kSolveWy) {
    a->A = stage_tensor(s, kkt, "A", kFloat32, square, {-128, 127, -10});
  }
  if (stage == Stage::kSolveTril || stage == Stage::kWyFast) {
    a->A_inverse =
        stage_tensor(s, stage == Stage::kSolveTril, "A_inverse", d.io, square, {-128, 127, -9});
  }
  if (wy || stage == Stage::kChunkH) {
    a->w = stage_tensor(s, wy, "w", d.io, keys, {-128, 127, -9});
    a->u = stage_tensor(s, wy, "u", d.io, values, kUnit);
  }
  if (stage == Stage::kChunkH || stage == Stage::kChunkO) {
    const bool written = stage == Stage::kChunkH;
    a->h = stage_tensor(s, written, "h", c.h, h, {-128, 127, -9});
    if (!d.linear) a->v_new = stage_tensor(s, written, "v_new", d.io, values, kUnit);
  }
  if (stage == Stage::kChunkH) set_states(s, d, c.states, &a->state);
  a->state.layout = c.states.layout;
  if (stage == Stage::kChunkO) a->o = s.out("o", d.io, values);
}

void add_stage(const Run& run, const Chain& c, Stage stage) {
  const Delta& d = c.delta;
  std::string name = std::string("stage.") + kNames[static_cast<int>(stage)] + "." + name_of(d) +
                     ".c" + std::to_string(c.C);
  if (stage == Stage::kChunkH || stage == Stage::kChunkO) {
    name += ".h" + word(c.h) + name_of(c.states);
  }
  run.scene(name, [&](Scene& s) {
    ChunkStageArgs a;
    a.q = s.in(d.io, {d.B, d.T, d.H, d.K}, d.keys());
    a.k = s.in(d.io, {d.B, d.T, d.H, d.K}, d.keys());
    a.v = s.in(d.io, {d.B, d.T, d.HV, d.V});
    a.beta = betas_in(s, d);
    if (!d.lengths.empty()) a.cu_seqlens = s.integers(offsets(d.lengths));
    a.chunk_size = c.C;
    a.rule = d.linear ? Rule::kLinearAttention : Rule::kGatedDelta;
    a.head_map = d.cyclic ? HeadMap::kCyclic : HeadMap::kBlock;
    if (d.scaled) a.scale = 0.75;
    set_tensors(s, c, stage, &a);
    s.run(SLUICE_OP_CHUNK_STAGE, stage_args(a, stage), chunk_stage);
  });
}

void add_chain(const Run& run, Chain c) {
  for (int stage = 0; stage < 8; ++stage) add_stage(run, c, static_cast<Stage>(stage));
  c.delta = packed(c.delta, {70, 1, 0, 129});
  for (int stage = 0; stage < 8; ++stage) add_stage(run, c, static_cast<Stage>(stage));
}

/// What only these stages know: simple GLA from given states, key-wise gates, sums backwards.
void special(const Run& run, DType io) {
  for (const int32_t C : {64, 128}) {
    Chain c{.delta = {.io = io, .H = 4, .HV = 4, .linear = true}, .C = C, .h = io};
    add_stage(run, c, Stage::kChunkH);
    add_stage(run, c, Stage::kChunkO);
    c.h = kFloat32, c.states.layout = StateLayout::kVK;
    add_stage(run, c, Stage::kChunkH);
    add_stage(run, c, Stage::kChunkO);
    c = {.delta = {.io = io, .gates = Gates::kKeyLog}, .C = C, .h = io};
    for (const Stage stage : {Stage::kChunkCumsum, Stage::kChunkH}) add_stage(run, c, stage);
    c.delta = packed(c.delta, {70, 1, 0, 129});
    for (const Stage stage : {Stage::kChunkCumsum, Stage::kChunkH}) add_stage(run, c, stage);
  }
}

void add_simple_gla(const Run& run, const Chain& c) {
  const Delta& d = c.delta;
  run.scene("simple_gla." + name_of(d) + ".c" + std::to_string(c.C) + name_of(c.states),
            [&](Scene& s) {
              ChunkStageArgs a;
              a.q = s.in(d.io, {d.B, d.T, d.H, d.K}, d.keys());
              a.k = s.in(d.io, {d.B, d.T, d.H, d.K}, d.keys());
              a.v = s.in(d.io, {d.B, d.T, d.HV, d.V});
              if (!d.lengths.empty()) a.cu_seqlens = s.integers(offsets(d.lengths));
              if (d.gates != Gates::kNone) a.gate = gates_in(s, d);
              a.o = s.out("o", d.io, {d.B, d.T, d.HV, d.V});
              a.chunk_size = c.C;
              set_states(s, d, c.states, &a.state);
              s.run(SLUICE_OP_CHUNK_STAGE, simple_gla_args(a), simple_gla);
            });
}

}  // namespace

void simple_gla_cases(const Run& run) {
  const int64_t part = run.large ? 1 : 16;
  for (const DType io : {kBFloat16, kFloat16, kFloat32}) {
    for (const int64_t T : {200, 1024, 4096}) {
      Chain c{.delta = {.io = io, .T = T < 1000 ? T : T / part, .H = 16, .HV = 16}};
      c.delta.linear = true;
      add_simple_gla(run, c);
      c.states = {.initial = false, .final = false};
      add_simple_gla(run, c);
      if (io.bits == 32) break;
    }
    Chain c{.delta = packed({.io = io, .H = 4, .HV = 4, .linear = true}, {70, 1, 0, 129})};
    c.C = 128, c.states = {.slots = true};
    add_simple_gla(run, c);
  }
}

void stage_cases(const Run& run) {
  for (const DType io : {kBFloat16, kFloat16, kFloat32}) {
    for (const int32_t C : {64, 128}) {
      add_chain(run, {.delta = {.io = io}, .C = C, .h = io});
      add_chain(run, {.delta = {.io = io, .H = 4, .HV = 4, .K = 64, .V = 64}, .C = C, .h = io});
    }
    add_chain(run, {.delta = {.io = io, .V = 256, .gates = Gates::kStrong}, .h = kFloat32});
    add_chain(run, {.delta = {.io = io, .K = 96, .V = 80, .scaled = true}, .C = 32, .h = kFloat32});
    add_chain(run, {.delta = {.io = io, .K = 64, .cyclic = true}, .C = 16, .h = io});
    special(run, io);
  }
  Chain model{.delta = {.T = run.large ? 4096 : 256, .H = 16, .HV = 32}};
  for (int stage = 0; stage < 8; ++stage) add_stage(run, model, static_cast<Stage>(stage));
  model.delta.io = model.h = kFloat16;
  model.states.layout = StateLayout::kVK;
  for (int stage = 0; stage < 8; ++stage) add_stage(run, model, static_cast<Stage>(stage));
  simple_gla_cases(run);
}

}  // namespace sluice::checksums
