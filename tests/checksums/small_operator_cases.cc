// Lists the cases of causal_conv1d and gated_rms_norm.
// SPDX-License-Identifier: Apache-2.0
#include "scene.hpp"

namespace sluice::checksums {
namespace {

struct Conv {
  DType io = kBFloat16;
  int64_t B = 2, T = 100, D = 256, W = 4;
  std::vector<int64_t> lengths = {};
  bool silu = true, bias = false, channel_first = false, states = true, in_place = false;
  bool ring = false, speculative = false;
};

std::string name_of(const Conv& c) {
  std::string name = word(c.io) + ".b" + std::to_string(c.B) + ".t" + std::to_string(c.T) + ".d" +
                     std::to_string(c.D) + ".w" + std::to_string(c.W);
  if (!c.lengths.empty()) name += ".n" + std::to_string(c.lengths.size());
  if (!c.silu) name += ".plain";
  if (c.bias) name += ".bias";
  if (c.channel_first) name += ".channelfirst";
  if (!c.states) name += ".fresh";
  if (c.in_place) name += ".inplace";
  if (c.ring) name += ".ring";
  if (c.speculative) name += ".speculative";
  return name;
}

void set_states(Scene& s, const Conv& c, ConvStateIo* io) {
  const int64_t N = c.lengths.empty() ? c.B : static_cast<int64_t>(c.lengths.size());
  const int64_t columns = c.W - 1 + (c.ring ? c.T : c.speculative ? c.T - 1 : 0);
  const Shape pool = {N + 2, c.D, columns};
  io->initial = c.in_place ? s.both("states", c.io, pool) : s.in(c.io, pool);
  io->final = c.in_place ? io->initial : s.out("final", c.io, pool);
  std::vector<int64_t> slots, accepted, positions;
  for (int64_t n = 0; n < N; ++n) {
    slots.push_back(n == 1 ? -1 : N + 1 - n);
    accepted.push_back(n % (c.T + 1));
    positions.push_back(3 + n);
  }
  io->read_slots = s.integers(slots);
  if (c.speculative) io->num_accepted = s.integers(accepted);
  if (c.ring) io->form = ConvStateForm::kRing;
  if (c.ring) io->ring_position = s.integers(positions);
}

void add(const Run& run, const Conv& c) {
  run.scene("causal_conv1d." + name_of(c), [&](Scene& s) {
    CausalConv1dArgs a;
    const Shape shape = c.channel_first ? Shape{c.B, c.D, c.T} : Shape{c.B, c.T, c.D};
    a.x = s.in(c.io, shape);
    a.out = s.out("out", c.io, shape);
    if (c.channel_first) a.x = a.x.transposed(1, 2), a.out = a.out.transposed(1, 2);
    a.weight = s.in(c.io, {c.D, c.W});
    if (c.bias) a.bias = s.in(c.io, {c.D});
    if (!c.lengths.empty()) a.cu_seqlens = s.integers(offsets(c.lengths));
    if (c.states) set_states(s, c, &a.state);
    a.activation = c.silu ? Activation::kSilu : Activation::kNone;
    s.run(SLUICE_OP_CAUSAL_CONV1D, a, causal_conv1d);
  });
}

void convolutions(const Run& run) {
  for (const DType io : {kBFloat16, kFloat16, kFloat32}) {
    for (const int64_t W : {2, 3, 4}) {
      for (const bool silu : {false, true}) {
        add(run, {.io = io, .W = W, .silu = silu, .bias = silu});
        add(run, {.io = io, .B = 1, .T = 200, .W = W, .lengths = {70, 1, 0, 129}, .silu = silu});
      }
      add(run, {.io = io, .D = 100, .W = W, .states = false});
      add(run, {.io = io, .T = 64, .W = W, .channel_first = true});
      add(run, {.io = io, .T = 61, .D = 37, .W = W, .bias = true, .channel_first = true});
      for (const int64_t T : {1, 4}) {
        add(run, {.io = io, .B = 16, .T = T, .D = 1024, .W = W, .in_place = true});
        add(run, {.io = io, .B = 5, .T = T, .W = W, .in_place = true, .ring = true});
        add(run, {.io = io, .B = 5, .T = T, .W = W, .in_place = true, .speculative = true});
      }
    }
    add(run, {.io = io, .B = 1, .T = run.large ? 4096 : 512, .D = 2048});
  }
}

struct Norm {
  DType io = kBFloat16, weight = kFloat32;
  Shape shape = {2, 50, 4, 128};
  bool sigmoid = false, hf = false, in_place = false;
};

void add(const Run& run, const Norm& n) {
  std::string name = "gated_rms_norm." + word(n.io) + ".w" + word(n.weight);
  for (const int64_t size : n.shape) name += "." + std::to_string(size);
  name += n.sigmoid ? ".sigmoid" : "";
  name += n.hf ? ".hf" : "";
  name += n.in_place ? ".inplace" : "";
  run.scene(name, [&](Scene& s) {
    GatedRmsNormArgs a;
    a.x = n.in_place ? s.both("x", n.io, n.shape) : s.in(n.io, n.shape);
    a.z = s.in(n.io, n.shape, {-128, 127, -5});
    a.weight = s.in(n.weight, {n.shape.back()}, {64, 255, -7});
    a.out = n.in_place ? a.x : s.out("out", n.io, n.shape);
    a.activation = n.sigmoid ? Activation::kSigmoid : Activation::kSilu;
    a.rounding = n.hf ? NormRounding::kHf : NormRounding::kOnce;
    s.run(SLUICE_OP_GATED_RMS_NORM, a, gated_rms_norm);
  });
}

void norms(const Run& run) {
  for (const DType io : {kBFloat16, kFloat16, kFloat32}) {
    for (const int64_t V : {64, 128, 256, 100, 1024}) {
      add(run, Norm{.io = io, .shape = {2, 25, 4, V}});
      add(run, Norm{.io = io, .weight = io, .shape = {60, V}, .sigmoid = true, .hf = true});
      add(run, Norm{.io = io, .weight = io, .shape = {3, 7, V}, .in_place = true});
    }
    add(run, Norm{.io = io, .shape = {run.large ? 8192 : 256, 32, 128}});
    add(run, Norm{.io = io, .shape = {4, 1, 32, 128}, .hf = true});
  }
}

}  // namespace

void small_operator_cases(const Run& run) {
  convolutions(run);
  norms(run);
}

}  // namespace sluice::checksums
