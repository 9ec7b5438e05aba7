// Lists the cases of chunk_forward: every instance of the prefill kernels, their options, and the
// ways to spread sequences over a GPU.
// SPDX-License-Identifier: Apache-2.0
#include "delta.hpp"

namespace sluice::checksums {
namespace {

const std::vector<int64_t> kPack = {70, 1, 0, 129};

struct Way {
  const char* name;
  Split split = Split::kAuto;
  int32_t value = 0;
  History history = History::kAuto;
};

struct Prefill {
  Delta delta;
  States states = {};
  int64_t checkpoints = 0;  ///< every so many tokens
  Way way = {""};
  int64_t max_tokens = 0;
};

void set_checkpoints(Scene& s, const Prefill& p, ChunkForwardArgs* a) {
  const Delta& d = p.delta;
  const bool vk = p.states.layout == StateLayout::kVK;
  const int64_t N = d.sequences(), M = d.T / p.checkpoints + 1;
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < N * M; ++i) slots.push_back(i % 5 == 4 ? -1 : N * M - 1 - i);
  a->checkpoints =
      s.out("checkpoints", p.states.dtype, {N * M, d.HV, vk ? d.V : d.K, vk ? d.K : d.V});
  a->checkpoint_slots = shaped(s.integers(slots), {N, M});
  a->checkpoint_every = p.checkpoints;
}

void add(const Run& run, const Prefill& p) {
  std::string name = "chunk_forward." + name_of(p.delta) + name_of(p.states);
  if (p.checkpoints > 0) name += ".every" + std::to_string(p.checkpoints);
  name += p.way.name;
  if (p.max_tokens > 0) name += ".max" + std::to_string(p.max_tokens);
  run.scene(name, [&](Scene& s) {
    ChunkForwardArgs a;
    set_inputs(s, p.delta, &a);
    a.o = s.out("o", p.delta.io, {p.delta.B, p.delta.T, p.delta.HV, p.delta.V});
    set_states(s, p.delta, p.states, &a.state);
    if (p.checkpoints > 0) set_checkpoints(s, p, &a);
    a.split = p.way.split;
    a.split_value = p.way.value;
    a.history = p.way.history;
    a.max_tokens = p.max_tokens;
    s.run(SLUICE_OP_CHUNK_FORWARD, a, chunk_forward);
  });
}

/// Each case on dense rows and packed.
void add_both(const Run& run, Prefill p) {
  p.delta.B = 2;
  p.delta.T = 150;
  add(run, p);
  p.delta = packed(p.delta, kPack);
  add(run, p);
}

void sizes(const Run& run) {
  const int64_t dims[][2] = {{32, 32},   {64, 64},   {64, 128},  {64, 256}, {128, 64}, {128, 128},
                             {128, 256}, {256, 128}, {256, 256}, {96, 80},  {512, 64}};
  for (const DType io : {kBFloat16, kFloat16, kFloat32}) {
    for (const auto& [K, V] : dims) {
      if (K > 256 && !run.gpu) continue;
      Delta d{.io = io, .K = K, .V = V};
      add_both(run, {.delta = d});
    }
    add_both(run, {.delta = {.io = io, .H = 4, .HV = 4}});
    add(run, {.delta = {.io = io, .T = 300, .H = 16, .HV = 32}});
  }
}

void options_of(const Run& run, const Delta& base) {
  const auto with = [&](auto change, const States& states = {}) {
    Delta d = base;
    change(d);
    add_both(run, {.delta = d, .states = states});
  };
  for (const Gates gates : {Gates::kNone, Gates::kStrong, Gates::kLinear, Gates::kRaw}) {
    with([&](Delta& d) { d.gates = gates; });
  }
  with([](Delta& d) { d.betas = Betas::kNone; });
  with([](Delta& d) { d.betas = Betas::kLogit, d.negative = true; });
  with([](Delta& d) { d.l2 = true, d.gates = Gates::kRaw, d.betas = Betas::kLogit; });
  with([](Delta& d) { d.cyclic = true, d.scaled = true; });
  const auto keep = [](Delta&) {};
  with(keep, {.initial = false, .final = false});
  with(keep, {.initial = false});
  with(keep, {.dtype = kBFloat16});
  with(keep, {.dtype = base.io, .layout = StateLayout::kVK});
  with(keep, {.slots = true});
  with(keep, {.has_initial = true, .slots = true, .layout = StateLayout::kVK});
  for (const int64_t every : {64, 128}) {
    add_both(run, {.delta = base, .checkpoints = every});
    add_both(run, {.delta = base,
                   .states = {.dtype = kBFloat16, .layout = StateLayout::kVK},
                   .checkpoints = every});
  }
}

void key_wise(const Run& run) {
  for (const DType io : {kBFloat16, kFloat32}) {
    for (const bool linear : {false, true}) {
      for (const Gates gates : {Gates::kKeyLog, Gates::kKeyLinear}) {
        Delta d{.io = io, .H = 4, .HV = 4, .gates = gates, .linear = linear};
        if (linear) d.betas = Betas::kNone;
        add_both(run, {.delta = d});
        d.K = 64, d.V = 96;
        add_both(
            run,
            {.delta = d, .states = {.slots = true, .layout = StateLayout::kVK}, .checkpoints = 64});
      }
    }
  }
}

const Way kWays[] = {{".never", Split::kNever},
                     {".columns", Split::kColumns},
                     {".segments2", Split::kSegments, 2},
                     {".segments5", Split::kSegments, 5},
                     {".length", Split::kLength},
                     {".length128", Split::kLength, 128},
                     {".segments4.strict", Split::kSegments, 4, History::kStrict},
                     {".segments4.forget", Split::kSegments, 4, History::kForget},
                     {".auto", Split::kAuto}};

void ways(const Run& run) {
  const int64_t dims[][2] = {{64, 64}, {64, 128}, {128, 64}, {128, 128}, {128, 256}};
  for (const DType io : {kBFloat16, kFloat16}) {
    for (const auto& [K, V] : dims) {
      for (const Way& way : kWays) {
        Delta d{.io = io, .T = 1000, .K = K, .V = V};
        if (way.history == History::kForget) d.gates = Gates::kStrong;
        add(run, {.delta = d, .checkpoints = 256, .way = way});
        d = packed(d, {600, 20, 0, 380});
        add(run, {.delta = d, .states = {.slots = true}, .way = way});
      }
    }
  }
}

/// Sequences that AUTO cuts on a GPU; shorter ones on a CPU, which cuts nothing.
void long_sequences(const Run& run) {
  const int64_t part = run.large ? 1 : 16;
  for (const DType io : {kBFloat16, kFloat16}) {
    Delta d{.io = io, .gates = Gates::kRaw, .betas = Betas::kLogit, .l2 = true};
    d.T = 8192 / part;
    add(run, {.delta = d});
    add(run, {.delta = d, .way = {".strict", Split::kAuto, 0, History::kStrict}});
    add(run, {.delta = packed(d, {6000 / part, 1000 / part, 0, 3000 / part})});
    add(run, {.delta = packed(d, {4096 / part, 4096 / part}), .max_tokens = 4096 / part});
    add(run, {.delta = packed(d, {5000 / part, 100 / part}), .max_tokens = 5000 / part});
    d.gates = Gates::kLog;
    d.H = 16, d.HV = 32, d.T = 4096 / part;
    add(run, {.delta = d, .checkpoints = 512});
    d.H = 4, d.HV = 4, d.T = 16384 / part;
    add(run, {.delta = d, .states = {.dtype = kBFloat16, .layout = StateLayout::kVK}});
  }
}

}  // namespace

