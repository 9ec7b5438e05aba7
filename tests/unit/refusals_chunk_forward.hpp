// Makes a valid chunk_forward call for its refusal tests, and ways to vary it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_UNIT_REFUSALS_CHUNK_FORWARD_HPP_
#define SLUICE_TESTS_UNIT_REFUSALS_CHUNK_FORWARD_HPP_

#include "refusals_scene.hpp"

namespace sluice::check {

using Args = sluice_chunk_forward_args;
using ChunkScene = Scene<Args>;
using Row = Refusal<Args>;

inline constexpr sluice_op kOp = SLUICE_OP_CHUNK_FORWARD;
inline constexpr int64_t kB = 2, kT = 3, kH = 2, kHV = 4, kK = 4, kV = 5;

/// Two sequences of three tokens with states in a pool of 6 slots.
inline ChunkScene valid_scene() {
  ChunkScene s;
  Memory& m = *s.memory;
  s.args.struct_size = sizeof s.args;
  s.args.q = m.tensor(kFloat32, {kB, kT, kH, kK});
  s.args.k = m.tensor(kFloat32, {kB, kT, kH, kK});
  s.args.v = m.tensor(kFloat32, {kB, kT, kHV, kV});
  s.args.gate = m.tensor(kFloat32, {kB, kT, kHV});
  s.args.beta = m.tensor(kFloat32, {kB, kT, kHV});
  s.args.o = m.tensor(kFloat32, {kB, kT, kHV, kV});
  s.args.state.initial = m.tensor(kFloat32, {6, kHV, kK, kV});
  s.args.state.final = m.tensor(kFloat32, {6, kHV, kK, kV});
  s.args.state.read_slots = m.indices({3, 1});
  s.args.implementation = SLUICE_IMPL_REFERENCE;
  s.workspace = {m.take(16384), 16384};
  return s;
}

/// The two sequences packed, in one batch entry.
inline void pack(ChunkScene& s, std::initializer_list<int64_t> offsets,
                 sluice_dtype dtype = kInt32) {
  for (sluice_tensor* t :
       {&s.args.q, &s.args.k, &s.args.v, &s.args.gate, &s.args.beta, &s.args.o}) {
    t->shape[0] = 1;
    t->shape[1] = kB * kT;
  }
  s.args.cu_seqlens = s.memory->indices(offsets, dtype);
}

inline void give_checkpoints(ChunkScene& s) {
  s.args.checkpoints = s.memory->tensor(kFloat32, {4, kHV, kK, kV});
  s.args.checkpoint_slots = s.memory->table(2, 2, {0, 1, 2, 3});
  s.args.checkpoint_every = 64;
}

inline void make_gate_raw(ChunkScene& s) {
  s.args.options.gate_space = SLUICE_GATE_RAW;
  s.args.A_log = s.memory->tensor(kFloat32, {kHV});
  s.args.dt_bias = s.memory->tensor(kFloat32, {kHV});
}

inline void make_key_gate_raw(ChunkScene& s) {
  make_gate_raw(s);
  s.args.gate = s.memory->tensor(kFloat32, {kB, kT, kHV, kK});
  s.args.dt_bias = s.memory->tensor(kFloat32, {kHV, kK});
}

/// Every view on the first CUDA device.
inline void move_to_cuda(ChunkScene& s) {
  for (sluice_tensor* t : {&s.args.q, &s.args.k, &s.args.v, &s.args.gate, &s.args.beta, &s.args.o,
                           &s.args.state.initial, &s.args.state.final, &s.args.state.read_slots}) {
    t->device = {SLUICE_DEVICE_CUDA, 0};
  }
}

}  // namespace sluice::check

#endif  // SLUICE_TESTS_UNIT_REFUSALS_CHUNK_FORWARD_HPP_
