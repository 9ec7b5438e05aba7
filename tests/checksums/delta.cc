// Names the delta rule's cases and makes their tensors.
// SPDX-License-Identifier: Apache-2.0
#include "delta.hpp"

namespace sluice::checksums {

std::string name_of(const Delta& d) {
  const char* const gates[] = {".nogate", "", ".strong", ".alpha", ".raw", ".keylog", ".keyalpha"};
  const char* const betas[] = {".nobeta", "", ".logit"};
  std::string name = word(d.io) + ".b" + std::to_string(d.B) + ".t" + std::to_string(d.T) + ".h" +
                     std::to_string(d.H) + "x" + std::to_string(d.HV) + ".k" + std::to_string(d.K) +
                     "x" + std::to_string(d.V);
  if (!d.lengths.empty()) {
    name += ".n" + std::to_string(d.lengths.size());
    name += "_" + std::to_string(d.lengths.front());
  }
  if (d.linear) name += ".linear";
  name += gates[static_cast<int>(d.gates)];
  if (!d.linear) name += betas[static_cast<int>(d.betas)];
  if (d.l2) name += ".l2";
  if (d.negative) name += ".negative";
  if (d.cyclic) name += ".cyclic";
  if (d.scaled) name += ".scale";
  return name;
}

TensorView gates_in(Scene& s, const Delta& d) {
  const Range slow{-64, -1, -8}, strong{-128, -1, -7}, slow_keys{-64, -1, -10};
  const Range alpha{128, 255, -8}, alpha_keys{240, 255, -8}, raw{-128, 127, -6};
  const Shape shape = {d.B, d.T, d.HV}, wide = {d.B, d.T, d.HV, d.K};
  switch (d.gates) {
    case Gates::kNone:
      return {};
    case Gates::kLog:
      return s.in(kFloat32, shape, slow);
    case Gates::kStrong:
      return s.in(kFloat32, shape, strong);
    case Gates::kLinear:
      return s.in(kFloat32, shape, alpha);
    case Gates::kRaw:
      return s.in(d.io, shape, raw);
    case Gates::kKeyLog:
      return s.in(kFloat32, wide, slow_keys);
    case Gates::kKeyLinear:
      return s.in(kFloat32, wide, alpha_keys);
  }
  return {};
}

TensorView betas_in(Scene& s, const Delta& d) {
  const Range value{0, 255, -8}, logit{-128, 127, -5};
  return s.in(d.io, {d.B, d.T, d.HV}, d.betas == Betas::kLogit ? logit : value);
}

std::string name_of(const States& states) {
  std::string name = ".s" + word(states.dtype);
  if (!states.initial) name += "_fresh";
  if (!states.final) name += states.in_place ? "_inplace" : "_unkept";
  if (states.layout == StateLayout::kVK) name += "_vk";
  if (states.slots) name += "_slots";
  if (states.has_initial) name += "_some";
  return name;
}

void set_states(Scene& s, const Delta& d, const States& states, StateIo* io) {
  const int64_t N = d.sequences(), slots = states.slots ? N + 3 : N;
  const bool vk = states.layout == StateLayout::kVK;
  const Shape pool = {slots, d.HV, vk ? d.V : d.K, vk ? d.K : d.V};
  const Range small{-128, 127, -9};
  io->layout = states.layout;
  if (states.in_place) {
    io->initial = s.both("states", states.dtype, pool, small);
  } else if (states.initial) {
    io->initial = s.in(states.dtype, pool, small);
  }
  if (states.final) io->final = s.out("final", states.dtype, pool);
  if (states.slots) {
    std::vector<int64_t> read, write;
    for (int64_t n = 0; n < N; ++n) {
      read.push_back(N + 1 - n);
      write.push_back(n == N - 1 && N > 1 ? -1 : N + 1 - n);
    }
    io->read_slots = s.integers(read);
    io->write_slots = s.integers(write, kInt64);
  }
  if (states.has_initial) {
    std::vector<uint8_t> some;
    for (int64_t n = 0; n < N; ++n) some.push_back(n % 2 == 0);
    io->has_initial_state = s.flags(some);
  }
}

}  // namespace sluice::checksums