void chunk_forward_cases(const Run& run) {
  sizes(run);
  options_of(run, {});
  options_of(run, {.io = kFloat16, .K = 64, .V = 64});
  options_of(run, {.io = kFloat32, .K = 64, .V = 128});
  options_of(run, {.K = 80, .V = 96});
  key_wise(run);
  if (run.gpu) ways(run);
  long_sequences(run);
}

void linear_cases(const Run& run) {
  const int64_t dims[][2] = {{64, 64}, {128, 128}, {128, 256}, {64, 320}, {96, 80}};
  const int64_t part = run.large ? 1 : 16;
  for (const DType io : {kBFloat16, kFloat16, kFloat32}) {
    for (const auto& [K, V] : dims) {
      if (V > 256 && !run.gpu) continue;
      Delta d{.io = io, .H = 4, .HV = 4, .K = K, .V = V, .betas = Betas::kNone, .linear = true};
      for (const Gates gates : {Gates::kNone, Gates::kLog}) {
        d.gates = gates;
        add_both(run, {.delta = d});
        add_both(run, {.delta = d, .states = {.initial = false, .final = false}});
      }
    }
  }
  for (const DType io : {kBFloat16, kFloat16}) {
    Delta d{.io = io, .H = 16, .HV = 16, .betas = Betas::kNone, .linear = true};
    for (const int64_t T : {512, 1024, 2048, 4096, 8192, 32768}) {
      d.T = T / part;
      add(run, {.delta = d});
      add(run, {.delta = d, .states = {.initial = false, .final = false}});
    }
    d.T = 1000;
    add(run,
        {.delta = d, .states = {.slots = true, .layout = StateLayout::kVK}, .checkpoints = 64});
    add(run, {.delta = packed(d, {600, 20, 0, 380})});
    if (!run.gpu || !run.pass.empty()) continue;
    for (const Way& way : kWays) add(run, {.delta = d, .way = way});
  }
}

}  // namespace sluice::checksums
